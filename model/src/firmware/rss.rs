//! Receive side scaling: keys and lookup tables, as they were written.

use super::command::{Command, Outcome};
use super::vsi::Vsis;
use crate::chip::Context;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::rss::{
    RssKey, RssKeyCommand, RssTableCommand, RssTableFlags, RssVsi, table,
};
use ringside_spec::lan::admin::vsi::rss;
use std::collections::BTreeMap;

/// Highest queue in the table of a VSI.
const MAX_VSI_QUEUE: u8 = 15;

/// Keys by VSI, tables by VSI and place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rss {
    keys: BTreeMap<u16, RssKey>,
    tables: BTreeMap<(u16, u16), Vec<u8>>,
}

fn existing(vsi: u16, vsis: &Vsis) -> Result<u16, ReturnCode> {
    let vsi = RssVsi(vsi);
    let exists = vsi.valid() && vsis.exists(vsi.number());
    exists.then_some(vsi.number()).ok_or(ReturnCode::NoEntry)
}

fn table_bytes(flags: RssTableFlags) -> Result<usize, ReturnCode> {
    match (flags.kind(), flags.size()) {
        (table::VSI, _) => Ok(table::VSI_ENTRIES),
        (_, table::SIZE_128) => Ok(128),
        (_, table::SIZE_512) => Ok(table::GLOBAL_ENTRIES),
        (_, table::SIZE_2048) => Ok(table::FUNCTION_ENTRIES),
        _ => Err(ReturnCode::Invalid),
    }
}

/// The flags without the size: which table of a VSI is meant. Reading names no size, except by its
/// buffer. Source: DPDK ice `__ice_aq_get_set_rss_lut`.
fn place(flags: RssTableFlags) -> u16 {
    flags.with_size(0).0
}

impl Rss {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// VSIs that have a key, and tables: VSI, place.
    pub(super) fn list(&self) -> (Vec<u16>, Vec<(u16, u16)>) {
        (
            self.keys.keys().copied().collect(),
            self.tables.keys().copied().collect(),
        )
    }

    /// The key of a VSI, its continuation included.
    pub(super) fn key(&self, vsi: u16) -> Option<Vec<u8>> {
        let key = self.keys.get(&vsi)?;
        Some([&key.standard[..], &key.extended[..]].concat())
    }

    /// The table that a VSI uses, by the kind that its properties name; those of the function and
    /// global ones may have come from another VSI.
    pub(super) fn table(&self, vsi: u16, kind: u8, global: u8) -> Option<Vec<u8>> {
        let wanted = match kind {
            rss::TABLE_VSI => table::VSI,
            rss::TABLE_FUNCTION => table::FUNCTION,
            _ => table::GLOBAL,
        };
        let fits = |owner: u16, flags: RssTableFlags| {
            flags.kind() == wanted
                && (wanted != table::VSI || owner == vsi)
                && (wanted != table::GLOBAL || flags.global_index() == u16::from(global))
        };
        let found = self
            .tables
            .iter()
            .find(|((owner, flags), _)| fits(*owner, RssTableFlags(*flags)));
        found.map(|(_, table)| table.clone())
    }

    /// A VSI was freed.
    pub(super) fn forget(&mut self, vsi: u16) {
        self.keys.remove(&vsi);
        self.tables.retain(|(owner, _), _| *owner != vsi);
    }

    pub(super) fn set_key(&mut self, command: &Command, vsis: &Vsis) -> Outcome {
        let asked: RssKeyCommand = command.parameters();
        let vsi = existing(asked.vsi.get(), vsis)?;
        self.keys.insert(vsi, command.item(0)?);
        command.done()
    }

    pub(super) fn get_key(&self, command: &mut Command, vsis: &Vsis) -> Outcome {
        let asked: RssKeyCommand = command.parameters();
        let vsi = existing(asked.vsi.get(), vsis)?;
        let key = self.keys.get(&vsi).copied().unwrap_or(RssKey::zeroed());
        command.put(0, &key)?;
        command.answer_with(&asked, RssKey::SIZE)
    }

    pub(super) fn set_table(
        &mut self,
        command: &Command,
        vsis: &Vsis,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: RssTableCommand = command.parameters();
        let flags = RssTableFlags(asked.flags.get());
        let vsi = existing(asked.vsi.get(), vsis)?;
        let wanted = table_bytes(flags)?;
        let bytes = command
            .buffer
            .get(..wanted.min(command.buffer.len()))
            .unwrap_or_default();
        if bytes.len() < wanted {
            return Err(ReturnCode::Invalid);
        }
        // The table of a VSI has 4 bits for a queue.
        if flags.kind() == table::VSI && bytes.iter().any(|queue| *queue > MAX_VSI_QUEUE) {
            context
                .ledger
                .breach("hash table of a VSI with a queue beyond 15", || {
                    format!("VSI {vsi}")
                });
            return Err(ReturnCode::Invalid);
        }
        self.tables.insert((vsi, place(flags)), bytes.to_vec());
        command.done()
    }

    pub(super) fn get_table(&self, command: &mut Command, vsis: &Vsis) -> Outcome {
        let asked: RssTableCommand = command.parameters();
        let flags = RssTableFlags(asked.flags.get());
        let vsi = existing(asked.vsi.get(), vsis)?;
        let empty = vec![0; table_bytes(flags)?];
        let bytes = self.tables.get(&(vsi, place(flags))).unwrap_or(&empty);
        command.put_bytes(0, bytes)?;
        command.answer_with(&asked, bytes.len())
    }
}
