//! What is raised, and how: in the model of this process, through a server's control socket, or by
//! whoever reads what is printed.

use super::Bed;
use crate::cli::Bench;
use crate::failure::Failure;
use anyhow::anyhow;
use clap::ValueEnum;
use ringside_bus::Refusal;
use ringside_model::function::ResetKind;
use ringside_model::{Fault, Threaded};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// What goes wrong.
#[derive(ValueEnum, Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Somebody else resets the function
    FunctionReset,
    /// Somebody else resets the LAN engine
    CoreReset,
    /// The firmware answers no command
    FirmwareStall,
    /// The RDMA engine stands still
    EngineStall,
    /// The host memory cache reports an error
    HmcError,
    /// The host refuses the card's accesses to memory
    DmaRefused,
    /// The link goes down for a while
    LinkFlap,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] = [
        Self::FunctionReset,
        Self::CoreReset,
        Self::FirmwareStall,
        Self::EngineStall,
        Self::HmcError,
        Self::DmaRefused,
        Self::LinkFlap,
    ];

    /// As the command line has it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::FunctionReset => "function-reset",
            Self::CoreReset => "core-reset",
            Self::FirmwareStall => "firmware-stall",
            Self::EngineStall => "engine-stall",
            Self::HmcError => "hmc-error",
            Self::DmaRefused => "dma-refused",
            Self::LinkFlap => "link-flap",
        }
    }

    const fn fault(self) -> Fault {
        match self {
            Self::FunctionReset => Fault::Reset(ResetKind::Function),
            Self::CoreReset => Fault::Reset(ResetKind::Core),
            Self::FirmwareStall => Fault::FirmwareStall,
            Self::EngineStall => Fault::ProtocolEngineStall,
            Self::HmcError => Fault::HmcError {
                kind: 5,
                object: 1,
                data: 7,
            },
            Self::DmaRefused => Fault::DmaRefused(Refusal::EVERYTHING),
            Self::LinkFlap => Fault::LinkDown,
        }
    }

    /// It goes on until somebody ends it: no reset does.
    pub(crate) const fn outlives_a_reset(self) -> bool {
        matches!(self, Self::DmaRefused)
    }

    /// It shows only to who waits for an answer.
    pub(crate) const fn is_silent(self) -> bool {
        matches!(self, Self::FirmwareStall | Self::EngineStall)
    }
}

/// How faults are raised.
pub(crate) enum Raiser<'b> {
    /// In the model of this process: its function.
    Model(&'b Threaded, usize),
    /// Through the control socket of a server: its function.
    Control(PathBuf, usize),
    /// Whoever reads the output raises it.
    Prompt(usize),
}

impl<'b> Raiser<'b> {
    pub(crate) fn choose(options: &Bench, bed: &'b Bed) -> Result<Self, Failure> {
        let function = options.chaos_function.unwrap_or(0);
        match (&bed.model, &options.chaos_control) {
            (Some(_), Some(_)) => Err(Failure::usage(anyhow!(
                "--chaos-control is for a model in another process; the model of this one is reached directly"
            ))),
            (Some(_), None) if options.chaos_prompt => Ok(Self::Prompt(function)),
            (Some((model, functions)), None) => Ok(Self::Model(model, functions[0].into())),
            (None, Some(path)) => Ok(Self::Control(path.clone(), function)),
            (None, None) if options.chaos_prompt => Ok(Self::Prompt(function)),
            (None, None) => Err(Failure::usage(anyhow!(
                "--chaos needs somebody who raises faults: name the control socket of the model's server with --chaos-control, or pass --chaos-prompt and raise what is asked for"
            ))),
        }
    }

    pub(crate) fn begin(&self, kind: Kind, out: &mut dyn Write) -> Result<(), Failure> {
        let fault = kind.fault();
        match self {
            Self::Model(model, function) => {
                let function = *function;
                model
                    .with(move |world| world.inject(function, fault))
                    .ok_or_else(gone)
            }
            Self::Control(path, function) => tell(path, &format!("fault {function} {fault}")),
            Self::Prompt(function) => prompt(out, &format!("fault {function} {fault}")),
        }
    }

    pub(crate) fn end(&self, kind: Kind, out: &mut dyn Write) -> Result<(), Failure> {
        let fault = kind.fault();
        match self {
            Self::Model(model, function) => {
                let function = *function;
                model
                    .with(move |world| world.clear_fault(function, fault))
                    .ok_or_else(gone)
            }
            Self::Control(path, function) => tell(path, &format!("clear {function} {fault}")),
            Self::Prompt(function) => prompt(out, &format!("clear {function} {fault}")),
        }
    }
}

fn gone() -> Failure {
    Failure::operation(anyhow!("the model's thread has ended"))
}

fn tell(path: &std::path::Path, line: &str) -> Result<(), Failure> {
    crate::model::tell(path, line)
}

fn prompt(out: &mut dyn Write, line: &str) -> Result<(), Failure> {
    writeln!(out, "raise: {line}")?;
    out.flush()?;
    Ok(())
}
