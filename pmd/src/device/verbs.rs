//! The verbs of a device: where protection domains, memory and completion queues come from.

use super::Device;
use crate::rdma::engine::Engine;
use crate::rdma::interrupt::Wanted;
use crate::rdma::{
    CompletionQueue, Event, EventQueueReport, Gid, Interrupts, MapError, MulticastGroups,
    ObjectUsage, PortReport, ProtectionDomain, Quarantined, Quotas, RdmaError, RdmaLimits,
    Statistic, Usage,
};
use rand::SeedableRng;
use rand::rngs::StdRng;
use ringside_bus::{DmaBuffer, Memory, PageSize};
use ringside_config::{LocalAddress, is_link_local};
use std::net::IpAddr;
use std::sync::Arc;

impl Device {
    pub(crate) fn engine(&self) -> Result<&Arc<Engine>, RdmaError> {
        self.check_process()?;
        let context = self.context();
        if let Some(cause) = self.down {
            return Err(RdmaError::DeviceFailed { cause });
        }
        context.engine.as_ref().ok_or_else(|| {
            let reason = context.facts.rdma_unavailable.clone();
            RdmaError::Unavailable {
                reason: reason.unwrap_or_else(|| "its bring-up had no RDMA stages".to_owned()),
            }
        })
    }

    /// A protection domain.
    pub fn protection_domain(&self) -> Result<ProtectionDomain, RdmaError> {
        self.protection_domain_with(Quotas::default())
    }

    /// A protection domain that may have only so much.
    pub fn protection_domain_with(&self, quotas: Quotas) -> Result<ProtectionDomain, RdmaError> {
        ProtectionDomain::new(Arc::clone(self.engine()?), quotas)
    }

    /// True if `domain` is one of this device, also of an earlier period of service.
    #[must_use]
    pub fn owns(&self, domain: &ProtectionDomain) -> bool {
        Arc::ptr_eq(self.context().shut_down_flag(), domain.shut_down_flag())
    }

    /// Objects whose destruction the device never confirmed, oldest first. Their memory is not used
    /// again before the device was reset. Then regions that were dropped while a window was bound
    /// to them: their memory is free once the window is closed or dropped.
    pub fn quarantine(&self) -> Result<Vec<Quarantined>, RdmaError> {
        Ok(self.engine()?.state().quarantined())
    }

    /// Lets [`Event::PeerSuspected`] come once a peer has done so much wrong, counted over all its
    /// queue pairs; again after as much more. 0 takes that back.
    pub fn watch_peers(&self, faults: u32) -> Result<(), RdmaError> {
        self.engine()?.open_state()?.peers.watch(faults);
        Ok(())
    }

    /// Zeroed memory that the device can reach, contiguous for it: `length` bytes, rounded up to
    /// 64, at a page.
    pub fn allocate(&self, length: usize) -> Result<DmaBuffer, RdmaError> {
        self.allocate_aligned(length, PageSize::FourKiB)
    }

    /// The same, at a larger page: what [`ProtectionDomain::register_all`] lists in few entries.
    pub fn allocate_aligned(
        &self,
        length: usize,
        alignment: PageSize,
    ) -> Result<DmaBuffer, RdmaError> {
        let pool = self.pool().ok_or(RdmaError::ShutDown)?;
        Ok(pool.allocate(length, alignment.bytes())?)
    }

    /// Memory of the application, given to the device: owned bytes (`Vec<u8>`, `Box<[u8]>`), a
    /// memfd ([`Memory::from_descriptor`]), or a range that the caller vouches for
    /// ([`Memory::from_raw`]). Register the buffer with [`ProtectionDomain::register`];
    /// [`DmaBuffer::into_memory`] gives the memory back afterwards.
    ///
    /// One mapping of the device for each buffer. Over vfio-user the server maps a file that is
    /// sealed against shrinking (`F_SEAL_SHRINK`). All other memory it reads and writes through the
    /// file of this process' address space, which takes longer: the program must be able to open
    /// `/proc/self/mem` when it opens the device.
    pub fn map_memory(&self, memory: impl Into<Memory>) -> Result<DmaBuffer, MapError> {
        let memory = memory.into();
        let Some(pool) = self.pool() else {
            let error = RdmaError::ShutDown;
            return Err(MapError { error, memory });
        };
        pool.map(memory).map_err(|(error, memory)| MapError {
            error: error.into(),
            memory,
        })
    }

    /// A completion queue for that many completions, 1..=524287. It may hold more.
    ///
    /// It reports to completion event queue 0. [`Device::completion_queue_on`] chooses another.
    pub fn completion_queue(&self, completions: u32) -> Result<CompletionQueue, RdmaError> {
        self.completion_queue_on(completions, 0)
    }

    /// The same, reporting to completion event queue `event_queue`: 0..[`Device::event_queues`].
    /// Its events raise the vector of that queue, and no other.
    ///
    /// Verbs: `comp_vector` of `ibv_create_cq`. Errors: [`RdmaError::OutOfRange`].
    pub fn completion_queue_on(
        &self,
        completions: u32,
        event_queue: u16,
    ) -> Result<CompletionQueue, RdmaError> {
        CompletionQueue::new(Arc::clone(self.engine()?), completions, event_queue)
    }

    /// The completion event queues, with the vector and the counted events of each. Their number is
    /// `rdma.event_queues`, or the number of `worker.cores`, limited by the vectors of the
    /// function.
    ///
    /// Verbs: `num_comp_vectors`. Control path.
    pub fn event_queues(&self) -> Result<Vec<EventQueueReport>, RdmaError> {
        let core = |number| self.config().core_of_event_queue(number);
        self.engine()?.event_queues(core)
    }

    /// Takes the device's reports other than completions, acts on them, and appends them to
    /// `events`; returns how many there were.
    ///
    /// Has to be called from time to time: the requests of a failed queue pair complete only after
    /// it, and so do those of a failed device that did not answer at first: see
    /// [`Device::is_contained`]. Control path: takes a lock and waits for the device.
    ///
    /// Errors: the first command that failed; the events are appended all the same.
    pub fn poll_events(&self, events: &mut Vec<Event>) -> Result<usize, RdmaError> {
        let asked = self.take_release_request(events);
        self.silence_again();
        Ok(asked + self.engine()?.poll_events(events)?)
    }

    /// Takes completion events: appends the numbers of the armed completion queues that have
    /// something to poll, and returns how many there were. Each has to be armed again.
    ///
    /// Control path: takes a lock and writes a register for each.
    pub fn poll_completion_events(&self, queues: &mut Vec<u32>) -> Result<usize, RdmaError> {
        self.engine()?.poll_completion_events(None, queues)
    }

    /// The same for one completion event queue: for the worker that sleeps on its vector.
    ///
    /// Errors: [`RdmaError::OutOfRange`] if no event queue has this number.
    pub fn poll_completion_events_of(
        &self,
        event_queue: u16,
        queues: &mut Vec<u32>,
    ) -> Result<usize, RdmaError> {
        let engine = self.engine()?;
        engine.poll_completion_events(Some(event_queue), queues)
    }

    /// Connects the interrupt of completion event queue 0; one owner at a time. It is raised by
    /// asynchronous events too, unless [`Device::event_interrupts`] has them.
    ///
    /// Errors: [`RdmaError::InterruptTaken`], [`RdmaError::NoInterrupts`], [`RdmaError::System`].
    pub fn interrupts(&self) -> Result<Interrupts, RdmaError> {
        self.interrupts_of(0)
    }

    /// Connects the interrupt of one completion event queue: only completion queues that report to
    /// it raise it. One owner for each queue. With `worker.bind_interrupts`, the interrupt of a
    /// card is bound to the core of the queue's worker; a warning says why it is not.
    ///
    /// Errors: those of [`Device::interrupts`], and [`RdmaError::OutOfRange`] for a number that is
    /// none.
    pub fn interrupts_of(&self, event_queue: u16) -> Result<Interrupts, RdmaError> {
        self.connect_interrupt(Wanted::Completions(event_queue))
    }

    /// Connects the miscellaneous interrupt: asynchronous events, reports of the firmware, failures
    /// of the device. For the thread that calls [`Device::supervise`] or [`Device::observe`].
    ///
    /// Errors: those of [`Device::interrupts`].
    pub fn event_interrupts(&self) -> Result<Interrupts, RdmaError> {
        self.connect_interrupt(Wanted::Events)
    }

    fn connect_interrupt(&self, wanted: Wanted) -> Result<Interrupts, RdmaError> {
        let connected = Interrupts::connect(Arc::clone(self.engine()?), wanted)?;
        self.bind_interrupts();
        Ok(connected)
    }

    /// The counters of the RDMA engine and the port, under the names that Linux shows: those of
    /// `hw_counters` and of `ethtool -S`. They count from 0 again after a recovery. Control path: a
    /// command of the RDMA engine and a register read for each counter of the port.
    ///
    /// The device's counters wrap. At 100 Gbit/s those of the port's bytes, 40 bits, do so every 88
    /// s; those of the engine's bytes, 48 bits, every 6 h; those of packets of 32 bits (discarded
    /// ones, errors) every 28 s at the earliest. [`Device::observe`] and [`Device::supervise`] read
    /// them every 10 s; a program that calls neither of the two calls this at least every 25 s.
    /// Seven counters of errors have 24 bits: they lose counts above 1.6 million errors a second.
    pub fn statistics(&self) -> Result<Vec<Statistic>, RdmaError> {
        self.engine()?.statistics()
    }

    /// The port, as `ibv_query_port` shows it. Control path: a command of the firmware.
    pub fn query_port(&self) -> Result<PortReport, RdmaError> {
        self.engine()?.query_port()
    }

    /// The IP addresses that its queue pairs may send from, in the order of the GID table; the
    /// first one is the default.
    pub fn local_addresses(&self) -> Result<Vec<IpAddr>, RdmaError> {
        Ok(self.engine()?.gids().addresses())
    }

    /// The GID table: the addresses of the port and their indexes. An index stays the same as long
    /// as its address is there. Other programs count in another order: [`Device::verbs_gids`].
    ///
    /// Verbs: `ibv_query_gid_table`.
    pub fn gids(&self) -> Result<Vec<Gid>, RdmaError> {
        Ok(self.engine()?.gids().all())
    }

    /// The GID table as programs of verbs count it: link-local addresses first, as on Linux, then
    /// the others in their order. The place of an entry is its index in the C library and for
    /// `ringside info` and `ringside bench -x`, until an address comes or goes; queue pairs take
    /// [`Gid::index`].
    ///
    /// Verbs: `ibv_query_gid`.
    pub fn verbs_gids(&self) -> Result<Vec<Gid>, RdmaError> {
        let mut gids = self.gids()?;
        // Stable: the others stay in their order.
        gids.sort_by_key(|gid| !is_link_local(gid.address.address));
        Ok(gids)
    }

    /// The multicast groups that its queue pairs are in, of this period of service: they change
    /// with [`QueuePair::join`](crate::rdma::QueuePair::join). For an IP stack that reports them.
    pub fn multicast_groups(&self) -> Result<Arc<MulticastGroups>, RdmaError> {
        Ok(Arc::clone(&self.engine()?.groups))
    }

    /// Adds an address while the device is in service, at the first free index, and returns its
    /// entry. [`Event::GidChange`] comes with the next events. Queue pairs and address handles may
    /// send from it at once; the table is the same after a recovery.
    ///
    /// The port answers ARP and neighbour discovery for it where a stack runs: add it there too.
    ///
    /// Errors: [`RdmaError::GidExists`], [`RdmaError::AddressesFull`] beyond 64, and
    /// [`RdmaError::BadAddress`] if it is none of a host, or its prefix or VLAN does not exist.
    pub fn add_address(&self, address: LocalAddress) -> Result<Gid, RdmaError> {
        self.engine()?.add_gid(address)
    }

    /// Removes an address; `vlan` as it was added. [`Event::GidChange`] comes with the next events.
    /// Queue pairs and address handles that send from it go on as they are.
    ///
    /// Errors: [`RdmaError::NoSuchGid`].
    pub fn remove_address(&self, address: IpAddr, vlan: Option<u16>) -> Result<Gid, RdmaError> {
        self.engine()?.remove_gid(address, vlan)
    }

    /// Lets keys, numbers and sequence numbers follow from `seed` from now on, so that a simulation
    /// can be run again. Peers can then guess them: not for service.
    pub fn use_predictable_numbers(&self, seed: u64) -> Result<(), RdmaError> {
        self.engine()?.open_state()?.names.random = StdRng::seed_from_u64(seed);
        Ok(())
    }

    /// Its limits.
    pub fn rdma_limits(&self) -> Result<RdmaLimits, RdmaError> {
        let state = self.engine()?.open_state()?;
        Ok(RdmaLimits::of(&state.objects))
    }

    /// Objects in use.
    pub fn object_usage(&self) -> Result<ObjectUsage, RdmaError> {
        let engine = self.engine()?;
        let (lists, host_memory_cache_bytes) = {
            let memory = engine.memory();
            let memory = memory.as_ref().ok_or(RdmaError::ShutDown)?;
            (memory.page_lists.usage(), memory.backed_bytes())
        };
        let state = engine.open_state()?;
        let of = |numbers: &crate::rdma::numbers::Numbers| Usage {
            used: numbers.used(),
            limit: numbers.quota(),
        };
        let objects = &state.objects;
        Ok(ObjectUsage {
            queue_pairs: of(objects.queue_pairs.numbers()),
            completion_queues: of(objects.completion_queues.numbers()),
            memory_regions: of(objects.regions.numbers()),
            address_handles: of(objects.address_handles.numbers()),
            multicast_groups: of(objects.multicast_groups.numbers()),
            protection_domains: of(&objects.protection_domains),
            page_list_entries: Usage {
                used: lists.total - lists.free,
                limit: lists.total,
            },
            host_memory_cache_bytes,
        })
    }
}
