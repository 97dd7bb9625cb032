//! ringside cq.
