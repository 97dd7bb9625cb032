//! Capabilities of the device and of the function.

use super::read_list;
use crate::admin::{AdminError, AdminQueue, Answer, Data};
use ringside_spec::lan::admin::capabilities::{
    Capability, CapabilityId, FunctionTimers, ListCapabilities,
};
use ringside_spec::lan::admin::{BUFFER_SIZE, Opcode};
use serde::Serialize;

/// The most records of an answer: as many as fit into its buffer.
const MAX_RECORDS: usize = BUFFER_SIZE / Capability::SIZE;

/// A range of queues or vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct QueueRange {
    /// The number.
    pub count: u32,
    /// The first, as the device numbers them.
    pub first: u32,
}

/// The timers that a function's time stamps come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timers {
    /// Number of the timer that its packets are stamped from.
    pub associated: u8,
    /// Number of the timer that the function controls.
    pub controlled: Option<u8>,
}

/// The capabilities of device and function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Physical functions of the device, 1..=8.
    pub functions: u32,
    /// Virtual station interfaces that the function is guaranteed.
    pub vsis: u32,
    /// Receive queues.
    pub receive_queues: QueueRange,
    /// Transmit queues.
    pub transmit_queues: QueueRange,
    /// Interrupt vectors.
    pub vectors: QueueRange,
    /// Entries of the hash table; 0: none.
    pub hash_table_entries: u32,
    /// Largest frame, bytes.
    pub frame_bytes_max: u32,
    /// RDMA, by device and function.
    pub rdma: bool,
    /// Traffic classes at most.
    pub traffic_classes: u32,
    /// Virtual functions that the function may have.
    pub virtual_functions: u32,
    /// Timers, if the function has time stamps.
    pub timers: Option<Timers>,
}

impl AdminQueue {
    /// Capabilities of the device (0x000B) and then of the function (0x000A), as far as they are
    /// used here. Errors also where one is missing without which the device cannot be driven.
    pub fn capabilities(&self) -> Result<Capabilities, AdminError> {
        let device = self.list(Opcode::ListDeviceCapabilities)?;
        let function = self.list(Opcode::ListFunctionCapabilities)?;
        Capabilities::from_records(&device, &function)
    }

    fn list(&self, opcode: Opcode) -> Result<Vec<Capability>, AdminError> {
        let parameters = ListCapabilities::zeroed();
        let answer = self.execute(opcode, &parameters, Data::Receive(BUFFER_SIZE))?;
        decode_records(opcode, &answer)
    }
}

/// The records of one list.
pub(super) fn decode_records(
    opcode: Opcode,
    answer: &Answer,
) -> Result<Vec<Capability>, AdminError> {
    let head: ListCapabilities = answer.parameters();
    let count = usize::try_from(head.count.get()).unwrap_or(usize::MAX);
    read_list(opcode, &answer.data, 0, count, MAX_RECORDS)
}

/// The timers of a function that has time stamps.
fn timers(number: u32) -> Option<Timers> {
    let bits = FunctionTimers(number);
    let controls = bits.controls() && bits.timer_enabled();
    bits.enabled().then(|| Timers {
        associated: bits.associated().into(),
        controlled: controls.then(|| bits.controlled().into()),
    })
}

impl Capabilities {
    /// Puts both lists together.
    pub(super) fn from_records(
        device: &[Capability],
        function: &[Capability],
    ) -> Result<Self, AdminError> {
        let of = |list: &[Capability], id| list.iter().find(|record| record.id() == id).copied();
        let missing = |opcode, what: &str| {
            AdminError::malformed(opcode, format!("the capability '{what}' is missing"))
        };
        let (of_device, of_function) = (
            Opcode::ListDeviceCapabilities,
            Opcode::ListFunctionCapabilities,
        );
        let number = |id| of(function, id).map_or(0, |record| record.number.get());
        let range = |id, what| {
            let record = of(function, id).ok_or_else(|| missing(of_function, what))?;
            Ok::<_, AdminError>(QueueRange {
                count: record.number.get(),
                first: record.physical_id.get(),
            })
        };
        let valid = of(device, CapabilityId::ValidFunctions)
            .ok_or_else(|| missing(of_device, "valid functions"))?;
        let functions = valid.number.get().count_ones();
        if functions == 0 {
            return Err(missing(of_device, "valid functions (it names none)"));
        }
        let vsis = of(device, CapabilityId::Vsi).ok_or_else(|| missing(of_device, "VSIs"))?;
        of(function, CapabilityId::Vsi).ok_or_else(|| missing(of_function, "VSIs"))?;
        let has_rdma = |list| of(list, CapabilityId::Rdma).is_some_and(|r| r.number.get() == 1);
        Ok(Self {
            functions,
            vsis: vsis.number.get() / functions,
            receive_queues: range(CapabilityId::ReceiveQueues, "receive queues")?,
            transmit_queues: range(CapabilityId::TransmitQueues, "transmit queues")?,
            vectors: range(CapabilityId::Msix, "interrupt vectors")?,
            hash_table_entries: number(CapabilityId::Rss),
            frame_bytes_max: number(CapabilityId::MaxMtu),
            rdma: has_rdma(device) && has_rdma(function),
            traffic_classes: of(function, CapabilityId::Dcb)
                .map_or(1, |record| record.physical_id.get()),
            virtual_functions: number(CapabilityId::VirtualFunctions),
            timers: timers(number(CapabilityId::TimeSync)),
        })
    }
}
