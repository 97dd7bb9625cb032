//! Addresses and paths of an id, in the form of the public headers.

use super::abi::{ibv_sa_path_rec, rdma_cm_id};
use super::id::IdObject;
use super::socket_address;
use crate::abi::{ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_pd};
use crate::context::mtu_code;
use crate::device::Port;
use crate::gid::gid_of;
use ringside_cm::gsi::{HOP_LIMIT, PARTITION_KEY};
use ringside_cm::timing::PACKET_LIFE_TIME;
use ringside_connect::Within;
use std::net::{IpAddr, SocketAddr};

/// The context and the protection domain that all ids of a period of service share.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    pub(super) context: *mut ibv_context,
    pub(super) domain: *mut ibv_pd,
}

// SAFETY: both objects stay until the process ends, and are used through calls that are safe from
// any thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Shows the device in an id that shows none. An id that does keeps its protection domain, which
/// the program may have chosen; the device after a recovery replaces one that no queue uses.
/// Source: rdma-core `librdmacm/cma.c`, `ucma_query_addr`, which asks for the device once.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn show_device(id: *mut rdma_cm_id, shared: Shared) {
    // SAFETY: the caller's promise; the library writes these fields.
    unsafe {
        let has_queues = !(*id).qp.is_null() || !(*id).srq.is_null();
        let is_current = (*id).verbs == shared.context;
        if !(*id).verbs.is_null() && (is_current || has_queues) {
            return;
        }
        (*id).verbs = shared.context;
        (*id).pd = shared.domain;
        (*id).port_num = 1;
        (*id).route.addr.addr.pkey = PARTITION_KEY.to_be();
    }
}

/// Shows the own address.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn show_local(id: *mut rdma_cm_id, local: SocketAddr) {
    // SAFETY: the caller's promise.
    let addresses = unsafe { &mut (*id).route.addr };
    socket_address::write(&mut addresses.src_storage, local);
    if !local.ip().is_unspecified() && !local.ip().is_loopback() {
        addresses.addr.sgid = gid_of(local.ip());
    }
}

/// Shows the peer's address.
///
/// # Safety
/// `id` is an id of this library.
pub(super) unsafe fn show_remote(id: *mut rdma_cm_id, remote: SocketAddr) {
    // SAFETY: the caller's promise.
    let addresses = unsafe { &mut (*id).route.addr };
    socket_address::write(&mut addresses.dst_storage, remote);
    addresses.addr.dgid = gid_of(remote.ip());
}

/// The path MTU of the port, in bytes.
pub(super) fn active_mtu(port: &Port) -> u32 {
    let report = port
        .device()
        .ok()
        .and_then(|device| device.query_port().ok());
    report.map_or(1024, |report| report.active_mtu)
}

/// The path MTU of the port, as verbs codes it.
pub(super) fn path_mtu(port: &Port) -> u8 {
    u8::try_from(mtu_code(active_mtu(port))).unwrap_or(3)
}

/// Shows the path between both addresses.
///
/// # Safety
/// `id` is an id of this library, with both addresses.
pub(super) unsafe fn show_path(id: *mut rdma_cm_id, mtu: u8, traffic_class: u8) {
    const EXACTLY: u8 = 2;
    let place = IdObject::path(id);
    // SAFETY: the caller's promise; the path lies in the same object.
    unsafe {
        let addresses = (*id).route.addr.addr;
        *place = ibv_sa_path_rec {
            dgid: addresses.dgid,
            sgid: addresses.sgid,
            dlid: 0,
            slid: 0,
            raw_traffic: 0,
            flow_label: 0,
            hop_limit: HOP_LIMIT,
            traffic_class,
            reversible: 1,
            numb_path: 1,
            pkey: PARTITION_KEY.to_be(),
            sl: 0,
            mtu_selector: EXACTLY,
            mtu,
            rate_selector: EXACTLY,
            rate: 0,
            packet_life_time_selector: EXACTLY,
            packet_life_time: PACKET_LIFE_TIME,
            preference: 0,
        };
        (*id).route.path_rec = place;
        (*id).route.num_paths = 1;
    }
}

/// The way from an address of this device to a peer's, on the VLAN of the peer's network; nothing
/// if the first is not one.
pub(super) fn towards(
    port: &Port,
    local: IpAddr,
    remote: IpAddr,
    traffic_class: u8,
) -> Option<ibv_ah_attr> {
    let own = port.own_towards(local, remote)?;
    let own = (local, Within::Vlan(own.vlan));
    address_vector(port, own, remote, traffic_class, 0)
}

/// The way from an address of this device, on a VLAN, to a peer's; nothing if the first is not one.
pub(super) fn address_vector(
    port: &Port,
    (local, vlan): (IpAddr, Within),
    remote: IpAddr,
    traffic_class: u8,
    flow_label: u32,
) -> Option<ibv_ah_attr> {
    let index = port.gid_index(local, vlan)?;
    let dgid: ibv_gid = gid_of(remote);
    Some(ibv_ah_attr {
        grh: ibv_global_route {
            dgid,
            flow_label,
            sgid_index: index as u8,
            hop_limit: HOP_LIMIT,
            traffic_class,
        },
        dlid: 0,
        sl: 0,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: 1,
    })
}

/// Reads and atomics that the device answers, and has outstanding, at a time.
pub(super) fn depths(port: &Port) -> (u8, u8) {
    let limits = port
        .device()
        .ok()
        .and_then(|device| device.rdma_limits().ok());
    let cut = |count: u32| u8::try_from(count).unwrap_or(u8::MAX);
    limits.map_or((1, 1), |limits| {
        (cut(limits.inbound_reads), cut(limits.outbound_reads))
    })
}
