//! Access to host memory, and the breaches of drivers that concern it.

use crate::chip::Context;
use ringside_bus::DmaFault;

/// The value, or nothing and a breach in the ledger.
pub(super) fn reached<T>(
    context: &mut Context<'_>,
    what: &'static str,
    result: Result<T, DmaFault>,
) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(fault) => {
            unreached(context, what, fault);
            None
        }
    }
}

/// Writes down an access that the host did not allow.
#[cold]
pub(super) fn unreached(context: &mut Context<'_>, what: &'static str, fault: DmaFault) {
    // Those without a kind are none of the driver's doing.
    let kind = match fault {
        DmaFault::BusMasterOff { .. } => "the device is given work while bus mastering is off",
        DmaFault::Misaligned { .. } => "a structure in memory is misaligned",
        DmaFault::ReadOnly { .. } => "the device is to write to read-only memory",
        DmaFault::NotMapped { .. } => "the device is given memory that is not mapped",
        DmaFault::Refused { .. } => {
            tracing::debug!(what, %fault, "refused by the host");
            return;
        }
        // The program has ended, or has unmapped memory that it registered. The driver mapped what
        // the program named, and learns of neither.
        DmaFault::Gone { .. } => {
            tracing::debug!(what, %fault, "memory of the program is gone");
            return;
        }
    };
    context.ledger.breach(kind, || format!("{what}: {fault}"));
}

/// Counts a breach for an address without the required alignment; true if it is aligned.
pub(super) fn aligned(
    context: &mut Context<'_>,
    what: &'static str,
    address: u64,
    alignment: usize,
) -> bool {
    let good = address.is_multiple_of(alignment as u64);
    if !good {
        context
            .ledger
            .breach("a structure in memory is misaligned", || {
                format!("{what} at {address:#x}, must be a multiple of {alignment}")
            });
    }
    good
}
