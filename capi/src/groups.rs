//! Multicast groups of queue pairs.

use crate::abi::{ibv_gid, ibv_qp};
use crate::cancel::Uncancelled;
use crate::context_object::ContextObject;
use crate::device::Port;
use crate::errno;
use crate::gid::address_of;
use crate::pair::Group;
use crate::queue_pair::QueuePairObject;
use std::ffi::c_int;
use std::net::IpAddr;

/// Makes a queue pair a member of groups, of all of them or of none that it was not in before.
pub(crate) fn attach(object: &QueuePairObject, groups: &[Group]) -> Result<(), c_int> {
    let mut inner = object.inner();
    let mut joined = Vec::new();
    for group in groups {
        if inner.groups.contains(group) {
            continue;
        }
        if let Err(error) = inner.pair.join(*group) {
            for before in joined {
                if inner.pair.leave(before).is_err() {
                    inner.groups.push(before);
                }
            }
            return Err(error);
        }
        joined.push(*group);
    }
    inner.groups.append(&mut joined);
    Ok(())
}

/// Ends the membership in the groups that `is_one` names. Errors: `EINVAL` if there is none.
pub(crate) fn detach(
    object: &QueuePairObject,
    is_one: impl Fn(&Group) -> bool,
) -> Result<(), c_int> {
    let mut inner = object.inner();
    let groups = inner.groups.iter().copied();
    let groups: Vec<Group> = groups.filter(|group| is_one(group)).collect();
    if groups.is_empty() {
        return Err(libc::EINVAL);
    }
    for group in groups {
        inner.pair.leave(group)?;
        inner.groups.retain(|known| *known != group);
    }
    Ok(())
}

/// The VLANs of the port's addresses of a group's family.
fn vlans(port: &Port, group: IpAddr) -> Vec<Option<u16>> {
    let mut vlans = Vec::new();
    for own in port.addresses() {
        if own.address.is_ipv4() == group.is_ipv4() && !vlans.contains(&own.vlan) {
            vlans.push(own.vlan);
        }
    }
    if vlans.is_empty() {
        vlans.push(None);
    }
    vlans
}

/// A group has an address and no VLAN here: the queue pair receives its datagrams on each VLAN that
/// the port has an address on.
///
/// # Safety
/// `pair` came from [`ibv_create_qp`](crate::queue_pair::ibv_create_qp); `gid` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_attach_mcast(pair: *mut ibv_qp, gid: *const ibv_gid, _: u16) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise; a context outlives its objects.
    let (object, address, context) = unsafe {
        (
            QueuePairObject::of(pair),
            address_of(&*gid),
            ContextObject::of((*pair).context),
        )
    };
    let vlans = vlans(&context.port, address).into_iter();
    let groups: Vec<Group> = vlans.map(|vlan| (address, vlan)).collect();
    attach(object, &groups).map_or_else(errno::failed, |()| 0)
}

/// # Safety
/// `pair` came from [`ibv_create_qp`](crate::queue_pair::ibv_create_qp); `gid` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_detach_mcast(pair: *mut ibv_qp, gid: *const ibv_gid, _: u16) -> c_int {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let (object, address) = unsafe { (QueuePairObject::of(pair), address_of(&*gid)) };
    detach(object, |(group, _)| *group == address).map_or_else(errno::failed, |()| 0)
}
