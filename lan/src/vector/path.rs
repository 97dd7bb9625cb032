//! The paths, and the choice of one.

use super::run::GROUP;
use std::ffi::OsStr;

/// Environment variable that names the path of queues that were not given one.
pub const PATH_VARIABLE: &str = "RINGSIDE_PACKET_PATH";

/// The instructions with which a queue handles plain packets. All paths give the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketPath {
    /// Words of 64 bits: runs everywhere.
    Scalar,
    /// 256-bit vectors: needs the instructions AVX2.
    Avx2,
    /// 512-bit vectors: needs AVX-512 F, BW, DQ and VL.
    Avx512,
}

/// A path that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The processor lacks its instructions.
    #[error("packet path {0}: this processor lacks the instructions; choose scalar, or name none")]
    Missing(PacketPath),
    /// The environment names none of the paths.
    #[error("RINGSIDE_PACKET_PATH names no packet path: set it to scalar, avx2 or avx512")]
    Unknown,
}

impl PacketPath {
    /// All paths, the plainest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The name: scalar, avx2 or avx512.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// The path of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|path| path.name() == name)
    }

    /// True if this processor has the instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The path itself if the processor has it.
    ///
    /// Errors: [`PathError::Missing`].
    pub fn check(self) -> Result<Self, PathError> {
        if self.is_available() {
            Ok(self)
        } else {
            Err(PathError::Missing(self))
        }
    }

    /// The path of a queue: `wanted`, else that of the environment variable [`PATH_VARIABLE`],
    /// else AVX2, or words on a processor without it.
    ///
    /// AVX-512 is taken by name only: on the processor where both were timed, AVX2 was faster
    /// (`docs/performance.md`).
    ///
    /// Errors: [`PathError`], a path that was named and cannot be used.
    pub fn choose(wanted: Option<Self>) -> Result<Self, PathError> {
        Self::choose_from(wanted, std::env::var_os(PATH_VARIABLE).as_deref())
    }

    pub(super) fn choose_from(
        wanted: Option<Self>,
        named: Option<&OsStr>,
    ) -> Result<Self, PathError> {
        match (wanted, named) {
            (Some(path), _) => path.check(),
            (None, Some(name)) => {
                let path = name.to_str().and_then(Self::from_name);
                path.ok_or(PathError::Unknown)?.check()
            }
            (None, None) => Ok(Self::usual()),
        }
    }

    fn usual() -> Self {
        Self::Avx2.check().unwrap_or(Self::Scalar)
    }

    /// Packets that a queue handles one by one before it tries the path again.
    #[inline(always)]
    pub(crate) const fn stride(self) -> usize {
        match self {
            Self::Scalar => 1,
            _ => GROUP,
        }
    }
}

impl std::fmt::Display for PacketPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
