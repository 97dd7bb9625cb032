//! The IP stack of a device, the demand for it, and the host's interface beside it.

use crate::network::{Network, NetworkError};
use ringside_config::LocalAddress;
use ringside_stack::StackError;
use ringside_stack::host::{HostError, HostInterface, HostReport};

/// The reason why the stack runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Demand {
    /// It does not run, and no recovery starts it.
    #[default]
    Nothing,
    /// The configuration wants it while the program does not open the port itself.
    Offered,
    /// The program called for it.
    Required,
}

/// The stack, and whether a recovery starts it again.
#[derive(Default)]
pub(crate) struct Neighbours {
    /// attached while the stack runs; ends before it
    host: Option<HostInterface>,
    running: Option<Network>,
    /// The lease of the former stack. The GID table has its address if the program has added it.
    former_lease: Option<LocalAddress>,
    demand: Demand,
    /// it has panicked, and was not started since
    has_panicked: bool,
}

impl Neighbours {
    /// The stack if it runs.
    pub(crate) const fn running(&self) -> Option<&Network> {
        self.running.as_ref()
    }

    pub(super) const fn demand(&self) -> Demand {
        self.demand
    }

    /// True if the stack has panicked, and was not started since; logs that once.
    pub(super) fn has_panicked(&mut self) -> bool {
        if self.running().is_some_and(Network::has_panicked) && !self.has_panicked {
            tracing::error!("the IP stack panicked and is started again; report this as a bug");
            self.has_panicked = true;
        }
        self.has_panicked
    }

    /// Drops the stack of a former period of service.
    pub(crate) fn drop_former(&mut self, life: u32) {
        if self.running().is_some_and(|found| found.life() != life) {
            self.stop();
        }
    }

    /// Drops a stack that resolves nothing more; the next call starts another one.
    pub(crate) fn drop_ended(&mut self) {
        if self.running().is_some_and(Network::has_ended) {
            self.stop();
        }
    }

    /// Drops the stack; only a call of the program starts it again.
    pub(crate) fn end(&mut self) {
        self.stop();
        self.demand = Demand::Nothing;
        self.has_panicked = false;
    }

    fn stop(&mut self) {
        self.has_panicked |= self.running().is_some_and(Network::has_panicked);
        if let Some(host) = &mut self.host {
            host.detach();
        }
        if let Some(leased) = self.running.take().and_then(|former| former.leased()) {
            self.former_lease = Some(leased);
        }
    }

    /// An address is the program's own now, with a lease or without.
    pub(crate) fn forget_lease(&mut self, address: LocalAddress) {
        let is_same = |former: &LocalAddress| {
            (former.address, former.vlan) == (address.address, address.vlan)
        };
        self.former_lease.take_if(|former| is_same(former));
    }

    /// The lease of the former stack, unless the configuration has the address, too.
    fn former_lease(&self, device: &ringside_pmd::Device) -> Option<LocalAddress> {
        let configured = &device.config().network.addresses;
        self.former_lease.filter(|former| {
            let is_same =
                |own: &LocalAddress| (own.address, own.vlan) == (former.address, former.vlan);
            !configured.iter().any(is_same)
        })
    }

    /// Keeps an interface of the host for every stack that starts from now on.
    pub(crate) fn keep_host(&mut self, host: HostInterface) {
        self.host = Some(host);
    }

    /// True if the configuration names an interface of the host.
    pub(super) const fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// State and counts of the host's interface; `None` without one.
    pub(crate) fn host(&self) -> Option<HostReport> {
        self.host.as_ref().map(HostInterface::report)
    }

    /// Starts the stack for the program, unless one of this period of service runs.
    ///
    /// Errors: [`NetworkError`]; the demand is then as before.
    pub(crate) fn require(
        &mut self,
        device: &ringside_pmd::Device,
    ) -> Result<&Network, NetworkError> {
        self.start_anyway(device, Demand::Required)?;
        Ok(self.running().ok_or(StackError::Ended)?)
    }

    /// As [`Self::start`], also if the host's interface carries no frames then.
    ///
    /// Errors: [`NetworkError`]; the demand is then as before.
    pub(super) fn start_anyway(
        &mut self,
        device: &ringside_pmd::Device,
        demand: Demand,
    ) -> Result<(), NetworkError> {
        match self.start(device, demand) {
            Err(NetworkError::Host(error)) => {
                tracing::warn!(%error, "the stack runs, and the host's interface carries no frames");
                Ok(())
            }
            started => started,
        }
    }

    /// Starts the stack, unless one of this period of service runs. A stack can end earlier than
    /// its period of service, with a failure of the device.
    ///
    /// Errors: [`NetworkError::Host`], the stack runs, but the host's interface carries no frames;
    /// others of [`NetworkError`], the demand is then as before.
    pub(super) fn start(
        &mut self,
        device: &ringside_pmd::Device,
        demand: Demand,
    ) -> Result<(), NetworkError> {
        self.drop_former(device.life());
        self.drop_ended();
        if self.running.is_some() {
            self.demand = demand;
            return Ok(());
        }
        let network = Network::start(device, self.former_lease(device))?;
        self.demand = demand;
        self.has_panicked = false;
        let port = network.port();
        self.running = Some(network);
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        let (port, mtu) = port.map_err(HostError::from)?;
        host.attach(&port, mtu)?;
        if let Some(network) = &self.running {
            network.give_groups_to(host)?;
        }
        Ok(())
    }
}
