//! The faults of a chaos run.

use clap::ValueEnum;
use ringside_bus::Refusal;
use ringside_model::Fault;
use ringside_model::function::ResetKind;
use serde::Serialize;

/// The kind of fault. Its name on the command line and in JSON is the model's name for it.
#[derive(ValueEnum, Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Another owner resets the function
    FunctionReset,
    /// Another owner resets the LAN engine
    CoreReset,
    /// The firmware answers no command
    FirmwareStall,
    /// The RDMA engine stops
    #[value(alias = "engine-stall")]
    ProtocolEngineStall,
    /// The host memory cache reports an error
    HmcError,
    /// The host refuses the card's accesses to memory
    DmaRefused,
    /// The link goes down for a while
    #[value(alias = "link-flap")]
    LinkDown,
}

impl Kind {
    /// Every kind, in the order in which a report shows them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// Its name on the command line: the model's.
    pub(crate) const fn name(self) -> &'static str {
        self.fault().name()
    }

    /// The model's fault for it.
    pub(crate) const fn fault(self) -> Fault {
        match self {
            Self::FunctionReset => Fault::Reset(ResetKind::Function),
            Self::CoreReset => Fault::Reset(ResetKind::Core),
            Self::FirmwareStall => Fault::FirmwareStall,
            Self::ProtocolEngineStall => Fault::ProtocolEngineStall,
            Self::HmcError => Fault::HmcError {
                kind: 5,
                object: 1,
                data: 7,
            },
            Self::DmaRefused => Fault::DmaRefused(Refusal::EVERYTHING),
            Self::LinkDown => Fault::LinkDown,
        }
    }

    /// True if it lasts until it is ended explicitly: no reset ends it.
    pub(crate) const fn outlives_a_reset(self) -> bool {
        matches!(self, Self::DmaRefused)
    }

    /// True if only a command without an answer reveals it.
    pub(crate) const fn is_silent(self) -> bool {
        matches!(self, Self::FirmwareStall | Self::ProtocolEngineStall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_and_json_have_the_names_of_the_model() {
        for kind in Kind::all() {
            let value = kind.to_possible_value().unwrap();
            assert_eq!(value.get_name(), kind.name());
            let json = serde_json::to_value(kind).unwrap();
            assert_eq!(json, kind.name());
        }
    }

    #[test]
    fn former_names_are_read_and_not_listed() {
        for (former, kind) in [
            ("engine-stall", Kind::ProtocolEngineStall),
            ("link-flap", Kind::LinkDown),
        ] {
            assert_eq!(Kind::from_str(former, false), Ok(kind));
            assert_ne!(kind.name(), former);
        }
    }
}
