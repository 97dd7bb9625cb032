//! The parts of IGMP and of multicast listener discovery that are the same: queries of routers, and
//! the messages of members.

use std::net::IpAddr;
use std::time::Duration;

/// The change that a message reports. The values are the types of records without sources. Source:
/// RFC 3810, section 5.2.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Membership {
    /// The station is in the group (`MODE_IS_EXCLUDE`).
    Member = 2,
    /// The station leaves the group (`CHANGE_TO_INCLUDE_MODE`).
    Leaves = 3,
    /// The station joins the group (`CHANGE_TO_EXCLUDE_MODE`).
    Joins = 4,
}

/// A router's question for the members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// an unspecified address if it asks for all groups of its IP version
    pub(crate) group: IpAddr,
    /// the time in which the router expects the answers
    pub(crate) limit: Duration,
    /// The protocol is of version 1: the router does not know later reports.
    pub(crate) is_of_first_version: bool,
}
