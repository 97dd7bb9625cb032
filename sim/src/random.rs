//! Random numbers that follow from a seed, the same on every machine and in every version.

/// SplitMix64. Source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014, figure 16.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    #[cfg(test)]
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Random numbers that are independent of those of the seed itself.
    pub(crate) fn split(seed: u64, number: u64) -> Self {
        let mut mixed = Self(seed ^ number.wrapping_mul(GOLDEN));
        mixed.0 = mixed.next();
        mixed
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * bound as u128;
        (wide >> 64) as usize
    }

    /// A number of `least..=most`.
    pub(crate) fn within(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// True with this probability in a thousand.
    pub(crate) fn chance(&mut self, per_thousand: usize) -> bool {
        self.below(1000) < per_thousand
    }

    /// One of the values; `None` if there are none.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        of.get(self.below(of.len())).copied()
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

/// A hash of all events of a run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) const fn new() -> Self {
        // Offset basis and prime of 64-bit FNV-1a, applied word by word.
        Self(0xCBF2_9CE4_8422_2325)
    }

    pub(crate) fn add(&mut self, words: &[u64]) {
        for word in words {
            self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01B3);
            self.0 ^= self.0 >> 32;
        }
    }

    pub(crate) const fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_gives_others() {
        let draw = |seed| Random::new(seed).bytes(32);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        // First number of seed 0, as the authors' program prints it.
        assert_eq!(Random::new(0).next(), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_both_ends() {
        let mut random = Random::new(7);
        let seen: std::collections::BTreeSet<_> = (0..1000).map(|_| random.within(3, 6)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(random.below(0), 0);
    }
}
