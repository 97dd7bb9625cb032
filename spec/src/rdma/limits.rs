//! Limits of the E810's RDMA engine.
//!
//! Source: irdma `icrdma_hw.c`, `icrdma_init_hw`; `defs.h`, `type.h`, `hmc.h` where named.

/// Largest queue pair number plus one (18 bits).
pub const QUEUE_PAIRS: u32 = 1 << 18;
/// Largest completion queue number plus one (19 bits).
pub const COMPLETION_QUEUES: u32 = 1 << 19;
/// Lowest queue pair number for users; 0, 1 and 2 are the driver's own.
pub const FIRST_USER_QUEUE_PAIR: u32 = 3;
/// Lowest completion queue number for users; 0 is the control completion queue.
pub const FIRST_USER_COMPLETION_QUEUE: u32 = 3;
/// Protection domains (18 bits); 0, 1 and 2 are the driver's own.
pub const PROTECTION_DOMAINS: u32 = 1 << 18;
/// Lowest protection domain for users.
pub const FIRST_USER_PROTECTION_DOMAIN: u32 = 3;
/// Completions of the smallest completion queue.
pub const MIN_CQ_ENTRIES: u32 = 1;
/// Completions of the largest completion queue that drivers request.
pub const MAX_CQ_ENTRIES: u32 = 1_048_575;
/// Completions of the largest completion queue that the commands can name (21 bits). User libraries
/// double the size that an application requests, and so exceed [`MAX_CQ_ENTRIES`].
pub const MAX_CQ_ENTRIES_ENCODED: u32 = (1 << 21) - 1;
/// Entries of the smallest completion event queue.
pub const MIN_CEQ_ENTRIES: u32 = 1;
/// Entries of the largest completion event queue.
pub const MAX_CEQ_ENTRIES: u32 = 262_143;
/// Largest completion event queue number plus one (10 bits, 1023 the highest).
pub const COMPLETION_EVENT_QUEUES: u16 = 1024;
/// Entries of the smallest asynchronous event queue.
pub const MIN_AEQ_ENTRIES: u32 = 1;
/// Entries of the largest asynchronous event queue.
pub const MAX_AEQ_ENTRIES: u32 = 524_287;
/// Fragments of a work request.
pub const MAX_FRAGMENTS: u32 = 13;
/// Fragments of an RDMA read request.
pub const MAX_READ_FRAGMENTS: u32 = 13;
/// Inline bytes of a work request.
pub const MAX_INLINE_BYTES: u32 = 101;
/// Quanta of the largest work queue, send or receive.
pub const MAX_WORK_QUEUE_QUANTA: u32 = 32_768;
/// Entries of the smallest work queue.
pub const MIN_WORK_QUEUE_ENTRIES: u32 = 8;
/// Quanta of a send queue that stay unused.
pub const SEND_QUEUE_RESERVED_QUANTA: u32 = 258;
/// Entries of a receive queue that stay unused.
pub const RECEIVE_QUEUE_RESERVED: u32 = 1;
/// Quanta of the largest send work queue element.
pub const MAX_SEND_QUANTA: u32 = 8;
/// Work requests that any queue pair may hold, as drivers report it.
pub const MAX_WORK_REQUESTS: u32 =
    (MAX_WORK_QUEUE_QUANTA - SEND_QUEUE_RESERVED_QUANTA) / MAX_SEND_QUANTA;
/// Inbound read requests in flight (IRD), as drivers report it.
pub const MAX_INBOUND_READS: u32 = 127;
/// Outbound read requests in flight (ORD).
pub const MAX_OUTBOUND_READS: u32 = 255;
/// Bytes of a message.
pub const MAX_MESSAGE_BYTES: u32 = (1 << 31) - 1;
/// Bytes of a memory region.
pub const MAX_REGION_BYTES: u64 = 1 << 45;
/// Page sizes of memory regions, as a set of powers of two: 4 KiB, 2 MiB, 1 GiB.
pub const PAGE_SIZES: u64 = 1 << 12 | 1 << 21 | 1 << 30;
/// Push pages.
pub const PUSH_PAGES: u32 = 1024;
/// Statistics instances.
pub const STATISTICS_INSTANCES: u32 = 128;
/// Multicast groups.
pub const MULTICAST_GROUPS: u32 = 4096;
/// Nodes of the work scheduler; 0 is the root.
pub const SCHEDULER_NODES: u16 = 1023;
/// Bits of the index part of a steering tag.
pub const STAG_INDEX_BITS: u32 = 24;
/// Fewest index bits that drivers use below the random ones.
pub const STAG_INDEX_MIN_BITS: u32 = 14;
/// Entries of the smallest ring of the control queue pair.
pub const MIN_CQP_ENTRIES: u32 = 4;
/// Entries of the largest ring of the control queue pair; the value that drivers use.
pub const MAX_CQP_ENTRIES: u32 = 2048;
/// First function index of a VF in the host memory cache; below are the physical functions.
pub const FIRST_VF_HMC_FUNCTION: u8 = 8;
/// Last function index of a VF in the host memory cache.
pub const LAST_VF_HMC_FUNCTION: u8 = 47;

/// Number of times that a driver polls for the engine's processors to run.
pub const READY_TRIES: u32 = 15;
/// Wait between two of these polls, milliseconds.
pub const READY_WAIT_MS: u64 = 1000;
/// Longest wait for a register of the control queue pair, milliseconds (1000 polls of 10 µs).
pub const CQP_REGISTER_WAIT_MS: u64 = 10;
/// Longest wait for a completion that is polled, milliseconds (100000 polls of 10 µs).
pub const CCQ_POLL_WAIT_MS: u64 = 1000;
/// Time without any completion after which a driver requests a reset, milliseconds.
pub const CQP_STALL_MS: u64 = 5000;

/// Bytes of a quantum of a work queue.
pub const QUANTUM_BYTES: usize = 32;
/// Bytes of a completion.
pub const COMPLETION_BYTES: usize = 32;
/// Bytes of an extended completion.
pub const EXTENDED_COMPLETION_BYTES: usize = 64;
/// Bytes of an asynchronous event.
pub const ASYNCHRONOUS_EVENT_BYTES: usize = 16;
/// Bytes of a completion event.
pub const COMPLETION_EVENT_BYTES: usize = 8;
/// Bytes of the context of the control queue pair.
pub const CQP_CONTEXT_BYTES: usize = 64;
/// Bytes of a queue pair context.
pub const QP_CONTEXT_BYTES: usize = 256;
/// Bytes of the shadow area of a queue pair or completion queue.
pub const SHADOW_BYTES: usize = 64;
/// Bytes of the buffers of QUERY_FPM and COMMIT_FPM that this generation uses. Drivers may bring
/// longer buffers: irdma of Linux 7.3 gives COMMIT_FPM 208 bytes, whose last words are for later
/// generations.
pub const FPM_BUFFER_BYTES: usize = 176;
/// Bytes of the buffer of GATHER_STATS.
pub const STATISTICS_BUFFER_BYTES: usize = 1024;
/// Bytes of the feature buffer in a driver's first request: 27 entries.
pub const FEATURE_BUFFER_BYTES: usize = 216;
/// Bytes of the scratch buffer before an iWARP context (Q2).
pub const Q2_BUFFER_BYTES: usize = 256;

/// Alignment of the ring of the control queue pair.
pub const CQP_RING_ALIGNMENT: usize = 512;
/// Alignment of the rings of event queues and of the control completion queue.
pub const EVENT_RING_ALIGNMENT: usize = 256;
/// Alignment of the control completion queue's shadow area.
pub const CCQ_SHADOW_ALIGNMENT: usize = 128;
/// Alignment of a list of segment entries.
pub const SEGMENT_LIST_ALIGNMENT: usize = 128;
/// Alignment of a queue pair context.
pub const QP_CONTEXT_ALIGNMENT: usize = 256;
/// Alignment that drivers give the FPM buffers and the context of the control queue pair.
pub const CONTROL_BUFFER_ALIGNMENT: usize = 4;
