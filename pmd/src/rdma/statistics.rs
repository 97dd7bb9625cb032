//! The counters of the RDMA engine and the port.

use super::RdmaError;
use super::engine::{Engine, EngineState};
use ringside_bus::DmaBuffer;
use ringside_spec::lan::registers::statistics as port;
use ringside_spec::rdma::commands::GatherStatistics;
use ringside_spec::rdma::limits::STATISTICS_BUFFER_BYTES;
use ringside_spec::rdma::statistics::{BUFFER_WORDS, COUNTERS};
use serde::Serialize;

/// A counter and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Statistic {
    /// Its name in Linux: in `hw_counters` of an irdma device, or of `ethtool -S` (those end in
    /// `.nic`).
    pub name: &'static str,
    /// The counts; of the RDMA engine since its reset, of the port since bring-up.
    pub value: u64,
}

/// Counters of the port with the names that ice gives them.
/// Source: ice `ice_ethtool.c`, ice_gstrings_pf_stats.
pub(crate) const PORT: [(port::Counter, &str); 36] = [
    (port::PORT_RECEIVE_BYTES, "rx_bytes.nic"),
    (port::PORT_TRANSMIT_BYTES, "tx_bytes.nic"),
    (port::PORT_RECEIVE_UNICAST, "rx_unicast.nic"),
    (port::PORT_TRANSMIT_UNICAST, "tx_unicast.nic"),
    (port::PORT_RECEIVE_MULTICAST, "rx_multicast.nic"),
    (port::PORT_TRANSMIT_MULTICAST, "tx_multicast.nic"),
    (port::PORT_RECEIVE_BROADCAST, "rx_broadcast.nic"),
    (port::PORT_TRANSMIT_BROADCAST, "tx_broadcast.nic"),
    (port::PORT_RECEIVE_64, "rx_size_64.nic"),
    (port::PORT_TRANSMIT_64, "tx_size_64.nic"),
    (port::PORT_RECEIVE_127, "rx_size_127.nic"),
    (port::PORT_TRANSMIT_127, "tx_size_127.nic"),
    (port::PORT_RECEIVE_255, "rx_size_255.nic"),
    (port::PORT_TRANSMIT_255, "tx_size_255.nic"),
    (port::PORT_RECEIVE_511, "rx_size_511.nic"),
    (port::PORT_TRANSMIT_511, "tx_size_511.nic"),
    (port::PORT_RECEIVE_1023, "rx_size_1023.nic"),
    (port::PORT_TRANSMIT_1023, "tx_size_1023.nic"),
    (port::PORT_RECEIVE_1522, "rx_size_1522.nic"),
    (port::PORT_TRANSMIT_1522, "tx_size_1522.nic"),
    (port::PORT_RECEIVE_9522, "rx_size_big.nic"),
    (port::PORT_TRANSMIT_9522, "tx_size_big.nic"),
    (port::PORT_CRC_ERRORS, "rx_crc_errors.nic"),
    (port::PORT_ILLEGAL_BYTES, "illegal_bytes.nic"),
    (port::PORT_LOCAL_FAULTS, "mac_local_faults.nic"),
    (port::PORT_REMOTE_FAULTS, "mac_remote_faults.nic"),
    (port::PORT_LENGTH_ERRORS, "rx_length_errors.nic"),
    (port::PORT_RECEIVE_UNDERSIZE, "rx_undersize.nic"),
    (port::PORT_RECEIVE_OVERSIZE, "rx_oversize.nic"),
    (port::PORT_RECEIVE_FRAGMENTS, "rx_fragments.nic"),
    (port::PORT_RECEIVE_JABBER, "rx_jabber.nic"),
    (port::PORT_PAUSE_ON_RECEIVED, "link_xon_rx.nic"),
    (port::PORT_PAUSE_OFF_RECEIVED, "link_xoff_rx.nic"),
    (port::PORT_PAUSE_ON_SENT, "link_xon_tx.nic"),
    (port::PORT_PAUSE_OFF_SENT, "link_xoff_tx.nic"),
    (port::PORT_TRANSMIT_LINK_DOWN, "tx_dropped_link_down.nic"),
];

/// The counts up to the last look: hardware counters wrap.
#[derive(Debug)]
pub(crate) struct Accumulated {
    buffer: DmaBuffer,
    engine_last: [u64; COUNTERS.len()],
    engine: [u64; COUNTERS.len()],
    port_last: [u64; PORT.len()],
    port: [u64; PORT.len()],
}

impl Accumulated {
    /// The memory that the device writes counters to.
    pub(crate) fn into_buffer(self) -> DmaBuffer {
        self.buffer
    }
}

impl Engine {
    /// Begins to count: the port's counters start anywhere.
    pub(crate) fn start_statistics(&self) -> Result<(), RdmaError> {
        let buffer = self
            .pool
            .allocate(STATISTICS_BUFFER_BYTES, STATISTICS_BUFFER_BYTES)?;
        let accumulated = Accumulated {
            buffer,
            engine_last: [0; COUNTERS.len()],
            engine: [0; COUNTERS.len()],
            port_last: self.port_counters()?,
            port: [0; PORT.len()],
        };
        self.state().statistics = Some(accumulated);
        Ok(())
    }

    fn port_counters(&self) -> Result<[u64; PORT.len()], RdmaError> {
        let function = self.registers.function();
        let mut values = [0; PORT.len()];
        for (value, (counter, _)) in values.iter_mut().zip(PORT) {
            let at = counter.registers.at(self.facts.port.into());
            *value = match counter.width_bits {
                32 => self.registers.read_quietly(at)?.into(),
                _ => function.read64(0, at)?,
            };
        }
        Ok(values)
    }

    /// All counters.
    pub(crate) fn statistics(&self) -> Result<Vec<Statistic>, RdmaError> {
        // Sampled under the lock: an older sample after a newer one would look like a wrapped counter.
        let mut guard = self.open_state()?;
        let now = self.port_counters()?;
        let EngineState {
            control,
            statistics,
            ..
        } = &mut *guard;
        let Some(counted) = statistics else {
            return Err(RdmaError::ShutDown);
        };
        control.execute(GatherStatistics {
            buffer_address: counted.buffer.iova().0,
            hmc_function_index: self.facts.function_index,
            ..GatherStatistics::ZERO
        })?;
        let words = counted.buffer.words();
        let words: [u64; BUFFER_WORDS] = std::array::from_fn(|index| words.load_acquire(index));
        let engine = counted.engine.iter_mut().zip(&mut counted.engine_last);
        for (counter, (total, last)) in COUNTERS.iter().zip(engine) {
            let value = counter.read(&words);
            *total = total.wrapping_add(counter.difference(*last, value));
            *last = value;
        }
        let port = counted.port.iter_mut().zip(&mut counted.port_last);
        for (((counter, _), value), (total, last)) in PORT.iter().zip(now).zip(port) {
            *total = total.wrapping_add(counter.difference(*last, value));
            *last = value;
        }
        let of_engine = COUNTERS.iter().map(|counter| counter.sysfs_name);
        let of_port = PORT.iter().map(|(_, name)| *name);
        let values = counted.engine.iter().chain(&counted.port);
        Ok(of_engine
            .chain(of_port)
            .zip(values)
            .map(|(name, value)| Statistic {
                name,
                value: *value,
            })
            .collect())
    }
}
