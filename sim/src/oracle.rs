//! The rules. They use requests and answers only, and no state of driver or model.

mod datagrams;
mod flight;
mod ledger;
mod requests;
mod status;
mod weather;

pub use crate::rule::{Finding, Rule};
pub use requests::Seen;

pub(crate) use flight::{DatagramEnd, Flight};
pub(crate) use ledger::Ledger;
pub(crate) use requests::{End, Link, Message, Receive, Request};
pub(crate) use weather::{Harm, Moment};
