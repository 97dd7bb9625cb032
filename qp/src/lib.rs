//! ringside qp.
