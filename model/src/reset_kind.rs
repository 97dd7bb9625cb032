//! The kinds of reset.

/// The strength of a reset; each clears what the weaker ones clear.
/// Source: DPDK `ice_hw_autogen.h`, "Reset Source" of each register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResetKind {
    /// Reset of the physical function.
    Function,
    /// Reset of the LAN engine.
    Core,
    /// Reset of the LAN engine, MAC and PHY.
    Global,
    /// Reset of all these and the firmware; a function-level reset of PCI clears the same
    /// registers.
    Firmware,
}
