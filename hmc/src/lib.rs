//! ringside hmc.
