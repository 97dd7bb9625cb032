//! The part of a recording that a command points to.

use crate::chip::Context;
use crate::rdma::RdmaEngine;
use crate::record::{Buffer, ControlCommand, ControlQueueCreated, Event};
use ringside_bus::Iova;
use ringside_spec::rdma::commands::{Command, PageList};
use ringside_spec::rdma::layout::to_bytes;
use ringside_spec::rdma::limits::{
    CQP_CONTEXT_BYTES, FEATURE_BUFFER_BYTES, FPM_BUFFER_BYTES, QP_CONTEXT_BYTES,
    STATISTICS_BUFFER_BYTES,
};

/// Entries of a page list that are kept at most.
const MAX_PAGE_LIST_ENTRIES: u64 = 64;

/// Bytes of the page behind an entry of a list, where the command does not name the size.
const RING_PAGE_BYTES: u64 = 4096;

/// Something that a command points to.
enum Pointer {
    /// Name, I/O virtual address, bytes.
    Memory(&'static str, u64, usize),
    /// First entry and how many.
    PageList(u64, u64),
}

/// Entries of a list of pages; of a list of lists the roots.
fn page_list(levels: PageList, first: u32, bytes: u64, page_bytes: u64) -> Option<Pointer> {
    let pages = bytes.div_ceil(page_bytes.max(1));
    let entries = match levels {
        PageList::OneLevel => pages,
        PageList::TwoLevels => pages.div_ceil(512),
        _ => return None,
    };
    Some(Pointer::PageList(
        first.into(),
        entries.min(MAX_PAGE_LIST_ENTRIES),
    ))
}

fn ring(is_virtual: bool, levels: PageList, first: u32, bytes: u64) -> Option<Pointer> {
    page_list(levels, first, bytes, RING_PAGE_BYTES).filter(|_| is_virtual)
}

/// The memory that a command points to, if executing it reads or writes it.
fn pointer(command: &Command) -> Option<Pointer> {
    use Pointer::Memory;
    let context = |address| Memory("queue pair context", address, QP_CONTEXT_BYTES);
    let limits = |address| Memory("function private memory", address, FPM_BUFFER_BYTES);
    Some(match command {
        Command::CreateQueuePair(it) => context(it.host_context_address),
        Command::ModifyQueuePair(it) => context(it.host_context_address),
        Command::UploadContext(it) => context(it.buffer_address),
        Command::QueryFpm(it) => limits(it.buffer_address),
        Command::CommitFpm(it) => limits(it.buffer_address),
        Command::QueryFeatures(it) => Memory(
            "features",
            it.buffer_address,
            FEATURE_BUFFER_BYTES.min(it.buffer_length as usize),
        ),
        Command::GatherStatistics(it) => {
            Memory("statistics", it.buffer_address, STATISTICS_BUFFER_BYTES)
        }
        Command::UpdateSegments(it) => Memory(
            "segment list",
            it.list_address(),
            usize::from(it.list_entries) * 16,
        ),
        Command::CreateMulticastGroup(it) => {
            Memory("multicast members", it.member_list_address, 4096)
        }
        Command::ModifyMulticastGroup(it) => {
            Memory("multicast members", it.member_list_address, 4096)
        }
        Command::RegisterMemoryRegion(it) => {
            let page = it.page_size.bytes().unwrap_or(RING_PAGE_BYTES);
            page_list(
                it.pble_levels_code,
                it.first_pble_index,
                it.length_bytes,
                page,
            )?
        }
        Command::CreateCompletionQueue(it) => {
            let bytes = u64::from(it.size_entries) * if it.extended_cqe { 64 } else { 32 };
            ring(
                it.ring_virtual,
                it.pble_levels_code,
                it.first_pble_index,
                bytes,
            )?
        }
        Command::CreateAsynchronousEventQueue(it) => ring(
            it.ring_virtual,
            it.pble_levels_code,
            it.first_pble_index,
            u64::from(it.size_entries) * 16,
        )?,
        _ => return None,
    })
}

impl RdmaEngine {
    fn fetch_pointer(&self, pointer: &Pointer, context: &Context<'_>) -> Vec<u8> {
        match *pointer {
            Pointer::Memory(_, address, bytes) => {
                let mut read = vec![0; bytes];
                // The command itself counts the breach for memory that cannot be read.
                if context.memory.read(Iova(address), &mut read).is_err() {
                    read.clear();
                }
                read
            }
            Pointer::PageList(first, entries) => {
                let hmc = &self.objects.hmc;
                let entry =
                    |index| hmc.peek_page_list_entry(first.saturating_add(index), context.memory);
                let words: Vec<u64> = (0..entries).map_while(entry).collect();
                to_bytes(&words)
            }
        }
    }

    /// The control queue pair came to be, or did not.
    pub(super) fn record_control_queue(&self, address: u64, created: bool, context: &Context<'_>) {
        let Some(tap) = &self.tap else {
            return;
        };
        let pointer = Pointer::Memory("CQP context", address, CQP_CONTEXT_BYTES);
        let made = ControlQueueCreated {
            address,
            context: self.fetch_pointer(&pointer, context),
            created,
        };
        tap.note(context.now, Event::ControlQueue(made));
    }

    /// The record before the command is executed; `None` without a recorder.
    pub(super) fn begin_record(
        &self,
        index: u32,
        words: &[u64; 8],
        context: &Context<'_>,
    ) -> Option<ControlCommand> {
        self.tap.as_ref()?;
        let pointer = Command::decode(words).ok().and_then(|it| pointer(&it));
        let buffers = pointer.map(|pointer| {
            let (name, address) = match pointer {
                Pointer::Memory(name, address, _) => (name, address),
                Pointer::PageList(first, _) => ("page list", first),
            };
            Buffer {
                name: name.into(),
                address,
                before: self.fetch_pointer(&pointer, context),
                after: None,
            }
        });
        Some(ControlCommand {
            index,
            element: *words,
            buffers: buffers
                .into_iter()
                .filter(|it| !it.before.is_empty())
                .collect(),
            completion: None,
        })
    }

    /// Adds the changes of the command, and records it.
    pub(super) fn end_record(
        &self,
        begun: Option<ControlCommand>,
        completion: Option<[u64; 4]>,
        context: &Context<'_>,
    ) {
        let (Some(tap), Some(mut command)) = (&self.tap, begun) else {
            return;
        };
        for buffer in &mut command.buffers {
            if buffer.name == "page list" {
                continue;
            }
            let mut now = vec![0; buffer.before.len()];
            let read = context.memory.read(Iova(buffer.address), &mut now);
            buffer.after = Some(now).filter(|now| read.is_ok() && *now != buffer.before);
        }
        command.completion = completion;
        tap.note(context.now, Event::Control(command));
    }
}
