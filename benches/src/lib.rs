//! ringside benches.
