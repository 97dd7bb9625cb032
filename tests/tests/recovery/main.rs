//! A failed device is brought up again in the process. For any cause, idle or under traffic, every
//! outstanding request completes exactly once, and nothing is left.

mod causes;
mod counters;
mod destroy;
mod life;
mod refused;
mod shared;
mod silence;
mod traffic;
mod undo;
mod waits;
mod workers;
