//! Whole verbs: datagrams, windows, fast registration, armed queues, queries, shared receives; two
//! functions of one stepped world and the driver on both.

mod asynchronous_events;
mod attributes;
mod control;
mod datagrams;
mod datagrams_arrive;
mod event_queues;
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
