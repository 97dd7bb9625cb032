//! The kernel's request to release a device: vfio-pci signals it when a driver is unbound or the
//! device is unplugged, and waits until the device's descriptor is closed.
//!
//! Source: `linux/vfio.h`, VFIO_PCI_REQ_IRQ_INDEX; Linux, `vfio_pci_set_req_trigger`.

use super::interrupts::encode;
use super::ioctl::{self, Request};
use crate::vfio_user::message::{INTERRUPT_RELEASE, InterruptFlags, InterruptInfo};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Connects the request to an event descriptor; `None` disconnects.
///
/// Errors: `INVAL` from a kernel that has no request for this device.
pub(super) fn set(device: BorrowedFd<'_>, event: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let question = InterruptInfo {
        flags: InterruptFlags::ZERO,
        index: INTERRUPT_RELEASE,
        count: 0,
    };
    let mut bytes = question.encode();
    ioctl::ask(device, Request::InterruptInfo, &mut bytes)?;
    let info = InterruptInfo::decode(&bytes).map_err(|_| Errno::BADMSG)?;
    if info.count == 0 {
        return Err(Errno::INVAL);
    }
    ioctl::ask(device, Request::SetInterrupts, &mut argument(event))
}

/// A descriptor of -1 disconnects, whether one was connected or not.
fn argument(event: Option<BorrowedFd<'_>>) -> Vec<u8> {
    encode(INTERRUPT_RELEASE, 0, Some(&[event]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::message::SetInterrupts;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn the_request_is_one_interrupt_of_its_own_kind() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        for (given, raw) in [(Some(event.as_fd()), event.as_raw_fd()), (None, -1)] {
            let bytes = argument(given);
            let set = SetInterrupts::decode(&bytes).unwrap();
            // VFIO_PCI_REQ_IRQ_INDEX; VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER
            assert_eq!((set.index, set.start, set.count), (4, 0, 1));
            assert_eq!(set.flags.0, 0x24);
            assert_eq!(bytes[20..], raw.to_ne_bytes());
        }
    }

    #[test]
    fn a_descriptor_that_is_no_device_is_refused_by_the_kernel() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(set(file.as_fd(), None), Err(Errno::NOTTY));
    }
}
