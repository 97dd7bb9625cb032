//! The flow director: filters that choose queue, drop, mark and count for exact keys of packets.
//!
//! A driver programs a filter with a descriptor and a packet as if it were sent. Source: reference
//! e810-lan-data, section 3; ice `ice_fdir.c`.

use super::headers::{self, Parsed};
use super::switching::{Tables, Vsi};
use crate::chip::Context;
use ringside_spec::lan::receive::FilterStatus;
use ringside_spec::lan::transmit::{FilterAction, FilterIdentity, filter_report};
use std::collections::BTreeMap;

/// The packets of a VSI that a filter selects: profile and words.
type Key = (u8, Vec<u16>);

/// The action on packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// They are dropped.
    pub(super) drop: bool,
    /// First queue and number of queues, counted from the first of the VSI.
    pub(super) queues: Option<(u16, u16)>,
    /// Number shown in their descriptors.
    pub(super) id: Option<u32>,
    /// Counter of packets, or of bytes.
    counter: Option<(u16, Counted)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Packets,
    Bytes,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowDirector {
    filters: BTreeMap<u16, BTreeMap<Key, Filter>>,
    counters: BTreeMap<u16, u64>,
}

/// A programming descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Programming {
    pub(super) action: FilterAction,
    pub(super) identity: FilterIdentity,
}

/// The reason why a filter could not be programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The packet has no profile.
    NoProfile,
    /// There is no room, no filter to remove, or the request is invalid.
    Refused,
}

impl Programming {
    fn filter(&self) -> Filter {
        let Self { action, identity } = self;
        let counted = match action.count() {
            0 => None,
            2 => Some(Counted::Bytes),
            _ => Some(Counted::Packets),
        };
        let steers = action.queue_priority() > 0 && !action.drop();
        Filter {
            drop: action.drop(),
            queues: steers.then_some((action.queue() as u16, 1 << action.group_log2())),
            id: (identity.id_priority() > 0).then_some(identity.id() as u32),
            counter: counted.map(|counted| (action.counter() as u16, counted)),
        }
    }
}

impl FlowDirector {
    /// A reset of the function: filters go, counters stay.
    pub(super) fn reset(&mut self) {
        self.filters.clear();
    }

    /// Filters of VSIs that are no more go.
    pub(super) fn keep(&mut self, tables: &Tables) {
        self.filters.retain(|vsi, _| tables.vsi(*vsi).is_some());
    }

    /// Filters of a VSI, or of all.
    pub(super) fn count(&self, vsi: Option<u16>) -> usize {
        let all = self.filters.iter();
        all.filter(|(number, _)| vsi.is_none_or(|vsi| vsi == **number))
            .map(|(_, filters)| filters.len())
            .sum()
    }

    /// The value of a counter.
    pub(super) fn matches(&self, counter: u16) -> u64 {
        self.counters.get(&counter).copied().unwrap_or(0)
    }

    /// A driver writes a counter.
    pub(super) fn set_matches(&mut self, counter: u16, value: u64) {
        self.counters.insert(counter, value);
    }

    /// Carries out a programming descriptor of `sender` and its packet. The word that is to be
    /// reported, if it is.
    pub(super) fn program(
        &mut self,
        programming: &Programming,
        sender: &Vsi,
        frame: &[u8],
        tables: &Tables,
        context: &mut Context<'_>,
    ) -> Option<FilterStatus> {
        let Programming { action, identity } = programming;
        let done = self.carry_out(programming, sender, frame, tables, context);
        let wanted = match action.report() {
            filter_report::ALWAYS => true,
            filter_report::FAILURES => done.is_err(),
            _ => false,
        };
        let status = FilterStatus::ZERO
            .with_done(true)
            .with_program(u64::from(identity.remove()))
            .with_failed(done.is_err())
            .with_no_profile(done == Err(Failure::NoProfile));
        wanted.then_some(status)
    }

    fn carry_out(
        &mut self,
        programming: &Programming,
        sender: &Vsi,
        frame: &[u8],
        tables: &Tables,
        context: &mut Context<'_>,
    ) -> Result<(), Failure> {
        let Programming { action, identity } = programming;
        let mut refuse = |kind: &'static str, detail: String| {
            context.ledger.breach(kind, || detail);
            Err(Failure::Refused)
        };
        if identity.swap() || action.evict() || action.completion_queue() || action.recipe() != 0 {
            return refuse(
                "filter with a field that does not work",
                format!("{programming:?}"),
            );
        }
        if !sender.filters_programmed {
            return refuse(
                "filter from a VSI that may not program any",
                format!("VSI {}", sender.number),
            );
        }
        let number = identity.vsi() as u16;
        let Some(owner) = tables.vsi(number) else {
            return refuse(
                "filter for a VSI that does not exist",
                format!("VSI {number}"),
            );
        };
        let filter = programming.filter();
        if let Some((first, count)) = filter.queues
            && usize::from(first) + usize::from(count) > owner.queues.len()
        {
            return refuse(
                "filter to queues that its VSI does not have",
                format!("{count} from {first} of {}", owner.queues.len()),
            );
        }
        let parsed = headers::parse(frame).ok_or(Failure::NoProfile)?;
        let profile = sender.filters.of_packet(&parsed);
        let profile = profile.ok_or(Failure::NoProfile)?;
        let key = (profile.number, profile.programmed_key(frame, &parsed));
        if identity.remove() {
            let filters = self.filters.get_mut(&number);
            let found = filters.and_then(|filters| filters.remove(&key));
            return found.map(|_| ()).ok_or(Failure::Refused);
        }
        // The device would keep it, and never find it.
        let found_by = owner.filters.of_packet(&parsed);
        if found_by.is_none_or(|other| other.number != profile.number) {
            return refuse(
                "filter for a VSI that looks for its packets in another profile",
                format!("profile {} of VSI {number}", profile.number),
            );
        }
        let full = self.count(None) >= tables.filter_room;
        let filters = self.filters.entry(number).or_default();
        if full && !filters.contains_key(&key) {
            return Err(Failure::Refused);
        }
        filters.insert(key, filter);
        Ok(())
    }

    /// The filter of a packet for a VSI; it is counted.
    pub(super) fn find(&mut self, vsi: &Vsi, frame: &[u8], parsed: &Parsed) -> Option<Filter> {
        if !vsi.filters_enabled {
            return None;
        }
        let filters = self.filters.get(&vsi.number)?;
        let profile = vsi.filters.of_packet(parsed)?;
        let key = (profile.number, profile.key(frame, parsed));
        let filter = *filters.get(&key)?;
        if let Some((counter, counted)) = filter.counter {
            let matches = self.counters.entry(counter).or_default();
            *matches += match counted {
                Counted::Packets => 1,
                Counted::Bytes => frame.len() as u64,
            };
        }
        Some(filter)
    }
}
