//! Tables of the objects that the device has, or may have.

use super::RdmaError;
use super::address::{ArpTable, MacAddress};
use super::end::OwedFlush;
use super::numbers::{Numbers, Rested};
use super::records::{
    AddressHandleRecord, CompletionQueueRecord, MulticastRecord, QueuePairRecord, RegionRecord,
};
use ringside_bus::DmaBuffer;
use ringside_hmc::PageList;
use ringside_spec::rdma::commands::ControlCommand;
use ringside_spec::rdma::fpm::ObjectType;
use std::collections::BTreeMap;

/// A kind of object that the device has.
pub(crate) trait Object: Sized {
    /// Its name in errors, logs and the quarantine.
    const NAME: &'static str;
    /// Its context's place in the host memory cache.
    const CONTEXT: ObjectType;
    /// The command that destroys it.
    type Destroy: ControlCommand;

    /// All objects of this kind.
    fn table(objects: &mut Objects) -> &mut Table<Self>;

    /// The command that destroys this one.
    fn destruction(&self, number: u32) -> Self::Destroy;

    /// True if the device has confirmed its destruction already, while its owner still has it.
    fn is_destroyed(&self) -> bool {
        false
    }

    /// Takes it out of use on this side. Returns false if its number must not be used again.
    fn retire(&mut self) -> bool {
        true
    }

    /// The same for one that may still be in the device. Returns the flushes for when the device
    /// writes nothing more.
    fn retire_unconfirmed(&mut self) -> Vec<OwedFlush> {
        self.retire();
        Vec::new()
    }

    /// The memory that the device uses for it and that the engine owns.
    fn into_memory(self) -> Vec<DmaBuffer> {
        Vec::new()
    }
}

/// A resource that an object uses besides its number and its memory. It is freed once the device
/// has destroyed the object.
#[derive(Debug)]
pub(crate) enum Held {
    /// Page buffer list entries.
    Pages(PageList),
    /// A use of an entry in the table of MAC addresses.
    Address(MacAddress),
    /// Uses of completion queues, by number.
    Reports([u32; 2]),
    /// A use of the switch's rule for a multicast MAC address.
    GroupRule(MacAddress),
}

/// The knowledge about an object. A number without an entry is unknown here: its memory is not free
/// for that reason.
#[derive(Debug)]
pub(super) enum Entry<O> {
    /// The device has it.
    Present { object: O, held: Vec<Held> },
    /// The device has it and was asked to destroy it: no other operation gets it.
    Leaving { object: O, held: Vec<Held> },
    /// The device confirmed its destruction; its owner has not queried it yet.
    Gone,
    /// The device did not confirm its destruction, or got no command. Number, memory and its other
    /// resources are not used again before a reset.
    Unconfirmed { reason: RdmaError, held: Vec<Held> },
}

/// All objects of a kind, by number.
#[derive(Debug)]
pub(crate) struct Table<O> {
    pub(super) numbers: Numbers,
    pub(super) entries: BTreeMap<u32, Entry<O>>,
}

impl<O: Object> Table<O> {
    pub(crate) fn new(numbers: Numbers) -> Self {
        Self {
            numbers,
            entries: BTreeMap::new(),
        }
    }

    fn none() -> Self {
        Self::new(Numbers::new(O::NAME, "", 0..0, 0))
    }

    /// Frees the number of a destroyed object.
    pub(crate) fn give(&mut self, number: u32) {
        self.numbers.give(number);
    }

    /// Its numbers.
    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// The object, if the device has it.
    pub(crate) fn get(&self, number: u32) -> Option<&O> {
        match self.entries.get(&number) {
            Some(Entry::Present { object, .. }) => Some(object),
            _ => None,
        }
    }

    /// True if the device may still have the object: it did not confirm that it destroyed or did
    /// not create it.
    pub(crate) fn is_unconfirmed(&self, number: u32) -> bool {
        matches!(self.entries.get(&number), Some(Entry::Unconfirmed { .. }))
    }

    /// True if there is one of those.
    pub(crate) fn has_unconfirmed(&self) -> bool {
        let mut entries = self.entries.values();
        entries.any(|entry| matches!(entry, Entry::Unconfirmed { .. }))
    }

    /// The same as [`Self::get`], to be changed.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut O> {
        match self.entries.get_mut(&number) {
            Some(Entry::Present { object, .. }) => Some(object),
            _ => None,
        }
    }

    /// The object, to be changed, also while it is being destroyed.
    pub(crate) fn known_mut(&mut self, number: u32) -> Option<&mut O> {
        match self.entries.get_mut(&number) {
            Some(Entry::Present { object, .. } | Entry::Leaving { object, .. }) => Some(object),
            _ => None,
        }
    }

    /// Takes an object from other operations: the device is asked to destroy it.
    pub(super) fn leave(&mut self, number: u32) {
        let entry = self.entries.remove(&number).map(|entry| match entry {
            Entry::Present { object, held } => Entry::Leaving { object, held },
            other => other,
        });
        if let Some(entry) = entry {
            self.entries.insert(number, entry);
        }
    }

    /// Takes that back: the device refused.
    pub(super) fn stay(&mut self, number: u32) {
        let entry = self.entries.remove(&number).map(|entry| match entry {
            Entry::Leaving { object, held } => Entry::Present { object, held },
            other => other,
        });
        if let Some(entry) = entry {
            self.entries.insert(number, entry);
        }
    }

    /// Returns the object, or the error that it no longer exists.
    pub(crate) fn must(&self, number: u32) -> Result<&O, RdmaError> {
        let what = O::NAME;
        self.get(number).ok_or(RdmaError::Gone { what, number })
    }

    /// The same, to be changed.
    pub(crate) fn must_mut(&mut self, number: u32) -> Result<&mut O, RdmaError> {
        let what = O::NAME;
        let found = self.get_mut(number);
        found.ok_or(RdmaError::Gone { what, number })
    }

    /// All that the device has.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &O)> {
        self.entries
            .iter()
            .filter_map(|(number, entry)| match entry {
                Entry::Present { object, .. } => Some((*number, object)),
                _ => None,
            })
    }

    /// Numbers of all objects of the device for which `wanted` is true.
    pub(crate) fn numbers_of(&self, wanted: impl Fn(&O) -> bool) -> Vec<u32> {
        self.iter()
            .filter(|(_, object)| wanted(object))
            .map(|(number, _)| number)
            .collect()
    }

    /// Takes the page buffer list that an object holds, to be held again.
    pub(crate) fn take_pages(&mut self, number: u32) -> Option<PageList> {
        let Some(Entry::Present { held, .. }) = self.entries.get_mut(&number) else {
            return None;
        };
        let is_list = |one: &Held| matches!(one, Held::Pages(_));
        let place = held.iter().position(is_list)?;
        match held.swap_remove(place) {
            Held::Pages(list) => Some(list),
            _ => None,
        }
    }

    /// Lets an object hold something more.
    pub(crate) fn hold(&mut self, number: u32, more: Held) {
        if let Some(Entry::Present { held, .. }) = self.entries.get_mut(&number) {
            held.push(more);
        }
    }

    /// True if the object held a use of this MAC address: it does not hold it any more, and the
    /// caller frees it.
    pub(crate) fn release_address(&mut self, number: u32, mac: MacAddress) -> bool {
        let Some(Entry::Present { held, .. }) = self.entries.get_mut(&number) else {
            return false;
        };
        let at = held
            .iter()
            .position(|one| matches!(one, Held::Address(address) if *address == mac));
        at.map(|at| held.swap_remove(at)).is_some()
    }

    /// Removes all objects without a command; the device may still have them. Returns their memory,
    /// and the flushes for when the device writes nothing more.
    pub(super) fn give_up(&mut self, reason: &RdmaError) -> (Vec<DmaBuffer>, Vec<OwedFlush>) {
        let (mut memory, mut owed) = (Vec::new(), Vec::new());
        for entry in self.entries.values_mut() {
            if matches!(entry, Entry::Present { .. })
                && let Entry::Present { mut object, held } = std::mem::replace(entry, Entry::Gone)
            {
                owed.extend(object.retire_unconfirmed());
                memory.extend(object.into_memory());
                let reason = reason.clone();
                *entry = Entry::Unconfirmed { reason, held };
            }
        }
        (memory, owed)
    }

    /// Forgets all: the device was reset.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

/// All objects, with their pools of numbers.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) queue_pairs: Table<QueuePairRecord>,
    pub(crate) completion_queues: Table<CompletionQueueRecord>,
    pub(crate) regions: Table<RegionRecord>,
    pub(crate) address_handles: Table<AddressHandleRecord>,
    pub(crate) multicast_groups: Table<MulticastRecord>,
    pub(crate) protection_domains: Numbers,
    pub(crate) arp: ArpTable,
    /// bits of a steering tag's index that name the region
    pub(crate) region_index_bits: u32,
    /// queue pairs that a completion queue must be ready for
    pub(crate) queue_pair_slots: u32,
}

impl Objects {
    /// The objects of a device whose host memory cache has no size yet: none.
    pub(crate) fn none() -> Self {
        Self {
            queue_pairs: Table::none(),
            completion_queues: Table::none(),
            regions: Table::none(),
            address_handles: Table::none(),
            multicast_groups: Table::none(),
            protection_domains: Numbers::new("protection domains", "", 0..0, 0),
            arp: ArpTable::new(0),
            region_index_bits: 0,
            queue_pair_slots: 0,
        }
    }

    /// True once the host memory cache has been sized.
    pub(crate) fn are_sized(&self) -> bool {
        self.queue_pair_slots > 0
    }

    /// Numbers that are withheld from reuse in the next period of service.
    pub(crate) fn rested(&self) -> RestedNumbers {
        RestedNumbers {
            queue_pairs: self.queue_pairs.numbers.rested(),
            completion_queues: self.completion_queues.numbers.rested(),
            regions: self.regions.numbers.rested(),
            address_handles: self.address_handles.numbers.rested(),
            multicast_groups: self.multicast_groups.numbers.rested(),
            protection_domains: self.protection_domains.rested(),
        }
    }
}

/// Numbers that are withheld from reuse when a device is brought up again: peers may still send to
/// those objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct RestedNumbers {
    pub(crate) queue_pairs: Rested,
    pub(crate) completion_queues: Rested,
    pub(crate) regions: Rested,
    pub(crate) address_handles: Rested,
    pub(crate) multicast_groups: Rested,
    pub(crate) protection_domains: Rested,
}
