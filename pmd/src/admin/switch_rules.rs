//! MAC addresses that rules of the switch let in, and their users.
//!
//! The switch takes each address of a VSI once. The packet path and the multicast groups of RDMA
//! ask for addresses independently, and several groups share one.

use super::AdminError;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A rule of the switch, and how many callers have asked for it.
#[derive(Clone, Copy, Debug)]
struct MacRule {
    vsi: u16,
    mac: [u8; 6],
    number: u16,
    users: u32,
}

/// The rules that were made here and not removed.
#[derive(Debug, Default)]
pub(super) struct MacRules(Mutex<Vec<MacRule>>);

impl MacRules {
    fn all(&self) -> MutexGuard<'_, Vec<MacRule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all: a reset has removed them from the device.
    pub(super) fn forget(&self) {
        self.all().clear();
    }

    /// One more caller of the rule for `mac`; `make` makes it if there is none. Returns its number.
    ///
    /// Errors: those of `make`.
    pub(in crate::admin) fn add(
        &self,
        vsi: u16,
        mac: [u8; 6],
        make: impl FnOnce() -> Result<u16, AdminError>,
    ) -> Result<u16, AdminError> {
        let mut all = self.all();
        let known = all
            .iter_mut()
            .find(|rule| (rule.vsi, rule.mac) == (vsi, mac));
        if let Some(rule) = known {
            rule.users += 1;
            return Ok(rule.number);
        }
        let number = make()?;
        let users = 1;
        all.push(MacRule {
            vsi,
            mac,
            number,
            users,
        });
        Ok(number)
    }

    /// One caller less of rule `number`; `unmake` removes it with the last one, as it does a rule that
    /// was not made here.
    ///
    /// Errors: those of `unmake`; the rule counts as not removed then.
    pub(in crate::admin) fn remove(
        &self,
        number: u16,
        unmake: impl FnOnce() -> Result<(), AdminError>,
    ) -> Result<(), AdminError> {
        let mut all = self.all();
        let place = all.iter().position(|rule| rule.number == number);
        if let Some(rule) = place.and_then(|place| all.get_mut(place))
            && rule.users > 1
        {
            rule.users -= 1;
            return Ok(());
        }
        unmake()?;
        if let Some(place) = place {
            all.swap_remove(place);
        }
        Ok(())
    }
}
