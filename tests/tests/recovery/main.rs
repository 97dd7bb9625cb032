//! A device that failed is brought up again in the process: whatever the cause, idle or under
//! traffic, everything outstanding completes exactly once, and nothing is left over.

mod causes;
mod destroy;
mod life;
// What the tests of verbs use in whole is used here in part.
#[allow(dead_code)]
#[path = "../rdma_end_to_end/pair.rs"]
mod pair;
mod refused;
mod shared;
mod traffic;
mod workers;
