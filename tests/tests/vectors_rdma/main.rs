//! Golden vectors of the RDMA engine's control half against the layouts in `ringside-spec`.
//!
//! The bytes come from other people's code (see `tests/vectors/README.md`), so they are the second
//! witness of every layout that driver and model share. Each file's test states how many vectors
//! it ran and names those that it skips, with the reason.

mod contexts;
mod cqp;
mod events;
mod fpm;
mod vector;
