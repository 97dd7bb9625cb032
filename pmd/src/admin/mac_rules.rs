//! MAC addresses that rules of the switch let in, and their users.
//!
//! The switch takes each address of a VSI once. The packet path and the multicast groups of RDMA
//! ask for addresses independently, and several groups share one.

use super::{AdminError, AdminQueue};
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
}

impl AdminQueue {
    /// Delivers frames to `mac` to VSI `vsi`; returns the rule's number. One more caller of a rule
    /// that exists gets its number, and has to remove it too.
    ///
    /// Errors: those of the command, for a rule that does not exist yet.
    pub fn add_mac_rule(&self, vsi: u16, mac: [u8; 6]) -> Result<u16, AdminError> {
        let mut all = self.mac_rules.all();
        if let Some(rule) = all
            .iter_mut()
            .find(|rule| (rule.vsi, rule.mac) == (vsi, mac))
        {
            rule.users += 1;
            return Ok(rule.number);
        }
        let number = self.make_mac_rule(vsi, mac)?;
        let users = 1;
        all.push(MacRule {
            vsi,
            mac,
            number,
            users,
        });
        Ok(number)
    }

    /// Removes rule `number`; one of a MAC address with its last caller.
    ///
    /// Errors: those of the command; the rule counts as not removed then.
    pub fn remove_rule(&self, number: u16) -> Result<(), AdminError> {
        let mut all = self.mac_rules.all();
        let place = all.iter().position(|rule| rule.number == number);
        if let Some(rule) = place.and_then(|place| all.get_mut(place))
            && rule.users > 1
        {
            rule.users -= 1;
            return Ok(());
        }
        self.unmake_rule(number)?;
        if let Some(place) = place {
            all.swap_remove(place);
        }
        Ok(())
    }
}
