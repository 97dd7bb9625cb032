//! The place of a fault, and the words that name it: "0:link-down", "wire:corrupt 1000".

use ringside_model::Fault;
use std::str::FromStr;

/// The place of a fault: the wire or a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The switch between all.
    Wire,
    /// A function.
    Function(usize),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wire" => Ok(Self::Wire),
            number => number.parse().map(Self::Function).map_err(|_| {
                format!("'{number}' is neither the number of a function nor \"wire\"")
            }),
        }
    }
}

impl Place {
    /// Checks that a fault exists there, in a world of that many functions.
    ///
    /// # Errors
    /// A sentence that names the fault or the number of the function.
    pub fn check(self, fault: Fault, functions: usize) -> Result<(), String> {
        match self {
            Self::Wire if !fault.is_of_the_wire() => Err(format!(
                "'{fault}' is a fault of a function, not of the wire"
            )),
            Self::Function(_) if fault.is_of_the_wire() => Err(format!(
                "'{fault}' is a fault of the wire, not of a function"
            )),
            Self::Function(index) if index >= functions => Err(format!(
                "there is no function {index}; the last is {}",
                functions.saturating_sub(1)
            )),
            _ => Ok(()),
        }
    }

    /// The number of a function for the model; the wire ignores it.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Wire => 0,
            Self::Function(index) => index,
        }
    }
}

/// A fault and its side.
#[derive(Clone, Copy, Debug)]
pub struct FaultAt {
    /// Its place.
    pub place: Place,
    /// The fault.
    pub fault: Fault,
}

impl FromStr for FaultAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((place, fault)) = text.split_once(':') else {
            return Err(
                "expected the number of a function or \"wire\", a colon and a fault".into(),
            );
        };
        let fault: Fault = fault.parse().map_err(|error| format!("{error}"))?;
        let place = place.parse()?;
        Ok(Self { place, fault })
    }
}
