//! Sizes of a port: those that no device takes are refused, and the pool is made to fit.

use super::{MAX_MTU, MAX_QUEUES, MTU_MIN, PortError, PortSettings};
use ringside_lan::PoolSettings;
use ringside_spec::lan::limits::{MAX_RING, RING_MIN, RING_MULTIPLE};

/// Texts for the limits, whose values they name.
const RING_REMEDY: &str = "choose a multiple of 32, 64 to 8160";
const MTU_REMEDY: &str = "choose 68 to 9702 bytes";
const _: () = assert!(RING_MULTIPLE == 32 && RING_MIN == 64 && MAX_RING == 8160);
const _: () = assert!(MTU_MIN == 68 && MAX_MTU == 9702);
/// Buffers that the cache of a thread holds.
const CACHE: u32 = 128;
/// Buffers of packets that the program holds.
const UNDER_WAY: u32 = 1024;

/// Refuses settings that no device takes.
pub(crate) fn check(settings: &PortSettings) -> Result<(), PortError> {
    let counts = [
        ("receive queues", settings.receive_queues),
        ("transmit queues", settings.transmit_queues),
    ];
    for (what, wanted) in counts {
        if wanted > MAX_QUEUES {
            return Err(PortError::TooMany {
                what,
                wanted,
                limit: MAX_QUEUES,
            });
        }
        if wanted == 0 {
            return invalid(what, 0, "choose 1 to 64");
        }
    }
    let rings = [
        ("receive descriptors", settings.receive_descriptors),
        ("transmit descriptors", settings.transmit_descriptors),
    ];
    for (what, wanted) in rings {
        let fits = (RING_MIN..=MAX_RING).contains(&wanted);
        if !fits || !wanted.is_multiple_of(RING_MULTIPLE) {
            return invalid(what, wanted, RING_REMEDY);
        }
    }
    if !(MTU_MIN..=MAX_MTU).contains(&settings.mtu) {
        return invalid("MTU", settings.mtu, MTU_REMEDY);
    }
    // The smallest ring of each queue: with fewer, queues receive little or nothing.
    let needed = in_rings(settings.receive_queues, RING_MIN);
    if is_chosen(settings) && settings.pool.buffers < needed {
        return Err(PortError::PoolTooSmall {
            buffers: settings.pool.buffers,
            queues: settings.receive_queues,
            needed,
        });
    }
    Ok(())
}

/// The settings of the pool. A default number of buffers that leaves the threads of the queues, the
/// program or packets to be sent too few beside the receive rings grows to what all of them need.
pub(super) fn pool(settings: &PortSettings) -> PoolSettings {
    let receive = in_rings(settings.receive_queues, settings.receive_descriptors);
    let caches = settings.receive_queues as u32 * CACHE;
    let beside = caches.max(kept_to_send(settings, settings.pool.buffers));
    if is_chosen(settings) || settings.pool.buffers >= receive + beside {
        return settings.pool;
    }
    let transmit = in_rings(settings.transmit_queues, settings.transmit_descriptors);
    PoolSettings {
        buffers: receive + transmit + caches + UNDER_WAY,
        ..settings.pool
    }
}

/// The most buffers in the ring of a receive queue: its share, if the pool does not fill all rings.
pub(super) fn share(settings: &PortSettings) -> u16 {
    let buffers = pool(settings).buffers;
    let received = buffers - kept_to_send(settings, buffers);
    let share = received / (settings.receive_queues as u32).max(1);
    u16::try_from(share).unwrap_or(u16::MAX)
}

/// Buffers of a pool that receive rings leave free, so that a program can send before it receives:
/// those of full transmit rings, or a quarter of a small pool.
fn kept_to_send(settings: &PortSettings, buffers: u32) -> u32 {
    in_rings(settings.transmit_queues, settings.transmit_descriptors).min(buffers / 4)
}

/// True if the caller set the number of buffers.
fn is_chosen(settings: &PortSettings) -> bool {
    settings.pool.buffers != PoolSettings::default().buffers
}

/// Buffers that rings hold: sizes that were checked, or that are refused later.
fn in_rings(queues: usize, descriptors: u16) -> u32 {
    (queues as u32).saturating_mul(descriptors.into())
}

fn invalid(
    what: &'static str,
    value: impl ToString,
    remedy: &'static str,
) -> Result<(), PortError> {
    Err(PortError::Invalid {
        what,
        value: value.to_string(),
        remedy,
    })
}

#[cfg(test)]
mod tests;
