//! Whole verbs: datagrams, windows, fast registration, armed queues, queries, shared receives; two
//! functions of one stepped world and the driver on both.

mod asynchronous_events;
mod datagrams;
mod datagrams_arrive;
mod keys;
mod lifecycle;
mod limits;
mod planted;
mod policies;
mod queries;
mod queues;
mod shared;
mod states;
mod user_memory;
