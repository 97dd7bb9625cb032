//! Ports with their devices and further VSIs, which are opened again after a failure of the device.

use crate::failure::Failure;
use crate::mac::Mac;
use crate::release;
use crate::rule::Rule;
use anyhow::{Context, anyhow};
use ringside_bus::{DeviceAddress, Function};
use ringside_config::Config;
use ringside_lan::{ReceiveQueue, TransmitQueue};
use ringside_pmd::lan::port::{PortSetup, VsiSetup};
use ringside_pmd::lan::{Port, PortError, PortSettings, Vsi, VsiSettings};
use ringside_pmd::recovery::{RecoverError, Supervised, Supervision};
use ringside_pmd::{BringUpOptions, Device};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two attempts to open the port of a device that is in service again.
const OPEN_EVERY: Duration = Duration::from_secs(1);
/// Between two looks of [`Brought::supervise`] at the device.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A device that takes no reset for so long is gone for good.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// The settings of a port and of its further VSIs.
pub(crate) struct Wanted {
    pub(crate) own: PortSettings,
    pub(crate) further: Vec<VsiSettings>,
}

/// Queues of a station.
pub(crate) struct Queues {
    pub(crate) receive: Vec<ReceiveQueue>,
    pub(crate) transmit: Vec<TransmitQueue>,
}

/// Control of a port and its further VSIs.
pub(crate) struct Controls {
    pub(crate) further: Vec<Vsi>,
    pub(crate) port: Port,
}

impl Controls {
    /// Opens the port, without VSIs.
    fn open(device: &Device, wanted: &Wanted) -> Result<(Self, Vec<Queues>), PortError> {
        let open = device.open_port(&wanted.own)?;
        let controls = Self {
            further: Vec::new(),
            port: open.port,
        };
        let queues = Queues {
            receive: open.receive,
            transmit: open.transmit,
        };
        Ok((controls, vec![queues]))
    }

    /// Adds the VSIs; appends their queues to those of the port.
    fn add_vsis(&mut self, wanted: &Wanted, queues: &mut Vec<Queues>) -> anyhow::Result<()> {
        for settings in &wanted.further {
            let added = self.port.add_vsi(settings);
            let added = added.with_context(|| format!("VSI {}", Mac(settings.mac)))?;
            self.further.push(added.vsi);
            queues.push(Queues {
                receive: added.receive,
                transmit: added.transmit,
            });
        }
        Ok(())
    }

    /// Opens the port as it was, with its VSIs and all their settings.
    fn open_as(
        device: &Device,
        wanted: &Wanted,
        setups: &Setups,
    ) -> anyhow::Result<(Self, Vec<Queues>)> {
        let (mut controls, mut queues) = Self::open(device, wanted)?;
        controls.add_vsis(wanted, &mut queues)?;
        controls.port.restore(&setups.port)?;
        for (vsi, setup) in controls.further.iter().zip(&setups.further) {
            vsi.restore(setup)?;
        }
        Ok((controls, queues))
    }

    fn setups(&self) -> Setups {
        Setups {
            port: self.port.setup(),
            further: self.further.iter().map(Vsi::setup).collect(),
        }
    }
}

/// Filters, rules and spreading of a port and its VSIs.
struct Setups {
    port: PortSetup,
    further: Vec<VsiSetup>,
}

/// The state of a port.
enum State {
    InService,
    /// The device failed; the port is opened again once it was recovered.
    Lost {
        setups: Box<Setups>,
        /// next attempt to open it
        next: Instant,
        /// the last report to the user
        said: String,
        /// since then the device takes no reset
        unreachable: Option<Instant>,
    },
}

/// A port with its device. Order of fields is order of dropping.
pub(crate) struct Brought {
    pub(crate) controls: Controls,
    device: Device,
    address: DeviceAddress,
    wanted: Wanted,
    supervision: Supervision,
    state: State,
}

impl Brought {
    /// Brings the device up and opens the port. The queues are those of the port, then those of
    /// each VSI.
    pub(crate) fn bring_up(
        function: Arc<dyn Function>,
        address: &DeviceAddress,
        wanted: Wanted,
        rules: &[Rule],
        config: &Config,
    ) -> Result<(Self, Vec<Queues>), Failure> {
        let device = Device::bring_up(function, config, BringUpOptions::default())
            .map_err(|error| Failure::claim(anyhow!("{error}")))?;
        release::watch(&device)?;
        let (mut controls, mut queues) = Controls::open(&device, &wanted)
            .map_err(|error| Failure::claim(anyhow!("{address}: {error}")))?;
        let added = controls.add_vsis(&wanted, &mut queues);
        added.map_err(|error| Failure::operation(error.context(address.to_string())))?;
        for rule in rules {
            let added = controls.port.add_rule(&rule.0);
            added.map_err(|error| {
                Failure::operation(anyhow!("{address}: rule '{rule}': {error}"))
            })?;
        }
        let brought = Self {
            controls,
            device,
            address: address.clone(),
            wanted,
            supervision: Supervision::default(),
            state: State::InService,
        };
        Ok((brought, queues))
    }

    /// Looks after the device, recovers it if it failed, and opens the port again with its VSIs and
    /// all their settings. Returns the new queues then; those of before do nothing more.
    ///
    /// Takes as long as a recovery. Errors: the device reports no events any more.
    pub(crate) fn supervise(&mut self) -> Result<Option<Vec<Queues>>, Failure> {
        // Events of RDMA, which nothing here uses.
        let mut events = Vec::new();
        let observed = self.device.observe(&mut self.supervision, &mut events);
        let observed = observed.with_context(|| self.address.to_string())?;
        let Some(cause) = observed else {
            return Ok(self.open_again());
        };
        if matches!(self.state, State::InService) {
            self.state = State::Lost {
                setups: Box::new(self.controls.setups()),
                next: Instant::now(),
                said: String::new(),
                unreachable: None,
            };
            self.say(&format!("out of service ({cause}); it is being recovered"));
        }
        match self.device.recover_in_turn(&mut self.supervision, cause) {
            Supervised::Recovered(_) => return Ok(self.open_again()),
            Supervised::Failing(error) => {
                self.note_attempt(&error);
                self.say(&format!("not recovered, another attempt follows: {error}"));
            }
            Supervised::InService | Supervised::Waiting(_) => {}
        }
        Ok(None)
    }

    /// Notes when the device began to take no reset.
    fn note_attempt(&mut self, error: &RecoverError) {
        if let State::Lost { unreachable, .. } = &mut self.state {
            let is_deaf = matches!(error, RecoverError::NotReset { .. });
            *unreachable = is_deaf.then(|| unreachable.unwrap_or_else(Instant::now));
        }
    }

    /// Errors: the device has taken no reset for a while. A command with this device alone ends
    /// then; one with several goes on with the others.
    pub(crate) fn check_reachable(&self) -> Result<(), Failure> {
        match &self.state {
            State::Lost {
                unreachable: Some(since),
                ..
            } if since.elapsed() >= GONE_AFTER => Err(Failure::operation(anyhow!(
                "{}: the device is gone: it has taken no reset for {} s; check the card, or the server of \
                 the model, and start the command again",
                self.address,
                GONE_AFTER.as_secs()
            ))),
            _ => Ok(()),
        }
    }

    /// True if the device is in service, and its port open.
    pub(crate) const fn is_in_service(&self) -> bool {
        matches!(self.state, State::InService)
    }

    /// True if the device is in service and its link is up.
    pub(crate) fn has_link(&self) -> bool {
        self.is_in_service() && self.controls.port.link().is_ok_and(|link| link.up)
    }

    /// Opens the port of a device that is in service again, if it is time for an attempt.
    fn open_again(&mut self) -> Option<Vec<Queues>> {
        let State::Lost { setups, next, .. } = &mut self.state else {
            return None;
        };
        let now = Instant::now();
        if now < *next {
            return None;
        }
        *next = now + OPEN_EVERY;
        // Promiscuity is one of the settings that are restored.
        self.wanted.own.promiscuous = false;
        match Controls::open_as(&self.device, &self.wanted, setups) {
            Ok((controls, queues)) => {
                self.controls = controls;
                self.say("in service again");
                self.state = State::InService;
                Some(queues)
            }
            Err(error) => {
                self.say(&format!("the port is not open yet: {error:#}"));
                None
            }
        }
    }

    /// Tells the user, once, while the port is out of service. Standard error may be closed: the
    /// command continues.
    fn say(&mut self, text: &str) {
        if let State::Lost { said, .. } = &mut self.state
            && said != text
        {
            text.clone_into(said);
            let _ = writeln!(std::io::stderr(), "ringside: {}: {text}", self.address);
        }
    }

    /// Closes the port and shuts the device down. Errors: the first step that failed.
    pub(crate) fn shut_down(self) -> Result<(), String> {
        let Self {
            controls,
            device,
            address,
            ..
        } = self;
        drop(controls);
        match device.shutdown().failures.first() {
            Some(failure) => Err(format!("{address}: {failure}")),
            None => Ok(()),
        }
    }

    #[cfg(test)]
    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }
}
