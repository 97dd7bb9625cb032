//! ringside model.
