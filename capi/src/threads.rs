//! Threads of the library: their signals, stacks, processors and priority.
//!
//! A thread starts with the processors and the priority of the thread that makes it. That may be
//! one that polls, alone on its processor, perhaps with a priority of real time: the library's
//! threads would not run there. So they get those that the process had when it loaded the library.

use crate::signals::{block_signals, restore_signals};
use std::ffi::c_int;
use std::panic::resume_unwind;
use std::sync::OnceLock;

/// Processors and priority of a thread.
struct Place {
    processors: libc::cpu_set_t,
    policy: c_int,
    priority: libc::sched_param,
}

static AT_LOAD: OnceLock<Option<Place>> = OnceLock::new();

impl Place {
    /// Those of the calling thread; none on a machine with more processors than the set has.
    fn of_this_thread() -> Option<Self> {
        // SAFETY: both are plain numbers, which the calls below write.
        let (mut processors, mut priority) = unsafe { std::mem::zeroed() };
        // SAFETY: live places of the right size; 0 is the calling thread.
        unsafe {
            let bytes = size_of::<libc::cpu_set_t>();
            let is_known = libc::sched_getaffinity(0, bytes, &raw mut processors) == 0
                && libc::sched_getparam(0, &raw mut priority) == 0;
            let policy = libc::sched_getscheduler(0);
            (is_known && policy >= 0).then_some(Self {
                processors,
                policy,
                priority,
            })
        }
    }

    /// Gives them to the calling thread. A refusal is no error: it keeps those that it has.
    fn take(&self) {
        // SAFETY: live values; 0 is the calling thread.
        unsafe {
            let bytes = size_of::<libc::cpu_set_t>();
            if libc::sched_setscheduler(0, self.policy, &raw const self.priority) != 0
                || libc::sched_setaffinity(0, bytes, &raw const self.processors) != 0
            {
                tracing::debug!("a thread of the library stays where it was made");
            }
        }
    }
}

/// Called when the library is loaded.
extern "C" fn at_load() {
    let _ = AT_LOAD.set(Place::of_this_thread());
}

/// The dynamic linker calls it before the program's `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD_IS_CALLED: extern "C" fn() = at_load;

fn take_place() {
    if let Some(Some(place)) = AT_LOAD.get() {
        place.take();
    }
}

/// Starts a thread, which blocks all signals: they are the program's.
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let before = block_signals();
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(|| {
        take_place();
        body();
    });
    restore_signals(&before);
    started.map(drop)
}

/// The stack for opening a device, which the caller's may be too small for: programs of many
/// threads or coroutines give them 64 KiB and less.
const STACK_BYTES: usize = 2 << 20;

/// Runs `work` on a thread with a stack of its own. It and the threads that it starts block all
/// signals.
pub(crate) fn on_own_thread<T: Send>(work: impl Fn() -> T + Sync) -> T {
    let before = block_signals();
    let outcome = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let on_thread = || {
            take_place();
            work()
        };
        match thread.spawn_scoped(scope, on_thread) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // No thread: done here.
            Err(_) => work(),
        }
    });
    restore_signals(&before);
    outcome
}
