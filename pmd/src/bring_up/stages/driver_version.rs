//! `driver-version`: the firmware learns who drives it.
//!
//! Source: ice `ice_main.c`, `ice_send_version`.

use crate::bring_up::{Context, Needs, Stage, StageError};

pub(super) const STAGE: Stage = Stage {
    name: "driver-version",
    needs: Needs::Device,
    run,
};

fn run(context: &mut Context) -> Result<(), StageError> {
    let version = [
        number(env!("CARGO_PKG_VERSION_MAJOR")),
        number(env!("CARGO_PKG_VERSION_MINOR")),
        number(env!("CARGO_PKG_VERSION_PATCH")),
    ];
    let text = concat!("ringside ", env!("CARGO_PKG_VERSION"));
    Ok(context.admin()?.send_driver_version(version, text)?)
}

/// A part of the version, limited to the room in the command.
fn number(text: &str) -> u8 {
    text.parse().unwrap_or(u8::MAX)
}
