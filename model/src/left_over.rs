//! The state that a driver has left behind: a function compared with its state before.

use crate::firmware::FirmwareSnapshot;
use crate::function::FunctionSnapshot;
use crate::rdma::RdmaSnapshot;
use ringside_spec::lan::registers::interrupts::INTERRUPT_CONTROL;
use std::fmt::Debug;

/// Objects of one kind that are named; the others are counted.
pub const MAX_NAMED: usize = 256;

/// Things of one kind that are there and were not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOver {
    /// The kind of object.
    pub what: &'static str,
    /// The objects left over, [`MAX_NAMED`] at most.
    pub items: Vec<String>,
    /// The number of objects beyond those.
    pub more: usize,
}

/// Everything of `now` that was not there `before`, kind by kind; kinds without are left out.
#[must_use]
pub fn left_over(before: &FunctionSnapshot, now: &FunctionSnapshot) -> Vec<LeftOver> {
    let mut found = Vec::new();
    function(before, now, &mut found);
    firmware(&before.firmware, &now.firmware, &mut found);
    rdma(&before.rdma, &now.rdma, &mut found);
    found.retain(|kind| !kind.items.is_empty());
    found
}

fn beyond<T: Debug + PartialEq>(what: &'static str, before: &[T], now: &[T]) -> LeftOver {
    let mut new = now.iter().filter(|item| !before.contains(item));
    let named = new.by_ref().take(MAX_NAMED);
    let items = named.map(|item| format!("{item:x?}")).collect();
    let more = new.count();
    LeftOver { what, items, more }
}

fn changed<T: Debug + PartialEq>(what: &'static str, before: &T, now: &T) -> LeftOver {
    let items = (before != now).then(|| format!("{now:x?}"));
    LeftOver {
        what,
        items: items.into_iter().collect(),
        more: 0,
    }
}

/// All but the unit of interrupt intervals, which is one for all functions of a card: drivers set
/// it and leave it. Source: ice `ice_base.c`, `ice_cfg_itr_gran`.
fn own(registers: &[(u64, u32)]) -> Vec<(u64, u32)> {
    let own = registers.iter().filter(|(at, _)| *at != INTERRUPT_CONTROL);
    own.copied().collect()
}

fn function(before: &FunctionSnapshot, now: &FunctionSnapshot, found: &mut Vec<LeftOver>) {
    // Named one by one, so that a new kind cannot be forgotten here.
    let FunctionSnapshot {
        configuration,
        registers,
        msix_table,
        vectors,
        mappings,
        firmware: _,
        rdma: _,
    } = now;
    found.extend([
        beyond(
            "configuration space bytes (offset, value)",
            &before.configuration,
            configuration,
        ),
        beyond(
            "registers (offset, value)",
            &before.registers,
            &own(registers),
        ),
        beyond(
            "MSI-X table dwords (offset, value)",
            &before.msix_table,
            msix_table,
        ),
        beyond("connected vectors", &before.vectors, vectors),
        beyond(
            "memory mappings (address, bytes)",
            &before.mappings,
            mappings,
        ),
    ]);
}

fn firmware(before: &FirmwareSnapshot, now: &FirmwareSnapshot, found: &mut Vec<LeftOver>) {
    let FirmwareSnapshot {
        rings,
        mac,
        locks,
        vsis,
        rules,
        vsi_lists,
        lldp_receivers,
        resources,
        scheduler_nodes,
        rate_profiles,
        transmit_queues,
        rdma_queue_sets,
        rss,
        access_control,
        link,
    } = now;
    found.extend([
        beyond("admin rings", &before.rings, rings),
        changed("MAC address", &before.mac, mac),
        beyond("locks", &before.locks, locks),
        beyond("VSIs", &before.vsis, vsis),
        beyond("switch rules", &before.rules, rules),
        beyond("VSI lists", &before.vsi_lists, vsi_lists),
        beyond(
            "VSIs that get LLDP packets",
            &before.lldp_receivers,
            lldp_receivers,
        ),
        beyond("resources (type, number)", &before.resources, resources),
        beyond(
            "scheduler nodes (id, parent, kind)",
            &before.scheduler_nodes,
            scheduler_nodes,
        ),
        beyond(
            "rate profiles (layer, id)",
            &before.rate_profiles,
            rate_profiles,
        ),
        beyond("transmit queues", &before.transmit_queues, transmit_queues),
        beyond("RDMA queue sets", &before.rdma_queue_sets, rdma_queue_sets),
        beyond("VSIs with an RSS key", &before.rss.0, &rss.0),
        beyond("RSS lookup tables", &before.rss.1, &rss.1),
        beyond(
            "access control tables and scenarios",
            &before.access_control,
            access_control,
        ),
        changed(
            "link settings (disabled, events on, their mask, PHY changed, loopback, pause timers changed)",
            &before.link,
            link,
        ),
    ]);
}

fn rdma(before: &RdmaSnapshot, now: &RdmaSnapshot, found: &mut Vec<LeftOver>) {
    let RdmaSnapshot {
        control_queue,
        queue_pairs,
        completion_queues,
        completion_event_queues,
        asynchronous_event_queue,
        steering_tags,
        segments,
        arp_entries,
        scheduler_nodes,
        address_handles,
        multicast_groups,
        receive_enabled,
    } = now;
    found.extend([
        changed("control queue pair", &before.control_queue, control_queue),
        beyond("queue pairs", &before.queue_pairs, queue_pairs),
        beyond(
            "completion queues",
            &before.completion_queues,
            completion_queues,
        ),
        beyond(
            "completion event queues",
            &before.completion_event_queues,
            completion_event_queues,
        ),
        changed(
            "asynchronous event queue",
            &before.asynchronous_event_queue,
            asynchronous_event_queue,
        ),
        beyond("steering tags", &before.steering_tags, steering_tags),
        beyond("host memory cache segments", &before.segments, segments),
        beyond("ARP entries", &before.arp_entries, arp_entries),
        beyond(
            "work scheduler nodes",
            &before.scheduler_nodes,
            scheduler_nodes,
        ),
        beyond("address handles", &before.address_handles, address_handles),
        beyond(
            "multicast groups",
            &before.multicast_groups,
            multicast_groups,
        ),
        changed(
            "RDMA receive enabled",
            &before.receive_enabled,
            receive_enabled,
        ),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Reply, Request};
    use crate::{World, WorldSettings};

    #[test]
    fn of_many_things_the_first_are_named_and_the_others_counted() {
        let now: Vec<usize> = (0..MAX_NAMED + 3).collect();
        let all = beyond("things", &[5], &now);
        assert_eq!((all.items.len(), all.more), (MAX_NAMED, 2));
        let few = beyond("things", &[], &now[..MAX_NAMED]);
        assert_eq!((few.items.len(), few.more), (MAX_NAMED, 0));
    }

    #[test]
    fn what_a_driver_changes_is_named_and_what_it_puts_back_is_not() {
        let mut world = World::new(&WorldSettings::with_functions(1));
        let before = world.snapshot(0).unwrap();
        assert_eq!(left_over(&before, &before), []);
        let read = Request::ConfigRead {
            offset: 4,
            length: 2,
        };
        let Reply::Bytes(found) = world.handle(0, read) else {
            panic!("the command register is there");
        };
        let command = |bytes: &[u8]| Request::ConfigWrite {
            offset: 4,
            bytes: bytes.to_vec(),
        };
        // bus master and memory enable
        world.handle(0, command(&[6, 0]));
        let named = left_over(&before, &world.snapshot(0).unwrap());
        let [only] = &named[..] else {
            panic!("{named:?}");
        };
        assert!(only.what.starts_with("configuration space"));
        assert_eq!(only.items, ["(4, 6)"]);
        world.handle(0, command(&found));
        assert_eq!(left_over(&before, &world.snapshot(0).unwrap()), []);
    }
}
