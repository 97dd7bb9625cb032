//! `admin-queue`: both rings, and a firmware that speaks our version.
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
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

fn run(context: &mut Context) -> Result<(), StageError> {
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
            Err(error) if attempt < ATTEMPTS && worth_a_retry(&error) => {
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

/// A ring that does not come up and an answer that makes no sense or does not come may be the end
/// of a reset; memory and a device that is gone are not.
fn worth_a_retry(error: &AdminError) -> bool {
    matches!(
        error,
        AdminError::TimedOut { .. } | AdminError::Malformed { .. } | AdminError::RingDead { .. }
    )
}
