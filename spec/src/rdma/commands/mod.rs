//! Commands of the control queue pair (CQP): work queue entries of 64 bytes.
//!
//! Word 3 is the header in every command: opcode in bits `[37:32]`, valid (ring polarity) in
//! bit 63. Each command is a plain structure; [`Command`] holds any of them.
//! Source: irdma `defs.h`, IRDMA_CQPSQ_*, IRDMA_CQP_OP_*; encoders in irdma `ctrl.c`, `uda.c`,
//! `ws.c`.

use thiserror::Error;

use super::layout::{FieldLayout, codes};

codes! {
    /// Operation of a command, word 3 bits `[37:32]`.
    /// Source: irdma `type.h`/`defs.h`, IRDMA_CQP_OP_*.
    pub enum Opcode: u8 {
        /// Create a queue pair.
        CreateQueuePair = 0x00,
        /// Change state or context of a queue pair.
        ModifyQueuePair = 0x01,
        /// Destroy a queue pair.
        DestroyQueuePair = 0x02,
        /// Create a completion queue.
        CreateCompletionQueue = 0x03,
        /// Change a completion queue (resize).
        ModifyCompletionQueue = 0x04,
        /// Destroy a completion queue.
        DestroyCompletionQueue = 0x05,
        /// Reserve a steering tag for a memory region or a memory window.
        AllocateStag = 0x09,
        /// Register a memory region.
        RegisterMemoryRegion = 0x0A,
        /// Ask about a steering tag.
        QueryStag = 0x0B,
        /// Register a shared memory region.
        RegisterSharedMemoryRegion = 0x0C,
        /// Release a steering tag.
        DeallocateStag = 0x0D,
        /// Write or free an entry of the local MAC table (not on the E810).
        ManageLocalMacTable = 0x0E,
        /// Write or delete an ARP entry.
        ManageArp = 0x0F,
        /// Backing pages of a VF's page buffer lists.
        ManageVfPbleBackingPages = 0x10,
        /// Allocate or free a push page.
        ManagePushPage = 0x11,
        /// Read the feature list.
        QueryFeatures = 0x12,
        /// Copy a queue pair's context to memory.
        UploadContext = 0x13,
        /// Allocate an entry of the local MAC table (not on the E810).
        AllocateLocalMacTableEntry = 0x14,
        /// Give a VF a function index of the host memory cache.
        ManageHmcFunctionTable = 0x15,
        /// Create a completion event queue.
        CreateCompletionEventQueue = 0x16,
        /// Destroy a completion event queue.
        DestroyCompletionEventQueue = 0x18,
        /// Create the asynchronous event queue.
        CreateAsynchronousEventQueue = 0x19,
        /// Destroy the asynchronous event queue.
        DestroyAsynchronousEventQueue = 0x1B,
        /// Create an address handle.
        CreateAddressHandle = 0x1C,
        /// Change an address handle.
        ModifyAddressHandle = 0x1D,
        /// Destroy an address handle.
        DestroyAddressHandle = 0x1E,
        /// Write segment descriptors.
        UpdateSegments = 0x1F,
        /// Read maxima of the function private memory.
        QueryFpm = 0x20,
        /// Set counts of the function private memory.
        CommitFpm = 0x21,
        /// Flush work queues, or raise an asynchronous event.
        FlushWorkQueues = 0x22,
        /// Accept or refuse a TCP port (iWARP).
        ManageAcceleratedPort = 0x23,
        /// No operation.
        Nop = 0x24,
        /// Hash table entry for a four-tuple (iWARP).
        ManageQuadHash = 0x25,
        /// Create a multicast group.
        CreateMulticastGroup = 0x26,
        /// Change a multicast group.
        ModifyMulticastGroup = 0x27,
        /// Destroy a multicast group.
        DestroyMulticastGroup = 0x28,
        /// Suspend a queue pair.
        SuspendQueuePair = 0x29,
        /// Resume a queue pair.
        ResumeQueuePair = 0x2A,
        /// All static objects have memory now.
        StaticHmcPagesAllocated = 0x2B,
        /// Add, change or delete a node of the work scheduler.
        WorkSchedulerNode = 0x2C,
        /// Allocate or free a statistics instance.
        ManageStatistics = 0x2D,
        /// Copy statistics to memory.
        GatherStatistics = 0x2E,
        /// Map user priorities.
        UserPriorityMap = 0x2F,
    }
}

crate::words! {
    /// Word 3 of every command. The other bits depend on the operation.
    /// Source: irdma `defs.h`, IRDMA_CQPSQ_OPCODE, IRDMA_CQPSQ_WQEVALID.
    pub struct CommandHeader: u64 {
        /// code of the operation, see [`Opcode`]
        opcode: [37:32],
        /// ring polarity: 1 on the first pass, then toggling
        valid: [63],
    }
}

impl CommandHeader {
    /// The header of a command.
    #[must_use]
    pub fn of(words: &[u64; 8]) -> Self {
        Self(words[HEADER_WORD])
    }

    /// The operation.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub const fn operation(self) -> Opcode {
        Opcode::from_code(self.opcode() as u8)
    }
}

/// The word of a command that holds its header.
pub const HEADER_WORD: usize = 3;

/// Bytes of a command.
pub const COMMAND_BYTES: usize = 64;

const HEADER_ONLY: [u64; 8] = [0, 0, 0, CommandHeader::DEFINED, 0, 0, 0, 0];

/// The words hold another command than the one to be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the entry's opcode is {found:?}, not {expected:?}: decode it as the command that it is")]
pub struct WrongOpcode {
    /// The requested opcode.
    pub expected: Opcode,
    /// The opcode in the header.
    pub found: Opcode,
}

/// The header names an operation that has no layout here; answer it with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no layout is known for opcode {0:?}")]
pub struct UnknownCommand(pub Opcode);

/// The fields that all commands share.
pub trait ControlCommand: Copy + core::fmt::Debug {
    /// The operation.
    const OPCODE: Opcode;
    /// The position of each field.
    const FIELDS: &'static [FieldLayout];
    /// The 64 bytes, header included. `polarity` is the valid bit's value at the ring's slot.
    fn encode(&self, polarity: bool) -> [u64; 8];
    /// Reads the command.
    ///
    /// # Errors
    /// [`WrongOpcode`] if the header names another operation. Bits without a meaning are ignored:
    /// see [`Self::reserved_bits`].
    fn decode(words: &[u64; 8]) -> Result<Self, WrongOpcode>;
    /// The bits that are set although this command gives them no meaning, word by word.
    fn reserved_bits(words: &[u64; 8]) -> [u64; 8];
}

/// Declares commands; several that share a layout are listed before `with`.
macro_rules! commands {
    ($( $(#[$outer:meta])* pub struct $name:ident $body:tt )*) => {$(
        $crate::rdma::layout::layout!(
            @structure [$(#[$outer])*] $name 8 $body $crate::rdma::commands::HEADER_ONLY
        );

        impl $name {
            /// The operation.
            pub const OPCODE: $crate::rdma::commands::Opcode =
                $crate::rdma::commands::Opcode::$name;

            /// The 64 bytes, header included. `polarity` is the valid bit's value at the slot.
            #[must_use]
            pub fn encode(&self, polarity: bool) -> [u64; 8] {
                use $crate::rdma::commands::{CommandHeader, HEADER_WORD};
                let mut words = [0; 8];
                self.place_fields(&mut words);
                words[HEADER_WORD] = CommandHeader(words[HEADER_WORD])
                    .with_opcode(u64::from(Self::OPCODE.code()))
                    .with_valid(polarity)
                    .0;
                words
            }

            /// Reads the command; bits without a meaning are ignored.
            ///
            /// # Errors
            /// [`WrongOpcode`](super::WrongOpcode) if the header names another operation.
            pub fn decode(words: &[u64; 8]) -> Result<Self, $crate::rdma::commands::WrongOpcode> {
                let found = $crate::rdma::commands::CommandHeader::of(words).operation();
                if found != Self::OPCODE {
                    return Err($crate::rdma::commands::WrongOpcode {
                        expected: Self::OPCODE,
                        found,
                    });
                }
                Ok(Self::extract_fields(words))
            }
        }

        impl $crate::rdma::commands::ControlCommand for $name {
            const OPCODE: $crate::rdma::commands::Opcode = Self::OPCODE;
            const FIELDS: &'static [$crate::rdma::layout::FieldLayout] = Self::FIELDS;
            fn encode(&self, polarity: bool) -> [u64; 8] {
                Self::encode(self, polarity)
            }
            fn decode(words: &[u64; 8]) -> Result<Self, $crate::rdma::commands::WrongOpcode> {
                Self::decode(words)
            }
            fn reserved_bits(words: &[u64; 8]) -> [u64; 8] {
                Self::reserved_bits(words)
            }
        }
    )*};

    ($( $(#[$outer:meta])* pub struct $name:ident; )+ with $body:tt) => {
        $( commands! { $(#[$outer])* pub struct $name $body } )+
    };
}

mod completion_queues;
mod hmc;
mod memory;
mod network;
mod queue_pairs;
mod services;

pub use completion_queues::*;
pub use hmc::*;
pub use memory::*;
pub use network::*;
pub use queue_pairs::*;
pub use services::*;

macro_rules! command_set {
    ($($name:ident),* $(,)?) => {
        /// Any command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Command {
            $(
                #[doc = concat!("See [`", stringify!($name), "`](struct@", stringify!($name), ").")]
                $name($name),
            )*
        }

        impl Command {
            /// Every operation that has a layout.
            pub const OPCODES: &'static [Opcode] = &[ $( Opcode::$name ),* ];

            /// Decodes the command that the header names; bits without a meaning are ignored.
            ///
            /// # Errors
            /// [`UnknownCommand`] if there is no layout for the opcode.
            pub fn decode(words: &[u64; 8]) -> Result<Self, UnknownCommand> {
                let operation = CommandHeader::of(words).operation();
                match operation {
                    $( Opcode::$name => Ok(Self::$name($name::extract_fields(words))), )*
                    other => Err(UnknownCommand(other)),
                }
            }

            /// Returns the bits that are set although the named command gives them no meaning.
            ///
            /// # Errors
            /// [`UnknownCommand`] if there is no layout for the opcode.
            pub fn reserved_bits(words: &[u64; 8]) -> Result<[u64; 8], UnknownCommand> {
                match CommandHeader::of(words).operation() {
                    $( Opcode::$name => Ok($name::reserved_bits(words)), )*
                    other => Err(UnknownCommand(other)),
                }
            }

            /// The table of fields of an operation; `None` if it has no layout.
            #[must_use]
            pub const fn fields(operation: Opcode) -> Option<&'static [FieldLayout]> {
                match operation {
                    $( Opcode::$name => Some($name::FIELDS), )*
                    _ => None,
                }
            }

            /// The operation.
            #[must_use]
            pub const fn opcode(&self) -> Opcode {
                match self {
                    $( Self::$name(_) => Opcode::$name, )*
                }
            }

            /// The 64 bytes, header included.
            #[must_use]
            pub fn encode(&self, polarity: bool) -> [u64; 8] {
                match self {
                    $( Self::$name(command) => command.encode(polarity), )*
                }
            }
        }

        $(
            impl From<$name> for Command {
                fn from(command: $name) -> Self {
                    Self::$name(command)
                }
            }
        )*
    };
}

command_set! {
    CreateQueuePair,
    ModifyQueuePair,
    DestroyQueuePair,
    CreateCompletionQueue,
    ModifyCompletionQueue,
    DestroyCompletionQueue,
    AllocateStag,
    RegisterMemoryRegion,
    QueryStag,
    DeallocateStag,
    ManageLocalMacTable,
    ManageArp,
    ManagePushPage,
    QueryFeatures,
    UploadContext,
    AllocateLocalMacTableEntry,
    ManageHmcFunctionTable,
    CreateCompletionEventQueue,
    DestroyCompletionEventQueue,
    CreateAsynchronousEventQueue,
    DestroyAsynchronousEventQueue,
    CreateAddressHandle,
    ModifyAddressHandle,
    DestroyAddressHandle,
    UpdateSegments,
    QueryFpm,
    CommitFpm,
    FlushWorkQueues,
    ManageAcceleratedPort,
    Nop,
    ManageQuadHash,
    CreateMulticastGroup,
    ModifyMulticastGroup,
    DestroyMulticastGroup,
    SuspendQueuePair,
    ResumeQueuePair,
    StaticHmcPagesAllocated,
    WorkSchedulerNode,
    ManageStatistics,
    GatherStatistics,
    UserPriorityMap,
}

#[cfg(test)]
mod tests;
