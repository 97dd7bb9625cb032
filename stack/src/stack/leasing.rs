//! The address and the router that a DHCP server grants.

use super::Stack;
use crate::link::{DhcpChange, Lease, Link};
use crate::{LocalAddress, StackError};
use ringside_clock::Instant;
use std::net::IpAddr;
use std::time::Duration;

/// The time between two attempts to use a lease that was refused.
const RETRY: Duration = Duration::from_secs(1);

/// The leases of a stack.
#[derive(Debug, Default)]
pub(super) struct Leasing {
    lease: Option<Lease>,
    /// The port had the lease's address before, from the configuration or the program: it stays
    /// when the lease ends.
    is_own: bool,
    /// the first of the stack's gateways is a DHCP server's
    has_gateway: bool,
    refused: Option<Refused>,
    /// the end of the lease's time, as the server granted it last
    end: Option<Instant>,
    /// The link was down, and no server has granted the lease again since: the stack keeps it for
    /// its time, unless it gets another one. smoltcp has forgotten it.
    is_unverified: bool,
}

/// A lease that the stack could not use so far: the server grants it once, and repeats nothing.
#[derive(Debug)]
struct Refused {
    lease: Lease,
    /// the time of the next attempt; at the next poll if there is none
    next: Option<Instant>,
}

impl Stack {
    /// The address that a DHCP server granted.
    #[must_use]
    pub fn leased(&self) -> Option<LocalAddress> {
        self.leasing.lease.map(|lease| lease.address)
    }

    /// The program removes an address that the stack answers for. Returns true if it is the one
    /// that a DHCP server granted: the stack answers for it as long as the lease lasts, and no
    /// longer.
    pub fn leave_to_lease(&mut self, address: IpAddr, vlan: Option<u16>) -> bool {
        let is_same = |leased: LocalAddress| (leased.address, leased.vlan) == (address, vlan);
        let is_leased = self.leased().is_some_and(is_same);
        if is_leased {
            self.leasing.is_own = false;
        }
        is_leased
    }

    /// True for a message of a DHCP server that the link at `place` does not wait for.
    pub(super) fn is_unasked(&mut self, place: usize, frame: &[u8], now: Instant) -> bool {
        if !self.links.get(place).is_some_and(Link::has_dhcp) {
            return false;
        }
        let is_unasked = !self.queues.exchange.admits(frame);
        if let Some(seconds) = self.queues.exchange.take_granted() {
            self.leasing.end = Some(now.plus(Duration::from_secs(seconds.into())));
        }
        let refused = self.queues.exchange.take_refused().map(IpAddr::V4);
        let leased = self.leased().map(|leased| leased.address);
        if refused.is_some() && refused == leased && self.leasing.is_unverified {
            self.leasing.end = Some(now);
        }
        is_unasked
    }

    /// Searches for DHCP servers at once. A lease stays for its time, unless a server grants
    /// another one, or refuses its address: no server may answer yet. Returns its address, unless
    /// the port had that before.
    /// Source: RFC 2131, section 3.7.
    pub(super) fn verify_lease(&mut self) -> Option<LocalAddress> {
        self.leasing.is_unverified = self.leasing.lease.is_some();
        self.queues.searches.forget();
        for link in &mut self.links {
            link.search_again();
        }
        self.leased().filter(|_| !self.leasing.is_own)
    }

    /// Ends a lease whose time is over, and which no server has granted again.
    pub(super) fn end_unverified_lease(&mut self, now: Instant) {
        if self.leasing.is_unverified && self.leasing.end.is_none_or(|end| end <= now) {
            self.apply_lease(DhcpChange::Lost, now);
        }
    }

    /// The first of the gateways is no longer that of a DHCP server.
    pub(super) fn drop_leased_gateway(&mut self) {
        if std::mem::take(&mut self.leasing.has_gateway) {
            self.gateways.remove(0);
        }
    }

    /// An address was removed: its lease ends with it, and one that was refused may have room now.
    pub(super) fn forget_lease_of(&mut self, removed: &LocalAddress) {
        // The program's own entry may have another prefix than the lease.
        let is_removed =
            |leased: LocalAddress| (leased.address, leased.vlan) == (removed.address, removed.vlan);
        if self.leased().is_some_and(is_removed) {
            self.forget_lease();
        }
        if let Some(refused) = &mut self.leasing.refused {
            refused.next = None;
        }
    }

    /// Its address may stay: the caller tells the links what changed.
    fn forget_lease(&mut self) {
        (self.leasing.lease, self.leasing.is_own) = (None, false);
        self.leasing.is_unverified = false;
        self.drop_leased_gateway();
    }

    /// Follows a change that DHCP brought.
    pub(super) fn apply_lease(&mut self, change: DhcpChange, now: Instant) {
        self.leasing.refused = None;
        let is_over = self.leasing.end.is_none_or(|end| end <= now);
        match change {
            DhcpChange::Lost if self.leasing.is_unverified && !is_over => {}
            DhcpChange::Granted(Lease { address, .. }) if !is_of_a_host(&address) => {
                self.end_lease();
                tracing::error!(%address, "a DHCP server grants an address that no host can have");
            }
            DhcpChange::Granted(lease) if self.leased() == Some(lease.address) => {
                // The address stays, and its connections with it.
                self.drop_leased_gateway();
                if std::mem::take(&mut self.leasing.is_unverified) {
                    self.announcements.add(lease.address, now);
                }
                self.begin_lease(lease);
            }
            DhcpChange::Granted(lease) => {
                self.end_lease();
                if let Err(error) = self.use_lease(lease, now) {
                    tracing::error!(%error, "a DHCP server's address is not used; trying again");
                }
            }
            DhcpChange::Lost => {
                // The first report of DHCP is that there is no address yet.
                if let Some(former) = self.end_lease() {
                    tracing::warn!(address = %former, "the DHCP server's lease is lost");
                }
            }
        }
    }

    /// Tries a lease again that was refused.
    pub(super) fn retry_lease(&mut self, now: Instant) {
        let is_due = |refused: &mut Refused| refused.next.is_none_or(|next| next <= now);
        if let Some(Refused { lease, .. }) = self.leasing.refused.take_if(is_due)
            && let Err(error) = self.use_lease(lease, now)
        {
            tracing::debug!(%error, "a DHCP server's address is still not used");
        }
    }

    /// Ends the lease, and removes its address unless the port had it before; returns it.
    fn end_lease(&mut self) -> Option<LocalAddress> {
        let former = self.leased()?;
        if self.leasing.is_own {
            self.forget_lease();
            self.apply();
            return Some(former);
        }
        if let Err(error) = self.remove_address(former.address, former.vlan) {
            tracing::warn!(%error, "an address of a DHCP server was removed already");
        }
        Some(former)
    }

    /// Errors: those of [`Stack::add_address`]; it is tried again later.
    fn use_lease(&mut self, lease: Lease, now: Instant) -> Result<(), StackError> {
        self.leasing.is_own = match self.add_address(lease.address, now) {
            Ok(()) => false,
            // The configuration or the program has it, too.
            Err(StackError::Duplicate(_)) => true,
            Err(error) => {
                let next = Some(now.plus(RETRY));
                self.leasing.refused = Some(Refused { lease, next });
                return Err(error);
            }
        };
        self.begin_lease(lease);
        Ok(())
    }

    /// The stack has the address of this lease: its router goes before the others.
    fn begin_lease(&mut self, lease: Lease) {
        self.leasing.lease = Some(lease);
        // The networks that the addresses reach change with a lease.
        self.apply();
        let Some(gateway) = lease.gateway.map(IpAddr::V4) else {
            return;
        };
        if let Err(error) = self.check_gateway(gateway) {
            tracing::warn!(%error, "a gateway of a DHCP server is not used");
            return;
        }
        self.leasing.has_gateway = true;
        self.gateways.insert(0, gateway);
        self.apply();
    }
}

/// True for an address that a host of its network can have: not the first and the last one, and
/// none of 0.0.0.0/8, 127.0.0.0/8, and 224.0.0.0 and above. Source: RFC 1122, section 3.2.1.3.
fn is_of_a_host(leased: &LocalAddress) -> bool {
    let IpAddr::V4(address) = leased.address else {
        return true;
    };
    !leased.is_end(leased.address) && matches!(address.octets()[0], 1..=126 | 128..=223)
}
