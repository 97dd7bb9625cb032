//! Rules of the switch for multicast groups.

use super::RdmaError;
use super::address::MacAddress;
use crate::admin::AdminQueue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rules of the switch that let the MAC addresses of groups in.
pub(crate) struct GroupRules {
    admin: Arc<AdminQueue>,
    pub(super) vsi_number: u16,
    /// number of the rule, and how many groups use it
    rules: BTreeMap<MacAddress, (u16, u32)>,
}

impl GroupRules {
    pub(crate) fn new(admin: Arc<AdminQueue>, vsi_number: u16) -> Self {
        Self {
            admin,
            vsi_number,
            rules: BTreeMap::new(),
        }
    }

    /// One group of this MAC address more, if there is a rule for it.
    pub(super) fn share(&mut self, mac: MacAddress) -> bool {
        let Some((_, users)) = self.rules.get_mut(&mac) else {
            return false;
        };
        *users += 1;
        true
    }

    /// A new rule, with its first group.
    pub(super) fn enter(&mut self, mac: MacAddress, rule: u16) {
        self.rules.insert(mac, (rule, 1));
    }

    /// One less. Returns the rule if that was the last.
    pub(super) fn give(&mut self, mac: MacAddress) -> Option<u16> {
        let (rule, users) = self.rules.get_mut(&mac)?;
        *users = users.saturating_sub(1);
        if *users > 0 {
            return None;
        }
        let rule = *rule;
        self.rules.remove(&mac);
        Some(rule)
    }

    /// Removes all that are left.
    pub(crate) fn remove_all(&mut self) -> Result<(), RdmaError> {
        let mut result = Ok(());
        for (rule, _) in std::mem::take(&mut self.rules).into_values() {
            let removed = self.admin.remove_rule(self.vsi_number, rule);
            result = result.and(removed.map_err(RdmaError::from));
        }
        result
    }

    /// Forgets all: the device was reset.
    pub(crate) fn forget(&mut self) {
        self.rules.clear();
    }
}
