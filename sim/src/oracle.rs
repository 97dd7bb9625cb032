//! The rules. They know the requests and the answers, and nothing of driver and model.

mod datagrams;
mod ledger;
mod status;

pub use ledger::Seen;

pub(crate) use datagrams::{DatagramEnd, Flight};
pub(crate) use ledger::{End, Ledger, Link, Message, Receive, Request};
pub(crate) use status::{Harm, Moment};
