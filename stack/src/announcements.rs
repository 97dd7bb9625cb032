//! Announcements of own addresses, so that other stations learn a new MAC address at once.

use crate::LocalAddress;
use ringside_clock::Instant;
use std::net::IpAddr;
use std::time::Duration;

/// Announcements of an address. Source: RFC 5227, section 1.1, `ANNOUNCE_NUM`; RFC 4861, section
/// 7.2.6, permits three.
const COUNT: u8 = 2;
/// The time between them. Source: RFC 5227, section 1.1, `ANNOUNCE_INTERVAL`.
const INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Planned {
    address: LocalAddress,
    left: u8,
    next: Instant,
}

/// The announcements that are left to send.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    planned: Vec<Planned>,
}

impl Announcements {
    /// Announces an address from now on.
    pub(crate) fn add(&mut self, address: LocalAddress, now: Instant) {
        self.planned.push(Planned {
            address,
            left: COUNT,
            next: now,
        });
    }

    /// The port no longer has an address on a VLAN.
    pub(crate) fn remove(&mut self, address: IpAddr, vlan: Option<u16>) {
        let is_same = |own: &LocalAddress| own.address == address && own.vlan == vlan;
        self.planned.retain(|one| !is_same(&one.address));
    }

    /// The address of the next announcement that is to be sent now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<LocalAddress> {
        let place = self.planned.iter().position(|one| one.next <= now)?;
        let one = self.planned.get_mut(place)?;
        let address = one.address;
        one.left -= 1;
        one.next = now.plus(INTERVAL);
        if one.left == 0 {
            self.planned.remove(place);
        }
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_announced_twice_unless_it_is_removed() {
        let (first, second): (LocalAddress, LocalAddress) = (
            "192.0.2.1/24".parse().unwrap(),
            "2001:db8::1/64@5".parse().unwrap(),
        );
        let begin = Instant(1_000_000);
        let mut announcements = Announcements::default();
        announcements.add(first, begin);
        announcements.add(second, begin);
        assert_eq!(announcements.due(begin), Some(first));
        assert_eq!(announcements.due(begin), Some(second));
        assert_eq!(announcements.due(begin), None);
        announcements.remove(second.address, None);
        announcements.remove(first.address, None);
        let again = begin.plus(INTERVAL);
        assert_eq!(announcements.due(Instant(again.0 - 1)), None);
        assert_eq!(announcements.due(again), Some(second));
        assert_eq!(announcements.due(again.plus(INTERVAL)), None);
    }
}
