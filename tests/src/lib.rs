//! ringside tests.
