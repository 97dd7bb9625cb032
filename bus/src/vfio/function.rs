//! A claimed function.

mod close;
mod dma;

use super::claim::{self, ClaimError};
use super::interrupts::Interrupts;
use super::ioctl;
use super::iommu::{self, Mapped};
use super::owner::Owner;
use super::regions::{self, MsixTable, MsixTablePlace, Region};
use super::release;
use crate::config_space::{COMMAND, Command, ConfigSpace, SNAPSHOT_BYTES};
use crate::function::{Backend, BarInfo, DmaAccess, DmaLimits};
use crate::process::Birth;
use crate::sysfs::{PciFunction, Sysfs};
use crate::vfio_user::message::{self, REGION_CONFIG};
use crate::{Clock, DeviceAddress, Doorbell, Function, FunctionError, Iova, Memory};
use rustix::io::Errno;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Offset of revision and class code. They read all ones from a removed device; vendor and device
/// id do not, because the kernel supplies them itself.
const CLASS: u64 = 0x08;

/// The start of configuration space, with identity, command, status and class.
const FIRST_REGISTERS: u16 = 0x10;

/// See [the module](super).
pub struct VfioFunction {
    address: DeviceAddress,
    clock: Arc<dyn Clock>,
    sysfs: Sysfs,
    birth: Birth,
    facts: PciFunction,
    owner: ManuallyDrop<Owner>,
    regions: Vec<Region>,
    limits: DmaLimits,
    mapped: Mutex<Mapped>,
    interrupts: Mutex<Interrupts>,
    /// The command register's memory space bit. Mapped registers must not be accessed while it is
    /// clear.
    memory_space: AtomicBool,
}

impl VfioFunction {
    /// Claims the function at `address`. The kernel resets it.
    ///
    /// # Errors
    /// One variant for each remedy: see [`ClaimError`].
    pub fn claim(address: &DeviceAddress, clock: Arc<dyn Clock>) -> Result<Self, ClaimError> {
        let text = address.to_string();
        if !matches!(address, DeviceAddress::Pci { .. }) {
            return Err(ClaimError::NotPci { address: text });
        }
        let sysfs = Sysfs::default();
        let (facts, group) = claim::look(&sysfs, &text)?;
        let owner = Owner::claim(&sysfs, &text, group)?;
        let mut claimed = Self {
            address: address.clone(),
            clock,
            limits: iommu::limits(&[]),
            birth: Birth::now(),
            facts,
            regions: Vec::new(),
            interrupts: Mutex::new(Interrupts::NONE),
            mapped: Mutex::new(Mapped::default()),
            memory_space: AtomicBool::new(false),
            owner: ManuallyDrop::new(owner),
            sysfs,
        };
        // From here on dropping the value releases everything.
        claimed.learn().map_err(|error| ClaimError::System {
            operation: format!("asking the kernel about {text}"),
            error: error.to_string(),
            address: text.clone(),
        })?;
        Ok(claimed)
    }

    /// Queries regions, interrupts and limits, and maps the areas that can be mapped.
    fn learn(&mut self) -> Result<(), FunctionError> {
        let found = regions::query_all(self.fd()).map_err(|error| self.failed("regions", error))?;
        let (found, infos): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        self.regions = found;
        let mut bytes = [0; SNAPSHOT_BYTES];
        let length = self.config_length();
        let snapshot = bytes.get_mut(..length).unwrap_or(&mut []);
        self.read_config(0, snapshot)?;
        let table = msix_table(&bytes);
        for info in &infos {
            for area in regions::plan(info, table) {
                self.map_area(info.index, area);
            }
        }
        let command = bytes
            .get(usize::from(COMMAND)..)
            .and_then(<[u8]>::first_chunk);
        self.note_command(command.map_or(0, |bytes| u16::from_le_bytes(*bytes)));
        let interrupts = Interrupts::query(self.fd());
        let interrupts = interrupts.map_err(|error| self.failed("interrupts", error))?;
        self.interrupts = Mutex::new(interrupts);
        self.limits = self
            .owner
            .limits()
            .map_err(|error| self.failed("IOMMU", error))?;
        for line in self.attachment() {
            tracing::info!(device = %self.address, "{line}");
        }
        Ok(())
    }

    fn map_area(&mut self, index: u32, area: Range<u64>) {
        let Some(region) = self.regions.get(index as usize) else {
            return;
        };
        let (offset, length) = (region.offset + area.start, area.end - area.start);
        let Ok(length) = usize::try_from(length) else {
            return;
        };
        match crate::mapping::RegisterMapping::map(self.fd(), offset, length) {
            Ok(mapping) => {
                if let Some(region) = self.regions.get_mut(index as usize) {
                    region.mapped.push((area, Arc::new(mapping)));
                }
            }
            // Not fatal: registers that are not mapped are accessed by system calls.
            Err(error) => tracing::warn!(bar = index, ?area, %error, "registers were not mapped"),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.owner.device()
    }

    fn mapped(&self) -> MutexGuard<'_, Mapped> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interrupts(&self) -> MutexGuard<'_, Interrupts> {
        self.interrupts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self, reason: impl Into<String>) -> FunctionError {
        FunctionError::Gone {
            device: self.address.clone(),
            reason: reason.into(),
        }
    }

    /// Translates an error number of the device's descriptor.
    fn failed(&self, operation: &str, error: Errno) -> FunctionError {
        let remedy = match error {
            Errno::NODEV | Errno::NXIO => {
                return self.gone(format!("{operation}: the kernel reports {error}"));
            }
            Errno::IO => {
                "the device does not respond or its memory space is off; reset it and claim it again"
            }
            _ => "this is unexpected: see the kernel's log (dmesg)",
        };
        FunctionError::System {
            operation: format!("{}: {operation}", self.address),
            error: error.to_string(),
            remedy: remedy.into(),
        }
    }

    /// Refuses accesses outside their region.
    fn check(&self, index: u32, offset: u64, width: u64) -> Result<&Region, FunctionError> {
        let region = self.regions.get(index as usize);
        let size = region.map_or(0, |region| region.size);
        let inside = offset.checked_add(width).is_some_and(|end| end <= size);
        if let Some(region) = region.filter(|_| inside && width > 0) {
            return Ok(region);
        }
        Err(FunctionError::OutOfRange {
            region: match index {
                REGION_CONFIG => "configuration space".into(),
                bar => format!("BAR {bar}"),
            },
            offset,
            width,
            size,
        })
    }

    fn check_register(&self, bar: u8, offset: u64, width: u64) -> Result<&Region, FunctionError> {
        let index = u32::from(bar);
        let aligned = offset.is_multiple_of(4) && index < message::REGION_ROM;
        // an unaligned access is in no register
        self.check(index, if aligned { offset } else { u64::MAX }, width)
    }

    fn config_length(&self) -> usize {
        let size = self.regions.get(REGION_CONFIG as usize);
        let size = size.map_or(0, |region| region.size);
        usize::try_from(size)
            .unwrap_or(SNAPSHOT_BYTES)
            .min(SNAPSHOT_BYTES)
    }

    /// Reads by system call, in full.
    fn read_at(&self, place: u64, into: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(self.fd(), rest, place + done as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes by system call, in full.
    fn write_at(&self, place: u64, from: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while let Some(rest) = from.get(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pwrite(self.fd(), rest, place + done as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_config(&self, offset: u64, bytes: &mut [u8]) -> Result<(), FunctionError> {
        let region = self.check(REGION_CONFIG, offset, bytes.len() as u64)?;
        self.read_at(region.offset + offset, bytes)
            .map_err(|error| self.failed("reading configuration space", error))
    }

    /// Fails if the device does not respond on the bus. Called after a read of all ones.
    fn still_there(&self) -> Result<(), FunctionError> {
        let mut class = [0; 4];
        self.read_config(CLASS, &mut class)?;
        if class == [0xFF; 4] {
            return Err(self.gone("its configuration space reads all ones"));
        }
        Ok(())
    }

    fn note_command(&self, command: u16) {
        let on = Command(command).memory_space();
        self.memory_space.store(on, Ordering::Release);
    }

    /// The mapping of a register; `None` if it needs a system call.
    fn place<'r>(
        &self,
        region: &'r Region,
        offset: u64,
    ) -> Option<(&'r Arc<crate::mapping::RegisterMapping>, usize)> {
        let on = self.memory_space.load(Ordering::Acquire);
        on.then(|| region.place(offset))?
    }
}

/// The place of the MSI-X table, from a snapshot of configuration space.
fn msix_table(bytes: &[u8; SNAPSHOT_BYTES]) -> Option<MsixTable> {
    let (offset, control) = ConfigSpace::decode(bytes).ok()?.msix?;
    let table = bytes.get(usize::from(offset) + 4..)?.first_chunk()?;
    let place = MsixTablePlace(u32::from_le_bytes(*table));
    Some(MsixTable::new(place, control.table_size_minus_one() + 1))
}

impl Function for VfioFunction {
    fn address(&self) -> &DeviceAddress {
        &self.address
    }

    fn backend(&self) -> Backend {
        Backend::Vfio
    }

    fn numa_node(&self) -> Option<u32> {
        self.facts.numa_node
    }

    fn attachment(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "VFIO, {}, pages of {} bytes, {} mappings, I/O addresses {}",
            self.owner.describe(),
            self.limits.page_bytes,
            match self.limits.mappings {
                usize::MAX => "any number of".to_owned(),
                count => count.to_string(),
            },
            list(&self.limits.iova_ranges)
        )];
        for (bar, region) in self.regions.iter().enumerate() {
            if region.mapped.is_empty() {
                continue;
            }
            let ranges: Vec<_> = region
                .mapped
                .iter()
                .map(|(range, _)| range.clone())
                .collect();
            // vfio-pci maps all registers uncached; its driver interface cannot request
            // write-combining.
            lines.push(format!(
                "BAR {bar} mapped uncached at {} of its {:#x} bytes; the kernel gives no write-combining",
                list(&ranges),
                region.size
            ));
        }
        lines
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> Result<(), FunctionError> {
        self.read_config(offset.into(), bytes)?;
        // The kernel supplies its own values for parts of the first registers.
        if offset < FIRST_REGISTERS || bytes.iter().all(|byte| *byte == 0xFF) {
            self.still_there()?;
        }
        Ok(())
    }

    fn config_write(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        let region = self.check(REGION_CONFIG, offset.into(), bytes.len() as u64)?;
        let written = self.write_at(region.offset + u64::from(offset), bytes);
        // The command register may have changed, even if the write failed.
        if offset <= COMMAND + 1 && usize::from(offset) + bytes.len() > usize::from(COMMAND) {
            let mut now = [0; 2];
            self.read_config(COMMAND.into(), &mut now)?;
            self.note_command(u16::from_le_bytes(now));
        }
        written.map_err(|error| self.failed("writing configuration space", error))
    }

    fn bar(&self, bar: u8) -> Result<BarInfo, FunctionError> {
        let region = self.regions.get(usize::from(bar));
        let region = region.filter(|_| u32::from(bar) < message::REGION_ROM);
        let ranges = |region: &Region| {
            region
                .mapped
                .iter()
                .map(|(range, _)| range.clone())
                .collect()
        };
        Ok(BarInfo {
            size: region.map_or(0, |region| region.size),
            mappable: region.map(ranges).unwrap_or_default(),
        })
    }

    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        let region = self.check_register(bar, offset, 4)?;
        let mapped = self.place(region, offset);
        let value = match mapped.and_then(|(mapping, at)| mapping.read32(at)) {
            Some(value) => value,
            None => {
                let mut bytes = [0; 4];
                self.read_at(region.offset + offset, &mut bytes)
                    .map_err(|error| self.failed("reading a register", error))?;
                u32::from_le_bytes(bytes)
            }
        };
        if value == u32::MAX {
            self.still_there()?;
        }
        Ok(value)
    }

    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        let region = self.check_register(bar, offset, 4)?;
        let mapped = self.place(region, offset);
        match mapped.and_then(|(mapping, at)| mapping.write32(at, value)) {
            Some(()) => Ok(()),
            None => self
                .write_at(region.offset + offset, &value.to_le_bytes())
                .map_err(|error| self.failed("writing a register", error)),
        }
    }

    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        let region = self.check_register(bar, offset, 8)?;
        let mapped = self.place(region, offset);
        let value = match mapped.and_then(|(mapping, at)| mapping.read64(at)) {
            Some(value) => value,
            None => {
                let mut bytes = [0; 8];
                self.read_at(region.offset + offset, &mut bytes)
                    .map_err(|error| self.failed("reading a register", error))?;
                u64::from_le_bytes(bytes)
            }
        };
        if value == u64::MAX {
            self.still_there()?;
        }
        Ok(value)
    }

    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError> {
        let region = self.check_register(bar, offset, 4)?;
        let mapped = self.place(region, offset);
        let made = mapped
            .and_then(|_| Doorbell::in_page_of(self.fd(), region.offset.checked_add(offset)?).ok());
        Ok(made.unwrap_or_else(|| crate::function::message_doorbell(self, bar, offset)))
    }

    fn dma_limits(&self) -> Result<DmaLimits, FunctionError> {
        Ok(self.limits.clone())
    }

    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        self.map(iova, memory, range, access)
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        self.unmap(iova, length)
    }

    fn interrupt_vectors(&self) -> Result<u16, FunctionError> {
        Ok(self.interrupts().count())
    }

    fn set_interrupts(
        &self,
        first: u16,
        events: &[Option<BorrowedFd<'_>>],
    ) -> Result<(), FunctionError> {
        let set = self.interrupts().set(self.fd(), first, events);
        set.map_err(|error| self.failed("connecting interrupts", error))
    }

    fn set_release_event(&self, event: Option<BorrowedFd<'_>>) -> Result<(), FunctionError> {
        match release::set(self.fd(), event) {
            Ok(()) => Ok(()),
            Err(Errno::INVAL | Errno::NOTTY) => Err(FunctionError::Unsupported {
                backend: Backend::Vfio.name(),
                operation: format!("ask for the release of {}", self.address),
            }),
            Err(error) => Err(self.failed("connecting the request for release", error)),
        }
    }

    fn reset(&self) -> Result<(), FunctionError> {
        // The kernel would wait more than a minute for a removed device.
        self.still_there()?;
        match ioctl::reset(self.fd()) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOTTY) => {
                return Err(FunctionError::Unsupported {
                    backend: Backend::Vfio.name(),
                    operation: format!("reset {} by itself", self.address),
                });
            }
            Err(error) => return Err(self.failed("resetting the function", error)),
        }
        self.still_there()
    }
}

fn list(ranges: &[Range<u64>]) -> String {
    let list = ranges
        .iter()
        .map(|range| format!("{:#x}..{:#x}", range.start, range.end));
    list.collect::<Vec<_>>().join(", ")
}

impl std::fmt::Debug for VfioFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VfioFunction({})", self.address)
    }
}

#[cfg(test)]
mod tests;
