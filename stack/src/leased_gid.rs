//! The address of a DHCP server in the GID table of a device.

use ringside_clock::Instant;
use ringside_config::LocalAddress;
use ringside_pmd::Device;
use ringside_pmd::rdma::RdmaError;
use std::time::Duration;

/// The longest time for which the GID table keeps the address of a former stack while the next one
/// has no lease: the server mostly grants the same address again.
const KEPT: Duration = Duration::from_secs(30);

/// Brings the address of a DHCP server into the GID table of a device, and takes one that is lost
/// out of it. Lives as long as the table: through recoveries of the device and ends of its stack.
#[derive(Debug, Default)]
pub struct LeasedGid {
    /// the lease that the table follows
    lease: Option<LocalAddress>,
    /// The table has the address because of the lease; else it was there before, from the
    /// configuration or the program.
    is_added: bool,
    /// the lease is that of a former stack, and its address stays until then
    kept_until: Option<Instant>,
    /// the lease that the table had no place for when it was last tried
    refused: Option<LocalAddress>,
}

impl LeasedGid {
    /// The address that is in the GID table because of a lease: a new stack has it only once the
    /// server grants it again.
    #[must_use]
    pub fn added(&self) -> Option<LocalAddress> {
        self.lease.filter(|_| self.is_added)
    }

    /// A new stack begins, without a lease.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.kept_until = self.lease.map(|_| now.plus(KEPT));
    }

    /// Changes the table if `leased`, the address of the stack's lease, is another one than before.
    /// Call it regularly: what a device that is out of service refuses is done later.
    ///
    /// Control path.
    pub fn follow(&mut self, leased: Option<LocalAddress>, device: &Device, now: Instant) {
        if leased.is_some() {
            self.kept_until = None;
        }
        if self.lease == leased || self.kept_until.is_some_and(|until| now < until) {
            return;
        }
        if let Some(old) = self.added() {
            match device.remove_address(old.address, old.vlan) {
                Ok(_) | Err(RdmaError::NoSuchGid { .. }) => {}
                Err(error) => {
                    tracing::debug!(%error, "an address that is lost stays in the GID table");
                    return;
                }
            }
        }
        (self.lease, self.is_added, self.kept_until) = (None, false, None);
        let Some(new) = leased else {
            return;
        };
        self.is_added = match device.add_address(new) {
            Ok(_) => true,
            Err(RdmaError::GidExists { .. }) => false,
            Err(error) => {
                if self.refused.replace(new) != Some(new) {
                    tracing::warn!(%error, "an address has no place in the GID table; trying again");
                }
                return;
            }
        };
        (self.lease, self.refused) = (leased, None);
    }
}
