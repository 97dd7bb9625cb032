//! Queries of a device and its ports; events of a context.

use crate::abi::{
    event, ibv_async_event, ibv_context, ibv_cq, ibv_device_attr, ibv_device_attr_ex, ibv_gid,
    ibv_gid_entry, ibv_port_attr, ibv_qp, ibv_srq,
};
use crate::cancel::Uncancelled;
use crate::context_object::ContextObject;
use crate::device::{Port, lock, put_text};
use crate::errno;
use crate::gid::gid_of;
use crate::interface;
use crate::live::{self, Kind};
use ringside_pmd::bring_up::Facts;
use ringside_pmd::rdma::{MAX_GIDS, PortState};
use ringside_spec::rdma::commands::MULTICAST_GROUP_MEMBERS;
use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv6Addr};

/// Receives that a shared receive queue holds.
const MAX_SHARED_RECEIVES: u32 = 65_536;
/// Fragments of such a receive.
const MAX_SHARED_FRAGMENTS: u32 = ringside_spec::rdma::limits::MAX_FRAGMENTS;
/// The size of the oldest port attributes, which `ibv_query_port` without a length fills.
const OLDEST_PORT_ATTRIBUTES: usize = 48;

/// # Safety
/// `context` is open; `attributes` is a place for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attributes: *mut ibv_device_attr,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let (context, attributes) = unsafe { (ContextObject::of(context), &mut *attributes) };
    match fill_device(&context.port, attributes) {
        Ok(()) => 0,
        Err(error) => errno::failed(error),
    }
}

fn count(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// The revision of the PCI function, as Linux's irdma reports it.
pub(crate) fn revision(facts: &Facts) -> u32 {
    let identity = facts.identity.as_ref();
    identity.map_or(0, |identity| identity.revision.into())
}

/// Errors: an errno value.
fn fill_device(port: &Port, attributes: &mut ibv_device_attr) -> Result<(), c_int> {
    const PORT_ACTIVE_EVENT: u32 = 1 << 10;
    const RC_RNR_NAK_GEN: u32 = 1 << 12;
    const CURR_QP_STATE_MOD: u32 = 1 << 7;
    const MEM_WINDOW: u32 = 1 << 17;
    const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
    const MEMBERS: u32 = MULTICAST_GROUP_MEMBERS as u32;
    let device = port.device()?;
    let limits = device.rdma_limits().map_err(|error| errno::of(&error))?;
    let usage = device.object_usage().map_err(|error| errno::of(&error))?;
    let facts = device.facts();
    let (vendor, part) = facts
        .identity
        .as_ref()
        .map_or((0x8086, 0), |identity| (identity.vendor, identity.device));
    // SAFETY: numbers and characters: all zero is a value.
    *attributes = unsafe { std::mem::zeroed() };
    if let Some(version) = facts.rdma.firmware_version() {
        put_text(&mut attributes.fw_ver, &version);
    }
    attributes.hw_ver = revision(facts);
    attributes.node_guid = port.guid();
    attributes.sys_image_guid = port.guid();
    attributes.max_mr_size = limits.region_bytes;
    attributes.page_size_cap = limits.page_sizes;
    attributes.vendor_id = vendor.into();
    attributes.vendor_part_id = part.into();
    attributes.max_qp = count(limits.queue_pairs);
    attributes.max_qp_wr = count(limits.requests);
    attributes.device_cap_flags = PORT_ACTIVE_EVENT
        | RC_RNR_NAK_GEN
        | CURR_QP_STATE_MOD
        | MEM_WINDOW
        | MEM_MGT_EXTENSIONS
        | MEM_WINDOW_TYPE_2B;
    attributes.max_sge = count(limits.fragments);
    attributes.max_sge_rd = count(limits.read_fragments);
    attributes.max_cq = count(limits.completion_queues);
    attributes.max_cqe = count(limits.completions);
    attributes.max_mr = count(limits.memory_regions);
    attributes.max_mw = count(limits.memory_regions);
    attributes.max_pd = count(limits.protection_domains);
    attributes.max_qp_rd_atom = count(limits.inbound_reads);
    attributes.max_qp_init_rd_atom = count(limits.outbound_reads);
    attributes.max_res_rd_atom = count(limits.inbound_reads);
    attributes.max_mcast_grp = count(usage.multicast_groups.limit);
    attributes.max_mcast_qp_attach = count(MEMBERS);
    attributes.max_total_mcast_qp_attach = count(usage.multicast_groups.limit * MEMBERS);
    attributes.max_ah = count(usage.address_handles.limit);
    attributes.max_srq = count(limits.queue_pairs);
    attributes.max_srq_wr = count(MAX_SHARED_RECEIVES);
    attributes.max_srq_sge = count(MAX_SHARED_FRAGMENTS);
    attributes.max_pkeys = 1;
    attributes.phys_port_cnt = 1;
    Ok(())
}

/// The slot behind `ibv_query_device_ex`: fills as much as the program has room for.
///
/// # Safety
/// `attributes` is a place of `length` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const c_void,
    attributes: *mut ibv_device_attr_ex,
    length: usize,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: numbers: all zero is a value.
    let mut all: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    // SAFETY: an open context, as the caller promises.
    let port = unsafe { &ContextObject::of(context).port };
    if let Err(error) = fill_device(port, &mut all.orig_attr) {
        return errno::failed(error);
    }
    all.device_cap_flags_ex = all.orig_attr.device_cap_flags.into();
    all.phys_port_cnt_ex = 1;
    if length < size_of::<ibv_device_attr>() {
        return errno::failed(libc::EINVAL);
    }
    let length = length.min(size_of::<ibv_device_attr_ex>());
    // SAFETY: both are at least that long.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const all).cast(), attributes.cast::<u8>(), length)
    };
    0
}

/// Width and speed of a link as InfiniBand counts them. Their product is the rate.
fn width_and_speed(megabits: Option<u32>) -> (u8, u8) {
    const LANES_1: u8 = 1;
    const LANES_4: u8 = 2;
    const LANES_2: u8 = 16;
    const SDR: u8 = 1;
    const FDR10: u8 = 8;
    const EDR: u8 = 32;
    const HDR: u8 = 64;
    match megabits {
        Some(200_000) => (LANES_4, HDR),
        Some(100_000) => (LANES_4, EDR),
        Some(50_000) => (LANES_2, EDR),
        Some(40_000) => (LANES_4, FDR10),
        Some(25_000) => (LANES_1, EDR),
        Some(10_000) => (LANES_1, FDR10),
        _ => (LANES_1, SDR),
    }
}

/// A path MTU as verbs codes it.
pub(crate) fn mtu_code(bytes: u32) -> c_int {
    c_int::try_from(bytes.max(256).ilog2().saturating_sub(7)).unwrap_or(1)
}

/// Errors: an errno value.
pub(crate) fn port_attributes(port: &Port) -> Result<ibv_port_attr, c_int> {
    const ACTIVE: c_int = 4;
    const DOWN: c_int = 1;
    const LINK_UP: u8 = 5;
    const DISABLED: u8 = 3;
    const ETHERNET: u8 = 2;
    const CONNECTION_MANAGEMENT: u32 = 1 << 16;
    const REINITIALISATION: u32 = 1 << 18;
    const IP_BASED_GIDS: u32 = 1 << 26;
    const GLOBAL_ROUTE_REQUIRED: u8 = 1;
    let report = port.device()?.query_port();
    let report = report.map_err(|error| errno::of(&error))?;
    let up = report.state == PortState::Active;
    let (active_width, active_speed) = width_and_speed(report.megabits_per_second);
    // SAFETY: numbers: all zero is a value.
    let mut attributes: ibv_port_attr = unsafe { std::mem::zeroed() };
    attributes.state = if up { ACTIVE } else { DOWN };
    attributes.max_mtu = mtu_code(report.most_mtu);
    attributes.active_mtu = mtu_code(report.active_mtu);
    attributes.gid_tbl_len = MAX_GIDS as c_int;
    attributes.port_cap_flags = CONNECTION_MANAGEMENT | REINITIALISATION | IP_BASED_GIDS;
    attributes.max_msg_sz = report.message_bytes;
    attributes.pkey_tbl_len = 1;
    attributes.max_vl_num = 1;
    attributes.active_width = active_width;
    attributes.active_speed = active_speed;
    attributes.phys_state = if up { LINK_UP } else { DISABLED };
    attributes.link_layer = ETHERNET;
    attributes.flags = GLOBAL_ROUTE_REQUIRED;
    Ok(attributes)
}

/// The slot behind `ibv_query_port`: fills as much as the program has room for.
///
/// # Safety
/// `attributes` is a place of `length` bytes.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_number: u8,
    attributes: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    let _call = Uncancelled::new();
    if port_number != 1 {
        return errno::failed(libc::EINVAL);
    }
    // SAFETY: an open context, as the caller promises.
    let port = unsafe { &ContextObject::of(context).port };
    let all = match port_attributes(port) {
        Ok(all) => all,
        Err(error) => return errno::failed(error),
    };
    let length = length.min(size_of::<ibv_port_attr>());
    // SAFETY: both are at least that long.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const all).cast(), attributes.cast::<u8>(), length)
    };
    0
}

/// Fills the oldest form, for programs that do not use the slot.
///
/// # Safety
/// `attributes` is a place of 48 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port_number: u8,
    attributes: *mut c_void,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    unsafe {
        query_port(
            context,
            port_number,
            attributes.cast(),
            OLDEST_PORT_ATTRIBUTES,
        )
    }
}

/// The speed of the port, in units of 100 Mb/s.
///
/// # Safety
/// `context` is open; `speed` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port_number: u32,
    speed: *mut u64,
) -> c_int {
    let _call = Uncancelled::new();
    if port_number != 1 {
        return errno::failed(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let port = unsafe { &ContextObject::of(context).port };
    let report = port
        .device()
        .and_then(|device| device.query_port().map_err(|error| errno::of(&error)));
    match report {
        Ok(report) => {
            let megabits = report.megabits_per_second.unwrap_or(0);
            // SAFETY: the caller's promise.
            unsafe { *speed = u64::from(megabits / 100) };
            0
        }
        Err(error) => errno::failed(error),
    }
}

/// # Safety
/// `context` is open; `gid` is a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port_number: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let port = unsafe { &ContextObject::of(context).port };
    let index = usize::try_from(index).ok();
    match index.and_then(|index| port.gid_entry(index)) {
        Some(found) if port_number == 1 => {
            // An index without an address has a GID of zeros, as in the kernel.
            let none = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            let address = found.map_or(none, |own| own.address);
            // SAFETY: the caller's promise.
            unsafe { *gid = gid_of(address) };
            0
        }
        _ => errno::minus_one(libc::EINVAL),
    }
}

/// RoCE v2 in the counting of `ibv_gid_type`.
const ROCE_V2: u32 = 2;

/// # Safety
/// `entry` is a place of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port_number: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    length: usize,
) -> c_int {
    let _call = Uncancelled::new();
    if flags != 0 {
        return errno::failed(libc::EOPNOTSUPP);
    }
    if port_number != 1 || length < size_of::<ibv_gid_entry>() {
        return errno::failed(libc::EINVAL);
    }
    // SAFETY: an open context, as the caller promises.
    let port = unsafe { &ContextObject::of(context).port };
    let address = match port.gid_entry(index as usize) {
        Some(Some(own)) => own.address,
        Some(None) => return errno::failed(libc::ENODATA),
        None => return errno::failed(libc::EINVAL),
    };
    // SAFETY: long enough by the check.
    unsafe { *entry = gid_entry(address, index) };
    0
}

fn gid_entry(address: IpAddr, gid_index: u32) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: gid_of(address),
        gid_index,
        port_num: 1,
        gid_type: ROCE_V2,
        ndev_ifindex: interface::index(),
    }
}

/// # Safety
/// `entries` has room for `most` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    most: usize,
    flags: u32,
    length: usize,
) -> isize {
    let _call = Uncancelled::new();
    if flags != 0 {
        return -(errno::failed(libc::EOPNOTSUPP) as isize);
    }
    // SAFETY: an open context, as the caller promises.
    let gids = unsafe { ContextObject::of(context) }.port.gids();
    let there = gids.iter().enumerate();
    let there = there.filter_map(|(index, gid)| gid.map(|own| (index as u32, own.address)));
    let count = there.clone().count();
    if most < count || length < size_of::<ibv_gid_entry>() {
        return -(errno::failed(libc::EINVAL) as isize);
    }
    for (place, (index, address)) in there.enumerate() {
        // SAFETY: in the caller's table by the check above; entries are `length` bytes apart.
        unsafe { *entries.byte_add(place * length) = gid_entry(address, index) };
    }
    count as isize
}

/// The type of a GID in the counting of the private call: 1 is RoCE v2.
///
/// # Safety
/// `kind` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port_number: u8,
    index: u32,
    kind: *mut c_int,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let port = unsafe { &ContextObject::of(context).port };
    let entry = port.gid_entry(index as usize);
    let Some(found) = entry.filter(|_| port_number == 1) else {
        return errno::minus_one(libc::EINVAL);
    };
    // SAFETY: the caller's promise.
    unsafe { *kind = found.is_some().into() };
    0
}

/// # Safety
/// `key` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    port_number: u8,
    index: c_int,
    key: *mut u16,
) -> c_int {
    if port_number != 1 || index != 0 {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    unsafe { *key = 0xFFFF };
    0
}

/// Index of a partition key in the byte order of the wire.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_pkey_index(_: *mut ibv_context, port_number: u8, key: u16) -> c_int {
    if port_number == 1 && key == 0xFFFF {
        0
    } else {
        -1
    }
}

/// Waits for an asynchronous event.
///
/// # Safety
/// `context` is open; `event` is a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let context = unsafe { ContextObject::of(context) };
    let count = |event: &crate::context_object::Reported| {
        if event.element != 0 {
            lock(&context.unacknowledged).push(event.element);
        }
    };
    match context.events.take(count) {
        Ok(taken) => {
            // SAFETY: the caller's promise.
            unsafe {
                (*event).element = match taken.element {
                    0 => std::ptr::without_provenance_mut(1), // the port's number
                    element => element as *mut c_void,
                };
                (*event).event_type = taken.kind;
            }
            0
        }
        Err(error) => errno::minus_one(error),
    }
}

/// Acknowledges an asynchronous event.
///
/// # Safety
/// `event` was filled by [`ibv_get_async_event`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let element = unsafe { (*event).element };
    // The object may have ended with its context.
    let kinds = [Kind::QueuePair, Kind::CompletionQueue, Kind::SharedReceives];
    if live::expect(element, &kinds).is_err() {
        return;
    }
    // SAFETY: an object that waits for this acknowledgement before it goes; it begins with its
    // context.
    let context = unsafe { ContextObject::of(*element.cast::<*mut ibv_context>()) };
    let mut open = lock(&context.unacknowledged);
    if let Some(at) = open.iter().position(|other| *other == element as usize) {
        open.swap_remove(at);
    }
    // SAFETY: the type of the event tells that of its object. Written under this lock, as rdma-core
    // does under that of the object.
    unsafe {
        let completed = match (*event).event_type {
            event::CQ_ERR => &raw mut (*element.cast::<ibv_cq>()).async_events_completed,
            event::SRQ_LIMIT_REACHED => &raw mut (*element.cast::<ibv_srq>()).events_completed,
            _ => &raw mut (*element.cast::<ibv_qp>()).events_completed,
        };
        *completed = (*completed).wrapping_add(1);
    }
    context.acknowledged.notify_all();
}

#[cfg(test)]
mod tests {
    use super::{mtu_code, width_and_speed};

    #[test]
    fn path_mtus_have_the_codes_of_verbs() {
        let codes = [256, 512, 1024, 2048, 4096].map(mtu_code);
        assert_eq!(codes, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn an_unknown_speed_is_the_slowest() {
        assert_eq!(width_and_speed(Some(100_000)), (2, 32));
        assert_eq!(width_and_speed(None), (1, 1));
    }
}
