//! A device that failed is brought up again in the process: whatever the cause, idle or under
//! traffic, everything outstanding completes exactly once, and nothing is left over.

mod causes;
mod destroy;
mod life;
mod refused;
mod shared;
mod traffic;
mod workers;
