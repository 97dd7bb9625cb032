//! Packet queues: the driver's ports on two functions of the embedded model, in virtual time.

mod address;
mod bridge;
mod filters;
mod frames;
mod hash;
mod interrupts;
mod malicious;
mod media;
mod offloads;
mod queues;
mod random;
mod recovery;
mod refused;
mod rig;
mod rings;
mod rules;
mod shutdown;
mod threads;
mod time_stamps;
mod vsis;
