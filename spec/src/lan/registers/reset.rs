//! Reset, power, firmware state and identity of the function.
//!
//! Resets by strength: physical function (PF) < core < global < embedded management processor
//! (EMP) and PCI < power on. A register that one reset clears is cleared by all stronger ones.

use crate::lan::wire::registers;

registers! {
    /// Control of the physical function; see [`FunctionControl`]. Cleared by a core reset.
    FUNCTION_CONTROL "PFGEN_CTRL" = 0x09_1000;
    /// State of the physical function; see [`FunctionState`].
    FUNCTION_STATE "PFGEN_STATE" = 0x08_8000;
    /// Requests a core, global or EMP reset; see [`ResetTrigger`].
    RESET_TRIGGER "GLGEN_RTRIG" = 0x0B_8190;
    /// State of the reset that is in progress; see [`ResetStatus`].
    RESET_STATUS "GLGEN_RSTAT" = 0x0B_8188;
    /// Delays of resets; see [`ResetControl`].
    RESET_CONTROL "GLGEN_RSTCTL" = 0x0B_8180;
    /// The parts of the device that have been loaded from flash; see [`FlashLoadDone`].
    FLASH_LOAD_DONE "GLNVM_ULD" = 0x0B_6008;
    /// Presence and size of the shadow RAM; see [`FlashGeneral`].
    FLASH_GENERAL "GLNVM_GENS" = 0x0B_6100;
    /// Lock of the flash; see [`FlashAccess`].
    FLASH_ACCESS "GLNVM_FLA" = 0x0B_6108;
    /// Mode of the firmware; see [`FirmwareStatus`].
    FIRMWARE_STATUS "GL_MNG_FWSM" = 0x0B_6134;
    /// Scratch register of the firmware.
    FIRMWARE_SCRATCH "GLGEN_STAT" = 0x0B_612C;
    /// PCI address of the function; see [`RequesterId`].
    FUNCTION_REQUESTER_ID "PF_FUNC_RID" = 0x09_E880;
    /// Bit 0: the function is disabled.
    FUNCTION_DISABLED "PFPCI_FUNC" = 0x09_D980;
    /// Bit 0: port valid, bit 1: port active.
    PORT_STATUS "PRTGEN_STATUS" = 0x0B_8100;
    /// Widest bandwidth of the part; see [`PowerMode`].
    POWER_MODE_CONTROL "GL_PWR_MODE_CTL" = 0x0B_820C;
    /// Source of the scheduler's clock; see [`ClockSource`].
    CLOCK_SOURCE "GLGEN_CLKSTAT_SRC" = 0x0B_826C;
    /// Bit 1: cache lines of 128 bytes instead of 64.
    PCI_CONFIGURATION_2 "GLPCI_CNF2" = 0x0B_E004;
    /// Bits `[1:0]`: topology of dual-complex parts.
    MAC_LINK_TOPOLOGY "GLGEN_MAC_LINK_TOPO" = 0x0B_81DC;
    /// Switch mode of dual-complex parts.
    SWITCH_MODE_CONFIGURATION "GLGEN_SWITCH_MODE_CONFIG" = 0x0B_81E0;
    /// Bit 0: wake-up by magic packet is enabled.
    WAKE_UP_ENABLE "PFPM_APM" = 0x0B_8080;
    /// Bit 1: magic packets pass the wake-up filter.
    WAKE_UP_FILTER "PFPM_WUFC" = 0x09_DC00;
    /// The cause that woke the device; writing ones clears bits.
    WAKE_UP_STATUS "PFPM_WUS" = 0x09_DB80;
    /// Input mask of the switch's lookups, low 32 bits: written right after a package is active.
    /// Entry 0 is the switch, as `ice` 6.12 was recorded to write it.
    PRE_EXTRACTION_MASK_0 "GL_PREEXT_L2_PMASK0(0)" = 0x20_F0FC;
    /// The same, high 16 bits.
    PRE_EXTRACTION_MASK_1 "GL_PREEXT_L2_PMASK1(0)" = 0x20_F108;
    /// Bits of malicious-driver checks; bit 1: anti-spoof interrupt disabled.
    MALICIOUS_DRIVER_CHECKS "GL_MDCK_TX_TDPU" = 0x04_9348;
    /// First malicious event of the transmit packet queue manager.
    MALICIOUS_TRANSMIT_QUEUE_MANAGER "GL_MDET_TX_PQM" = 0x2D_2E00;
    /// First malicious event of the transmit scheduler.
    MALICIOUS_TRANSMIT_SCHEDULER "GL_MDET_TX_TCLAN" = 0x0F_C068;
    /// First malicious event of the transmit data path.
    MALICIOUS_TRANSMIT_DATA "GL_MDET_TX_TDPU" = 0x04_9350;
    /// First malicious event of the receive side.
    MALICIOUS_RECEIVE "GL_MDET_RX" = 0x29_4C00;
    /// The function's own event, transmit packet queue manager: bit 0.
    FUNCTION_MALICIOUS_TRANSMIT_QUEUE_MANAGER "PF_MDET_TX_PQM" = 0x2D_2C80;
    /// The function's own event, transmit scheduler: bit 0.
    FUNCTION_MALICIOUS_TRANSMIT_SCHEDULER "PF_MDET_TX_TCLAN" = 0x0F_C000;
    /// The function's own event, transmit data path: bit 0.
    FUNCTION_MALICIOUS_TRANSMIT_DATA "PF_MDET_TX_TDPU" = 0x04_0800;
    /// The function's own event, receive side: bit 0.
    FUNCTION_MALICIOUS_RECEIVE "PF_MDET_RX" = 0x29_4280;
    /// Priority flow control: allowance for the link's delay in bits `[31:16]`.
    DCB_CONTROL "PRTDCB_GENC" = 0x08_3000;
    /// State of the DCB exchange; see [`DcbStatus`].
    DCB_STATUS "PRTDCB_GENS" = 0x08_3020;
    /// Traffic class of each user priority, three bits each.
    DCB_PRIORITY_TO_CLASS "PRTDCB_TUP2TC" = 0x1D_26C0;
    /// Pause time that the MAC sends, entry 8; see [`PauseTimer`]. Read before the MAC is
    /// configured.
    PAUSE_QUANTA "PRTMAC_HSEC_CTL_TX_PAUSE_QUANTA(8)" = 0x1E_37E0;
    /// Pause refresh of the MAC, entry 8; see [`PauseTimer`]. Read before the MAC is configured.
    PAUSE_REFRESH "PRTMAC_HSEC_CTL_TX_PAUSE_REFRESH_TIMER(8)" = 0x1E_3900;
}

/// [`FLASH_LOAD_DONE`] of a device that is ready for its LAN functions.
pub const FLASH_LOAD_DONE_LAN: u32 = 0x33B;
/// [`FLASH_LOAD_DONE`] of a device whose RDMA engine is ready as well.
pub const FLASH_LOAD_DONE_RDMA: u32 = 0x73B;
/// Values of [`DcbStatus::exchange`]. Source: ice `ICE_DCBX_STATUS_*`.
pub mod dcb_exchange {
    /// not started
    pub const NOT_STARTED: u32 = 0;
    /// in progress
    pub const IN_PROGRESS: u32 = 1;
    /// done
    pub const DONE: u32 = 2;
    /// the firmware's agent does not run
    pub const DISABLED: u32 = 7;
}

/// Bytes between two entries of [`PRE_EXTRACTION_MASK_0`] and of its neighbour.
pub const PRE_EXTRACTION_STRIDE: u64 = 4;

crate::words! {
    /// Control of the physical function. Source: `PFGEN_CTRL`.
    pub struct FunctionControl: u32 {
        /// write one for a reset of the function; the bit clears itself when that is done
        software_reset: [0],
    }
    /// State of the physical function. Source: `PFGEN_STATE`.
    pub struct FunctionState: u32 {
        /// the RDMA engine is enabled
        protocol_engine_enabled: [0],
        /// the link is enabled
        link_enabled: [2],
        /// the scheduler is enabled
        scheduler_enabled: [3],
    }
    /// Requests a reset by writing one. Source: `GLGEN_RTRIG`.
    pub struct ResetTrigger: u32 {
        /// core reset: the whole LAN engine, package tables, all functions' queues
        core: [0],
        /// global reset: the same and MAC and PHY
        global: [1],
        /// EMP reset: firmware is loaded again
        firmware: [2],
    }
    /// State of resets. Source: `GLGEN_RSTAT`.
    pub struct ResetStatus: u32 {
        /// 0 operational, else a reset is in progress
        device_state: [1:0],
        /// the last reset: 0 power on, 1 core, 2 global, 3 EMP
        reset_type: [3:2],
        /// wrapping count of core resets
        core_count: [5:4],
        /// wrapping count of global resets
        global_count: [7:6],
        /// wrapping count of EMP resets
        firmware_count: [9:8],
        /// time until the reset begins
        time_to_reset: [15:10],
    }
    /// Delays of resets. Source: `GLGEN_RSTCTL`.
    pub struct ResetControl: u32 {
        /// delay before a global reset, in 100 ms; a driver waits ten units longer
        delay_100ms: [5:0],
        /// a memory error resets the device
        memory_error_reset: [8],
    }
    /// The parts that have been loaded from flash. Source: `GLNVM_ULD`.
    pub struct FlashLoadDone: u32 {
        /// PCI reset
        pci: [0],
        /// PCI reset, second part
        pci_1: [1],
        /// core reset
        core: [3],
        /// global reset
        global: [4],
        /// power on
        power_on: [5],
        /// power on, second part
        power_on_1: [8],
        /// PCI reset, third part
        pci_2: [9],
        /// RDMA engine
        protocol_engine: [10],
        /// host link protection
        host_link: [12:11],
    }
    /// Presence and size of the flash. Source: `GLNVM_GENS`.
    pub struct FlashGeneral: u32 {
        /// there is a flash
        present: [0],
        /// the shadow RAM has 2^n KiB, that is 2^n x 512 words
        shadow_ram_size_log2_kib: [7:5],
    }
    /// Lock of the flash. Source: `GLNVM_FLA`.
    pub struct FlashAccess: u32 {
        /// programmed and locked; clear means a blank flash, with which no driver starts
        locked: [6],
    }
    /// Mode of the firmware. Source: `GL_MNG_FWSM`.
    pub struct FirmwareStatus: u32 {
        /// debug, recovery and rollback mode bits; 0 is normal
        modes: [2:0],
        /// external error
        external_error: [24:19],
        /// the firmware is still loading
        loading: [30],
    }
    /// PCI address of the function. Source: `PF_FUNC_RID`.
    pub struct RequesterId: u32 {
        /// function, which drivers use as the number of the physical function
        function: [2:0],
        /// device
        device: [7:3],
        /// bus
        bus: [15:8],
    }
    /// Widest bandwidth of the part. Source: `GL_PWR_MODE_CTL`.
    pub struct PowerMode: u32 {
        /// 0: 200 Gb/s, 1: 100, 2: 50, 3: 25
        bandwidth_max: [31:30],
    }
    /// Source of the scheduler's clock. Source: `GLGEN_CLKSTAT_SRC`.
    pub struct ClockSource: u32 {
        /// 0: 367.6 MHz, 1: 416.7, 2: 446.4, 3: 390.6
        scheduler: [5:4],
    }
    /// State of the DCB exchange. Source: `PRTDCB_GENS`.
    pub struct DcbStatus: u32 {
        /// see [`dcb_exchange`]
        exchange: [2:0],
    }
    /// A timer of pause frames, in units of 512 bit times. Source: `PRTMAC_HSEC_CTL_TX_PS_QNT`,
    /// `PRTMAC_HSEC_CTL_TX_PS_RFSH_TMR`.
    pub struct PauseTimer: u32 {
        /// the time
        time: [15:0],
    }
    /// First malicious event of the queue manager. Source: `GL_MDET_TX_PQM`.
    pub struct MaliciousQueueManager: u32 {
        /// physical function
        function: [2:0],
        /// virtual function
        virtual_function: [11:4],
        /// queue
        queue: [25:12],
        /// kind of event
        kind: [30:26],
        /// there is an event; written as all ones to clear it
        valid: [31],
    }
    /// First malicious event in other blocks. Source: `GL_MDET_TX_TCLAN`, `_TDPU`, `GL_MDET_RX`.
    pub struct MaliciousEvent: u32 {
        /// queue
        queue: [14:0],
        /// virtual function
        virtual_function: [22:15],
        /// physical function
        function: [25:23],
        /// kind of event
        kind: [30:26],
        /// there is an event; written as all ones to clear it
        valid: [31],
    }
}
