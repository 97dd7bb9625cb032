//! Reaching a PCI function.
