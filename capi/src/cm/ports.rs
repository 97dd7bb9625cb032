//! Ports of the port spaces, and the ids that have them.
//!
//! Two ids may have one port if their addresses differ, or if both ask to share it. The rules are
//! those of Linux's connection manager.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::IpAddr;
use std::ops::Range;

/// The ports for ids that request none, as in Linux.
const EPHEMERAL: Range<u16> = 32_768..61_000;

/// An id that has a port, or asks for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    /// names the id
    pub(super) id: usize,
    pub(super) ip: IpAddr,
    /// an unspecified address means those of its family only
    pub(super) family_only: bool,
    /// may have the port beside others that may, too
    pub(super) shares: bool,
}

impl Owner {
    fn check(&self, other: &Self) -> Result<(), c_int> {
        let apart = self.family_only && other.family_only;
        if apart && self.ip.is_ipv4() != other.ip.is_ipv4() {
            return Ok(());
        }
        if self.ip.is_unspecified() || other.ip.is_unspecified() {
            return Err(libc::EADDRNOTAVAIL);
        }
        match self.ip == other.ip {
            true => Err(libc::EADDRINUSE),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Ports {
    /// by port space and port
    taken: HashMap<(c_int, u16), Vec<Owner>>,
    next: u16,
}

impl Ports {
    /// All are free. The seed chooses the first port for ids that request none.
    pub(super) fn new(seed: u64) -> Self {
        let span = u64::from(EPHEMERAL.end - EPHEMERAL.start);
        Self {
            taken: HashMap::new(),
            next: EPHEMERAL.start + (seed % span) as u16,
        }
    }

    /// Takes the requested port, or a free one for 0.
    ///
    /// Errors: `EADDRINUSE` and `EADDRNOTAVAIL` as Linux returns them.
    pub(super) fn take(&mut self, space: c_int, asked: u16, owner: Owner) -> Result<u16, c_int> {
        let port = match asked {
            0 => self.free(space).ok_or(libc::EADDRNOTAVAIL)?,
            asked => asked,
        };
        let owners = self.taken.entry((space, port)).or_default();
        let mut others = owners.iter().filter(|one| !(owner.shares && one.shares));
        others.try_for_each(|other| owner.check(other))?;
        owners.push(owner);
        Ok(port)
    }

    fn free(&mut self, space: c_int) -> Option<u16> {
        for _ in EPHEMERAL {
            let port = self.next;
            self.next += 1;
            if self.next >= EPHEMERAL.end {
                self.next = EPHEMERAL.start;
            }
            if !self.taken.contains_key(&(space, port)) {
                return Some(port);
            }
        }
        None
    }

    /// Checks that an id which has the port may listen at it: sharing does not extend to that.
    pub(super) fn may_listen(&self, space: c_int, port: u16, id: usize) -> Result<(), c_int> {
        let owners = self
            .taken
            .get(&(space, port))
            .map_or(&[][..], Vec::as_slice);
        let Some(own) = owners.iter().find(|one| one.id == id) else {
            return Ok(());
        };
        let mut others = owners.iter().filter(|one| one.id != id);
        others.try_for_each(|other| own.check(other))
    }

    /// The id's entry for its port, to change its options.
    pub(super) fn owner(&mut self, space: c_int, port: u16, id: usize) -> Option<&mut Owner> {
        let owners = self.taken.get_mut(&(space, port))?;
        owners.iter_mut().find(|one| one.id == id)
    }

    /// Gives back the port of an id.
    pub(super) fn give(&mut self, space: c_int, port: u16, id: usize) {
        if let Some(owners) = self.taken.get_mut(&(space, port)) {
            owners.retain(|one| one.id != id);
            if owners.is_empty() {
                self.taken.remove(&(space, port));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EPHEMERAL, Owner, Ports};
    use libc::{EADDRINUSE, EADDRNOTAVAIL};

    const TCP: i32 = 0x106;
    const UDP: i32 = 0x111;

    fn owner(id: usize, ip: &str) -> Owner {
        let ip: std::net::IpAddr = ip.parse().unwrap();
        Owner {
            id,
            ip,
            family_only: ip.is_ipv4(),
            shares: false,
        }
    }

    fn only(id: usize, ip: &str) -> Owner {
        Owner {
            family_only: true,
            ..owner(id, ip)
        }
    }

    fn shares(id: usize, ip: &str) -> Owner {
        Owner {
            shares: true,
            ..owner(id, ip)
        }
    }

    #[test]
    fn a_port_has_one_id_for_each_address_and_family() {
        let mut ports = Ports::new(0);
        let mut take = |space, owner| ports.take(space, 7, owner);
        assert_eq!(take(TCP, owner(1, "10.0.0.1")), Ok(7));
        assert_eq!(take(TCP, owner(2, "10.0.0.1")), Err(EADDRINUSE));
        assert_eq!(take(TCP, owner(2, "10.0.0.2")), Ok(7));
        assert_eq!(take(TCP, owner(3, "0.0.0.0")), Err(EADDRNOTAVAIL));
        assert_eq!(take(TCP, owner(3, "::")), Err(EADDRNOTAVAIL));
        assert_eq!(take(TCP, only(3, "::")), Ok(7));
        assert_eq!(take(TCP, owner(4, "fe80::1")), Err(EADDRNOTAVAIL));
        assert_eq!(take(UDP, owner(5, "10.0.0.1")), Ok(7));
    }

    #[test]
    fn a_port_that_was_given_back_is_free_for_another_id() {
        let mut ports = Ports::new(0);
        ports.take(TCP, 7, owner(1, "10.0.0.1")).unwrap();
        ports.give(TCP, 7, 2);
        assert!(ports.take(TCP, 7, owner(2, "10.0.0.1")).is_err());
        ports.give(TCP, 7, 1);
        assert_eq!(ports.take(TCP, 7, owner(2, "10.0.0.1")), Ok(7));
    }

    #[test]
    fn a_port_is_shared_if_both_agree_and_listened_at_by_none_meanwhile() {
        let mut ports = Ports::new(0);
        ports.take(TCP, 7, shares(1, "10.0.0.1")).unwrap();
        assert_eq!(ports.may_listen(TCP, 7, 1), Ok(()));
        let unwilling = owner(2, "10.0.0.1");
        assert_eq!(ports.take(TCP, 7, unwilling), Err(EADDRINUSE));
        assert!(ports.owner(TCP, 7, 2).is_none());
        assert_eq!(ports.take(TCP, 7, shares(2, "10.0.0.1")), Ok(7));
        assert_eq!(ports.may_listen(TCP, 7, 2), Err(EADDRINUSE));
        ports.give(TCP, 7, 1);
        assert_eq!(ports.may_listen(TCP, 7, 2), Ok(()));
    }

    #[test]
    fn an_option_that_is_set_after_binding_counts() {
        let mut ports = Ports::new(0);
        ports.take(TCP, 7, owner(1, "10.0.0.1")).unwrap();
        ports.owner(TCP, 7, 1).unwrap().shares = true;
        assert_eq!(ports.take(TCP, 7, shares(2, "10.0.0.1")), Ok(7));
    }

    #[test]
    fn free_ports_differ_until_none_is_left() {
        let mut ports = Ports::new(0);
        let mut seen = std::collections::HashSet::new();
        for id in 0..EPHEMERAL.len() {
            let port = ports.take(TCP, 0, owner(id, "10.0.0.1")).unwrap();
            assert!(EPHEMERAL.contains(&port) && seen.insert(port));
        }
        let one_more = owner(usize::MAX, "10.0.0.2");
        assert_eq!(ports.take(TCP, 0, one_more), Err(EADDRNOTAVAIL));
        assert_eq!(ports.take(UDP, 0, one_more), Ok(EPHEMERAL.start));
    }
}
