//! One operation on the engine.
//!
//! A session holds the engine's lock, except while a command of it is under way: other threads then
//! make and destroy objects of their own, take events and take the device out of service. After a
//! command an operation therefore looks things up again. Three rules keep it simple:
//!
//! - An object on its way into the device has a number and no entry; one on its way out has an
//!   entry that no other operation gets. Its other half is in `lifecycle`.
//! - What several operations may change step by step is claimed: see [`Claim`].
//! - A shutdown, the reset of a queue pair and the release of a life that ended run alone.
//!
//! The order of the locks: operations, state, host memory cache, control queue. The first two are
//! not taken again by a thread that has them.

use super::RdmaError;
use super::address::{ArpChange, MacAddress};
use super::claim::{self, Claim, Held};
use super::engine::{Engine, EngineState};
use super::host_memory::HostMemory;
use crate::admin::AdminQueue;
use crate::control::{Completed, ControlError, ControlQueue};
use crate::failure::FailureCause;
use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use ringside_bus::{DmaBuffer, Function};
use ringside_hmc::PageList;
use ringside_spec::rdma::commands::{ControlCommand, ManageArp};
use ringside_spec::rdma::fpm::ObjectType;
use std::ops::{Deref, DerefMut};

/// The longest wait for one operation that has a claim, in deadlines of the control queue. No
/// operation has as many commands that take as long: after one that is never answered none is sent.
const CLAIM_COMMANDS: u32 = 16;

/// Its share of the engine, held until it ends.
enum Turn<'e> {
    Shared { _turn: RwLockReadGuard<'e, ()> },
    Alone { _turn: RwLockWriteGuard<'e, ()> },
}

/// See the module.
pub(crate) struct Session<'e> {
    /// unlocked before the turn ends
    state: MutexGuard<'e, EngineState>,
    engine: &'e Engine,
    _turn: Turn<'e>,
}

impl Engine {
    fn session<'e>(&'e self, turn: Turn<'e>) -> Session<'e> {
        Session {
            state: self.state.lock(),
            engine: self,
            _turn: turn,
        }
    }

    /// Begins an operation beside others.
    pub(crate) fn state(&self) -> Session<'_> {
        let _turn = self.operations.read();
        self.session(Turn::Shared { _turn })
    }

    /// Begins an operation once all others have ended; none begins meanwhile.
    pub(crate) fn state_alone(&self) -> Session<'_> {
        let _turn = self.operations.write();
        self.session(Turn::Alone { _turn })
    }

    /// The state, for making something new.
    pub(crate) fn open_state(&self) -> Result<Session<'_>, RdmaError> {
        self.check_process()?;
        self.state().if_open()
    }

    /// Memory of the device's pool, for a caller that does not hold the state. The pool of a device
    /// that was shut down has none: the error says that, not that addresses are used up.
    pub(crate) fn allocate(&self, length: usize, alignment: usize) -> Result<DmaBuffer, RdmaError> {
        let allocated = self.pool.allocate(length, alignment);
        allocated.map_err(|error| match self.open_state() {
            Ok(_) => error.into(),
            Err(over) => over,
        })
    }

    /// The reason why nothing is made of this engine's objects any more: the end of its period of
    /// service, if it has ended. Otherwise `error`.
    pub(crate) fn end_or(&self, error: RdmaError) -> RdmaError {
        self.open_state().err().unwrap_or(error)
    }

    /// The state for making something new, alone.
    pub(crate) fn open_state_alone(&self) -> Result<Session<'_>, RdmaError> {
        self.check_process()?;
        // An engine that has failed is refused at once: to be alone can take as long as a device
        // that does not answer.
        drop(self.open_state()?);
        self.state_alone().if_open()
    }
}

impl Deref for Session<'_> {
    type Target = EngineState;

    fn deref(&self) -> &EngineState {
        &self.state
    }
}

impl DerefMut for Session<'_> {
    fn deref_mut(&mut self) -> &mut EngineState {
        &mut self.state
    }
}

impl Session<'_> {
    /// The shutdown comes first: a device that has failed and was shut down cannot be recovered.
    fn if_open(self) -> Result<Self, RdmaError> {
        if self.service.closed || self.engine.is_shut_down() {
            return Err(RdmaError::ShutDown);
        }
        if let Some(cause) = self.service.end.cause {
            return Err(RdmaError::DeviceFailed { cause });
        }
        Ok(self)
    }

    /// Sends a command and waits for its answer, with the engine unlocked meanwhile.
    pub(crate) fn execute(
        &mut self,
        command: impl ControlCommand,
    ) -> Result<Completed, ControlError> {
        let control = &self.engine.control;
        MutexGuard::unlocked(&mut self.state, || control.execute(command))
    }

    /// Asks the firmware, with the engine unlocked meanwhile.
    pub(crate) fn firmware<T>(&mut self, ask: impl FnOnce(&AdminQueue) -> T) -> T {
        let admin = &self.engine.admin;
        MutexGuard::unlocked(&mut self.state, || ask(admin))
    }

    /// Asks the function, with the engine unlocked meanwhile.
    pub(crate) fn function<T>(&mut self, ask: impl FnOnce(&dyn Function) -> T) -> T {
        let function = self.engine.registers.function();
        MutexGuard::unlocked(&mut self.state, || ask(&**function))
    }

    /// True once the control queue sends nothing more.
    pub(crate) fn is_stuck(&self) -> bool {
        self.engine.control.is_stuck()
    }

    /// After an operation that the device did not confirm: a device that no longer answers commands
    /// is out of service when this returns, and writes nothing more if its DMA could be stopped.
    pub(crate) fn look_after(&mut self) {
        self.engine.look_after(&mut self.state, true);
    }

    /// Takes the device out of service.
    pub(crate) fn fail(&mut self, cause: FailureCause) {
        self.engine.fail(&mut self.state, cause);
    }

    /// Uses the host memory cache, with the engine unlocked meanwhile.
    pub(crate) fn memory<T>(
        &mut self,
        using: impl FnOnce(&mut HostMemory, &ControlQueue) -> Result<T, RdmaError>,
    ) -> Result<T, RdmaError> {
        let engine = self.engine;
        MutexGuard::unlocked(&mut self.state, || {
            let mut memory = engine.memory();
            let memory = memory.as_mut().ok_or(RdmaError::ShutDown)?;
            using(memory, &engine.control)
        })
    }

    /// Runs `operation` with `claim`, once no other operation has it.
    ///
    /// Errors: those of the operation; [`RdmaError::Occupied`] if one other operation does not end.
    pub(crate) fn claimed<T>(
        &mut self,
        claim: Claim,
        operation: impl FnOnce(&mut Self) -> Result<T, RdmaError>,
    ) -> Result<T, RdmaError> {
        let (engine, limit) = (self.engine, CLAIM_COMMANDS * self.engine.control.deadline());
        let ended = &engine.claim_ended;
        if !claim::take(&mut self.state, ended, claim, limit) {
            return Err(RdmaError::Occupied {
                what: claim.to_string(),
                waited_ms: limit.as_millis() as u64,
            });
        }
        let held = Held {
            of: self,
            ended,
            claim,
        };
        operation(held.of)
    }

    /// Tells the IP stack the multicast groups that have members. The caller has claimed them.
    pub(super) fn publish_groups(&self) {
        let groups = self.objects.multicast_groups.iter();
        let keys = groups.map(|(_, group)| group.key).collect();
        self.engine.groups.set(keys);
    }

    /// Brings the memory behind an object's context.
    pub(crate) fn back(&mut self, object: ObjectType, index: u32) -> Result<(), RdmaError> {
        self.memory(|memory, control| memory.ensure(control, object, index..index + 1))
    }

    /// Takes page buffer list entries for the pages at `addresses`, and writes them.
    pub(crate) fn list_pages(&mut self, addresses: &[u64]) -> Result<PageList, RdmaError> {
        self.memory(|memory, control| memory.list_pages(control, addresses))
    }

    pub(crate) fn free_pages(&mut self, list: PageList) -> Result<(), RdmaError> {
        match &mut *self.engine.memory() {
            Some(memory) => Ok(memory.page_lists.free(list)?),
            None => Ok(()),
        }
    }

    /// Returns the index of the table entry of `mac`; a new entry is sent to the device.
    pub(crate) fn take_address(&mut self, mac: MacAddress) -> Result<u16, RdmaError> {
        self.claimed(Claim::Addresses, |session| session.take_claimed(mac))
    }

    fn take_claimed(&mut self, mac: MacAddress) -> Result<u16, RdmaError> {
        let state: &mut EngineState = self;
        let index = match state.objects.arp.take(mac, &mut state.names.random)? {
            ArpChange::Nothing(index) => return Ok(index),
            ArpChange::Tell(index) => index,
        };
        let told = self
            .back(ObjectType::Arp, u32::from(index))
            .and_then(|()| self.tell_address(mac, index, true));
        if let Err(error) = told {
            let _ = self.objects.arp.give(mac);
            // An entry that the device may have keeps its number.
            let unconfirmed = matches!(&error, RdmaError::Control(error) if !error.is_refusal());
            if !unconfirmed {
                self.objects.arp.forget(index);
            }
            return Err(error);
        }
        Ok(index)
    }

    /// One user of `mac` less.
    pub(crate) fn give_address(&mut self, mac: MacAddress) -> Result<(), RdmaError> {
        self.claimed(Claim::Addresses, |session| {
            if let Some(ArpChange::Tell(index)) = session.objects.arp.give(mac) {
                session.tell_address(mac, index, false)?;
                session.objects.arp.forget(index);
            }
            Ok(())
        })
    }

    fn tell_address(&mut self, mac: MacAddress, index: u16, valid: bool) -> Result<(), RdmaError> {
        self.execute(ManageArp {
            mac_address: mac,
            arp_index: index,
            entry_valid: valid,
            permanent: valid,
            ..ManageArp::ZERO
        })?;
        Ok(())
    }
}
