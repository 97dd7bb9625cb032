//! Interrupts: vectors, their throttling, and the vector of each cause.
//!
//! An event sets its cause. An enabled cause triggers the vector that it names, counted from the
//! function's first. An enabled vector fires and clears its own enable bit; the driver enables it
//! again through [`VECTOR_CONTROL`].

use crate::lan::wire::registers;
use crate::lan::{RegisterArray, RegisterGrid};

registers! {
    /// Granularity of throttling; see [`InterruptControl`].
    INTERRUPT_CONTROL "GLINT_CTL" = 0x16_CC54;
    /// Vectors of the function, read-only; see [`VectorAllocation`].
    VECTOR_ALLOCATION "PFINT_ALLOC" = 0x1D_2600;
    /// Other causes, cleared when read; see [`OtherCauses`]. Writing sets bits.
    OTHER_CAUSES "PFINT_OICR" = 0x16_CA00;
    /// The other causes that interrupt; see [`OtherCauses`].
    OTHER_CAUSES_ENABLE "PFINT_OICR_ENA" = 0x16_C900;
    /// Vector of the other causes; see [`CauseControl`].
    OTHER_CAUSES_CONTROL "PFINT_OICR_CTL" = 0x16_CA80;
    /// Vector of the admin queue's events; see [`CauseControl`].
    FIRMWARE_CONTROL "PFINT_FW_CTL" = 0x16_C800;
    /// Vector of the mailbox; see [`CauseControl`].
    MAILBOX_CONTROL "PFINT_MBX_CTL" = 0x16_B280;
    /// Vector of the sideband; see [`CauseControl`].
    SIDEBAND_CONTROL "PFINT_SB_CTL" = 0x16_B600;
    /// Time stamp causes that interrupt.
    TIME_STAMP_MASK "PFINT_TSYN_MSK" = 0x16_C980;
}

/// Vectors of the whole device.
pub const VECTOR_COUNT: u32 = 2048;

/// Enables a vector; see [`VectorControl`].
pub const VECTOR_CONTROL: RegisterArray =
    RegisterArray::new("GLINT_DYN_CTL", 0x16_0000, 4, VECTOR_COUNT);
/// Throttling of a vector, row = throttle index 0 receive, 1 transmit, 2 other;
/// see [`ThrottleInterval`].
pub const THROTTLE_INTERVAL: RegisterGrid =
    RegisterGrid::new("GLINT_ITR", 0x15_4000, (0x2000, 3), (4, VECTOR_COUNT));
/// Rate limit of a vector; see [`RateLimit`].
pub const RATE_LIMIT: RegisterArray = RegisterArray::new("GLINT_RATE", 0x15_A000, 4, VECTOR_COUNT);
/// Vector of an RDMA completion event queue; see [`CauseControl`].
pub const COMPLETION_EVENT_QUEUE_CONTROL: RegisterArray =
    RegisterArray::new("GLINT_CEQCTL", 0x15_C000, 4, VECTOR_COUNT);
/// The function that owns a vector; see [`VectorOwner`].
pub const VECTOR_OWNER: RegisterArray =
    RegisterArray::new("GLINT_VECT2FUNC", 0x16_2000, 4, VECTOR_COUNT);
/// Vector of a receive queue; see [`CauseControl`].
pub const RECEIVE_QUEUE_CAUSE: RegisterArray = RegisterArray::new("QINT_RQCTL", 0x15_0000, 4, 2048);
/// Vector of a transmit queue; see [`CauseControl`].
pub const TRANSMIT_QUEUE_CAUSE: RegisterArray =
    RegisterArray::new("QINT_TQCTL", 0x14_0000, 4, 16384);

/// All arrays of this module.
pub const ARRAYS: &[RegisterArray] = &[
    VECTOR_CONTROL,
    RATE_LIMIT,
    COMPLETION_EVENT_QUEUE_CONTROL,
    VECTOR_OWNER,
    RECEIVE_QUEUE_CAUSE,
    TRANSMIT_QUEUE_CAUSE,
];
/// All grids of this module.
pub const GRIDS: &[RegisterGrid] = &[THROTTLE_INTERVAL];

/// Throttle index of receive causes.
pub const THROTTLE_RECEIVE: u32 = 0;
/// Throttle index of transmit causes.
pub const THROTTLE_TRANSMIT: u32 = 1;
/// Throttle index of all other causes.
pub const THROTTLE_OTHER: u32 = 2;
/// Throttle index that means "none".
pub const THROTTLE_NONE: u32 = 3;
/// Unit of [`ThrottleInterval`] that drivers program, in microseconds.
pub const THROTTLE_UNIT_US: u32 = 2;

crate::words! {
    /// Granularity of throttling. Source: `GLINT_CTL`.
    pub struct InterruptControl: u32 {
        /// vectors do not mask themselves when they fire
        automatic_mask_disabled: [0],
        /// units at 200 Gb/s
        granularity_200: [19:16],
        /// units at 100 Gb/s
        granularity_100: [23:20],
        /// units at 50 Gb/s
        granularity_50: [27:24],
        /// units at 25 Gb/s
        granularity_25: [31:28],
    }
    /// Enables a vector. Source: `GLINT_DYN_CTL`.
    pub struct VectorControl: u32 {
        /// the vector may fire; it clears the bit when it does
        enable: [0],
        /// clear the pending bit
        clear_pending: [1],
        /// fire once now
        software_trigger: [2],
        /// throttle index that this write sets; [`THROTTLE_NONE`] leaves all alone
        throttle_index: [4:3],
        /// interval for that index, in units of [`THROTTLE_UNIT_US`]
        interval: [16:5],
        /// use `software_throttle_index` for the software trigger
        software_throttle_enable: [24],
        /// throttle index of the software trigger
        software_throttle_index: [26:25],
        /// write descriptors back when the interval ends, without an interrupt
        write_back_on_interval: [30],
        /// leave `enable` unchanged
        keep_enable: [31],
    }
    /// Throttling of a vector. Source: `GLINT_ITR`.
    pub struct ThrottleInterval: u32 {
        /// shortest time between interrupts in units of [`THROTTLE_UNIT_US`]
        interval: [11:0],
    }
    /// Rate limit of a vector. Source: `GLINT_RATE`.
    pub struct RateLimit: u32 {
        /// shortest time in 4 us (8 us on 25 Gb/s parts)
        interval: [5:0],
        /// the limit applies
        enable: [6],
    }
    /// The function that owns a vector. Source: `GLINT_VECT2FUNC`.
    pub struct VectorOwner: u32 {
        /// virtual function
        virtual_function: [7:0],
        /// physical function
        physical_function: [14:12],
        /// the owner is the physical function
        is_physical: [16],
    }
    /// Vectors of a function. Source: `PFINT_ALLOC`.
    pub struct VectorAllocation: u32 {
        /// first vector in the device
        first: [10:0],
        /// last vector in the device
        last: [22:12],
        /// the function has vectors
        valid: [31],
    }
    /// Vector of a cause. Source: `QINT_RQCTL`, `PFINT_OICR_CTL`, `GLINT_CEQCTL`.
    pub struct CauseControl: u32 {
        /// vector, counted from the function's first
        vector: [10:0],
        /// throttle index; see [`THROTTLE_OTHER`] and its neighbours
        throttle_index: [12:11],
        /// the cause interrupts
        enable: [30],
        /// the cause is pending
        event: [31],
    }
    /// Other causes of interrupts. Source: `PFINT_OICR`.
    pub struct OtherCauses: u32 {
        /// any other bit is set
        interrupt_event: [0],
        /// a queue's cause
        queue: [1],
        /// a transmit time stamp is ready
        transmit_time_stamp: [11],
        /// an external time event
        time_event: [12],
        /// uncorrectable memory error
        memory_error: [16],
        /// a malicious driver was found
        malicious_detect: [19],
        /// core reset or stronger
        global_reset: [20],
        /// PCI exception
        pci_exception: [21],
        /// general purpose input
        gpio: [22],
        /// storm control
        storm: [24],
        /// the link changed
        link_change: [25],
        /// error of the host memory cache
        host_memory_cache_error: [26],
        /// RDMA push
        push: [27],
        /// critical error of the RDMA engine
        protocol_engine_critical: [28],
        /// reset of a virtual function
        virtual_function_reset: [29],
        /// hardware part of a function's reset done
        reset_hardware_done: [30],
        /// set by software
        software: [31],
    }
}
