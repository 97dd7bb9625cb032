//! One [`Function`] over any carrier of requests to the world.

use crate::device::{Reply, Request};
use ringside_bus::function::{Backend, BarInfo, DmaAccess, DmaLimits};
use ringside_bus::{Clock, DeviceAddress, Doorbell, Function, FunctionError, Iova, Memory};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The path of requests to the world, and of answers back.
pub(super) trait Carrier: Send + Sync {
    fn ask(&self, function: usize, request: Request) -> Result<Reply, CarrierError>;
    /// Writes a doorbell. The world sees it before all later requests of this thread; the caller
    /// need not wait for that. A ring that cannot be passed on is dropped.
    fn ring(&self, function: usize, bell: Bell, value: u32);
    /// The doorbell page that the world polls, where it does.
    fn doorbell_page(&self, function: usize) -> Option<&Memory>;
}

/// A register that is a doorbell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bell {
    pub(super) bar: u8,
    pub(super) offset: u64,
}

impl Bell {
    /// The request that a ring stands for.
    pub(super) fn write(self, value: u32) -> Request {
        Request::RegisterWrite {
            bar: self.bar,
            offset: self.offset,
            width: 4,
            value: value.into(),
        }
    }
}

/// The reason for a missing answer.
pub(super) enum CarrierError {
    Gone(String),
    TimedOut(u64),
}

/// Place of the doorbell page in BAR 0, and its size.
pub(super) const DOORBELL_PAGE: u64 = ringside_spec::rdma::registers::DOORBELL_PAGE;
pub(super) const DOORBELL_PAGE_BYTES: u64 = ringside_spec::rdma::registers::DOORBELL_PAGE_BYTES;

pub(super) struct EmbeddedFunction<C> {
    pub(super) address: DeviceAddress,
    pub(super) index: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) carrier: Arc<C>,
}

impl<C: Carrier> EmbeddedFunction<C> {
    fn ask(&self, request: Request) -> Result<Reply, FunctionError> {
        let name = request.name();
        let device = || self.address.clone();
        match self.carrier.ask(self.index, request) {
            Ok(Reply::Refused(reason)) => Err(FunctionError::System {
                operation: name.into(),
                error: reason,
                remedy: "this is a bug of the driver".into(),
            }),
            Ok(reply) => Ok(reply),
            Err(CarrierError::Gone(reason)) => Err(FunctionError::Gone {
                device: device(),
                reason,
            }),
            Err(CarrierError::TimedOut(waited_ms)) => Err(FunctionError::TimedOut {
                device: device(),
                request: name.into(),
                waited_ms,
            }),
        }
    }

    fn unexpected<T>(&self, reply: &Reply) -> Result<T, FunctionError> {
        let reason = format!("the model answered {reply:?} to another question");
        Err(FunctionError::Gone {
            device: self.address.clone(),
            reason,
        })
    }

    fn done(&self, request: Request) -> Result<(), FunctionError> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            other => self.unexpected(&other),
        }
    }

    fn value(&self, bar: u8, offset: u64, width: u8) -> Result<u64, FunctionError> {
        match self.ask(Request::RegisterRead { bar, offset, width })? {
            Reply::Value(value) => Ok(value),
            other => self.unexpected(&other),
        }
    }
}

impl<C: Carrier + 'static> Function for EmbeddedFunction<C> {
    fn address(&self) -> &DeviceAddress {
        &self.address
    }

    fn backend(&self) -> Backend {
        Backend::EmbeddedModel
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn config_read(&self, offset: u16, bytes: &mut [u8]) -> Result<(), FunctionError> {
        let length = bytes.len() as u16;
        match self.ask(Request::ConfigRead { offset, length })? {
            Reply::Bytes(answer) if answer.len() == bytes.len() => {
                bytes.copy_from_slice(&answer);
                Ok(())
            }
            other => self.unexpected(&other),
        }
    }

    fn config_write(&self, offset: u16, bytes: &[u8]) -> Result<(), FunctionError> {
        self.done(Request::ConfigWrite {
            offset,
            bytes: bytes.to_vec(),
        })
    }

    fn bar(&self, bar: u8) -> Result<BarInfo, FunctionError> {
        match self.ask(Request::Bar { bar })? {
            Reply::Bar(mut info) => {
                if bar == 0 && self.carrier.doorbell_page(self.index).is_some() {
                    info.mappable
                        .push(DOORBELL_PAGE..DOORBELL_PAGE + DOORBELL_PAGE_BYTES);
                }
                Ok(info)
            }
            other => self.unexpected(&other),
        }
    }

    fn read32(&self, bar: u8, offset: u64) -> Result<u32, FunctionError> {
        Ok(self.value(bar, offset, 4)? as u32)
    }

    fn write32(&self, bar: u8, offset: u64, value: u32) -> Result<(), FunctionError> {
        let value = u64::from(value);
        self.done(Request::RegisterWrite {
            bar,
            offset,
            width: 4,
            value,
        })
    }

    fn read64(&self, bar: u8, offset: u64) -> Result<u64, FunctionError> {
        self.value(bar, offset, 8)
    }

    fn doorbell(self: Arc<Self>, bar: u8, offset: u64) -> Result<Doorbell, FunctionError> {
        let size = self.bar(bar)?.size;
        if offset.checked_add(4).is_none_or(|end| end > size) || !offset.is_multiple_of(4) {
            let region = format!("BAR {bar}");
            return Err(FunctionError::OutOfRange {
                region,
                offset,
                width: 4,
                size,
            });
        }
        let within = offset.wrapping_sub(DOORBELL_PAGE);
        let mapped = match self.carrier.doorbell_page(self.index) {
            Some(page) if bar == 0 && within < DOORBELL_PAGE_BYTES => {
                Doorbell::mapped(page, within as usize)
            }
            _ => None,
        };
        let (carrier, index) = (Arc::clone(&self.carrier), self.index);
        let bell = Bell { bar, offset };
        let message = || Doorbell::message(move |value| carrier.ring(index, bell, value));
        Ok(mapped.unwrap_or_else(message))
    }

    fn dma_limits(&self) -> Result<DmaLimits, FunctionError> {
        // The ranges of an IOMMU of 48 bits, without the range of interrupts on x86.
        let iova_ranges = vec![0..0xFEE0_0000, 0xFEF0_0000..1 << 48];
        Ok(DmaLimits {
            iova_ranges,
            mappings: 65_535,
            page_bytes: 4096,
        })
    }

    fn map_dma(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        access: DmaAccess,
    ) -> Result<(), FunctionError> {
        self.done(Request::MapDma {
            iova,
            memory: memory.clone(),
            range,
            access,
        })
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        self.done(Request::UnmapDma { iova, length })
    }

    fn interrupt_vectors(&self) -> Result<u16, FunctionError> {
        match self.ask(Request::InterruptVectors)? {
            Reply::Vectors(vectors) => Ok(vectors),
            other => self.unexpected(&other),
        }
    }

    fn set_interrupts(
        &self,
        first: u16,
        events: &[Option<BorrowedFd<'_>>],
    ) -> Result<(), FunctionError> {
        let owned = events
            .iter()
            .map(|event| event.map(|event| event.try_clone_to_owned()));
        let owned = owned.map(Option::transpose).collect::<Result<Vec<_>, _>>();
        let events = owned.map_err(no_descriptor)?;
        self.done(Request::SetInterrupts { first, events })
    }

    fn set_release_event(&self, event: Option<BorrowedFd<'_>>) -> Result<(), FunctionError> {
        let owned = event.map(|event| event.try_clone_to_owned()).transpose();
        let event = owned.map_err(no_descriptor)?;
        self.done(Request::SetReleaseEvent { event })
    }

    fn reset(&self) -> Result<(), FunctionError> {
        self.done(Request::Reset)
    }
}

fn no_descriptor(error: std::io::Error) -> FunctionError {
    FunctionError::System {
        operation: "duplicating an event descriptor".into(),
        error: error.to_string(),
        remedy: "raise the limit of open files (ulimit -n)".into(),
    }
}
