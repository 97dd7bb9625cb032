//! Brings a device back into service after a reset by another owner.
//!
//! Run: `cargo run --example recovery`. It resets the model, so it takes no address.

use ringside::model::Fault;
use ringside::model::function::ResetKind;
use ringside::prelude::*;
use std::time::{Duration, Instant};

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let device = ringside::open("model:0", &Config::default())?;
    let before = device.protection_domain()?;

    // On a card this is the work of another function, of an operator, or of an error.
    let model = device.model().ok_or("this example resets the model")?;
    model.with(|world| world.inject(0, Fault::Reset(ResetKind::Function)));

    let end = Instant::now() + Duration::from_secs(10);
    let mut events = Vec::new();
    // The housekeeping thread notices the failure and recovers the device; the program learns of it
    // by events.
    while device.life() == 1 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    device.poll_events(&mut events)?;
    println!("events: {events:?}");
    if device.life() == 1 {
        return Err("the device was not recovered within 10 s".into());
    }
    // Objects from before the failure stay unusable; new ones work.
    if before
        .register(device.allocate(4096)?, Access::LOCAL_WRITE)
        .is_ok()
    {
        return Err("a protection domain from before the failure was usable".into());
    }
    let domain = device.protection_domain()?;
    domain.register(device.allocate(4096)?, Access::LOCAL_WRITE)?;
    println!("a new region was registered");
    Ok(())
}
