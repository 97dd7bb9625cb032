//! Whole verbs: datagrams, windows, fast registration, armed queues, queries, shared receives; two
//! functions of one stepped world and the driver on both.

mod asynchronous_events;
mod attributes;
mod changes;
mod control;
mod datagrams;
mod datagrams_arrive;
mod ends;
mod event_queues;
mod former;
mod keys;
mod lifecycle;
mod limits;
mod planted;
mod policies;
mod queries;
mod queues;
mod refused_steps;
mod shared;
mod states;
mod texts;
mod user_memory;

use ringside_model::Threaded;
use ringside_pmd::Device;

/// Shuts down the devices of a model that runs on its own thread: nothing fails, leaks or breaks
/// the interface of the device.
fn finish(model: &Threaded, devices: [Device; 2]) {
    ringside_testkit::shut_down(devices);
    check_breaches(model);
}

/// No function of the model counted a breach.
fn check_breaches(model: &Threaded) {
    for index in 0..2 {
        let breaches = model.with(move |world| world.breaches(index)).unwrap();
        assert!(breaches.is_empty(), "{breaches:#?}");
    }
}
