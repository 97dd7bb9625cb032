//! `admin-queue`: starts both rings, and checks that the firmware supports the driver's version.
//!
//! Source: ice `ice_controlq.c`, `ice_init_all_ctrlq`.

use crate::admin::{AdminError, AdminQueue, pause};
use crate::bring_up::{Context, Needs, Stage, StageError, Undo};
use std::sync::Arc;
use std::time::Duration;

pub(super) const STAGE: Stage = Stage {
    name: "admin-queue",
    needs: Needs::Device,
    run,
};

/// The number of attempts for rings and first command.
const ATTEMPTS: u32 = 11;
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

fn run(context: &mut Context) -> Result<(), StageError> {
    start(context, ATTEMPTS)
}

/// The stage for a shutdown, which is not to wait long for a silent firmware.
pub(super) fn run_once(context: &mut Context) -> Result<(), StageError> {
    start(context, 1)
}

fn start(context: &mut Context, attempts: u32) -> Result<(), StageError> {
    let deadline = Duration::from_millis(context.config().deadlines.admin_queue_ms);
    let pool = Arc::clone(context.pool()?);
    let admin = AdminQueue::new(context.registers().clone(), pool, deadline);
    let admin = Arc::new(admin);
    let _ = context.record(Undo::ShutDownAdminQueue);
    context.set_admin(Some(Arc::clone(&admin)));
    let mut attempt = 1;
    let version = loop {
        match admin.start().and_then(|()| admin.get_version()) {
            Ok(version) => break version,
            Err(error) if attempt < attempts && worth_a_retry(&error) => {
                tracing::debug!(%error, attempt, "admin queue");
                attempt += 1;
                pause(&**context.clock(), PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    };
    if !version.usable() {
        let (major, minor, _) = version.interface;
        return Err(StageError::Unusable {
            what: format!("the firmware's interface {major}.{minor} is newer than this driver"),
            remedy: "use a newer driver".to_owned(),
        });
    }
    if let Some(remark) = version.remark() {
        context.warn(remark);
    }
    context.facts.firmware = Some(version);
    Ok(())
}

/// True if another attempt may succeed. A ring that does not start and an invalid or missing answer
/// may be the end of a reset; lack of memory and a removed device are not.
fn worth_a_retry(error: &AdminError) -> bool {
    matches!(
        error,
        AdminError::TimedOut { .. } | AdminError::Malformed { .. } | AdminError::RingDead { .. }
    )
}
