//! ringside pmd.
