//! Completion queues.

mod made;
mod resizing;

use crate::abi::{
    cq_init, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_pd,
    ibv_srq, ibv_wc,
};
use crate::cancel::Uncancelled;
use crate::completion_channel::ChannelObject;
use crate::context_object::ContextObject;
use crate::device::lock;
use crate::errno;
use crate::giving_way::{give_way, gives_way};
use crate::guarded::{Guarded, Held};
use crate::live::{self, Kind};
use crate::memory::DomainObject;
use crate::shared::feeds::Feeds;
use crate::work_completion::{convert, flushed};
use made::Made;
use ringside_pmd::rdma::{
    Announced, Completion, CompletionQueue, CompletionTarget, Earlier, Elsewhere,
};
use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Completions that are taken from the device at a time.
const BATCH: usize = 32;

/// Events that a program read and acknowledged.
#[derive(Default)]
pub(crate) struct EventCounts {
    pub(crate) read: u32,
    pub(crate) acknowledged: u32,
}

/// State that polling changes.
pub(crate) struct Polled {
    pub(crate) queue: CompletionQueue,
    /// the shared receive queues of queue pairs that report receives here
    feeds: Feeds,
    /// polls that found nothing since one that did, or since others got the core
    empty: u32,
    /// completions on their way to the program
    batch: [Completion; BATCH],
    pub(crate) announced: Announced,
}

impl Polled {
    fn new(queue: CompletionQueue) -> Self {
        Self {
            queue,
            feeds: Feeds::default(),
            empty: 0,
            batch: [Completion::EMPTY; BATCH],
            announced: Announced::default(),
        }
    }
}

/// A completion queue. The public part is as long as the extended form.
#[repr(C)]
pub(crate) struct CompletionObject {
    pub(crate) public: ibv_cq_ex,
    /// the queue, from `ibv_start_poll` to `ibv_end_poll`; used by its holder alone
    pub(crate) open: UnsafeCell<Option<Held<'static, Polled>>>,
    /// the thread that has a completion open, by its number; 0 if none has
    pub(crate) opener: AtomicUsize,
    pub(crate) polled: Guarded<Polled>,
    made: Made,
    /// the completion that is open
    pub(crate) current: Cell<ibv_wc>,
    pub(crate) target: CompletionTarget,
    is_model: bool,
    /// the parent domain that it was made for, or null
    domain: *mut ibv_pd,
    /// the program wants an event for the next completion
    pub(crate) is_armed: AtomicBool,
    pub(crate) counts: Mutex<EventCounts>,
    pub(crate) counted: Condvar,
    /// queue pairs that report to it
    pub(crate) users: AtomicU32,
    /// of the port
    are_requests_late: Arc<AtomicBool>,
}

impl CompletionObject {
    /// # Safety
    /// `queue` came from [`ibv_create_cq`] and is not destroyed while the result is used.
    pub(crate) unsafe fn of<'a>(queue: *mut ibv_cq) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*queue.cast() }
    }

    /// The device has an event for it, or messages that waited for receives can be polled, or
    /// requests of a failed queue pair, or a completion that the library made: tells the program,
    /// if it wants to be told of the next completion. It is told once: the library may be faster
    /// than the device, whose event then comes unasked.
    pub(crate) fn notify(&self) {
        if self.public.cq.channel.is_null() || !self.is_armed.swap(false, Ordering::AcqRel) {
            return;
        }
        // SAFETY: a channel outlives its queues: it refuses to go before.
        let channel = unsafe { ChannelObject::of(self.public.cq.channel) };
        channel.events.push(&raw const self.public as usize);
    }

    /// Completions that the program takes from this queue beside those of the driver's.
    pub(crate) fn elsewhere(&self, polled: &Polled) -> Elsewhere {
        Elsewhere {
            ready: polled.feeds.ready(&raw const self.public as usize),
            // A message that is held was polled, and the program did not get it.
            taken: self.made.taken().wrapping_sub(polled.feeds.waiting()),
        }
    }

    /// True if polls give failures of which no event tells, whatever events were given: those that
    /// the library made may have to wait for others, and the receives of a shared queue belong to
    /// several completion queues. While a failed device does not answer, polls give only those that
    /// the library made and that wait for no other.
    pub(crate) fn owes_events(&self, polled: &Polled) -> bool {
        match self.are_requests_late.load(Ordering::Acquire) {
            false => self.has_made() || polled.feeds.owe_flushed(),
            true => self.made.has_next(),
        }
    }

    pub(crate) fn has_made(&self) -> bool {
        self.made.waiting() > 0
    }

    /// A queue pair with a shared receive queue reports here.
    pub(crate) fn share(&self, with: *mut ibv_srq, queue_pair: u32) {
        self.with_polled(|polled| polled.feeds.add(with as usize, queue_pair));
    }

    /// Removes a queue pair of a shared receive queue. True if it was the last one.
    pub(crate) fn stop_sharing(&self, with: *mut ibv_srq, queue_pair: u32) -> bool {
        self.with_polled(|polled| polled.feeds.remove(with as usize, queue_pair))
    }

    /// Adds completions of requests that the device never saw, of one side of a queue pair, to be
    /// polled once all `earlier` ones of it are: the driver refuses requests as soon as it knows
    /// that the queue pair failed, a little before it flushes the outstanding ones.
    ///
    /// Errors: `ENOMEM`, and none is added, if more than `capacity` of the same queue pair and
    /// opcode would wait to be polled. Requests that are outstanding at the device do not count.
    pub(crate) fn complete(
        &self,
        completions: impl Iterator<Item = ibv_wc> + Clone,
        earlier: Option<&Earlier>,
        capacity: u32,
    ) -> Result<(), c_int> {
        if !self.made.put(completions, earlier, capacity) {
            return Err(libc::ENOMEM);
        }
        // Either this sees that the program armed the queue, or its next poll sees the completion.
        fence(Ordering::SeqCst);
        self.notify();
        Ok(())
    }

    /// Drops what was added for a queue pair that is destroyed or reset.
    pub(crate) fn forget(&self, queue_pair: u32) {
        self.made.forget(queue_pair);
        self.take_requests();
    }

    /// Tells the queue which queue pairs were made and destroyed, as its next poll would: programs
    /// make and destroy any number without a poll. Not while another call has the queue, nor for
    /// one without a lock: it polls, or it is the program's to poll.
    pub(crate) fn take_requests(&self) {
        if let Some(mut polled) = self.polled.try_hold() {
            polled.queue.take_requests();
        }
    }

    /// The address of its ring for the device; `None` if that is out of service.
    #[cfg(test)]
    pub(crate) fn ring(&self) -> Option<ringside_bus::Iova> {
        let report = self.polled.hold().queue.query().ok()?;
        Some(ringside_bus::Iova(report.ring))
    }

    /// Takes one completion into `place`; false if there is none.
    #[inline(always)]
    pub(crate) fn take_one(&self, polled: &mut Polled, place: &mut MaybeUninit<ibv_wc>) -> bool {
        let mut taken = Completion::EMPTY;
        let is_taken = if polled.feeds.is_empty() {
            polled.queue.poll_one(&mut taken)
        } else {
            self.take_one_shared(polled, &mut taken)
        };
        if is_taken {
            polled.empty = 0;
            convert(&taken, place);
            return true;
        }
        self.made.take(place)
    }

    #[cold]
    #[inline(never)]
    fn take_one_shared(&self, polled: &mut Polled, taken: &mut Completion) -> bool {
        let Polled { queue, feeds, .. } = polled;
        let place = std::slice::from_mut(taken);
        !self.take_shared(queue, feeds, place).is_empty()
    }

    /// Takes completions of queue pairs that shared receive queues feed, and feeds them.
    fn take_shared<'b>(
        &self,
        queue: &mut CompletionQueue,
        feeds: &mut Feeds,
        place: &'b mut [Completion],
    ) -> &'b [Completion] {
        // SAFETY: a context outlives its objects.
        let port = unsafe { &ContextObject::of(self.public.cq.context).port };
        let owner = &raw const self.public as usize;
        let count = feeds.poll(port, queue, owner, place);
        place.get(..count).unwrap_or(&[])
    }

    /// Takes up to `wanted` completions; returns their number.
    ///
    /// # Safety
    /// `into` has room for them.
    #[inline(never)]
    unsafe fn take_many(&self, polled: &mut Polled, wanted: usize, into: *mut ibv_wc) -> usize {
        let mut done = 0;
        while done < wanted {
            let room = (wanted - done).min(BATCH);
            let Polled {
                queue,
                feeds,
                batch,
                ..
            } = &mut *polled;
            let place = batch.get_mut(..room).unwrap_or(&mut []);
            let taken = if feeds.is_empty() {
                queue.poll(place)
            } else {
                self.take_shared(queue, feeds, place)
            };
            for completion in taken {
                // SAFETY: fewer than `wanted` were written so far.
                convert(completion, unsafe { &mut *into.add(done).cast() });
                done += 1;
            }
            if taken.len() < room {
                break;
            }
        }
        if done > 0 {
            polled.empty = 0;
        }
        // SAFETY: as above.
        while done < wanted && self.made.take(unsafe { &mut *into.add(done).cast() }) {
            done += 1;
        }
        // After an empty poll `gave_way` does this.
        if (1..wanted).contains(&done) {
            self.found_last(polled);
        }
        done
    }

    /// A poll of this queue found nothing. Gives the core away, if it is time. True if it did:
    /// another look is worth it.
    #[cold]
    pub(crate) fn gave_way(&self) -> bool {
        if self.may_settle() {
            self.settle(&mut self.polled.hold());
        }
        if !self.is_model {
            return false;
        }
        let mut polled = self.polled.hold();
        polled.empty += 1;
        if !gives_way(&raw const *self as usize, polled.empty) {
            return false;
        }
        polled.empty = 0;
        drop(polled);
        give_way();
        true
    }
}

/// # Safety
/// `context` is open; `channel` is null or one of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    completions: c_int,
    program: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let _call = Uncancelled::new();
    let wanted = ibv_cq_init_attr_ex {
        cqe: u32::try_from(completions).unwrap_or(0),
        cq_context: program,
        channel,
        comp_vector: u32::try_from(vector).unwrap_or(u32::MAX),
        wc_flags: 0,
        comp_mask: 0,
        flags: 0,
        parent_domain: std::ptr::null_mut(),
    };
    // SAFETY: the caller's promise.
    match unsafe { make(context, &wanted) } {
        Ok(made) => made.cast(),
        Err(error) => errno::null(error),
    }
}

/// The domain that a completion queue is made for, or null, and the program's promise that one
/// thread uses it.
///
/// # Safety
/// The objects in `wanted` are of this library.
unsafe fn domain_of(
    context: *mut ibv_context,
    wanted: &ibv_cq_init_attr_ex,
) -> Result<(*mut ibv_pd, bool), c_int> {
    let flags = match wanted.comp_mask & cq_init::FLAGS {
        0 => 0,
        _ => wanted.flags,
    };
    if wanted.comp_mask & !(cq_init::FLAGS | cq_init::DOMAIN) != 0
        || flags & !cq_init::SINGLE_THREADED != 0
    {
        return Err(libc::EOPNOTSUPP);
    }
    let mut is_single = flags & cq_init::SINGLE_THREADED != 0;
    if wanted.comp_mask & cq_init::DOMAIN == 0 {
        return Ok((std::ptr::null_mut(), is_single));
    }
    if wanted.parent_domain.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let domain = unsafe { DomainObject::of(wanted.parent_domain) };
    if domain.public.context != context || !domain.is_parent() {
        return Err(libc::EINVAL);
    }
    is_single |= domain.is_single();
    Ok((wanted.parent_domain, is_single))
}

/// Makes a completion queue, whose table of the extended form is empty.
///
/// # Safety
/// `context` is open; the objects in `wanted` are of this library.
pub(crate) unsafe fn make(
    context: *mut ibv_context,
    wanted: &ibv_cq_init_attr_ex,
) -> Result<*mut ibv_cq_ex, c_int> {
    // SAFETY: the caller's promise.
    let object = unsafe { ContextObject::of(context) };
    let completions = c_int::try_from(wanted.cqe).unwrap_or(0);
    let vector = object.port.vectors.check(wanted.comp_vector)?;
    // SAFETY: the caller's promise.
    let channel = unsafe { wanted.channel.as_ref() };
    if completions == 0 || channel.is_some_and(|channel| channel.context != context) {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let (domain, is_single) = unsafe { domain_of(context, wanted) }?;
    let queue = object
        .port
        .device()?
        .completion_queue_on(wanted.cqe, vector);
    let queue = queue.map_err(|error| errno::of(&error))?;
    if !wanted.channel.is_null() {
        object.port.vectors.watch(vector)?;
    }
    let (number, target) = (queue.number(), queue.target());
    // SAFETY: numbers, pointers and functions that may be missing: all zero is a value.
    let mut public: ibv_cq_ex = unsafe { std::mem::zeroed() };
    public.cq.context = context;
    public.cq.channel = wanted.channel;
    public.cq.cq_context = wanted.cq_context;
    public.cq.handle = number;
    public.cq.cqe = completions;
    let made = Box::new(CompletionObject {
        public,
        polled: Guarded::new(Polled::new(queue), is_single),
        made: Made::default(),
        open: UnsafeCell::new(None),
        opener: AtomicUsize::new(0),
        current: Cell::new(flushed(0, 0, 0)),
        is_model: object.port.is_model,
        domain,
        target,
        is_armed: AtomicBool::new(false),
        counts: Mutex::default(),
        counted: Condvar::new(),
        users: AtomicU32::new(0),
        are_requests_late: Arc::clone(&object.port.are_requests_late),
    });
    // SAFETY: the caller's promise.
    unsafe {
        if !wanted.channel.is_null() {
            let channel = ChannelObject::of(wanted.channel);
            channel.users().fetch_add(1, Ordering::Relaxed);
        }
        if !domain.is_null() {
            let domain = DomainObject::of(domain);
            domain.users.fetch_add(1, Ordering::Relaxed);
        }
    }
    let made: *mut ibv_cq_ex = Box::into_raw(made).cast();
    live::enter(made, Kind::CompletionQueue, object.public(), end);
    let mut registry = lock(&object.port.registry);
    registry.completion_queues.insert(number, made as usize);
    Ok(made)
}

/// Destroys a queue that its context has left. Events that were read are not waited for.
///
/// # Safety
/// As for [`ibv_destroy_cq`].
unsafe fn end(queue: usize) -> c_int {
    let queue = queue as *mut ibv_cq;
    // SAFETY: the caller's promise.
    unsafe {
        let mut counts = lock(&CompletionObject::of(queue).counts);
        counts.acknowledged = counts.read;
        drop(counts);
        ibv_destroy_cq(queue)
    }
}

/// Destroys a completion queue: discards unread events, and waits until those that were read are
/// acknowledged.
///
/// # Safety
/// `queue` came from [`ibv_create_cq`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(queue: *mut ibv_cq) -> c_int {
    let _call = Uncancelled::new();
    if let Err(error) = live::expect(queue, &[Kind::CompletionQueue]) {
        return errno::failed(error);
    }
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    if object.users.load(Ordering::Relaxed) > 0 {
        return errno::failed(libc::EBUSY);
    }
    // SAFETY: a context outlives its objects.
    let context = unsafe { ContextObject::of(object.public.cq.context) };
    lock(&context.port.registry)
        .completion_queues
        .remove(&object.public.cq.handle);
    if !object.public.cq.channel.is_null() {
        // SAFETY: the channel outlives its queues.
        let channel = unsafe { ChannelObject::of(object.public.cq.channel) };
        channel.events.withdraw(|event| *event == queue as usize);
        channel.users().fetch_sub(1, Ordering::Relaxed);
        let mut counts = lock(&object.counts);
        while counts.read != counts.acknowledged {
            counts = object
                .counted
                .wait(counts)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
    context.finish_events(queue as usize);
    if !object.domain.is_null() {
        // SAFETY: a domain outlives its objects.
        let domain = unsafe { DomainObject::of(object.domain) };
        domain.users.fetch_sub(1, Ordering::Relaxed);
    }
    live::leave(queue);
    // SAFETY: it is in no table any more, and the caller gives it up.
    drop(unsafe { Box::from_raw(queue.cast::<CompletionObject>()) });
    0
}

/// The slot behind `ibv_poll_cq`.
///
/// # Safety
/// `queue` came from [`ibv_create_cq`]; `into` has room for `count` completions.
pub(crate) unsafe extern "C" fn poll_cq(
    queue: *mut ibv_cq,
    count: c_int,
    into: *mut ibv_wc,
) -> c_int {
    if count != 1 {
        // SAFETY: the caller's promise.
        return unsafe { poll_several(queue, count, into) };
    }
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    // SAFETY: the caller's promise.
    if object.take_one(&mut object.polled.hold(), unsafe { &mut *into.cast() }) {
        return 1;
    }
    // SAFETY: the caller's promise.
    unsafe { look_again(queue, 1, into) }
}

/// Gives the core away after a poll that found nothing, if it is time, and polls once more then.
///
/// # Safety
/// As [`poll_cq`].
#[cold]
#[inline(never)]
unsafe extern "C" fn look_again(queue: *mut ibv_cq, wanted: usize, into: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    if !object.gave_way() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { object.take_many(&mut object.polled.hold(), wanted, into) as c_int }
}

/// As [`poll_cq`], for any count.
///
/// # Safety
/// As [`poll_cq`].
#[inline(never)]
unsafe extern "C" fn poll_several(queue: *mut ibv_cq, count: c_int, into: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    let Ok(wanted) = usize::try_from(count) else {
        return -libc::EINVAL;
    };
    // SAFETY: the caller's promise.
    match unsafe { object.take_many(&mut object.polled.hold(), wanted, into) } {
        // SAFETY: the caller's promise.
        0 => unsafe { look_again(queue, wanted, into) },
        done => done as c_int,
    }
}
