//! A further VSI as an option of the command: its MAC address and the number of its queues.

use crate::mac::Mac;
use ringside_pmd::lan::port::MAX_VSI_RECEIVE_QUEUES;
use ringside_pmd::lan::{PortSettings, VsiSettings};
use std::fmt;
use std::str::FromStr;

/// `MAC[,QUEUES]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VsiText {
    mac: Mac,
    queues: usize,
}

impl VsiText {
    pub(crate) const fn mac(self) -> [u8; 6] {
        self.mac.0
    }

    /// Receive queues, and as many transmit queues.
    pub(crate) const fn queues(self) -> usize {
        self.queues
    }

    /// The settings of the VSI.
    pub(crate) fn settings(self) -> VsiSettings {
        VsiSettings {
            queues: PortSettings {
                receive_queues: self.queues,
                transmit_queues: self.queues,
                ..PortSettings::default()
            },
            ..VsiSettings::new(self.mac.0)
        }
    }
}

impl FromStr for VsiText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mac, queues) = text.split_once(',').unwrap_or((text, "1"));
        let wrong = || {
            format!(
                "'{queues}' is no number of queues: write 1 to {MAX_VSI_RECEIVE_QUEUES} after the \
                 comma, such as 02:00:00:00:00:01,4"
            )
        };
        let mac: Mac = mac.parse()?;
        let queues: usize = queues.parse().map_err(|_| wrong())?;
        if !(1..=MAX_VSI_RECEIVE_QUEUES).contains(&queues) {
            return Err(wrong());
        }
        Ok(Self { mac, queues })
    }
}

impl fmt::Display for VsiText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.mac, self.queues)
    }
}

/// `MAC[,QUEUES][@PORT]`: a further VSI of one of several ports, by default of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VsiAt {
    pub(crate) vsi: VsiText,
    /// counted from 0
    pub(crate) port: usize,
}

impl FromStr for VsiAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (vsi, port) = text.split_once('@').unwrap_or((text, "0"));
        let port = port.parse().map_err(|_| {
            format!(
                "'{port}' is no number of a port: write 0 for the first --device, 1 for the second, \
                 such as 02:00:00:00:00:01,4@1"
            )
        })?;
        let vsi = vsi.parse()?;
        Ok(Self { vsi, port })
    }
}

impl fmt::Display for VsiAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.vsi, self.port)
    }
}
