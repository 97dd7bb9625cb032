//! Typed commands; each checks its answer.

mod bridging;
mod capabilities;
mod filters;
mod generic;
mod link;
mod neighbour;
mod package;
mod packet_queues;
mod profiles;
mod resources;
mod scheduler;
mod switch;
mod vsi;

pub use bridging::Bridging;
pub use capabilities::{Capabilities, QueueRange, Timers};
pub use generic::{FirmwareVersion, GlobalLock};
pub use link::LinkState;
pub use package::InstalledPackage;
pub(crate) use profiles::Section;
pub(crate) use resources::{COUNTERS_PER_BLOCK, plain};
pub use scheduler::SchedulerLimits;
pub use switch::{SwitchPort, VlanMode};

use super::AdminError;
use ringside_spec::lan::admin::Opcode;
use zerocopy::FromBytes;

/// Reads a structure at `offset` of an answer's data.
fn read_at<T: FromBytes>(opcode: Opcode, data: &[u8], offset: usize) -> Result<T, AdminError> {
    data.get(offset..)
        .and_then(|rest| T::read_from_prefix(rest).ok())
        .map(|(value, _)| value)
        .ok_or_else(|| {
            let reason = format!(
                "{} bytes of data end within the {} bytes at {offset}",
                data.len(),
                size_of::<T>()
            );
            AdminError::malformed(opcode, reason)
        })
}

/// Reads `count` structures that begin at `offset`; more than `limit` make no sense.
fn read_list<T: FromBytes>(
    opcode: Opcode,
    data: &[u8],
    offset: usize,
    count: usize,
    limit: usize,
) -> Result<Vec<T>, AdminError> {
    if count > limit {
        let reason = format!("it counts {count} elements, and at most {limit} can be");
        return Err(AdminError::malformed(opcode, reason));
    }
    (0..count)
        .map(|index| read_at(opcode, data, offset + index * size_of::<T>()))
        .collect()
}

/// Checks that the firmware processed as many elements as were requested.
fn check_count(opcode: Opcode, asked: u16, answered: u16) -> Result<(), AdminError> {
    if asked == answered {
        return Ok(());
    }
    let reason = format!("{asked} elements were asked and {answered} were done");
    Err(AdminError::malformed(opcode, reason))
}

/// Text of a name padded with zeros.
fn name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let used = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
    String::from_utf8_lossy(used).into_owned()
}

#[cfg(test)]
mod tests;
