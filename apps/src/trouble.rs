//! The faults of a chaos run.

use clap::ValueEnum;
use ringside_bus::Refusal;
use ringside_model::Fault;
use ringside_model::function::ResetKind;
use serde::Serialize;

/// The kind of fault.
#[derive(ValueEnum, Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Another owner resets the function
    FunctionReset,
    /// Another owner resets the LAN engine
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

    /// Its name on the command line.
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

    /// The model's fault for it.
    pub(crate) const fn fault(self) -> Fault {
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

    /// True if it lasts until it is ended explicitly: no reset ends it.
    pub(crate) const fn outlives_a_reset(self) -> bool {
        matches!(self, Self::DmaRefused)
    }

    /// It shows only to who waits for an answer.
    pub(crate) const fn is_silent(self) -> bool {
        matches!(self, Self::FirmwareStall | Self::EngineStall)
    }
}
