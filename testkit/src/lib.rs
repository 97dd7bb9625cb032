//! Two devices and a connection between them, for tests.
//!
//! [`Pair`] has both, in virtual time: its functions are those of one stepped world in this
//! process. `RINGSIDE_TEST_DEVICES` can name two addresses instead, separated by a comma, of cards
//! or of models in other processes. Tests in real time start a model with [`threaded`], bring its
//! functions up with [`bring_up_all`] and join two devices with [`connect`]. With
//! `RINGSIDE_FRAMES_AS_BYTES=1` the models of both carry every frame as bytes ([`world_settings`]).
//! Failures panic, as tests expect; [`claim`] returns an error, because programs use it too.
#![forbid(unsafe_code)]

mod bed;
mod connection;
mod devices;
mod lease;
mod namespaces;
mod pair;

pub use bed::{Bed, claim, world_settings};
pub use connection::{ConnectedEnd, connect};
pub use devices::{
    bring_up, bring_up_all, bring_up_function, config, config_without_package, shut_down,
    small_config, threaded,
};
pub use lease::lease_for;
pub use namespaces::{in_namespaces, ip};
pub use pair::{End, Pair};
