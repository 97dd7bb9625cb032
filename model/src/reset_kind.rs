//! The kinds of reset.

/// The strength of a reset; each clears what the weaker ones clear.
/// Source: DPDK `ice_hw_autogen.h`, "Reset Source" of each register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResetKind {
    /// Of the physical function.
    Function,
    /// Of the LAN engine.
    Core,
    /// Of MAC and PHY as well.
    Global,
    /// Of the firmware as well; a function-level reset of PCI clears the same registers.
    Firmware,
}
