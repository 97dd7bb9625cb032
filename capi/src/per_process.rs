//! Values that each process makes for itself.

pub(crate) use ringside_bus::PerProcess;
