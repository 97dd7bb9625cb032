//! Receive side scaling: keys and lookup tables, as they were written.

use super::command::{Command, Outcome};
use super::switch::Resources;
use super::vsi::Vsis;
use crate::chip::Context;
use ringside_spec::lan::admin::ReturnCode;
use ringside_spec::lan::admin::rss::{
    RssKey, RssKeyCommand, RssTableCommand, RssTableFlags, RssVsi, table,
};
use ringside_spec::lan::admin::switch::Resource;
use ringside_spec::lan::admin::vsi::rss;
use std::collections::BTreeMap;

/// Highest queue in the table of a VSI.
const MAX_VSI_QUEUE: u8 = 15;

/// Keys by VSI, and the tables: as many as VSIs and global tables, and the function's one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rss {
    keys: BTreeMap<u16, RssKey>,
    tables: BTreeMap<Place, Table>,
}

/// The place of a table in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// the table of this VSI
    Vsi(u16),
    Function,
    /// the global table of this index
    Global(u16),
}

/// A table as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    /// the VSI by which it was written
    vsi: u16,
    queues: Vec<u8>,
}

impl Place {
    /// The flags that name it, without a size.
    fn flags(self) -> RssTableFlags {
        let flags = RssTableFlags::ZERO;
        match self {
            Self::Vsi(_) => flags.with_kind(table::VSI),
            Self::Function => flags.with_kind(table::FUNCTION),
            Self::Global(index) => flags.with_kind(table::GLOBAL).with_global_index(index),
        }
    }
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

/// The table that is meant. The size is no part of it: reading names none, except by its buffer.
/// A driver allocates a global table before it writes it.
/// Source: DPDK ice `__ice_aq_get_set_rss_lut`; ice `ice_lib.c`, `ice_vsi_alloc_rss_global_lut`.
fn place(
    vsi: u16,
    flags: RssTableFlags,
    resources: &Resources,
    context: &mut Context<'_>,
) -> Result<Place, ReturnCode> {
    let ledger = &mut context.ledger;
    let index = flags.global_index();
    match flags.kind() {
        _ if flags.0 & RssTableFlags::RESERVED != 0 => {}
        table::VSI => return Ok(Place::Vsi(vsi)),
        table::FUNCTION => return Ok(Place::Function),
        table::GLOBAL if resources.holds(Resource::GlobalHash, index) => {
            return Ok(Place::Global(index));
        }
        table::GLOBAL => {
            ledger.breach("global hash table that is not allocated", || {
                format!("table {index}, VSI {vsi}")
            });
            return Err(ReturnCode::NoEntry);
        }
        _ => {}
    }
    ledger.breach("hash table with flags that have no meaning", || {
        format!("flags {:#06x}, VSI {vsi}", flags.0)
    });
    Err(ReturnCode::Invalid)
}

impl Rss {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// VSIs that have a key, and tables: VSI that wrote it, flags without the size.
    pub(super) fn list(&self) -> (Vec<u16>, Vec<(u16, u16)>) {
        let tables = self.tables.iter();
        (
            self.keys.keys().copied().collect(),
            tables
                .map(|(place, table)| (table.vsi, place.flags().0))
                .collect(),
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
        let place = match kind {
            rss::TABLE_VSI => Place::Vsi(vsi),
            rss::TABLE_FUNCTION => Place::Function,
            _ => Place::Global(global.into()),
        };
        Some(self.tables.get(&place)?.queues.clone())
    }

    /// VSIs were freed: keeps what those have written that are left.
    pub(super) fn keep(&mut self, vsis: &Vsis) {
        self.keys.retain(|vsi, _| vsis.exists(*vsi));
        self.tables.retain(|_, table| vsis.exists(table.vsi));
    }

    /// A global table was freed.
    pub(super) fn forget_global(&mut self, index: u16) {
        self.tables.remove(&Place::Global(index));
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
        resources: &Resources,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: RssTableCommand = command.parameters();
        let flags = RssTableFlags(asked.flags.get());
        let vsi = existing(asked.vsi.get(), vsis)?;
        let place = place(vsi, flags, resources, context)?;
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
        let queues = bytes.to_vec();
        self.tables.insert(place, Table { vsi, queues });
        command.done()
    }

    pub(super) fn get_table(
        &self,
        command: &mut Command,
        vsis: &Vsis,
        resources: &Resources,
        context: &mut Context<'_>,
    ) -> Outcome {
        let asked: RssTableCommand = command.parameters();
        let flags = RssTableFlags(asked.flags.get());
        let vsi = existing(asked.vsi.get(), vsis)?;
        let place = place(vsi, flags, resources, context)?;
        let empty = vec![0; table_bytes(flags)?];
        let bytes = self
            .tables
            .get(&place)
            .map_or(&empty, |table| &table.queues);
        command.put_bytes(0, bytes)?;
        command.answer_with(&asked, bytes.len())
    }
}
