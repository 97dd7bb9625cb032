//! The memory that the server's device may access.
//!
//! The server maps a file that cannot shrink. All other memory it reads and writes through the file
//! of this process' address space: memory without a file, and a file of the program that can still
//! shrink. To map such a file, the server would have to seal it, and the program could then not
//! shorten its own file any more.

use super::VfioUserFunction;
use super::exchange::{Exchange, LostReply};
use super::unsettled::Place;
use crate::vfio_user::Command;
use crate::vfio_user::message::{DmaMap, DmaUnmap, MapFlags, UnmapFlags};
use crate::{FunctionError, Iova, Memory};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

/// Pages that memory of the application is mapped in, bytes.
const PAGE: u64 = 4096;

/// A way in which the server can access memory.
struct Way<'m> {
    descriptor: BorrowedFd<'m>,
    /// The descriptor is read and written at positions; otherwise it is mapped.
    positional: bool,
    /// The first byte in the descriptor.
    offset: u64,
    iova: Iova,
    length: u64,
}

/// The whole pages that a range touches: the first address, and bytes. `None` if they do not exist.
fn whole_pages(first: u64, length: u64) -> Option<(u64, u64)> {
    let within = first % PAGE;
    let length = length.checked_add(within)?;
    Some((first - within, length.checked_next_multiple_of(PAGE)?))
}

impl VfioUserFunction {
    /// See [`Function::map_dma`](crate::Function::map_dma). `range` is inside `memory`.
    pub(super) fn map_memory(
        &self,
        iova: Iova,
        memory: &Memory,
        range: Range<usize>,
        writable: bool,
    ) -> Result<(), FunctionError> {
        let length = (range.end - range.start) as u64;
        let mut refused = None;
        // Until it returns, no other thread's request comes between.
        let mut exchange = self.exchange();
        undo_late(&mut exchange)?;
        for way in self.ways(iova, memory, &range).into_iter().flatten() {
            let map = DmaMap {
                flags: MapFlags::ZERO
                    .with_readable(true)
                    .with_writable(writable)
                    .with_positional(way.positional),
                offset: way.offset,
                address: way.iova.0,
                size: way.length,
            };
            let place = (map.address, map.size);
            match exchange.try_ask(Command::DmaMap, &map.encode(), &[way.descriptor]) {
                Ok(_) => {
                    exchange.unsettled.answered(place);
                    return Ok(());
                }
                Err(LostReply::Refused(errno, _)) => refused = Some(errno),
                Err(LostReply::Failed(error)) => {
                    exchange.unsettled.begin(place);
                    return Err(error);
                }
            }
        }
        Err(FunctionError::Mapping {
            iova,
            length,
            reason: reason(memory, refused),
        })
    }

    /// The ways in which the server can access the memory, the best one first.
    fn ways<'m>(
        &'m self,
        iova: Iova,
        memory: &'m Memory,
        range: &Range<usize>,
    ) -> [Option<Way<'m>>; 2] {
        let length = (range.end - range.start) as u64;
        let as_it_is = memory.descriptor().map(|descriptor| Way {
            descriptor,
            positional: memory.is_positional(),
            offset: memory.offset_in_file() + range.start as u64,
            iova,
            length,
        });
        // A device has no words of memory that it reads by system calls, so no rings in it.
        if memory.is_positional() || memory.is_dma_buf() || memory.is_allocated() {
            return [as_it_is, None];
        }
        let place = memory.virtual_address() + range.start as u64;
        let lent = self.own_space.as_ref().and_then(|space| {
            let (offset, length) = whole_pages(place, length)?;
            Some(Way {
                descriptor: space.as_fd(),
                positional: true,
                offset,
                iova: Iova(iova.0 - iova.0 % PAGE),
                length,
            })
        });
        match memory.cannot_shrink() {
            true => [as_it_is, lent],
            // A server that cannot access an address space may still map the file.
            false => [lent, as_it_is],
        }
    }

    /// See [`Function::unmap_dma`](crate::Function::unmap_dma).
    pub(super) fn unmap_memory(&self, iova: Iova, length: u64) -> Result<(), FunctionError> {
        let refused = |reason| FunctionError::Mapping {
            iova,
            length,
            reason,
        };
        let Some((address, size)) = whole_pages(iova.0, length) else {
            let reason = "the range leaves the address space; this is a bug of the caller";
            return Err(refused(reason.to_owned()));
        };
        let mut exchange = self.exchange();
        undo_late(&mut exchange)?;
        let place = (address, size);
        match ask_to_unmap(&mut exchange, place) {
            Ok(()) => {
                exchange.unsettled.answered(place);
                Ok(())
            }
            Err(LostReply::Refused(errno, _)) => {
                let was_late = exchange.unsettled.answered(place);
                // The server has performed the earlier request, whose answer came too late.
                if was_late && errno == Errno::NOENT {
                    return Ok(());
                }
                Err(refused(format!("the server refuses to unmap: {errno}")))
            }
            Err(LostReply::Failed(error)) => {
                exchange.unsettled.end(place);
                Err(error)
            }
        }
    }
}

fn ask_to_unmap(exchange: &mut Exchange, (address, size): Place) -> Result<(), LostReply> {
    let unmap = DmaUnmap {
        flags: UnmapFlags::ZERO,
        address,
        size,
    };
    let reply = exchange.try_ask(Command::DmaUnmap, &unmap.encode(), &[]);
    reply.map(|_| ())
}

/// Ends a mapping that the server may have made after its caller was told that it failed: the
/// caller uses its addresses for other memory. The device was never told of them, so that the
/// memory itself need not stay.
fn undo_late(exchange: &mut Exchange) -> Result<(), FunctionError> {
    let Some(place) = exchange.unsettled.begun() else {
        return Ok(());
    };
    if let Err(LostReply::Failed(error)) = ask_to_unmap(exchange, place) {
        return Err(error);
    }
    // A refusal settles it as well: the server does not have the mapping.
    exchange.unsettled.undone();
    Ok(())
}

/// The reason why the server cannot access memory, and the remedy. `refused` is its answer to the
/// last way that was tried.
fn reason(memory: &Memory, refused: Option<Errno>) -> String {
    match refused {
        None => {
            "the kernel does not let this process open /proc/self/mem, by which the server would \
                 access its memory: a process that drops privileges or forbids core dumps connects \
                 before it does, or maps a memfd that is sealed with F_SEAL_SHRINK"
                .to_owned()
        }
        Some(Errno::PERM) => format!(
            "the server refuses: {}; it maps only files that cannot shrink: seal a memfd with \
             F_SEAL_SHRINK",
            Errno::PERM
        ),
        Some(errno) if memory.is_dma_buf() => {
            format!("the server refuses: {errno}; it maps no dma-buf: copy to memory of the device")
        }
        Some(Errno::NOMEM) => format!(
            "the server refuses: {}; it has no memory left for the mapping, or this client's share of \
             the files that it may map is used up: raise the server's limits of memory and of open \
             files (ulimit -v, ulimit -n), or give it fewer functions",
            Errno::NOMEM
        ),
        Some(errno) => format!("the server refuses: {errno}"),
    }
}
