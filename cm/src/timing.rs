//! Times as messages carry them, and numbers derived from them.

use std::time::Duration;

/// Shortest time between two repeats, for any request of the peer. A peer may request 4 us; a table
/// lookup of a cold neighbour alone takes longer.
pub const REPEAT_MIN: Duration = Duration::from_millis(64);
/// Longest time between two repeats, and longest timewait, for any request of the peer.
pub const MAX_WAIT: Duration = Duration::from_secs(70);
/// Life time of a packet on RoCE, a code: 2^16 times 4.096 us.
pub const PACKET_LIFE_TIME: u8 = 16;

/// The time of a 5-bit code, 4.096 us times 2 to its power, rounded as Linux does: a power of two
/// of milliseconds, at least 1.
#[must_use]
pub const fn of_code(code: u8) -> Duration {
    let code = if code > 31 { 31 } else { code };
    Duration::from_millis(1 << code.saturating_sub(8))
}

/// The code of a queue pair's ACK timeout, from the life time of a packet and the time that the
/// peer takes for an acknowledgement. At most 31.
///
/// An ACK timeout covers twice the life time plus the delay; powers of two are added by their
/// larger one.
#[must_use]
pub const fn ack_timeout(packet_life_time: u8, ack_delay: u8) -> u8 {
    let there_and_back = packet_life_time + 1;
    let sum = if there_and_back >= ack_delay {
        there_and_back + (ack_delay >= there_and_back - 1) as u8
    } else {
        ack_delay + (there_and_back >= ack_delay - 1) as u8
    };
    if sum > 31 { 31 } else { sum }
}

/// The flow label of a connection, from both ports. 20 bits.
#[must_use]
pub const fn flow_label(source_port: u16, destination_port: u16) -> u32 {
    (source_port as u32 * 31 + destination_port as u32) & 0xF_FFFF
}

/// The UDP source port of a connection with a flow label that is not 0: both ends compute the same.
#[must_use]
pub const fn udp_source_port(flow_label: u32) -> u16 {
    ((flow_label & 0x3FFF) ^ (flow_label >> 14)) as u16 | 0xC000
}
