//! Numbers of objects: which are free, and one of them at random.

use super::RdmaError;
use rand::Rng;
use std::collections::{HashSet, VecDeque};

/// The divisor of the share of all numbers that is withheld from reuse: a quarter.
const RESTING_PART: usize = 4;

/// Numbers that are withheld from reuse when a device is brought up again: those withheld before,
/// and those in use when it failed. Oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rested(Vec<u32>);

/// The free numbers of one kind of object.
///
/// Numbers are allocated at random, so that a peer cannot guess them. A freed number is not used
/// again before a quarter of all others was freed, if there are as many: requests that a peer still
/// sends to the old object do not reach a new one.
#[derive(Debug)]
pub(crate) struct Numbers {
    what: &'static str,
    key: &'static str,
    /// in no order
    free: Vec<u32>,
    /// freed numbers that are withheld from reuse, oldest first
    resting: VecDeque<u32>,
    used: u32,
    quota: u32,
    /// all of them, free or not
    all: std::ops::Range<u32>,
    /// in use, of a fixed purpose: none of `all`
    fixed: Vec<u32>,
}

impl Numbers {
    /// Numbers `first..end` of `what`; at most `quota` at once, set by the configuration's `key`.
    pub(crate) fn new(
        what: &'static str,
        key: &'static str,
        numbers: std::ops::Range<u32>,
        quota: u32,
    ) -> Self {
        let free: Vec<u32> = numbers.clone().collect();
        let quota = quota.min(free.len() as u32);
        Self {
            what,
            key,
            free,
            resting: VecDeque::new(),
            used: 0,
            quota,
            all: numbers,
            fixed: Vec::new(),
        }
    }

    /// Withholds `rested` from reuse here as well: peers may still send to objects of an earlier
    /// period of service.
    ///
    /// At least a quarter of all numbers stay free, so that the next one cannot be guessed; the
    /// oldest withheld numbers become free for that.
    pub(crate) fn resting_from(mut self, rested: &Rested) -> Self {
        let most = self.all.len() - self.all.len().div_ceil(RESTING_PART);
        let skipped = rested.0.len().saturating_sub(most);
        let rest: HashSet<u32> = rested.0.iter().skip(skipped).copied().collect();
        self.free.retain(|number| !rest.contains(number));
        let known = |number: &&u32| self.all.contains(number);
        self.resting
            .extend(rested.0.iter().skip(skipped).filter(known));
        self
    }

    /// The numbers that are withheld in the next period of service.
    pub(crate) fn rested(&self) -> Rested {
        let idle: HashSet<u32> = self.free.iter().chain(&self.resting).copied().collect();
        let used = self.all.clone().filter(|number| !idle.contains(number));
        Rested(self.resting.iter().copied().chain(used).collect())
    }

    /// The number in use.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// The number that may be in use at once.
    pub(crate) fn quota(&self) -> u32 {
        self.quota
    }

    /// Takes a free number.
    pub(crate) fn take(&mut self, random: &mut impl Rng) -> Result<u32, RdmaError> {
        if self.free.is_empty() {
            // Only withheld numbers are left: the older half becomes free.
            let half = self.resting.len().div_ceil(2);
            self.free.extend(self.resting.drain(..half));
        }
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

    /// Takes a number of a fixed purpose, which [`Numbers::take`] never gives. It does not count
    /// against the quota.
    ///
    /// Errors: [`RdmaError::FixedInUse`].
    pub(crate) fn take_fixed(&mut self, number: u32) -> Result<(), RdmaError> {
        if self.all.contains(&number) || self.fixed.contains(&number) {
            return Err(RdmaError::FixedInUse {
                what: self.what,
                number,
            });
        }
        self.fixed.push(number);
        Ok(())
    }

    /// Takes a number that was just freed, before any other object takes it.
    ///
    /// Errors: [`RdmaError::Capacity`] if it is in use.
    pub(crate) fn take_again(&mut self, number: u32) -> Result<(), RdmaError> {
        if !self.all.contains(&number) {
            return self.take_fixed(number);
        }
        if let Some(at) = self.resting.iter().rposition(|other| *other == number) {
            self.resting.remove(at);
        } else if let Some(at) = self.free.iter().position(|other| *other == number) {
            self.free.swap_remove(at);
        } else {
            return Err(RdmaError::Capacity {
                what: self.what,
                limit: self.quota,
                key: self.key,
            });
        }
        self.used += 1;
        Ok(())
    }

    /// Frees a number of [`Numbers::take`] or [`Numbers::take_fixed`].
    pub(crate) fn give(&mut self, number: u32) {
        if let Some(place) = self.fixed.iter().position(|fixed| *fixed == number) {
            self.fixed.swap_remove(place);
            return;
        }
        self.used = self.used.saturating_sub(1);
        self.resting.push_back(number);
        let all = self.free.len() + self.resting.len() + self.used as usize;
        if self.resting.len() > all / RESTING_PART
            && let Some(rested) = self.resting.pop_front()
        {
            self.free.push(rested);
        }
    }
}

#[cfg(test)]
mod tests;

/// Refuses a number outside `least..=most`.
pub(crate) fn within(
    what: &'static str,
    given: u32,
    least: u32,
    most: u32,
) -> Result<(), RdmaError> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(RdmaError::OutOfRange {
        what,
        given: given.into(),
        least: least.into(),
        most: most.into(),
    })
}
