//! Names, and interfaces that another program has used before.

#[path = "../../../testkit/src/namespaces.rs"]
#[expect(unreachable_pub, reason = "in its own crate it is public")]
mod namespaces;

use super::*;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// The longest wait between two looks at the interface.
const LOOK: Duration = Duration::from_millis(100);

#[test]
fn impossible_names_are_refused_before_anything_is_opened() {
    for name in [
        "",
        "0123456789abcdef",
        "a b",
        "a/b",
        "a:b",
        "tap%d",
        "a\0b",
        "a\rb",
        "\u{e0}",
        ".",
        "..",
    ] {
        let refused = TapError::BadName { name: name.into() };
        assert_eq!(Tap::open(name).err(), Some(refused.clone()));
        assert_eq!(request(name).err(), Some(refused));
    }
}

/// The settings that a former user leaves to a persistent interface.
#[derive(Clone, Copy, Debug)]
enum Left {
    Offloads,
    NoFrames,
    OneAddress,
}

/// A filter of sockets that lets no frame pass.
static NONE: [libc::sock_filter; 1] = [libc::sock_filter {
    code: (libc::BPF_RET | libc::BPF_K) as u16,
    jt: 0,
    jf: 0,
    k: 0,
}];

/// As a virtual machine's monitor does.
fn used_before(name: &str, left: Left) {
    const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    let device = rustix::fs::open(CLONE_DEVICE, OFlags::RDWR, Mode::empty()).unwrap();
    let tap = device.as_raw_fd();
    let mut request = request(name).unwrap();
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: as in `Tap::open`.
    errno_of(unsafe { libc::ioctl(tap, libc::TUNSETIFF as _, &mut request) }).unwrap();
    let persistent: libc::c_ulong = 1;
    // SAFETY: it takes a number.
    errno_of(unsafe { libc::ioctl(tap, libc::TUNSETPERSIST as _, persistent) }).unwrap();
    let result = match left {
        Left::Offloads => {
            let offloads = libc::c_ulong::from(OFFLOADS);
            // SAFETY: it takes a number.
            unsafe { libc::ioctl(tap, libc::TUNSETOFFLOAD as _, offloads) }
        }
        Left::NoFrames => {
            let program = libc::sock_fprog {
                len: 1,
                filter: NONE.as_ptr().cast_mut(),
            };
            // SAFETY: it reads a program, which has one instruction.
            unsafe { libc::ioctl(tap, libc::TUNATTACHFILTER as _, &program) }
        }
        Left::OneAddress => {
            // flags, count, one address
            let filter: [u16; 5] = [0, 1, 2, 0, 0];
            // SAFETY: it reads a filter with one address, as `filter` says.
            unsafe { libc::ioctl(tap, libc::TUNSETTXFILTER as _, &filter) }
        }
    };
    errno_of(result).unwrap();
}

/// The next frame of the host that carries UDP over IPv4: from the header of IPv4 on.
fn next_datagram(tap: &Tap, left: Left) -> Vec<u8> {
    let end = Instant::now() + Duration::from_secs(60);
    let mut buffer = [0; 2048];
    while Instant::now() < end {
        match tap.receive(&mut buffer).unwrap() {
            Some(length) if buffer[12..14] == [8, 0] && buffer[14 + 9] == 17 => {
                return buffer[14..length].to_vec();
            }
            Some(_) => {}
            None => {
                let mut readable = [PollFd::new(tap, PollFlags::IN)];
                rustix::event::poll(&mut readable, Some(&Timespec::try_from(LOOK).unwrap()))
                    .unwrap();
            }
        }
    }
    panic!("{left:?}: the kernel sends no datagram");
}

/// The sum of RFC 1071 over the pseudo header and the datagram: all ones if its checksum is right.
fn sum(packet: &[u8]) -> u16 {
    let pseudo = [&packet[12..20], &[0, 17], &packet[20 + 4..20 + 6]].concat();
    let words = [&pseudo[..], &packet[20..]].concat();
    let sum: u32 = words
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    let sum = (sum & 0xFFFF) + (sum >> 16);
    (sum & 0xFFFF) as u16 + (sum >> 16) as u16
}

#[test]
fn offloads_and_filters_of_a_former_user_are_removed() {
    const NAME: &str = "tap::tests::offloads_and_filters_of_a_former_user_are_removed";
    if !namespaces::in_namespaces(NAME) {
        return;
    }
    for left in [Left::Offloads, Left::NoFrames, Left::OneAddress] {
        used_before("used", left);
        let tap = Tap::open("used").unwrap();
        tap.configure([2, 0xE8, 0x10, 0, 0, 1], 1500).unwrap();
        namespaces::ip("addr add 10.8.10.1/24 dev used");
        namespaces::ip("neigh replace 10.8.10.2 lladdr 02:e8:10:00:00:02 nud permanent dev used");
        let socket = UdpSocket::bind("10.8.10.1:0").unwrap();
        socket.send_to(b"seventeen bytes..", "10.8.10.2:7").unwrap();
        let packet = next_datagram(&tap, left);
        assert!(packet.ends_with(b"seventeen bytes.."), "{packet:x?}");
        assert_eq!(sum(&packet), 0xFFFF, "{left:?}: {packet:x?}");
        drop(tap);
        namespaces::ip("link delete used");
    }
}
