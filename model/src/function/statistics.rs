//! Counters of the port and of the function's VSI.

use crate::chip::Traffic;
use crate::lan::{LanCounters, VsiCounters};

use ringside_spec::lan::registers::statistics as registers;
use ringside_spec::lan::registers::statistics::Counter;
use std::collections::BTreeMap;

/// Bytes of the frame check sequence, which only some counters count.
const CHECK_BYTES: u64 = 4;

/// Bits [39:32] of a wide counter, which its second register holds.
const HIGH_BITS: u64 = 0xFF;

/// All counters of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    /// Frames from the wire that the port accepted.
    pub(super) received: Traffic,
    /// Sent to the wire.
    pub(super) sent: Traffic,
    /// Frames from the wire that the VSI's rules accepted.
    pub(super) vsi_received: Traffic,
    /// Frames that were to be sent while the link was down.
    pub(super) sent_link_down: u64,
    /// Frames that matched no rule.
    pub(super) not_for_us: u64,
    /// The causes of dropped frames of each VSI when a driver cleared them last: without
    /// descriptors, for other reasons.
    cleared: BTreeMap<u16, (u64, u64)>,
}

impl Statistics {
    /// True for the registers of counters.
    pub(super) fn is_counter(offset: u64) -> bool {
        find(registers::PORT, offset).is_some() || find(registers::VSI, offset).is_some()
    }

    /// A driver writes 0 to the causes of dropped frames of a VSI, which clears them; false for all
    /// other writes. Source: DPDK `ice_common.c`, `ice_stat_update_repc`, which FreeBSD calls.
    pub(super) fn clear_causes(&mut self, offset: u64, value: u32, lan: &LanCounters) -> bool {
        let index = registers::VSI_RECEIVE_ERRORS.registers.index_of(offset);
        let Some(vsi) = index.filter(|_| value == 0) else {
            return false;
        };
        let now = lan.of_vsi(vsi as u16);
        let now = now.map_or((0, 0), |now| (now.dropped, now.receive_errors));
        self.cleared.insert(vsi as u16, now);
        true
    }

    /// The register at `offset`, if it is a counter; `port` and `vsi` are this function's, the VSI
    /// that RDMA's packets count for.
    pub(super) fn register(
        &self,
        offset: u64,
        port: u32,
        vsi: Option<u16>,
        lan: &LanCounters,
    ) -> Option<u32> {
        if let Some((counter, index, high)) = find(registers::PORT, offset) {
            let value = if index == port {
                self.port_value(counter, lan)
            } else {
                0
            };
            return Some(half(value, high));
        }
        let (counter, index, high) = find(registers::VSI, offset)?;
        let own = u16::try_from(index).is_ok_and(|index| Some(index) == vsi);
        Some(half(self.vsi_value(counter, index as u16, own, lan), high))
    }

    fn port_value(&self, counter: &Counter, lan: &LanCounters) -> u64 {
        let sizes = [
            (registers::PORT_RECEIVE_64, registers::PORT_TRANSMIT_64),
            (registers::PORT_RECEIVE_127, registers::PORT_TRANSMIT_127),
            (registers::PORT_RECEIVE_255, registers::PORT_TRANSMIT_255),
            (registers::PORT_RECEIVE_511, registers::PORT_TRANSMIT_511),
            (registers::PORT_RECEIVE_1023, registers::PORT_TRANSMIT_1023),
            (registers::PORT_RECEIVE_1522, registers::PORT_TRANSMIT_1522),
            (registers::PORT_RECEIVE_9522, registers::PORT_TRANSMIT_9522),
        ];
        let received = self.received.plus(&lan.received);
        let sent = self.sent.plus(&lan.sent);
        let by_size = received.by_size.iter().zip(&sent.by_size).zip(sizes);
        let link_down = self.sent_link_down + lan.sent_link_down;
        let mut values = vec![
            (registers::PORT_RECEIVE_BYTES, received.bytes),
            (registers::PORT_RECEIVE_UNICAST, received.unicast),
            (registers::PORT_RECEIVE_MULTICAST, received.multicast),
            (registers::PORT_RECEIVE_BROADCAST, received.broadcast),
            (registers::PORT_RECEIVE_UNDERSIZE, lan.undersize),
            (registers::PORT_RECEIVE_OVERSIZE, lan.oversize),
            (registers::PORT_TRANSMIT_BYTES, sent.bytes),
            (registers::PORT_TRANSMIT_UNICAST, sent.unicast),
            (registers::PORT_TRANSMIT_MULTICAST, sent.multicast),
            (registers::PORT_TRANSMIT_BROADCAST, sent.broadcast),
            (registers::PORT_TRANSMIT_LINK_DOWN, link_down),
        ];
        for ((received, sent), (receive, transmit)) in by_size {
            values.push((receive, *received));
            values.push((transmit, *sent));
        }
        pick(&values, counter)
    }

    /// `own`: the VSI is the one that RDMA's packets count for.
    fn vsi_value(&self, counter: &Counter, vsi: u16, own: bool, lan: &LanCounters) -> u64 {
        let mut all = lan.of_vsi(vsi).cloned().unwrap_or_default();
        if own {
            all.received = all.received.plus(&self.vsi_received);
            let mut sent = self.sent.clone();
            sent.bytes -= CHECK_BYTES * sent.frames();
            all.sent = all.sent.plus(&sent);
        }
        let values = [
            (registers::VSI_RECEIVE_BYTES, all.received.bytes),
            (registers::VSI_RECEIVE_UNICAST, all.received.unicast),
            (registers::VSI_RECEIVE_MULTICAST, all.received.multicast),
            (registers::VSI_RECEIVE_BROADCAST, all.received.broadcast),
            (
                registers::VSI_RECEIVE_DROPPED,
                all.dropped + all.receive_errors,
            ),
            (registers::VSI_RECEIVE_ERRORS, self.causes(vsi, &all)),
            (registers::VSI_TRANSMIT_BYTES, all.sent.bytes),
            (registers::VSI_TRANSMIT_UNICAST, all.sent.unicast),
            (registers::VSI_TRANSMIT_MULTICAST, all.sent.multicast),
            (registers::VSI_TRANSMIT_BROADCAST, all.sent.broadcast),
            (registers::VSI_TRANSMIT_ERRORS, all.transmit_errors),
        ];
        pick(&values, counter)
    }

    /// Both causes of dropped frames since a driver cleared them.
    fn causes(&self, vsi: u16, counters: &VsiCounters) -> u64 {
        let most = u64::from(u16::MAX);
        let (dropped, others) = self.cleared.get(&vsi).copied().unwrap_or_default();
        let dropped = counters.dropped.saturating_sub(dropped).min(most);
        let others = counters.receive_errors.saturating_sub(others).min(most);
        dropped | others << 16
    }
}

fn pick(values: &[(Counter, u64)], wanted: &Counter) -> u64 {
    let found = values
        .iter()
        .find(|(counter, _)| counter.registers.first == wanted.registers.first);
    found.map_or(0, |(_, value)| *value)
}

/// The counter at `offset`, its index, and whether it is the second register of a wide one.
fn find(list: &'static [Counter], offset: u64) -> Option<(&'static Counter, u32, bool)> {
    list.iter().find_map(|counter| {
        if let Some(index) = counter.registers.index_of(offset) {
            return Some((counter, index, false));
        }
        let low = offset.checked_sub(4).filter(|_| counter.width_bits > 32)?;
        Some((counter, counter.registers.index_of(low)?, true))
    })
}

fn half(value: u64, high: bool) -> u32 {
    if high {
        (value >> 32 & HIGH_BITS) as u32
    } else {
        value as u32
    }
}
