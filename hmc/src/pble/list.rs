//! The entries of one memory region or ring.

use ringside_spec::rdma::segments::PBLES_PER_LEAF;

use super::{PbleError, PbleRange};

/// A page list with the entries that it holds.
#[derive(Debug, PartialEq, Eq)]
pub enum PageList {
    /// The entries are the pages.
    OneLevel(PbleRange),
    /// The root's entries are the indexes of the leaves, and the leaves' entries the pages. Every
    /// leaf but the last holds 512.
    TwoLevels {
        /// One entry for each leaf.
        root: PbleRange,
        /// The leaves, in the order of the pages.
        leaves: Vec<PbleRange>,
    },
}

impl PageList {
    /// Index of the first entry of the list or of its root: the value for a command or a context.
    #[must_use]
    pub fn first_index(&self) -> u32 {
        match self {
            Self::OneLevel(range) => range.first_index(),
            Self::TwoLevels { root, .. } => root.first_index(),
        }
    }

    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        match self {
            Self::OneLevel(range) => u64::from(range.entries()),
            Self::TwoLevels { leaves, .. } => {
                leaves.iter().map(|leaf| u64::from(leaf.entries())).sum()
            }
        }
    }

    /// The ranges of entries that need memory before any entry is written: root first.
    pub fn ranges(&self) -> impl Iterator<Item = &PbleRange> {
        let (first, rest): (_, &[PbleRange]) = match self {
            Self::OneLevel(range) => (range, &[]),
            Self::TwoLevels { root, leaves } => (root, leaves),
        };
        std::iter::once(first).chain(rest)
    }

    /// Returns the entries to write: index, and 8 bytes as a number.
    ///
    /// `addresses` are the I/O virtual addresses of the pages, in order.
    /// Errors: [`PbleError::WrongNumberOfAddresses`].
    pub fn entries<'a>(
        &'a self,
        addresses: &'a [u64],
    ) -> Result<impl Iterator<Item = (u32, u64)> + 'a, PbleError> {
        let given = addresses.len() as u64;
        if given != self.pages() {
            return Err(PbleError::WrongNumberOfAddresses {
                addresses: given,
                pages: self.pages(),
            });
        }
        let (root, leaves): (Option<&PbleRange>, &[PbleRange]) = match self {
            Self::OneLevel(range) => (None, std::slice::from_ref(range)),
            Self::TwoLevels { root, leaves } => (Some(root), leaves),
        };
        let of_root = root.into_iter().flat_map(move |root| {
            root.indexes()
                .zip(leaves.iter().map(|leaf| u64::from(leaf.first_index())))
        });
        let chunk = match root {
            Some(_) => PBLES_PER_LEAF as usize,
            None => addresses.len().max(1),
        };
        let of_leaves = leaves
            .iter()
            .zip(addresses.chunks(chunk))
            .flat_map(|(leaf, pages)| leaf.indexes().zip(pages.iter().copied()));
        Ok(of_root.chain(of_leaves))
    }
}

/// Returns the address of the first page if the pages are contiguous, so that no list is needed.
///
/// `None` for pages with gaps, for no pages, and for a run past the end of the address space.
#[must_use]
pub fn contiguous_start(addresses: &[u64], page_bytes: u64) -> Option<u64> {
    let &start = addresses.first()?;
    let follows = addresses
        .windows(2)
        .all(|pair| matches!(pair, &[a, b] if a.checked_add(page_bytes) == Some(b)));
    let whole = start.checked_add(page_bytes.checked_mul(addresses.len() as u64)? - 1);
    (follows && whole.is_some()).then_some(start)
}
