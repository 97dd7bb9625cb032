//! Commands of the control queue that faults affect.

use ringside_model::faults::ANY_CONTROL_COMMAND;
use ringside_spec::rdma::commands::Opcode;

/// Commands that a fault may affect; the last one means all of them.
pub(super) const COMMANDS: [u8; 7] = [
    Opcode::CreateQueuePair.code(),
    Opcode::ModifyQueuePair.code(),
    Opcode::DestroyQueuePair.code(),
    Opcode::RegisterMemoryRegion.code(),
    Opcode::DeallocateStag.code(),
    Opcode::FlushWorkQueues.code(),
    ANY_CONTROL_COMMAND,
];
