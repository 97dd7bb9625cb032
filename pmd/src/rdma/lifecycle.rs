//! The life of an object in the device: one protocol for queue pairs, completion queues, regions,
//! windows, address handles and multicast groups.
//!
//! An object is made by [`Making`]: it takes a number, brings the memory behind the object's
//! context, takes what else the object holds, and executes the command. Dropped before that, it
//! gives everything back. A command has one of three outcomes. The device did it; the device
//! refused, so that everything is free; or the device did not confirm, so that number, memory and
//! everything held stay out of use until a reset.
//!
//! [`EngineState::destroy`] tells the same three apart, and says "gone" only if the device confirmed
//! it or was reset since. A missing entry is never taken for that.

use super::RdmaError;
use super::address::MacAddress;
use super::engine::EngineState;
use super::objects::{Entry, Held, Object};
use crate::control::{Completed, ControlError};
use crate::failure::FailureCause;
use ringside_spec::rdma::commands::ControlCommand;
use std::marker::PhantomData;

/// An object that was not made.
#[derive(Debug)]
pub(crate) enum NotMade {
    /// The device does not have it: everything is given back.
    Refused(RdmaError),
    /// The device did not confirm: it may have it. Memory that the caller lent has to be set apart
    /// under this number.
    Unconfirmed {
        /// Its number.
        number: u32,
        /// Why.
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
    /// The device failed and was not reset yet: the object is gone with the reset.
    DeviceFailed {
        /// Why it failed.
        cause: FailureCause,
        /// The object, if this call took it out of the table.
        object: Option<O>,
    },
}

/// The side that destroys an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Its owner, who does not ask again.
    Owner,
    /// A shutdown, while an owner may still hold it.
    Shutdown,
}

/// An object on its way into the device. Dropped before [`Making::finish`], it gives back what it
/// took; a number that [`Object::retire`] keeps stays taken.
pub(crate) struct Making<'s, O: Object> {
    state: &'s mut EngineState,
    number: u32,
    held: Vec<Held>,
    /// the number and what is held belong to an entry of the table now
    entered: bool,
    /// the number must not be used again
    number_stays: bool,
    kind: PhantomData<O>,
}

impl<'s, O: Object> Making<'s, O> {
    /// Takes a number and brings the memory behind the object's context.
    pub(crate) fn begin(state: &'s mut EngineState) -> Result<Self, RdmaError> {
        let number = O::table(&mut state.objects)
            .numbers
            .take(&mut state.names.random)?;
        Self::with_number(state, number)
    }

    /// The same with a number of a fixed purpose.
    pub(crate) fn begin_fixed(state: &'s mut EngineState, number: u32) -> Result<Self, RdmaError> {
        O::table(&mut state.objects).numbers.take_fixed(number)?;
        Self::with_number(state, number)
    }

    fn with_number(state: &'s mut EngineState, number: u32) -> Result<Self, RdmaError> {
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

    pub(crate) fn state(&mut self) -> &mut EngineState {
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

    /// Takes its number out of use: somebody still knows it.
    pub(crate) fn keep_number(&mut self) {
        self.number_stays = true;
    }

    /// Has the device make it.
    pub(crate) fn finish(
        mut self,
        command: impl ControlCommand,
        mut object: O,
    ) -> Result<Completed, NotMade> {
        match self.state.control.execute(command) {
            Ok(completed) => {
                let held = std::mem::take(&mut self.held);
                self.enter(Entry::Present { object, held });
                Ok(completed)
            }
            Err(error) if error.is_refusal() => {
                self.number_stays = !object.retire();
                Err(NotMade::Refused(error.into()))
            }
            Err(error) => {
                let (number, error) = (self.number, RdmaError::from(error));
                object.retire();
                self.state
                    .set_memory_apart(O::NAME, number, object.into_memory(), &error);
                let reason = error.clone();
                let held = std::mem::take(&mut self.held);
                self.enter(Entry::Unconfirmed { reason, held });
                Err(NotMade::Unconfirmed { number, error })
            }
        }
    }

    fn enter(&mut self, entry: Entry<O>) {
        self.entered = true;
        O::table(&mut self.state.objects)
            .entries
            .insert(self.number, entry);
    }
}

impl<O: Object> Drop for Making<'_, O> {
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

impl EngineState {
    /// Destroys an object in the device. Only [`Destroyed::Gone`] says that its memory is free.
    pub(crate) fn destroy<O: Object>(&mut self, number: u32, by: By) -> Destroyed<O> {
        let table = O::table(&mut self.objects);
        if self.service.end.released {
            let entry = table.entries.remove(&number);
            return Destroyed::Gone(self.forget_after_reset(entry));
        }
        let command = match table.entries.get(&number) {
            Some(Entry::Present { object, .. }) => object.destruction(number),
            Some(Entry::Gone) => {
                if by == By::Owner {
                    table.entries.remove(&number);
                }
                return Destroyed::Gone(None);
            }
            Some(Entry::Unconfirmed { reason, .. }) => {
                return match self.service.end.cause {
                    Some(cause) => Destroyed::DeviceFailed {
                        cause,
                        object: None,
                    },
                    None => Destroyed::Unconfirmed(reason.clone()),
                };
            }
            None => {
                let what = O::NAME;
                return Destroyed::Unconfirmed(RdmaError::Gone { what, number });
            }
        };
        if let Some(cause) = self.service.end.cause {
            // Nothing is asked of the device for that, and it writes no more completions.
            let object = self.lose::<O>(number, &RdmaError::DeviceFailed { cause });
            self.give_back_reports::<O>(number);
            return Destroyed::DeviceFailed { cause, object };
        }
        match self.control.execute(command) {
            Ok(_) => Destroyed::Gone(self.forget(number, by)),
            Err(error @ ControlError::Refused { .. }) => Destroyed::Refused(error.into()),
            Err(error) => {
                let error = RdmaError::from(error);
                self.set_apart::<O>(number, &error);
                Destroyed::Unconfirmed(error)
            }
        }
    }

    /// The same for an object whose memory the engine owns: gives that back, keeps it for an owner
    /// who may still look at it, or sets it apart. A device that failed takes all with its reset.
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
        let Some(Entry::Present { mut object, held }) = entry else {
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
        if !matches!(entry, Entry::Present { .. }) {
            return None;
        }
        let Entry::Present { mut object, held } = std::mem::replace(entry, Entry::Gone) else {
            return None;
        };
        object.retire();
        let reason = reason.clone();
        *entry = Entry::Unconfirmed { reason, held };
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

    /// Forgets objects that nobody owns any more: the device was reset.
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

    /// The device was reset: nothing is asked of it, and completion queues have a user less.
    fn forget_after_reset<O: Object>(&mut self, entry: Option<Entry<O>>) -> Option<O> {
        let (object, held) = match entry? {
            Entry::Present { mut object, held } => {
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

    /// Gives back what an object held. A device that refuses keeps that alone.
    fn give_back(&mut self, held: Vec<Held>) {
        for one in held {
            let result = match one {
                Held::Pages(list) => self.free_pages(list),
                Held::Address(mac) => self.give_address(mac),
                Held::Reports(queues) => self.release_completion_queues(queues),
                Held::GroupRule(mac) => self.group_rules.give(mac),
            };
            if let Err(error) = result {
                tracing::error!(%error, "something that an object held is not given back");
            }
        }
    }
}
