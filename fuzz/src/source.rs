//! Decodes the fuzzer's bytes into values.

/// The rest of the input. Once it is empty, every value is zero.
pub(crate) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the rest of the input.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Returns up to `count` bytes.
    pub(crate) fn some(&mut self, count: usize) -> &'a [u8] {
        let (taken, left) = self.0.split_at(count.min(self.0.len()));
        self.0 = left;
        taken
    }

    /// Returns exactly `N` bytes; missing ones are zero.
    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for (to, from) in bytes.iter_mut().zip(self.some(N)) {
            *to = *from;
        }
        bytes
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn half(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn number(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub(crate) fn words<const N: usize>(&mut self) -> [u64; N] {
        std::array::from_fn(|_| self.word())
    }
}
