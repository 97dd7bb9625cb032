//! Message-signalled interrupts by event descriptors.

use super::ioctl::{self, Request};
use crate::vfio_user::message::{
    INTERRUPT_MSIX, InterruptFlags, InterruptInfo, SetInterrupts, SetInterruptsFlags,
};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Most vectors of a function. Source: PCI Express base specification, section 7.7.2.2.
const MAX_VECTORS: u32 = 2048;

/// The vectors of a function and the descriptors that they are connected to.
#[derive(Debug)]
pub(super) struct Interrupts {
    count: u16,
    /// they can only be set up as a whole (kernels before 6.5)
    whole: bool,
    /// the vectors that the kernel has set up
    connected: Vec<Option<OwnedFd>>,
}

impl Interrupts {
    /// The state before the device was queried.
    pub(super) const NONE: Self = Self {
        count: 0,
        whole: false,
        connected: Vec::new(),
    };

    /// Queries the number of vectors.
    pub(super) fn query(device: BorrowedFd<'_>) -> Result<Self, Errno> {
        let question = InterruptInfo {
            flags: InterruptFlags::ZERO,
            index: INTERRUPT_MSIX,
            count: 0,
        };
        let mut bytes = question.encode();
        ioctl::ask(device, Request::InterruptInfo, &mut bytes)?;
        let info = InterruptInfo::decode(&bytes).map_err(|_| Errno::BADMSG)?;
        Ok(Self {
            count: info.count.min(MAX_VECTORS) as u16,
            whole: info.flags.no_resize(),
            connected: Vec::new(),
        })
    }

    /// The number of vectors of the function.
    pub(super) const fn count(&self) -> u16 {
        self.count
    }

    /// Connects vectors `first..` to `events`, or disconnects them.
    pub(super) fn set(
        &mut self,
        device: BorrowedFd<'_>,
        first: u16,
        events: &[Option<BorrowedFd<'_>>],
    ) -> Result<(), Errno> {
        let first = usize::from(first);
        let end = first + events.len();
        if end > usize::from(self.count) {
            return Err(Errno::INVAL);
        }
        let mut wanted = Vec::with_capacity(end);
        for event in events {
            let kept = event.map(|event| event.try_clone_to_owned()).transpose();
            wanted
                .push(kept.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE))?);
        }
        let enabled = !self.connected.is_empty();
        let grows = end > self.connected.len();
        if grows {
            self.connected.resize_with(end, || None);
        }
        for (slot, event) in self.connected.iter_mut().skip(first).zip(wanted) {
            *slot = event;
        }
        if self.connected.iter().all(Option::is_none) {
            return self.disable(device);
        }
        let set_up_again = grows && enabled && self.whole;
        if set_up_again {
            send(device, 0, None)?;
        }
        let part = if set_up_again {
            0..self.connected.len()
        } else {
            first..end
        };
        let events = self.connected.get(part.clone()).unwrap_or(&[]);
        send(device, part.start, Some(events))
    }

    /// Disconnects all vectors.
    pub(super) fn disable(&mut self, device: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.connected.is_empty() {
            return Ok(());
        }
        self.connected.clear();
        send(device, 0, None)
    }
}

/// VFIO_DEVICE_SET_IRQS for MSI-X: connects vectors `first..`, or switches MSI-X off.
fn send(
    device: BorrowedFd<'_>,
    first: usize,
    events: Option<&[Option<OwnedFd>]>,
) -> Result<(), Errno> {
    let mut bytes = encode(INTERRUPT_MSIX, first, events);
    ioctl::ask(device, Request::SetInterrupts, &mut bytes)
}

/// The argument of VFIO_DEVICE_SET_IRQS that connects interrupts `first..` of a kind, or switches
/// all of it off.
pub(super) fn encode(index: u32, first: usize, events: Option<&[Option<impl AsRawFd>]>) -> Vec<u8> {
    let flags = SetInterruptsFlags::ZERO.with_action_trigger(true);
    let flags = match events {
        Some(_) => flags.with_data_eventfd(true),
        None => flags.with_data_none(true),
    };
    let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let set = SetInterrupts {
        flags,
        index,
        start: narrow(first),
        count: narrow(events.map_or(0, <[_]>::len)),
    };
    let mut bytes = set.encode();
    for event in events.unwrap_or(&[]) {
        let descriptor = event.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        bytes.extend(descriptor.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn event() -> OwnedFd {
        rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn connected_vectors_carry_their_descriptor_and_others_minus_one() {
        let one = event();
        let raw = one.as_raw_fd();
        let bytes = encode(INTERRUPT_MSIX, 5, Some(&[None, Some(one)]));
        let set = SetInterrupts::decode(&bytes).unwrap();
        assert_eq!((set.start, set.count, set.index), (5, 2, 2));
        // VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER
        assert_eq!(set.flags.0, 0x24);
        assert_eq!(bytes[20..24], (-1i32).to_ne_bytes());
        assert_eq!(bytes[24..], raw.to_ne_bytes());
    }

    #[test]
    fn switching_off_has_no_data() {
        let bytes = encode(INTERRUPT_MSIX, 0, None::<&[Option<OwnedFd>]>);
        let set = SetInterrupts::decode(&bytes).unwrap();
        // VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER
        assert_eq!((set.flags.0, set.count, bytes.len()), (0x21, 0, 20));
    }

    #[test]
    fn vectors_that_the_function_has_not_are_refused_before_the_kernel_is_asked() {
        let mut interrupts = Interrupts {
            count: 4,
            whole: false,
            connected: Vec::new(),
        };
        let (file, one) = (std::fs::File::open("/dev/null").unwrap(), event());
        let events = [Some(one.as_fd()), None];
        let refused = interrupts.set(file.as_fd(), 3, &events);
        assert_eq!(refused, Err(Errno::INVAL));
        let asked = interrupts.set(file.as_fd(), 2, &events);
        assert_eq!(asked, Err(Errno::NOTTY));
    }
}
