//! The counters of the RDMA engine and the port.

use super::RdmaError;
use super::accumulated::Accumulated;
use super::claim::Claim;
use super::engine::Engine;
use super::session::Session;
use crate::lan::PORT_COUNTERS;
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
            port: [0; PORT_COUNTERS.len()],
        };
        self.state().made.statistics = Some(accumulated);
        Ok(())
    }

    fn port_counters(&self) -> Result<[u64; PORT_COUNTERS.len()], RdmaError> {
        let mut values = [0; PORT_COUNTERS.len()];
        for (value, (counter, _)) in values.iter_mut().zip(PORT_COUNTERS) {
            let at = counter.registers.at(self.facts.port.into());
            *value = match counter.width_bits {
                32 => self.registers.read_quietly(at)?.into(),
                _ => self.registers.read64_quietly(at)?,
            };
        }
        Ok(values)
    }

    /// All counters.
    pub(crate) fn statistics(&self) -> Result<Vec<Statistic>, RdmaError> {
        let mut session = self.open_state()?;
        session.claimed(Claim::Statistics, |session| self.sample(session))
    }

    /// Sampled under the claim: an older sample after a newer one would look like a wrapped
    /// counter.
    fn sample(&self, session: &mut Session<'_>) -> Result<Vec<Statistic>, RdmaError> {
        let now = self.port_counters()?;
        let counted = session.made.statistics.as_ref();
        let buffer_address = counted.ok_or(RdmaError::ShutDown)?.buffer.iova().0;
        session.execute(GatherStatistics {
            buffer_address,
            hmc_function_index: self.facts.function_index,
            ..GatherStatistics::ZERO
        })?;
        let counted = session.made.statistics.as_mut();
        let counted = counted.ok_or(RdmaError::ShutDown)?;
        let words = counted.buffer.words();
        let words: [u64; BUFFER_WORDS] = std::array::from_fn(|index| words.load_acquire(index));
        let engine = counted.engine.iter_mut().zip(&mut counted.engine_last);
        for (counter, (total, last)) in COUNTERS.iter().zip(engine) {
            let value = counter.read(&words);
            *total = total.wrapping_add(counter.difference(*last, value));
            *last = value;
        }
        let port = counted.port.iter_mut().zip(&mut counted.port_last);
        for (((counter, _), value), (total, last)) in PORT_COUNTERS.iter().zip(now).zip(port) {
            *total = total.wrapping_add(counter.difference(*last, value));
            *last = value;
        }
        let of_engine = COUNTERS.iter().map(|counter| counter.sysfs_name);
        let of_port = PORT_COUNTERS.iter().map(|(_, name)| *name);
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
