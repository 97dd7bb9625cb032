//! One command of the admin queue while it is carried out.

use ringside_spec::lan::Parameters;
use ringside_spec::lan::admin::{Descriptor, Opcode, ReturnCode};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A descriptor and the bytes of its buffer.
pub(super) struct Command {
    /// The driver's descriptor.
    pub(super) descriptor: Descriptor,
    /// The driver's data if its flags announce any, else zeros; of the length in the descriptor.
    pub(super) buffer: Vec<u8>,
}

/// True for commands with data in their buffer: the driver must set the flag that makes the
/// firmware read it.
/// Source: Linux `ice`, the callers that set `ICE_AQ_FLAG_RD`.
pub(super) const fn needs_data(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::DriverVersion
            | Opcode::AllocateResource
            | Opcode::FreeResource
            | Opcode::SetVlanMode
            | Opcode::AddVsi
            | Opcode::UpdateVsi
            | Opcode::AddSwitchRules
            | Opcode::UpdateSwitchRules
            | Opcode::RemoveSwitchRules
            | Opcode::AddSchedulerElements
            | Opcode::ConfigureSchedulerElements
            | Opcode::QuerySchedulerElements
            | Opcode::MoveSchedulerElements
            | Opcode::SuspendSchedulerElements
            | Opcode::ResumeSchedulerElements
            | Opcode::DeleteSchedulerElements
            | Opcode::AddRateLimitProfiles
            | Opcode::RemoveRateLimitProfiles
            | Opcode::AllocateAccessScenario
            | Opcode::UpdateAccessScenario
            | Opcode::ProgramAccessActions
            | Opcode::ProgramAccessProfile
            | Opcode::ProgramAccessRanges
            | Opcode::ProgramAccessEntry
            | Opcode::SetPhyConfig
            | Opcode::ModuleEeprom
            | Opcode::LldpSetLocalMib
            | Opcode::SetRssKey
            | Opcode::SetRssTable
            | Opcode::AddTransmitQueues
            | Opcode::MoveTransmitQueues
            | Opcode::AddRdmaQueueSets
            | Opcode::DownloadPackage
            | Opcode::UploadSection
            | Opcode::UpdatePackage
            | Opcode::NeighbourDeviceRequest
            | Opcode::RunScript
    )
}

/// The answer to a command that succeeded.
pub(super) struct Answer {
    /// The sixteen bytes; a buffer's address is put back by the ring.
    pub(super) parameters: [u8; 16],
    /// Bytes of the buffer that are meant, never more than there are.
    pub(super) length: usize,
}

/// The outcome of a command.
pub(super) type Outcome = Result<Answer, ReturnCode>;

impl Command {
    /// The parameters, read as those of a certain command.
    pub(super) fn parameters<P: Parameters>(&self) -> P {
        self.descriptor.parameters()
    }

    /// The structure at `at` of the buffer.
    pub(super) fn item<T>(&self, at: usize) -> Result<T, ReturnCode>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let bytes = self.buffer.get(at..).ok_or(ReturnCode::Invalid)?;
        T::read_from_prefix(bytes)
            .map(|(item, _)| item)
            .map_err(|_| ReturnCode::Invalid)
    }

    /// The 16-bit number at `at` of the buffer.
    pub(super) fn number16(&self, at: usize) -> Result<u16, ReturnCode> {
        self.item::<zerocopy::byteorder::little_endian::U16>(at)
            .map(|number| number.get())
    }

    /// The 32-bit number at `at` of the buffer.
    pub(super) fn number32(&self, at: usize) -> Result<u32, ReturnCode> {
        self.item::<zerocopy::byteorder::little_endian::U32>(at)
            .map(|number| number.get())
    }

    /// Writes a structure at `at` of the buffer; a buffer that is too small is the driver's fault.
    pub(super) fn put<T: IntoBytes + Immutable>(
        &mut self,
        at: usize,
        item: &T,
    ) -> Result<(), ReturnCode> {
        self.put_bytes(at, item.as_bytes())
    }

    /// Writes bytes at `at` of the buffer.
    pub(super) fn put_bytes(&mut self, at: usize, bytes: &[u8]) -> Result<(), ReturnCode> {
        let end = at.checked_add(bytes.len()).ok_or(ReturnCode::NoMemory)?;
        let place = self.buffer.get_mut(at..end).ok_or(ReturnCode::NoMemory)?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    /// Success with the parameters as they came, and the whole buffer.
    pub(super) fn done(&self) -> Outcome {
        Ok(Answer {
            parameters: self.descriptor.parameters,
            length: self.buffer.len(),
        })
    }

    /// Success with other parameters, and the whole buffer.
    pub(super) fn answer<P: Parameters>(&self, parameters: &P) -> Outcome {
        Ok(Answer {
            parameters: parameters.to_raw(),
            length: self.buffer.len(),
        })
    }

    /// Success with other parameters and the first `length` bytes of the buffer.
    pub(super) fn answer_with<P: Parameters>(&self, parameters: &P, length: usize) -> Outcome {
        Ok(Answer {
            parameters: parameters.to_raw(),
            length: length.min(self.buffer.len()),
        })
    }
}
