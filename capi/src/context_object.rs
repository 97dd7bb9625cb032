//! An open context.

use crate::abi::{ibv_context, verbs_context};
use crate::channel::EventQueue;
use crate::device::{Port, lock};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex};

/// A context: the table before the public part, which programs find by its offset, and what the
/// library keeps behind it.
#[repr(C)]
pub(crate) struct ContextObject {
    pub(crate) table: verbs_context,
    pub(crate) port: Arc<Port>,
    /// a descriptor in the place of the kernel's: programs duplicate it and set its flags
    pub(crate) _commands: Option<std::fs::File>,
    pub(crate) events: EventQueue<Reported>,
    /// events that were read and not acknowledged, by element
    pub(crate) unacknowledged: Mutex<Vec<usize>>,
    pub(crate) acknowledged: Condvar,
}

impl ContextObject {
    /// The context behind a public pointer.
    ///
    /// # Safety
    /// `context` came from `ibv_open_device` and is not closed while the result is used.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a Self {
        let offset = std::mem::offset_of!(verbs_context, context);
        // SAFETY: the public part lies at that offset of an object that `ibv_open_device` made.
        unsafe { &*context.byte_sub(offset).cast::<Self>() }
    }

    pub(crate) fn public(&self) -> *mut ibv_context {
        (&raw const self.table.context).cast_mut()
    }

    /// True if an event belongs to this context: to one of its objects, or to the device.
    pub(crate) fn owns(&self, element: *mut c_void, _kind: c_int) -> bool {
        // SAFETY: every object begins with a pointer to its context.
        element.is_null() || unsafe { *element.cast::<*mut ibv_context>() } == self.public()
    }

    /// Takes back events of an object that were not read, and waits until those that were read are
    /// acknowledged.
    pub(crate) fn finish_events(&self, element: usize) {
        self.events.withdraw(|event| event.element == element);
        let mut open = lock(&self.unacknowledged);
        while open.contains(&element) {
            open = self
                .acknowledged
                .wait(open)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

/// An asynchronous event as programs read it: the object's address, or 0, and the type.
#[derive(Clone, Copy)]
pub(crate) struct Reported {
    pub(crate) element: usize,
    pub(crate) kind: c_int,
}
