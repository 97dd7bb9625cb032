//! Limits of packet queues and frames that both directions share.
//! Source: ice `ice.h`, ICE_MIN_NUM_DESC, ICE_MAX_NUM_DESC, ICE_REQ_DESC_MULTIPLE;
//! `ice_lan_tx_rx.h`, ICE_RLAN_BASE_S; `ice_adminq_cmd.h`, ICE_AQ_SET_MAC_FRAME_SIZE_MAX.

/// A ring has a multiple of this many descriptors.
pub const RING_MULTIPLE: u16 = 32;
/// Fewest descriptors of a ring.
pub const RING_MIN: u16 = 64;
/// Most descriptors of a ring.
pub const MAX_RING: u16 = 8160;
/// A ring begins at a multiple of this many bytes.
pub const RING_ALIGNMENT: u64 = 128;
/// Bytes of the longest frame that the MAC takes, with frame check sequence.
pub const MAX_FRAME_BYTES: u16 = 9728;
/// Bytes of the frame check sequence, which the device adds and removes.
pub const CHECK_BYTES: u16 = 4;
/// Bytes around the payload that an MTU counts: Ethernet header, two tags, frame check sequence.
pub const FRAME_OVERHEAD_BYTES: u16 = 14 + 2 * 4 + CHECK_BYTES;
/// Largest MTU: the payload of the longest frame with two tags.
pub const MAX_MTU: u16 = MAX_FRAME_BYTES - FRAME_OVERHEAD_BYTES;
