//! The rules. They judge requests and answers, and use no state of driver or model.

mod arming;
mod datagrams;
mod flight;
mod ledger;
mod requests;
mod status;
mod weather;

pub use crate::rule::{Finding, Rule};
pub use requests::Seen;

pub(crate) use arming::{Arming, Taken};
pub(crate) use flight::{DatagramEnd, Flight};
pub(crate) use ledger::Ledger;
pub(crate) use requests::{End, Link, Message, Receive, Request};
pub(crate) use weather::{Harm, Moment};
