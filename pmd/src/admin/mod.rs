//! The admin queue: commands to the firmware of the physical function, and its events.

/// The two rings of the admin queue and the rules of their use.
#[derive(Debug)]
pub struct AdminQueue {}
