//! Commands about the host memory cache.

use super::{DONE, Executed, REFUSED};
use crate::chip::Context;
use crate::rdma::RdmaEngine;
use crate::rdma::access::{aligned, reached};
use crate::rdma::hmc::{capacity, lay_out};
use crate::rdma::objects::completion_queue::{LateAcknowledgements, LateArms};
use crate::rdma::regions::RegionTable;
use ringside_bus::Iova;
use ringside_spec::rdma::commands::{CommitFpm, QueryFpm, StaticHmcPagesAllocated, UpdateSegments};
use ringside_spec::rdma::fpm::{self, BUFFER_WORDS, ObjectType};
use ringside_spec::rdma::limits::{
    CONTROL_BUFFER_ALIGNMENT, FPM_BUFFER_BYTES, SEGMENT_LIST_ALIGNMENT,
};
use ringside_spec::rdma::segments::{PAGES_PER_SEGMENT, SEGMENT_BYTES, SegmentEntry};

impl RdmaEngine {
    fn check_function(&self, index: u8, context: &mut Context<'_>) -> Result<(), ()> {
        if index == self.hmc_function {
            return Ok(());
        }
        context.ledger.breach(
            "a command names another function of the host memory cache",
            || format!("{index}, this is {}", self.hmc_function),
        );
        Err(())
    }

    pub(super) fn query_fpm(&mut self, command: &QueryFpm, context: &mut Context<'_>) -> Executed {
        let address = command.buffer_address;
        let good = self
            .check_function(command.hmc_function_index, context)
            .is_ok()
            && aligned(context, "FPM buffer", address, CONTROL_BUFFER_ALIGNMENT);
        if !good {
            return Err(REFUSED);
        }
        let words = self.objects.hmc.limits().encode();
        let written = context.memory.write_words(Iova(address), &words);
        reached(context, "FPM buffer", written).ok_or(REFUSED)?;
        DONE
    }

    pub(super) fn commit_fpm(
        &mut self,
        command: &CommitFpm,
        context: &mut Context<'_>,
    ) -> Executed {
        let address = Iova(command.buffer_address);
        let good = self
            .check_function(command.hmc_function_index, context)
            .is_ok()
            && aligned(context, "FPM buffer", address.0, CONTROL_BUFFER_ALIGNMENT);
        if !good {
            return Err(REFUSED);
        }
        // A longer buffer is a newer driver's, whose further words are for later generations.
        if (command.buffer_length as usize) < FPM_BUFFER_BYTES {
            return Self::refuse(context, "COMMIT_FPM with a wrong length", REFUSED, || {
                format!(
                    "{} bytes, at least {FPM_BUFFER_BYTES} are needed",
                    command.buffer_length
                )
            });
        }
        if self.has_objects() {
            return Self::refuse(
                context,
                "COMMIT_FPM while objects exist",
                super::CommandFailure::InvalidState,
                || "destroy all queues and tags first".into(),
            );
        }
        let words = context.memory.read_words(address);
        let words: [u64; BUFFER_WORDS] = reached(context, "FPM buffer", words).ok_or(REFUSED)?;
        let wanted = fpm::FpmCommit::decode(&words);
        let Some((granted, cut)) = lay_out(&wanted, self.objects.hmc.first_segment()) else {
            return Self::refuse(
                context,
                "COMMIT_FPM asks for more than the segments hold",
                REFUSED,
                || format!("{:?}", wanted.0),
            );
        };
        if let Some(object) = cut {
            context
                .ledger
                .breach("COMMIT_FPM asks for more than the device has", || {
                    format!("{} of {}", wanted.0[object].count, object.name())
                });
        }
        let written = context.memory.write_words(address, &granted.encode());
        reached(context, "FPM buffer", written).ok_or(REFUSED)?;
        self.objects.hmc.commit(granted);
        self.size_tables();
        DONE
    }

    /// Makes tables for the granted objects.
    fn size_tables(&mut self) {
        fn empty<T>(count: u32) -> Vec<Option<T>> {
            (0..count).map(|_| None).collect()
        }
        let hmc = &self.objects.hmc;
        self.queue_pairs = empty(hmc.count(ObjectType::QueuePair));
        self.objects.completion_queues = empty(hmc.count(ObjectType::CompletionQueue));
        self.objects.late_acknowledgements = LateAcknowledgements::default();
        self.objects.late_arms = LateArms::default();
        self.objects.former_queue_pairs.clear();
        self.objects.completion_event_queues = empty(capacity().max_ceqs.into());
        self.objects.regions = RegionTable::new(hmc.count(ObjectType::MemoryRegion));
        let addresses = hmc.count(ObjectType::Arp).min(1 << 16);
        self.objects.arp.clear(addresses);
    }

    pub(super) fn update_segments(
        &mut self,
        command: &UpdateSegments,
        context: &mut Context<'_>,
    ) -> Executed {
        if self
            .check_function(command.hmc_function_index, context)
            .is_err()
        {
            return Err(REFUSED);
        }
        for entry in command.inline_entries() {
            self.update_segment(entry, context)?;
        }
        let listed = usize::from(command.list_entries);
        if listed > UpdateSegments::LISTED_ENTRIES {
            return Self::refuse(context, "a segment list is too long", REFUSED, || {
                format!("{listed} entries")
            });
        }
        let list = command.list_address();
        if listed > 0 {
            aligned(context, "segment list", list, SEGMENT_LIST_ALIGNMENT);
        }
        for index in 0..listed {
            let at = Iova(list).add(index as u64 * 16);
            let words = context.memory.read_words(at);
            let words = reached(context, "segment list", words).ok_or(REFUSED)?;
            self.update_segment(SegmentEntry::from_words(words), context)?;
        }
        DONE
    }

    fn update_segment(&mut self, entry: SegmentEntry, context: &mut Context<'_>) -> Executed {
        let index = entry.command.segment_index();
        let wrong = entry.reserved_bits() != [0, 0]
            || !entry.command.write()
            || !entry.command.rdma_partition();
        if wrong {
            context
                .ledger
                .breach("a segment entry is malformed", || format!("{entry:x?}"));
        }
        let data = entry.data;
        if index >= self.objects.hmc.segment_count() as u64 {
            return Self::refuse(
                context,
                "a segment beyond those of the function",
                REFUSED,
                || format!("segment {index}"),
            );
        }
        if !data.valid() {
            self.check_segment_unused(index, context);
        } else {
            self.check_backing(&entry, context);
        }
        self.objects.hmc.set_segment(index, data);
        DONE
    }

    /// Counts a breach if a segment is removed while it holds objects.
    fn check_segment_unused(&self, index: u64, context: &mut Context<'_>) {
        let uses = [
            (
                ObjectType::QueuePair,
                self.queue_pairs.iter().any(Option::is_some),
            ),
            (
                ObjectType::CompletionQueue,
                self.objects.completion_queues.iter().any(Option::is_some),
            ),
            (
                ObjectType::MemoryRegion,
                self.objects.regions.in_use().next().is_some(),
            ),
        ];
        for (object, used) in uses {
            let segments = self.objects.hmc.object_segments(object);
            if used && segments.is_some_and(|segments| segments.contains(&index)) {
                context
                    .ledger
                    .breach("a segment is cleared while objects live in it", || {
                        format!("segment {index}: {}", object.name())
                    });
            }
        }
    }

    fn check_backing(&self, entry: &SegmentEntry, context: &mut Context<'_>) {
        let index = entry.command.segment_index();
        if self.objects.hmc.segment(index).is_some() {
            context
                .ledger
                .breach("a segment is backed twice", || format!("segment {index}"));
        }
        let pages = entry.data.page_count();
        if pages != u64::from(PAGES_PER_SEGMENT) {
            context
                .ledger
                .breach("a segment is not backed by 512 pages", || {
                    format!("segment {index}: {pages}")
                });
        }
        let (address, bytes) = (Iova(entry.data.address()), SEGMENT_BYTES);
        if entry.data.direct() {
            let access = ringside_bus::function::DmaAccess::ReadWrite;
            let checked = context.memory.check(address, bytes as usize, access);
            reached(context, "backing of a segment", checked);
        }
    }

    pub(super) fn static_pages_allocated(
        &mut self,
        command: &StaticHmcPagesAllocated,
        context: &mut Context<'_>,
    ) -> Executed {
        if self
            .check_function(command.hmc_function_index, context)
            .is_err()
        {
            return Err(REFUSED);
        }
        let hmc = &mut self.objects.hmc;
        let unbacked = ObjectType::ALL
            .into_iter()
            .filter(|object| *object != ObjectType::PageBufferList)
            .find_map(|object| {
                let mut segments = hmc.object_segments(object)?;
                let missing = segments.find(|&index| hmc.segment(index).is_none())?;
                Some((object, missing))
            });
        let committed = hmc.count(ObjectType::QueuePair) > 0;
        if let Some((object, segment)) = unbacked {
            return Self::refuse(
                context,
                "SHMC_PAGES_ALLOCATED before all segments are backed",
                REFUSED,
                || format!("{} in segment {segment}", object.name()),
            );
        }
        if !committed {
            return Self::refuse(
                context,
                "SHMC_PAGES_ALLOCATED before COMMIT_FPM",
                super::CommandFailure::InvalidState,
                String::new,
            );
        }
        hmc.static_pages_allocated = true;
        DONE
    }
}
