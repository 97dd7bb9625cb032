//! Sizes of pages.

/// The page size that backs a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageSize {
    /// Ordinary pages.
    FourKiB,
    /// Huge pages of 2 MiB.
    TwoMiB,
    /// Huge pages of 1 GiB.
    OneGiB,
}

impl PageSize {
    /// Bytes in a page.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::FourKiB => 4096,
            Self::TwoMiB => 2 << 20,
            Self::OneGiB => 1 << 30,
        }
    }
}

impl std::fmt::Display for PageSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::FourKiB => "4 KiB",
            Self::TwoMiB => "2 MiB",
            Self::OneGiB => "1 GiB",
        })
    }
}
