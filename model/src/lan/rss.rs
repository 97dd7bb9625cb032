//! Receive side scaling: from the headers of a frame to one of the queues of a VSI.

use super::headers::Flow;
use ringside_spec::lan::admin::vsi::rss;

/// Function that makes a hash of a frame's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// The Toeplitz hash.
    Toeplitz,
    /// The same; both directions of a flow get the same hash.
    Symmetric,
    /// Another scheme of the card, by its number: no source says which bits it combines, so the
    /// model does not compute it.
    NotComputed(u8),
}

impl Scheme {
    /// The scheme of this number, in the properties of a VSI and in `VSIQF_HASH_CTL`.
    pub(crate) const fn from_code(code: u8) -> Self {
        match code {
            rss::HASH_TOEPLITZ => Self::Toeplitz,
            rss::HASH_SYMMETRIC => Self::Symmetric,
            other => Self::NotComputed(other),
        }
    }

    /// The scheme of a VSI whose register says `register`: that, unless it is the default.
    pub(crate) const fn or_of_register(self, register: Self) -> Self {
        match register {
            Self::Toeplitz => self,
            set => set,
        }
    }
}

/// Spreading of frames by a VSI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spreading {
    /// The key, its continuation included.
    pub(crate) key: Vec<u8>,
    /// Queue numbers, counted from the first of the VSI.
    pub(crate) table: Vec<u8>,
    /// The hash.
    pub(crate) scheme: Scheme,
}

/// The Toeplitz hash: for each bit that is set, the 32 bits of the key that begin there. Source:
/// Microsoft, "RSS hashing functions".
pub(super) fn toeplitz(key: &[u8], input: impl Iterator<Item = u8>) -> u32 {
    let mut key = key.iter().copied();
    let mut window = (0..4).fold(0u32, |window, _| {
        window << 8 | u32::from(key.next().unwrap_or(0))
    });
    let mut hash = 0;
    for byte in input {
        let next = key.next().unwrap_or(0);
        for bit in (0..8).rev() {
            if byte >> bit & 1 != 0 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}

impl Spreading {
    /// The number of the scheme, if the model does not compute its hash.
    pub(super) const fn scheme_not_computed(&self) -> Option<u8> {
        match self.scheme {
            Scheme::NotComputed(number) => Some(number),
            Scheme::Toeplitz | Scheme::Symmetric => None,
        }
    }

    /// The hash of a flow.
    pub(super) fn hash(&self, flow: &Flow) -> u32 {
        let bytes = flow.bytes();
        if self.scheme != Scheme::Symmetric {
            return toeplitz(&self.key, bytes.iter().copied());
        }
        // Each word with that of the other end: the pairs of GLQF_HSYMM as drivers set them.
        let (sources, rest) = bytes.split_at(flow.address_bytes.min(bytes.len()));
        let (destinations, ports) = rest.split_at(flow.address_bytes.min(rest.len()));
        let (from, to) = ports.split_at(ports.len() / 2);
        let mixed = |one: &[u8], other: &[u8]| -> Vec<u8> {
            one.iter().zip(other).map(|(a, b)| a ^ b).collect()
        };
        let addresses = mixed(sources, destinations);
        let ports = mixed(from, to);
        let input = [&addresses, &addresses, &ports, &ports];
        toeplitz(&self.key, input.into_iter().flatten().copied())
    }

    /// The hash of the words that a profile takes.
    pub(super) fn hash_of(&self, input: impl Iterator<Item = u8>) -> u32 {
        toeplitz(&self.key, input)
    }

    /// The queue of a hash, counted from the first of the VSI.
    pub(super) fn queue(&self, hash: u32) -> u16 {
        let Some(last) = self.table.len().checked_sub(1) else {
            return 0;
        };
        // Tables have a power of two entries.
        let entry = self.table.get(hash as usize & last);
        entry.map_or(0, |queue| u16::from(*queue))
    }
}

#[cfg(test)]
mod tests;
