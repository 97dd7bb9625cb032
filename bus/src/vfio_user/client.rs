//! The client: a [`Function`] in another process.
//!
//! Every request is one message and, unless it is a register write, one answer; each wait has a
//! deadline. Register writes are posted: they have no answer, and a later read sees their effect,
//! since the socket keeps the order. If the server ends, the next call reports it at once.

mod exchange;
mod mappings;
mod regions;
mod unsettled;
mod users;

use super::message::{self, InterruptInfo, RegionAccess, SetInterrupts, SetInterruptsFlags};
use super::{Capabilities, Command};
use crate::function::{Backend, BarInfo, DmaAccess, DmaLimits};
use crate::memory::own_space;
use crate::{Clock, DeviceAddress, Doorbell, Function, FunctionError, Iova, Memory};
pub use exchange::ClientLimits;
use exchange::Exchange;
use regions::Region;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The vfio-user client; see the module.
pub struct VfioUserFunction {
    address: DeviceAddress,
    clock: Arc<dyn Clock>,
    exchange: Mutex<Exchange>,
    capabilities: Capabilities,
    can_reset: bool,
    regions: Vec<Region>,
    vectors: u16,
    server: Option<u32>,
    /// open from the start: later the process may have dropped the right
    own_space: Option<Arc<OwnedFd>>,
}

impl VfioUserFunction {
    /// Connects to the server at `path`, negotiates, and queries the function's properties.
    ///
    /// # Errors
    /// There is no socket or no server, the server does not implement the protocol or serves
    /// another client, or it does not answer in time.
    pub fn connect(
        path: &Path,
        clock: Arc<dyn Clock>,
        limits: ClientLimits,
    ) -> Result<Self, FunctionError> {
        let address = DeviceAddress::VfioUser(path.to_owned());
        let (mut exchange, capabilities) = Exchange::connect(path, Arc::clone(&clock), limits)?;
        let server = exchange.server_process();
        let info = exchange.device_info()?;
        if !info.flags.pci() {
            return Err(exchange.not_ours("the server's device is not a PCI function"));
        }
        let mut found = Vec::new();
        // regions beyond those of a PCI function are ignored
        for index in 0..info.regions.min(message::REGIONS) {
            found.push(regions::query(&mut exchange, index)?);
        }
        let vectors = if info.interrupts > message::INTERRUPT_MSIX {
            msix_vectors(&mut exchange)?
        } else {
            0
        };
        Ok(Self {
            address,
            clock,
            exchange: Mutex::new(exchange),
            capabilities,
            can_reset: info.flags.reset(),
            regions: found,
            vectors,
            server,
            own_space: own_space().ok(),
        })
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        exchange.users.note();
        exchange
    }

    fn region(&self, index: u32) -> Option<&Region> {
        self.regions.get(index as usize)
    }

    /// Refuses accesses outside their region, so that a posted write never fails unnoticed.
    fn check(&self, index: u32, offset: u64, width: u64) -> Result<(), FunctionError> {
        let size = self.region(index).map_or(0, |region| region.size);
        let end = offset.checked_add(width);
        if width > 0 && end.is_some_and(|end| end <= size) {
            return Ok(());
        }
        let region = match index {
            message::REGION_CONFIG => "configuration space".into(),
            bar => format!("BAR {bar}"),
        };
        Err(FunctionError::OutOfRange {
            region,
            offset,
            width,
            size,
        })
    }

    fn check_register(&self, bar: u8, offset: u64, width: u64) -> Result<u32, FunctionError> {
        let index = u32::from(bar);
        let aligned = offset.is_multiple_of(4) && index < message::REGION_ROM;
        // an access that is not aligned is in no register
        self.check(index, if aligned { offset } else { u64::MAX }, width)?;
        Ok(index)
    }

    fn read_region(&self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), FunctionError> {
        let count = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let access = RegionAccess {
            offset,
            region,
            count,
            data: &[],
        };
        let mut exchange = self.exchange();
        let reply = exchange.ask(Command::RegionRead, &access.encode(), &[])?;
        match RegionAccess::decode_with_data(&reply.body) {
            Ok(answer) if answer.data.len() == into.len() => {
                into.copy_from_slice(answer.data);
                Ok(())
            }
            Ok(answer) => {
                let reason = format!("{} bytes instead of {count}", answer.data.len());
                Err(exchange.not_ours(&reason))
            }
            Err(error) => Err(exchange.not_ours(&error.to_string())),
        }
    }

    fn post(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), FunctionError> {
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let access = RegionAccess {
            offset,
            region,
            count,
            data,
        };
        self.exchange().post(Command::RegionWrite, &access.encode())
    }

    /// Sends one message of [`Function::set_interrupts`]: connects all vectors, or disconnects all.
    fn connect_interrupts(
        &self,
        start: u32,
        count: usize,
        events: &[BorrowedFd<'_>],
    ) -> Result<(), FunctionError> {
        let set = SetInterrupts {
            flags: SetInterruptsFlags::ZERO
                .with_data_eventfd(true)
                .with_action_trigger(true),
            index: message::INTERRUPT_MSIX,
            start,
            count: u32::try_from(count).unwrap_or(u32::MAX),
        };
        let mut exchange = self.exchange();
        exchange.ask(Command::SetInterrupts, &set.encode(), events)?;
        Ok(())
    }
}

fn msix_vectors(exchange: &mut Exchange) -> Result<u16, FunctionError> {
    let question = InterruptInfo {
        flags: message::InterruptFlags::ZERO,
        index: message::INTERRUPT_MSIX,
        count: 0,
    };
    let reply = exchange.ask(Command::InterruptInfo, &question.encode(), &[])?;
    let info = InterruptInfo::decode(&reply.body);
    let info = info.map_err(|error| exchange.not_ours(&error.to_string()))?;
    // MSI-X has at most 2048
    Ok(info.count.min(2048) as u16)
}

impl Function for VfioUserFunction {
    fn address(&self) -> &DeviceAddress {
        &self.address
    }

    fn server_process(&self) -> Option<u32> {
        self.server
    }

    fn backend(&self) -> Backend {
        Backend::VfioUser
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> Result<(), FunctionError> {
        let offset = u64::from(offset);
        self.check(message::REGION_CONFIG, offset, bytes.len() as u64)?;
        self.read_region(message::REGION_CONFIG, offset, bytes)
    }

    fn config_write(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        let offset = u64::from(offset);
        self.check(message::REGION_CONFIG, offset, bytes.len() as u64)?;
        let access = RegionAccess {
            offset,
            region: message::REGION_CONFIG,
            count: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            data: bytes,
        };
        // Has an answer, unlike a register write: later steps may depend on its effect on the
        // device.
        self.exchange()
            .ask(Command::RegionWrite, &access.encode(), &[])?;
        Ok(())
    }

    fn bar(&self, bar: u8) -> Result<BarInfo, FunctionError> {
        let region = self
            .region(bar.into())
            .filter(|_| u32::from(bar) < message::REGION_ROM);
        Ok(BarInfo {
            size: region.map_or(0, |region| region.size),
            mappable: region.map(Region::mapped_ranges).unwrap_or_default(),
        })
    }

    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        let region = self.check_register(bar, offset, 4)?;
        let mut bytes = [0; 4];
        self.read_region(region, offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        let region = self.check_register(bar, offset, 4)?;
        self.post(region, offset, &value.to_le_bytes())
    }

    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        let region = self.check_register(bar, offset, 8)?;
        let mut bytes = [0; 8];
        self.read_region(region, offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The socket keeps the order: the answer to a read comes after the writes. Where several
    /// threads use the connection it does not wait, as they would have to wait with it.
    fn catch_up(&self) -> Result<bool, FunctionError> {
        if self.exchange().users.are_several(Instant::now()) {
            return Ok(false);
        }
        self.read_region(message::REGION_CONFIG, 0, &mut [0; 4])?;
        Ok(true)
    }

    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError> {
        let region = self.check_register(bar, offset, 4)?;
        let mapped = self
            .region(region)
            .and_then(|region| region.doorbell(offset));
        Ok(mapped.unwrap_or_else(|| crate::function::message_doorbell(self, bar, offset)))
    }

    fn dma_limits(&self) -> Result<DmaLimits, FunctionError> {
        // The server has no IOMMU; these are the ranges that every x86 IOMMU accepts.
        let iova_ranges = vec![0..0xFEE0_0000, 0xFEF0_0000..1 << 48];
        Ok(DmaLimits {
            iova_ranges,
            mappings: self.capabilities.dma_mappings as usize,
            page_bytes: self.capabilities.page_bytes(),
        })
    }

    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        let length = range.end.saturating_sub(range.start) as u64;
        if length == 0 || range.end > memory.length() {
            let reason = "the range is empty or leaves its memory; this is a bug of the caller";
            let reason = reason.into();
            return Err(FunctionError::Mapping {
                iova,
                length,
                reason,
            });
        }
        self.map_memory(iova, memory, range, access == DmaAccess::ReadWrite)
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        self.unmap_memory(iova, length)
    }

    fn interrupt_vectors(&self) -> Result<u16, FunctionError> {
        Ok(self.vectors)
    }

    fn set_interrupts(
        &self,
        first: u16,
        events: &[Option<BorrowedFd<'_>>],
    ) -> Result<(), FunctionError> {
        let most = self.capabilities.message_descriptors;
        let most = most.min(super::capabilities::MAX_MESSAGE_DESCRIPTORS) as usize;
        let mut start = u32::from(first);
        for run in events.chunk_by(|one, next| one.is_some() == next.is_some()) {
            for chunk in run.chunks(most.max(1)) {
                let descriptors: Vec<_> = chunk.iter().flatten().map(AsFd::as_fd).collect();
                self.connect_interrupts(start, chunk.len(), &descriptors)?;
                start = start.saturating_add(chunk.len() as u32);
            }
        }
        Ok(())
    }

    fn set_release_event(&self, _: Option<BorrowedFd<'_>>) -> Result<(), FunctionError> {
        Err(FunctionError::Unsupported {
            backend: Backend::VfioUser.name(),
            operation: "ask for the release of this device".into(),
        })
    }

    fn reset(&self) -> Result<(), FunctionError> {
        if !self.can_reset {
            return Err(FunctionError::Unsupported {
                backend: Backend::VfioUser.name(),
                operation: "reset this device".into(),
            });
        }
        self.exchange().ask(Command::Reset, &[], &[])?;
        Ok(())
    }
}

impl std::fmt::Debug for VfioUserFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VfioUserFunction({})", self.address)
    }
}
