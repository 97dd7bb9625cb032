//! Choices by seed, so that a run can be repeated.

const MILLION: u64 = 1_000_000;

/// A seeded choice of some of many.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    per_million: u32,
    state: u64,
}

impl Choice {
    /// `None` if nothing would ever be chosen.
    pub(crate) fn new(per_million: u32, seed: u64) -> Option<Self> {
        // zero is the one state that the generator never leaves
        let state = seed.max(1);
        (per_million > 0).then_some(Self { per_million, state })
    }

    /// Xorshift64*: small, and the same everywhere. Source: S. Vigna, "An experimental exploration
    /// of Marsaglia's xorshift generators, scrambled".
    pub(crate) fn draw(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }

    pub(crate) fn strikes(&mut self) -> bool {
        ((self.draw() * MILLION) >> 32) < u64::from(self.per_million)
    }

    /// Any number below `bound`, which is at most 2^32.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.draw() * bound as u64) >> 32) as usize
    }
}
