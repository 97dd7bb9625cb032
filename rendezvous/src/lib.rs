//! Two processes connect over TCP, exchange [`Greeting`]s, work in step, and part together.
//!
//! One side [listens](Listener), the other [connects](connect). Both then [greet](Session::greet),
//! once for each connection of queue pairs, and [synchronise](Session::synchronise) twice: when
//! their queue pairs are connected, so that no message reaches a peer that cannot receive yet, and
//! when they are done, so that neither destroys what the other still uses. A side that fails in
//! between [reports the reason](Session::fail). A side that polls its queues
//! [looks for bytes of the peer](Session::peek) from time to time. An application sends its own
//! messages with [`Session::send`] and [`Session::receive`]. `docs/exchange.md` specifies the bytes.
//!
//! The peer's messages are bounded and checked ([`Greeting::read`]). Each call has one deadline,
//! measured by the clock that the caller injects, however slowly the bytes come. The peer is not
//! authenticated: listen on an address that only trusted machines reach.
#![forbid(unsafe_code)]

mod greeting;
mod session;

pub use greeting::{Greeting, GreetingError, REGIONS_MAX};
pub use session::{Listener, REASON_MAX, Session, SessionError, Step, connect, printable};
