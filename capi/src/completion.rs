//! Completion queues and completion channels.

use crate::abi::{
    completed, ibv_comp_channel, ibv_context, ibv_cq, ibv_srq, ibv_wc, status, wc_flags,
};
use crate::channel::EventQueue;
use crate::context_object::ContextObject;
use crate::device::lock;
use crate::errno;
use crate::shared::SharedObject;
use ringside_pmd::rdma::{
    Completion, CompletionQueue, CompletionTarget, Notify, Operation, Status,
};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Completions that are taken from the device at a time.
const BATCH: usize = 32;
/// Polls in a row that find nothing, after which the model gets the core.
const EMPTY_POLLS: u32 = 64;

/// A completion channel.
#[repr(C)]
pub(crate) struct ChannelObject {
    public: ibv_comp_channel,
    events: EventQueue<usize>,
    users: AtomicU32,
}

impl ChannelObject {
    /// # Safety
    /// `channel` came from [`ibv_create_comp_channel`] and is not destroyed while the result is
    /// used.
    unsafe fn of<'a>(channel: *mut ibv_comp_channel) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*channel.cast() }
    }
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    match EventQueue::new() {
        Ok(events) => {
            let made = Box::new(ChannelObject {
                public: ibv_comp_channel {
                    context,
                    fd: events.descriptor(),
                    refcnt: 0,
                },
                events,
                users: AtomicU32::new(0),
            });
            Box::into_raw(made).cast()
        }
        Err(error) => errno::null(error),
    }
}

/// # Safety
/// `channel` came from [`ibv_create_comp_channel`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { ChannelObject::of(channel) }
        .users
        .load(Ordering::Relaxed)
        > 0
    {
        return libc::EBUSY;
    }
    // SAFETY: nothing uses it any more.
    drop(unsafe { Box::from_raw(channel.cast::<ChannelObject>()) });
    0
}

/// Events that a program read and acknowledged.
#[derive(Default)]
struct EventCounts {
    read: u32,
    acknowledged: u32,
}

/// What polling changes.
struct Polled {
    queue: CompletionQueue,
    /// completions that the library makes: of requests posted to a queue pair that has failed
    made: VecDeque<ibv_wc>,
    /// polls that found nothing since one that did
    empty: u32,
}

/// A completion queue.
#[repr(C)]
pub(crate) struct CompletionObject {
    pub(crate) public: ibv_cq,
    polled: Mutex<Polled>,
    pub(crate) target: CompletionTarget,
    is_model: bool,
    /// the shared receive queue of queue pairs that report receives here, or null
    shared: AtomicPtr<ibv_srq>,
    /// those queue pairs
    shared_users: AtomicU32,
    counts: Mutex<EventCounts>,
    counted: Condvar,
    /// queue pairs that report to it
    pub(crate) users: AtomicU32,
}

impl CompletionObject {
    /// # Safety
    /// `queue` came from [`ibv_create_cq`] and is not destroyed while the result is used.
    pub(crate) unsafe fn of<'a>(queue: *mut ibv_cq) -> &'a Self {
        // SAFETY: the public part comes first.
        unsafe { &*queue.cast() }
    }

    /// The device has an event for it.
    pub(crate) fn notify(&self) {
        if self.public.channel.is_null() {
            return;
        }
        // SAFETY: a channel outlives its queues: it refuses to go before.
        let channel = unsafe { ChannelObject::of(self.public.channel) };
        channel.events.push(&raw const self.public as usize);
    }

    /// A queue pair with a shared receive queue reports here.
    ///
    /// Errors: `EINVAL` if there are some with another one: a queue is polled with one at a time.
    pub(crate) fn share(&self, with: *mut ibv_srq) -> Result<(), c_int> {
        let _polled = lock(&self.polled);
        let now = self.shared.load(Ordering::Relaxed);
        if !now.is_null() && now != with {
            tracing::warn!("a completion queue serves one shared receive queue: make another one");
            return Err(libc::EINVAL);
        }
        self.shared.store(with, Ordering::Relaxed);
        self.shared_users.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Such a queue pair is gone.
    pub(crate) fn stop_sharing(&self) {
        let _polled = lock(&self.polled);
        if self.shared_users.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.shared.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// Adds a completion of a request that the device never saw.
    pub(crate) fn complete(&self, completion: ibv_wc) {
        lock(&self.polled).made.push_back(completion);
        self.notify();
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
    // SAFETY: the caller's promise.
    let object = unsafe { ContextObject::of(context) };
    let wanted = u32::try_from(completions).unwrap_or(0);
    if wanted == 0 || !(0..object.table.context.num_comp_vectors).contains(&vector) {
        return errno::null(libc::EINVAL);
    }
    let queue = match object.port.device.completion_queue(wanted) {
        Ok(queue) => queue,
        Err(error) => return errno::null(errno::of(&error)),
    };
    let number = queue.number();
    let target = queue.target();
    let made = Box::new(CompletionObject {
        public: ibv_cq {
            context,
            channel,
            cq_context: program,
            handle: number,
            cqe: completions,
            mutex: [0; 5],
            cond: [0; 6],
            comp_events_completed: 0,
            async_events_completed: 0,
        },
        polled: Mutex::new(Polled {
            queue,
            made: VecDeque::new(),
            empty: 0,
        }),
        is_model: object.port.is_model,
        shared: AtomicPtr::default(),
        shared_users: AtomicU32::new(0),
        target,
        counts: Mutex::default(),
        counted: Condvar::new(),
        users: AtomicU32::new(0),
    });
    if !channel.is_null() {
        // SAFETY: the caller's promise.
        let channel = unsafe { ChannelObject::of(channel) };
        channel.users.fetch_add(1, Ordering::Relaxed);
    }
    let made: *mut ibv_cq = Box::into_raw(made).cast();
    let mut registry = lock(&object.port.registry);
    registry.completion_queues.insert(number, made as usize);
    made
}

/// Destroys a completion queue: takes back events that were not read, and waits until those that
/// were read are acknowledged.
///
/// # Safety
/// `queue` came from [`ibv_create_cq`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(queue: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    if object.users.load(Ordering::Relaxed) > 0 {
        return libc::EBUSY;
    }
    // SAFETY: a context outlives its objects.
    let context = unsafe { ContextObject::of(object.public.context) };
    lock(&context.port.registry)
        .completion_queues
        .remove(&object.public.handle);
    if !object.public.channel.is_null() {
        // SAFETY: the channel outlives its queues.
        let channel = unsafe { ChannelObject::of(object.public.channel) };
        channel.events.withdraw(|event| *event == queue as usize);
        channel.users.fetch_sub(1, Ordering::Relaxed);
        let mut counts = lock(&object.counts);
        while counts.read != counts.acknowledged {
            counts = object
                .counted
                .wait(counts)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
    context.finish_events(queue as usize);
    // SAFETY: it is in no table any more, and the caller gives it up.
    drop(unsafe { Box::from_raw(queue.cast::<CompletionObject>()) });
    0
}

/// Resizing keeps what is complete.
///
/// # Safety
/// `queue` came from [`ibv_create_cq`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(queue: *mut ibv_cq, completions: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    let wanted = u32::try_from(completions).unwrap_or(0);
    match lock(&object.polled).queue.resize(wanted) {
        Ok(()) => {
            // SAFETY: the public field belongs to the library, and the caller lets no other thread
            // resize at the same time.
            unsafe { (*queue).cqe = completions };
            0
        }
        Err(refused) => errno::of(&refused.error),
    }
}

/// Waits for a completion event.
///
/// # Safety
/// `channel` is one of this library; the others are places for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    program: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { ChannelObject::of(channel) };
    match object.events.take() {
        Ok(event) => {
            let found = event as *mut ibv_cq;
            // SAFETY: a queue takes its events back before it goes; the caller's places.
            unsafe {
                lock(&CompletionObject::of(found).counts).read += 1;
                *queue = found;
                *program = (*found).cq_context;
            }
            0
        }
        Err(error) => errno::minus_one(error),
    }
}

/// # Safety
/// `queue` came from [`ibv_create_cq`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(queue: *mut ibv_cq, events: u32) {
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    let mut counts = lock(&object.counts);
    counts.acknowledged = counts.acknowledged.wrapping_add(events);
    object.counted.notify_all();
}

/// The slot behind `ibv_req_notify_cq`.
///
/// # Safety
/// `queue` came from [`ibv_create_cq`].
pub(crate) unsafe extern "C" fn req_notify_cq(queue: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    let notify = if solicited_only == 0 {
        Notify::Next
    } else {
        Notify::Solicited
    };
    lock(&object.polled).queue.arm(notify);
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
    // SAFETY: the caller's promise.
    let object = unsafe { CompletionObject::of(queue) };
    let wanted = usize::try_from(count).unwrap_or(0);
    let mut polled = lock(&object.polled);
    let mut batch = [Completion::EMPTY; BATCH];
    let shared = object.shared.load(Ordering::Relaxed);
    let mut done = 0;
    while done < wanted {
        let room = (wanted - done).min(BATCH);
        let place = batch.get_mut(..room).unwrap_or(&mut []);
        let taken = if shared.is_null() {
            polled.queue.poll(place)
        } else {
            // SAFETY: it outlives the queue pairs that it feeds, and is set while there are some.
            let shared = unsafe { SharedObject::of(shared) };
            let mut receives = lock(&shared.queue);
            let taken = receives.poll(&mut polled.queue, place);
            shared.report_limit(&mut receives);
            taken
        };
        for completion in taken {
            // SAFETY: fewer than `count` were written so far.
            unsafe { into.add(done).write(converted(completion)) };
            done += 1;
        }
        if taken.len() < room {
            break;
        }
    }
    while done < wanted {
        let Some(completion) = polled.made.pop_front() else {
            break;
        };
        // SAFETY: as above.
        unsafe { into.add(done).write(completion) };
        done += 1;
    }
    if done > 0 {
        polled.empty = 0;
    } else if object.is_model {
        polled.empty += 1;
        let waits = polled.empty >= EMPTY_POLLS;
        if waits {
            polled.empty = 0;
            drop(polled);
            // The model and the peer are processes of this machine: one that polls without end
            // takes the cores that they need.
            std::thread::yield_now();
        }
    }
    done as c_int
}

/// A completion as verbs has it.
fn converted(completion: &Completion) -> ibv_wc {
    let mut flags = 0;
    let mut number = 0;
    if let Some(immediate) = completion.immediate() {
        flags |= wc_flags::WITH_IMM;
        number = immediate.to_be();
    } else if completion.is_received()
        && let Some(key) = completion.invalidated_key()
    {
        flags |= wc_flags::WITH_INV;
        number = key;
    }
    let datagram = completion.datagram();
    if datagram.is_some() {
        flags |= wc_flags::GRH;
    }
    let (status, vendor_err) = status_of(completion.status());
    ibv_wc {
        wr_id: completion.id,
        status,
        opcode: opcode_of(completion),
        vendor_err,
        byte_len: completion.byte_length(),
        imm_data: number,
        qp_num: completion.queue_pair(),
        src_qp: datagram.map_or(0, |datagram| datagram.source_queue_pair),
        wc_flags: flags,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

fn opcode_of(completion: &Completion) -> c_int {
    match completion.operation() {
        Operation::Write => completed::RDMA_WRITE,
        Operation::Read => completed::RDMA_READ,
        Operation::Receive => completed::RECV,
        Operation::ReceiveWriteImmediate => completed::RECV_RDMA_WITH_IMM,
        Operation::BindWindow => 5,
        Operation::LocalInvalidate => 6,
        _ => completed::SEND,
    }
}

/// Status and vendor error.
const fn status_of(status: Status) -> (c_int, u32) {
    match status {
        Status::Success => (status::SUCCESS, 0),
        Status::LocalLength => (1, 0),
        Status::LocalOperation => (2, 0),
        Status::LocalProtection => (4, 0),
        Status::Flushed => (status::WR_FLUSH_ERR, 0),
        Status::WindowBind => (6, 0),
        Status::RemoteInvalidRequest => (9, 0),
        Status::RemoteAccess => (10, 0),
        Status::RemoteOperation => (11, 0),
        Status::RetryExceeded => (12, 0),
        Status::ReceiverNotReady => (13, 0),
        Status::Fatal | Status::Unreported => (19, 0),
        Status::Unknown { major, minor } => (21, (major as u32) << 16 | minor as u32),
    }
}

/// A completion of a request that was posted to a queue pair that has failed.
pub(crate) const fn flushed(id: u64, queue_pair: u32, opcode: c_int) -> ibv_wc {
    ibv_wc {
        wr_id: id,
        status: status::WR_FLUSH_ERR,
        opcode,
        vendor_err: 0,
        byte_len: 0,
        imm_data: 0,
        qp_num: queue_pair,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}
