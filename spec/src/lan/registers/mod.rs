//! Registers of BAR 0: offsets, and words for the ones that have fields.
//!
//! A queue index is the function's own, from 0: neither Linux nor DPDK adds the first queue id of
//! the capabilities. A VSI index is the device's own number (below
//! [`VSI_COUNT`](super::identity::VSI_COUNT)). Source of names and bits: ice `ice_hw_autogen.h`.

pub mod clock;
pub mod control_queues;
pub mod correction;
pub mod filters;
pub mod interrupts;
pub mod queues;
pub mod reset;
pub mod statistics;

use super::{RegisterArray, RegisterGrid};

/// The name that the data sheet gives to the register at `offset`, for messages and traces.
#[must_use]
pub fn name_of(offset: u64) -> Option<&'static str> {
    let single = [
        reset::SINGLE,
        control_queues::SINGLE,
        interrupts::SINGLE,
        queues::SINGLE,
        filters::SINGLE,
        statistics::SINGLE,
        clock::SINGLE,
    ];
    single
        .iter()
        .flat_map(|list| list.iter())
        .find(|(_, at)| *at == offset)
        .map(|(name, _)| *name)
        .or_else(|| control_queues::name_of(offset))
        .or_else(|| array_name(offset))
        .or_else(|| grid_name(offset))
}

fn array_name(offset: u64) -> Option<&'static str> {
    let lists: [&[RegisterArray]; 5] = [
        interrupts::ARRAYS,
        queues::ARRAYS,
        filters::ARRAYS,
        statistics::ARRAYS,
        clock::ARRAYS,
    ];
    lists
        .iter()
        .flat_map(|list| list.iter())
        .find(|array| array.index_of(offset).is_some())
        .map(|array| array.c_name)
}

fn grid_name(offset: u64) -> Option<&'static str> {
    let lists: [&[RegisterGrid]; 4] = [
        interrupts::GRIDS,
        queues::GRIDS,
        filters::GRIDS,
        statistics::GRIDS,
    ];
    lists
        .iter()
        .flat_map(|list| list.iter())
        .find(|grid| grid.position_of(offset).is_some())
        .map(|grid| grid.c_name)
}

#[cfg(test)]
mod tests;
