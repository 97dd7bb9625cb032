//! Spreading of received packets over queues.

use super::hash_table::Spreading;
use super::shared::{Configured, PortShared};
use super::{PortError, Vsi};
use ringside_spec::lan::admin::rss::table;

impl Vsi {
    /// Entries of its table: 128, 512 or 2048 of the port, 64 of a further VSI.
    #[must_use]
    pub fn hash_table_entries(&self) -> usize {
        self.shared.spreading_entries()
    }

    /// Key and table that the device has: of each entry the queue, counted from the VSI's first.
    #[must_use]
    pub fn spreading(&self) -> Option<Spreading> {
        self.shared.configured().written.clone()
    }

    /// Sets key and table.
    ///
    /// Control path. Errors: an empty table or more than [`Vsi::hash_table_entries`], a queue that
    /// does not exist, or a refusal of the firmware; key and table are those from before.
    pub fn spread(&self, spreading: &Spreading) -> Result<(), PortError> {
        // Held to the end: of two calls at once, one is done after the other.
        let mut configured = self.shared.configured();
        self.shared.write_spreading(&mut configured, spreading)?;
        configured.spreading = Some(spreading.clone());
        Ok(())
    }
}

impl PortShared {
    fn spreading_entries(&self) -> usize {
        if self.further.is_some() {
            return table::VSI_ENTRIES;
        }
        let known = [128, table::GLOBAL_ENTRIES, table::FUNCTION_ENTRIES];
        let has = self.table_entries;
        known
            .into_iter()
            .filter(|size| *size <= has)
            .max()
            .unwrap_or(128)
    }

    /// Writes key and table. If the firmware refuses the table, the key is that from before.
    pub(super) fn write_spreading(
        &self,
        configured: &mut Configured,
        spreading: &Spreading,
    ) -> Result<(), PortError> {
        if spreading.table.is_empty() {
            return Err(PortError::Invalid {
                what: "hash table",
                value: "without entries".to_owned(),
                remedy: "name at least one queue",
            });
        }
        let (given, entries) = (spreading.table.len(), self.spreading_entries());
        if given > entries {
            return Err(PortError::Invalid {
                what: "hash table",
                value: format!("of {given} entries"),
                remedy: match entries {
                    table::VSI_ENTRIES => "choose 1 to 64 entries, which are repeated",
                    128 => "choose 1 to 128 entries, which are repeated",
                    table::GLOBAL_ENTRIES => "choose 1 to 512 entries, which are repeated",
                    _ => "choose 1 to 2048 entries, which are repeated",
                },
            });
        }
        let beyond = |queue: &&u8| usize::from(**queue) >= self.queues.0;
        if let Some(queue) = spreading.table.iter().find(beyond) {
            return Err(PortError::Invalid {
                what: "hash table",
                value: format!("with queue {queue} of {}", self.queues.0),
                remedy: "name receive queues that exist, counted from 0",
            });
        }
        let admin = self.admin()?;
        let table = spreading.table.iter().copied().cycle();
        let table: Vec<u8> = table.take(entries).collect();
        admin.set_hash_key(self.vsi, &spreading.key)?;
        let kind = match self.further {
            Some(_) => table::VSI,
            None => table::FUNCTION,
        };
        let Err(refusal) = admin.set_hash_table(self.vsi, kind, &table) else {
            let key = spreading.key;
            configured.written = Some(Spreading { key, table });
            return Ok(());
        };
        if let Some(before) = &configured.written
            && let Err(error) = admin.set_hash_key(self.vsi, &before.key)
        {
            tracing::warn!(%error, "the VSI has a new key and its former table");
        }
        Err(refusal.into())
    }
}
