//! Numbers of objects: which are free, and one of them at random.

use super::RdmaError;
use rand::Rng;

/// The free numbers of one kind of object.
///
/// Numbers are given out at random, so that a peer cannot guess them; they carry no order.
#[derive(Debug)]
pub(crate) struct Numbers {
    what: &'static str,
    key: &'static str,
    /// in no order
    free: Vec<u32>,
    used: u32,
    quota: u32,
}

impl Numbers {
    /// Numbers `first..end` of `what`; at most `quota` at once, which the configuration's `key` says.
    pub(crate) fn new(
        what: &'static str,
        key: &'static str,
        numbers: std::ops::Range<u32>,
        quota: u32,
    ) -> Self {
        let free: Vec<u32> = numbers.collect();
        let quota = quota.min(free.len() as u32);
        Self {
            what,
            key,
            free,
            used: 0,
            quota,
        }
    }

    /// How many are in use.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// How many may be in use at once.
    pub(crate) fn quota(&self) -> u32 {
        self.quota
    }

    /// Takes a free number.
    pub(crate) fn take(&mut self, random: &mut impl Rng) -> Result<u32, RdmaError> {
        if self.used >= self.quota || self.free.is_empty() {
            return Err(RdmaError::Capacity {
                what: self.what,
                limit: self.quota,
                key: self.key,
            });
        }
        let place = random.random_range(0..self.free.len());
        self.used += 1;
        Ok(self.free.swap_remove(place))
    }

    /// Gives back a number that [`Numbers::take`] gave.
    pub(crate) fn give(&mut self, number: u32) {
        self.used = self.used.saturating_sub(1);
        self.free.push(number);
    }
}

#[cfg(test)]
mod tests;
