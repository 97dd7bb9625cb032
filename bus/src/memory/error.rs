//! Reasons why memory is not available.

use super::PageSize;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// No huge pages of that size are free.
    #[error(
        "no {page_size} huge pages for {length} bytes ({error}); reserve them with: \
         echo {wanted} > /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages",
        wanted = length.div_ceil(page_size.bytes()), kib = page_size.bytes() / 1024
    )]
    NoHugePages {
        /// Bytes asked for.
        length: usize,
        /// Page size asked for.
        page_size: PageSize,
        /// The operating system's message.
        error: String,
    },
    /// The machine, or the memory limit of this process's control group, does not have that much
    /// free memory.
    #[error(
        "{length} bytes of DMA memory are requested and {available_bytes} are available; request less, free memory, or raise the container's limit"
    )]
    NotEnough {
        /// Bytes asked for.
        length: usize,
        /// The memory that the kernel can provide without swapping, within the limits of the
        /// control groups.
        available_bytes: usize,
    },
    /// The operating system refused the operation.
    #[error("{operation} of {length} bytes: {error}; free memory or raise the process's limits")]
    System {
        /// The operation.
        operation: &'static str,
        /// Bytes asked for.
        length: usize,
        /// The operating system's message.
        error: String,
    },
    /// There is nothing to map.
    #[error("the memory is empty; give at least one byte")]
    Empty,
    /// The file is shorter than the memory that is to be made of it.
    #[error(
        "the file has {length} bytes, and {needed} are to be mapped: extend it with ftruncate, or map less"
    )]
    TooShort {
        /// Bytes asked for.
        needed: usize,
        /// Bytes of the file.
        length: u64,
    },
    /// The descriptor does not let this process read and write the file.
    #[error(
        "the descriptor does not permit reading and writing, which the memory of a device needs: open \
         it for both (O_RDWR)"
    )]
    NotWritable,
    /// The length is zero, or the alignment is not a power of two: a bug of the caller.
    #[error(
        "{length} bytes aligned to {alignment} cannot be allocated; ask for at least one byte, and for \
         an alignment that is a power of two up to 1 GiB"
    )]
    BadRequest {
        /// Bytes asked for.
        length: usize,
        /// Alignment asked for.
        alignment: usize,
    },
    /// The permit is for other memory.
    #[error(
        "{length} bytes at {address:#x} may not be lent: the permit is for {:#x} to {:#x}; take the \
         memory from there, or use a permit of its own",
        within.start, within.end
    )]
    NotPermitted {
        /// The address.
        address: usize,
        /// Bytes asked for.
        length: usize,
        /// Addresses that the permit is for.
        within: std::ops::Range<usize>,
    },
    /// The device's address space is full.
    #[error(
        "no {length} bytes of I/O virtual address space are left; ask for less, or release memory \
         regions first"
    )]
    NoAddressSpace {
        /// Bytes asked for.
        length: usize,
    },
    /// The pool is closed: its device was shut down, or is being recovered.
    #[error("the DMA pool is closed: open the device again, or wait for its recovery")]
    Closed,
    /// The memory was allocated but could not be mapped for the device.
    #[error(transparent)]
    Function(#[from] crate::error::FunctionError),
}
