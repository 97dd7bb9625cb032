//! Two processes connect over TCP, exchange [`Greeting`]s, work in step, and disconnect together.
//!
//! One side [listens](Listener), the other [connects](connect). Both then [greet](Session::greet),
//! once for each connection of queue pairs. They [synchronise](Session::synchronise) twice: when
//! their queue pairs are connected, so that no message reaches a peer that cannot receive yet, and
//! when they are done, so that neither destroys objects that the other still uses. A side that
//! fails in between [reports the reason](Session::fail). A side that polls its queues [checks for
//! bytes of the peer](Session::peek) from time to time. An application sends its own messages with
//! [`Session::send`] and [`Session::receive`]. `docs/exchange.md` specifies the bytes.
//!
//! A session runs over a TCP connection of the kernel's, or over a [`Stream`] of the program's:
//! [`Session::over`].
//!
//! The peer's messages are bounded and checked ([`Greeting::read`]). Each call has one deadline for
//! all its bytes, measured by the clock that the caller injects. The peer is not authenticated:
//! listen on an address that only trusted machines can reach.
#![forbid(unsafe_code)]

mod greeting;
pub mod perftest;
mod session;
mod stream;

pub use greeting::{Greeting, GreetingError, MAX_REGIONS};
pub use session::{Listener, MAX_REASON, Session, SessionError, Step, connect, printable};
pub use stream::Stream;
