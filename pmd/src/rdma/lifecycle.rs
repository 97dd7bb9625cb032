//! The creation and destruction of objects in the device: one protocol for queue pairs, completion
//! queues, regions, windows, address handles and multicast groups.
//!
//! An object is made by [`Making`]: it takes a number, provides the memory behind the object's
//! context, takes the object's other resources, and executes the command. Dropped before that, it
//! frees everything. A command has one of three outcomes. The device did it; the device refused, so
//! that everything is free; or the device did not confirm, so that number, memory and other
//! resources stay out of use until a reset.
//!
//! [`EngineState::destroy`] distinguishes the same three, and reports "gone" only if the device
//! confirmed the destruction or was reset since. A missing entry does not count as that.

use super::RdmaError;
use super::address::MacAddress;
use super::engine::EngineState;
use super::objects::{Entry, Held, Object};
use super::session::Session;
use crate::control::{Completed, ControlError};
use crate::failure::FailureCause;
use ringside_spec::rdma::commands::ControlCommand;
use std::marker::PhantomData;

/// An object that was not made.
#[derive(Debug)]
pub(crate) enum NotMade {
    /// The device does not have it: all its resources are free again.
    Refused(RdmaError),
    /// The device did not confirm: it may have it. Memory that the caller lent has to be set apart
    /// under this number.
    Unconfirmed {
        /// Its number.
        number: u32,
        /// The error.
        error: RdmaError,
    },
}

impl From<RdmaError> for NotMade {
    fn from(error: RdmaError) -> Self {
        Self::Refused(error)
    }
}

impl From<NotMade> for RdmaError {
    /// For objects whose memory the engine owns: it is set apart already.
    fn from(not_made: NotMade) -> Self {
        match not_made {
            NotMade::Refused(error) | NotMade::Unconfirmed { error, .. } => error,
        }
    }
}

/// The outcome of the destruction of an object.
#[derive(Debug)]
#[must_use = "memory is free only once the object is known to be gone"]
pub(crate) enum Destroyed<O> {
    /// The device confirmed it, or was reset since: it uses no memory of the object.
    Gone(Option<O>),
    /// The device refused: the object is as it was.
    Refused(RdmaError),
    /// The device did not confirm: memory stays out of use until a reset.
    Unconfirmed(RdmaError),
    /// The device failed and was not reset yet: the reset destroys the object.
    DeviceFailed {
        /// The cause of the failure.
        cause: FailureCause,
        /// The object, if this call took it out of the table.
        object: Option<O>,
    },
}

/// The side that destroys an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Its owner, who does not repeat the call.
    Owner,
    /// A shutdown, while an owner may still hold it.
    Shutdown,
}

/// An object that is being created in the device. Dropped before [`Making::finish`], it frees the
/// resources that it took, except a number that [`Object::retire`] keeps.
pub(crate) struct Making<'s, 'e, O: Object> {
    state: &'s mut Session<'e>,
    number: u32,
    held: Vec<Held>,
    /// the number and what is held belong to an entry of the table now
    entered: bool,
    /// the number must not be used again
    number_stays: bool,
    kind: PhantomData<O>,
}

impl<'s, 'e, O: Object> Making<'s, 'e, O> {
    /// Takes a number and brings the memory behind the object's context.
    pub(crate) fn begin(state: &'s mut Session<'e>) -> Result<Self, RdmaError> {
        let inner: &mut EngineState = state;
        let number = O::table(&mut inner.objects)
            .numbers
            .take(&mut inner.names.random)?;
        Self::with_number(state, number)
    }

    /// The same with a number of a fixed purpose.
    pub(crate) fn begin_fixed(state: &'s mut Session<'e>, number: u32) -> Result<Self, RdmaError> {
        O::table(&mut state.objects).numbers.take_fixed(number)?;
        Self::with_number(state, number)
    }

    /// The same with a number that has just been freed.
    pub(crate) fn begin_again(state: &'s mut Session<'e>, number: u32) -> Result<Self, RdmaError> {
        O::table(&mut state.objects).numbers.take_again(number)?;
        Self::with_number(state, number)
    }

    fn with_number(state: &'s mut Session<'e>, number: u32) -> Result<Self, RdmaError> {
        let making = Self {
            state,
            number,
            held: Vec::new(),
            entered: false,
            number_stays: false,
            kind: PhantomData,
        };
        making.state.back(O::CONTEXT, number)?;
        Ok(making)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn state(&mut self) -> &mut Session<'e> {
        self.state
    }

    /// Takes an entry in the table of MAC addresses.
    pub(crate) fn take_address(&mut self, mac: MacAddress) -> Result<u16, RdmaError> {
        let index = self.state.take_address(mac)?;
        self.held.push(Held::Address(mac));
        Ok(index)
    }

    /// Lets it hold something that was taken for it.
    pub(crate) fn hold(&mut self, held: Held) {
        self.held.push(held);
    }

    /// Keeps its number out of use, because it is still referenced.
    pub(crate) fn keep_number(&mut self) {
        self.number_stays = true;
    }

    /// Creates it in the device.
    pub(crate) fn finish(
        mut self,
        command: impl ControlCommand,
        mut object: O,
    ) -> Result<Completed, NotMade> {
        let executed = self.state.execute(command);
        // A device that failed meanwhile was taken from its users: it was too late for this one.
        let failed = self.state.service.end.cause;
        let error = match (executed, failed) {
            (Ok(completed), None) => {
                let held = std::mem::take(&mut self.held);
                self.enter(Entry::Present { object, held });
                return Ok(completed);
            }
            (Err(error), _) if error.is_refusal() => {
                self.number_stays = !object.retire();
                return Err(NotMade::Refused(error.into()));
            }
            (_, Some(cause)) => RdmaError::DeviceFailed { cause },
            (Err(error), None) => error.into(),
        };
        let number = self.number;
        object.retire();
        self.state
            .set_memory_apart(O::NAME, number, object.into_memory(), &error);
        let reason = error.clone();
        let held = std::mem::take(&mut self.held);
        self.enter(Entry::Unconfirmed { reason, held });
        Err(NotMade::Unconfirmed { number, error })
    }

    fn enter(&mut self, entry: Entry<O>) {
        self.entered = true;
        O::table(&mut self.state.objects)
            .entries
            .insert(self.number, entry);
    }
}

impl<O: Object> Drop for Making<'_, '_, O> {
    fn drop(&mut self) {
        if self.entered {
            return;
        }
        if !self.number_stays {
            O::table(&mut self.state.objects).numbers.give(self.number);
        }
        let held = std::mem::take(&mut self.held);
        self.state.give_back(held);
    }
}

impl Session<'_> {
    /// Destroys an object in the device. Its memory is free only after [`Destroyed::Gone`].
    pub(crate) fn destroy<O: Object>(&mut self, number: u32, by: By) -> Destroyed<O> {
        let state: &mut EngineState = self;
        let table = O::table(&mut state.objects);
        if state.service.end.released {
            let entry = table.entries.remove(&number);
            return Destroyed::Gone(self.forget_after_reset(entry));
        }
        let command = match table.entries.get(&number) {
            Some(Entry::Present { object, .. }) if object.is_destroyed() => {
                return Destroyed::Gone(self.forget(number, by));
            }
            Some(Entry::Present { object, .. }) => object.destruction(number),
            Some(Entry::Gone) => {
                if by == By::Owner {
                    table.entries.remove(&number);
                }
                return Destroyed::Gone(None);
            }
            Some(Entry::Unconfirmed { reason, .. }) => {
                return match state.service.end.cause {
                    Some(cause) => Destroyed::DeviceFailed {
                        cause,
                        object: None,
                    },
                    None => Destroyed::Unconfirmed(reason.clone()),
                };
            }
            Some(Entry::Leaving { .. }) | None => {
                let what = O::NAME;
                return Destroyed::Unconfirmed(RdmaError::Gone { what, number });
            }
        };
        if let Some(cause) = state.service.end.cause {
            return self.lose_with_device(number, cause);
        }
        table.leave(number);
        match self.execute(command) {
            Ok(_) => Destroyed::Gone(self.forget(number, by)),
            Err(error @ ControlError::Refused { .. }) => {
                O::table(&mut self.objects).stay(number);
                Destroyed::Refused(error.into())
            }
            Err(error) => match self.service.end.cause {
                Some(cause) => self.lose_with_device(number, cause),
                None => {
                    let error = RdmaError::from(error);
                    self.set_apart::<O>(number, &error);
                    Destroyed::Unconfirmed(error)
                }
            },
        }
    }

    /// Removes an object of a device that failed. This needs no command, and the device writes no
    /// more completions.
    fn lose_with_device<O: Object>(&mut self, number: u32, cause: FailureCause) -> Destroyed<O> {
        let object = self.lose::<O>(number, &RdmaError::DeviceFailed { cause });
        self.give_back_reports::<O>(number);
        Destroyed::DeviceFailed { cause, object }
    }

    /// The same for an object whose memory the engine owns: frees the memory, keeps it for an owner
    /// who may still read it, or quarantines it. The reset of a failed device frees all of it.
    pub(crate) fn destroy_with_memory<O: Object>(
        &mut self,
        number: u32,
        by: By,
    ) -> Result<(), RdmaError> {
        match self.destroy::<O>(number, by) {
            Destroyed::Gone(object) => {
                let memory = object.map(O::into_memory).unwrap_or_default();
                match by {
                    By::Owner => drop(memory),
                    By::Shutdown => self.withheld.kept.extend(memory),
                }
                Ok(())
            }
            Destroyed::DeviceFailed { object, .. } => {
                self.free_after_reset(object.map(O::into_memory).unwrap_or_default());
                Ok(())
            }
            Destroyed::Refused(error) => {
                self.set_apart::<O>(number, &error);
                Err(error)
            }
            Destroyed::Unconfirmed(error) => Err(error),
        }
    }

    /// The device confirmed: number and everything held are free.
    pub(crate) fn forget<O: Object>(&mut self, number: u32, by: By) -> Option<O> {
        let table = O::table(&mut self.objects);
        let entry = table.entries.remove(&number);
        let Some(Entry::Present { mut object, held } | Entry::Leaving { mut object, held }) = entry
        else {
            return None;
        };
        if object.retire() {
            table.numbers.give(number);
        }
        if by == By::Shutdown {
            table.entries.insert(number, Entry::Gone);
        }
        self.give_back(held);
        Some(object)
    }

    /// The device did not confirm: the object's memory and number are not used again before a
    /// reset.
    pub(crate) fn set_apart<O: Object>(&mut self, number: u32, reason: &RdmaError) {
        if let Some(object) = self.lose::<O>(number, reason) {
            self.set_memory_apart(O::NAME, number, object.into_memory(), reason);
        }
    }

    /// Takes an object out of the table and leaves that it may be in the device.
    fn lose<O: Object>(&mut self, number: u32, reason: &RdmaError) -> Option<O> {
        let table = O::table(&mut self.objects);
        let entry = table.entries.get_mut(&number)?;
        if !matches!(entry, Entry::Present { .. } | Entry::Leaving { .. }) {
            return None;
        }
        let (Entry::Present { mut object, held } | Entry::Leaving { mut object, held }) =
            std::mem::replace(entry, Entry::Gone)
        else {
            return None;
        };
        let owed = object.retire_unconfirmed();
        let reason = reason.clone();
        *entry = Entry::Unconfirmed { reason, held };
        self.owe(owed);
        Some(object)
    }

    /// Completion queues have a user less, although the object may still be in the device.
    fn give_back_reports<O: Object>(&mut self, number: u32) {
        let entry = O::table(&mut self.objects).entries.get_mut(&number);
        let Some(Entry::Unconfirmed { held, .. }) = entry else {
            return;
        };
        let is_report = |one: &mut Held| matches!(one, Held::Reports(_));
        let reports = held.extract_if(.., is_report).collect();
        self.give_back(reports);
    }

    /// Forgets objects without an owner: the device was reset.
    pub(crate) fn forget_unconfirmed<O: Object>(&mut self) {
        let table = O::table(&mut self.objects);
        let unconfirmed = |entry: &Entry<O>| matches!(entry, Entry::Unconfirmed { .. });
        let gone: Vec<Entry<O>> = table
            .entries
            .extract_if(.., |_, entry| unconfirmed(entry))
            .map(|(_, entry)| entry)
            .collect();
        for entry in gone {
            let _ = self.forget_after_reset(Some(entry));
        }
    }

    /// Removes an object after a reset of the device, without a command; its completion queues have
    /// one user less.
    fn forget_after_reset<O: Object>(&mut self, entry: Option<Entry<O>>) -> Option<O> {
        let (object, held) = match entry? {
            Entry::Present { mut object, held } | Entry::Leaving { mut object, held } => {
                object.retire();
                (Some(object), held)
            }
            Entry::Unconfirmed { held, .. } => (None, held),
            Entry::Gone => (None, Vec::new()),
        };
        let reports = held
            .into_iter()
            .filter(|one| matches!(one, Held::Reports(_)));
        let reports: Vec<Held> = reports.collect();
        self.give_back(reports);
        object
    }

    /// Frees the resources of an object. If the device refuses one, only that one is kept.
    fn give_back(&mut self, held: Vec<Held>) {
        for one in held {
            let result = match one {
                Held::Pages(list) => self.free_pages(list),
                Held::Address(mac) => self.give_address(mac),
                Held::Reports(queues) => self.release_completion_queues(queues),
                Held::GroupRule(mac) => self.give_group_rule(mac),
            };
            if let Err(error) = result {
                tracing::error!(%error, "a resource of an object could not be freed");
            }
        }
    }
}
