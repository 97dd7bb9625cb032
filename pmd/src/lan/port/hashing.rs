//! The state of a VSI's hash.

use super::kinds::{FlowKind, Programmed};
use std::collections::BTreeMap;

/// The group of hash profiles that a VSI is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Membership {
    /// The group of VSIs without profiles.
    #[default]
    Default,
    /// A group of its own was requested; the end of the VSI takes the request back.
    Requested,
    /// A group of its own.
    Own,
}

/// The state of a VSI's hash. A change holds its lock from the first command to the last: two
/// changes at once would free a profile twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Hashing {
    /// profiles and rows of the kinds
    pub(super) programmed: BTreeMap<FlowKind, Programmed>,
    /// profiles that no row names once the next change of the tables succeeds
    pub(super) replaced: Vec<u16>,
    pub(super) membership: Membership,
    /// both directions of a flow have one hash
    pub(super) is_symmetric: bool,
}
