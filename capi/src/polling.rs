//! The extended form of polling: one completion is open at a time, and read by its fields.

use crate::abi::{ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc, wc_ex};
use crate::cancel::Uncancelled;
use crate::completion::{CompletionObject, Polled, make};
use crate::errno;
use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

/// The slot behind `ibv_create_cq_ex`.
///
/// Errors: `EOPNOTSUPP` for fields that the card does not report (time stamps, VLAN, flow tag, tag
/// matching) and for a queue that may overflow.
///
/// # Safety
/// `context` is open; `wanted` is valid, its objects are of this library.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    wanted: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let _call = Uncancelled::new();
    // SAFETY: the caller's promise.
    let wanted = unsafe { &*wanted };
    if wanted.wc_flags & !wc_ex::STANDARD != 0 {
        tracing::warn!(
            flags = wanted.wc_flags,
            "no completion queue: the card reports no time stamp, VLAN, flow tag or tag matching"
        );
        return errno::null(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's promise.
    match unsafe { make(context, wanted) } {
        Ok(made) => {
            // SAFETY: it was made just now, and no other thread has it.
            fill(unsafe { &mut *made });
            made
        }
        Err(error) => errno::null(error),
    }
}

fn fill(queue: &mut ibv_cq_ex) {
    queue.start_poll = Some(start_poll);
    queue.next_poll = Some(next_poll);
    queue.end_poll = Some(end_poll);
    queue.read_opcode = Some(read_opcode);
    queue.read_vendor_err = Some(read_vendor_err);
    queue.read_byte_len = Some(read_byte_len);
    queue.read_imm_data = Some(read_imm_data);
    queue.read_qp_num = Some(read_qp_num);
    queue.read_src_qp = Some(read_src_qp);
    queue.read_wc_flags = Some(read_wc_flags);
    queue.read_slid = Some(read_slid);
    queue.read_sl = Some(read_sl);
    queue.read_dlid_path_bits = Some(read_dlid_path_bits);
}

impl CompletionObject {
    /// Opens a completion.
    #[inline(always)]
    fn show(&self, completion: &MaybeUninit<ibv_wc>) {
        // SAFETY: a completion was written there: `take_one` said so.
        let completion = unsafe { completion.assume_init() };
        self.public.status.set(completion.status);
        self.public.wr_id.set(completion.wr_id);
        self.current.set(completion);
    }

    /// Calls `change` with what polling changes. Waits until no other thread has it; a thread that
    /// has a completion open has it already, and makes and destroys queue pairs meanwhile.
    pub(crate) fn with_polled<R>(&self, change: impl FnOnce(&mut Polled) -> R) -> R {
        // No other thread stores the number of this one.
        if self.opener.load(Ordering::Relaxed) == own_thread()
            // SAFETY: `open` is used by the thread that holds the queue, which is this one, and no
            // call of it that uses `open` calls this.
            && let Some(polled) = unsafe { &mut *self.open.get() }
        {
            return change(polled);
        }
        change(&mut self.polled.hold())
    }
}

/// The number of this thread, which no other living thread has; not 0.
fn own_thread() -> usize {
    // SAFETY: it takes no argument, and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

/// Opens the first completion: 0, and the queue is this thread's until [`end_poll`]; or `ENOENT`.
///
/// # Safety
/// `queue` came from [`create_cq_ex`]; `wanted` is null or valid.
unsafe extern "C" fn start_poll(queue: *mut ibv_cq_ex, wanted: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller's promise.
    let (object, wanted) = unsafe { (CompletionObject::of(queue.cast()), wanted.as_ref()) };
    if wanted.is_some_and(|wanted| wanted.comp_mask != 0) {
        return libc::EINVAL;
    }
    let mut polled = object.polled.hold();
    let mut completion = MaybeUninit::uninit();
    let mut is_taken = object.take_one(&mut polled, &mut completion);
    if !is_taken {
        drop(polled);
        if !object.gave_way() {
            return libc::ENOENT;
        }
        polled = object.polled.hold();
        is_taken = object.take_one(&mut polled, &mut completion);
    }
    if !is_taken {
        return libc::ENOENT;
    }
    object.show(&completion);
    // SAFETY: `open` is used by the thread that holds the queue, which is this one. What is kept is
    // dropped by `end_poll`, before the queue.
    unsafe { *object.open.get() = Some(polled.keep()) };
    object.opener.store(own_thread(), Ordering::Relaxed);
    0
}

/// Opens the next completion: 0, `ENOENT`, or `EINVAL` if none was opened before.
///
/// # Safety
/// `queue` came from [`create_cq_ex`]; this thread called [`start_poll`].
unsafe extern "C" fn next_poll(queue: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller's promise; `open` belongs to the thread that holds the queue.
    let (object, open) = unsafe {
        let object = CompletionObject::of(queue.cast());
        (object, &mut *object.open.get())
    };
    let Some(polled) = open else {
        return libc::EINVAL;
    };
    let mut completion = MaybeUninit::uninit();
    match object.take_one(polled, &mut completion) {
        true => {
            object.show(&completion);
            0
        }
        false => {
            object.found_last(polled);
            libc::ENOENT
        }
    }
}

/// Ends the polling that [`start_poll`] began.
///
/// # Safety
/// As [`next_poll`].
unsafe extern "C" fn end_poll(queue: *mut ibv_cq_ex) {
    // SAFETY: as in `next_poll`.
    let (object, open) = unsafe {
        let object = CompletionObject::of(queue.cast());
        (object, (*object.open.get()).take())
    };
    if open.is_some() {
        object.opener.store(0, Ordering::Relaxed);
    }
    drop(open);
}

macro_rules! read {
    ($($name:ident: $type:ty = $field:ident;)*) => {$(
        /// A field of the completion that is open.
        ///
        /// # Safety
        /// `queue` came from [`create_cq_ex`].
        unsafe extern "C" fn $name(queue: *mut ibv_cq_ex) -> $type {
            // SAFETY: the caller's promise.
            unsafe { CompletionObject::of(queue.cast()) }.current.get().$field.into()
        }
    )*};
}

read! {
    read_opcode: c_int = opcode;
    read_vendor_err: u32 = vendor_err;
    read_byte_len: u32 = byte_len;
    read_imm_data: u32 = imm_data;
    read_qp_num: u32 = qp_num;
    read_src_qp: u32 = src_qp;
    read_wc_flags: c_uint = wc_flags;
    read_slid: u32 = slid;
    read_sl: u8 = sl;
    read_dlid_path_bits: u8 = dlid_path_bits;
}
