//! Raises faults: in the model of this process, through a server's control socket, or by
//! the reader of what is printed.

use crate::bench::bed::Bed;
use crate::cli::Bench;
use crate::failure::Failure;
use crate::trouble::Kind;
use anyhow::anyhow;
use ringside_model::Threaded;
use std::io::Write;
use std::path::PathBuf;

/// The way in which faults are raised.
pub(crate) enum Raiser<'b> {
    /// In the model of this process, with the number of the function.
    Model(&'b Threaded, usize),
    /// Through the control socket of a server: its function.
    Control(PathBuf, usize),
    /// The reader of the output raises it.
    Prompt(usize),
}

impl<'b> Raiser<'b> {
    pub(crate) fn choose(options: &Bench, bed: &'b Bed) -> Result<Self, Failure> {
        let function = options.chaos_function.unwrap_or(0);
        match (&bed.model, &options.chaos_control) {
            (Some(_), Some(_)) => Err(Failure::usage(anyhow!(
                "--chaos-control is for a model in another process; the model of this one is reached directly"
            ))),
            (Some((_, functions)), None)
                if options
                    .chaos_function
                    .is_some_and(|one| one != usize::from(functions[0])) =>
            {
                Err(Failure::usage(anyhow!(
                    "--chaos-function {function} is for a model in another process; that of this one has its faults in the function of --device, model:{}",
                    functions[0]
                )))
            }
            (Some(_), None) if options.chaos_prompt => Err(Failure::usage(anyhow!(
                "--chaos-prompt is for a model in another process; that of this one is reached directly, so leave the flag away"
            ))),
            (Some((model, functions)), None) => Ok(Self::Model(model, functions[0].into())),
            (None, Some(path)) => Ok(Self::Control(path.clone(), function)),
            (None, None) if options.chaos_prompt => Ok(Self::Prompt(function)),
            (None, None) => Err(Failure::usage(anyhow!(
                "--chaos needs a source of faults: name the control socket of the model's server with --chaos-control, or pass --chaos-prompt and raise the requested faults yourself"
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
