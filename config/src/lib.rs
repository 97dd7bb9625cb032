//! ringside config.
