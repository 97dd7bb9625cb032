//! A registry of devices: names, clients, failures, hot removal.

mod failures;
mod hindrances;
mod order;
mod recorder;
mod sockets;
