//! The engine driven by hand: commands, rings and doorbells as raw words.

mod arming;
mod congestion;
mod control;
mod data;
mod datagrams;
mod direct;
mod ended;
mod errors;
mod queue_sets;
mod reads;
mod rig;
mod runs;
mod states;
mod strictness;
mod suspending;
mod turns;
mod windows;
