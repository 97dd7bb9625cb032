//! Threads of the library: their signals, stacks, processors and scheduling policy.
//!
//! A thread starts with the processors and the policy of the thread that makes it. That may be
//! one that polls, alone on its processor, perhaps with a priority of real time: the library's
//! threads would not run there. So they get those that the first thread of the process had when the
//! library was loaded.

use ringside_bus::signals::BlockedSignals;
use std::ffi::c_int;
use std::panic::resume_unwind;
use std::sync::OnceLock;

/// Processors and scheduling policy of a thread.
struct Place {
    processors: libc::cpu_set_t,
    policy: c_int,
    priority: libc::sched_param,
}

static AT_LOAD: OnceLock<Option<Place>> = OnceLock::new();

const fn is_real_time(policy: c_int) -> bool {
    matches!(
        policy & !libc::SCHED_RESET_ON_FORK,
        libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE
    )
}

impl Place {
    /// Those of a thread, 0 for the calling one; none on a machine with more processors than the
    /// set has.
    fn of(thread: libc::pid_t) -> Option<Self> {
        // SAFETY: both are plain numbers, which the calls below write.
        let (mut processors, mut priority) = unsafe { std::mem::zeroed() };
        // SAFETY: live places of the right size.
        unsafe {
            let bytes = size_of::<libc::cpu_set_t>();
            let is_known = libc::sched_getaffinity(thread, bytes, &raw mut processors) == 0
                && libc::sched_getparam(thread, &raw mut priority) == 0;
            let policy = libc::sched_getscheduler(thread);
            (is_known && policy >= 0).then_some(Self {
                processors,
                policy,
                priority,
            })
        }
    }

    /// Those that threads of the library get which a thread with these has started.
    fn inherited(mut self) -> Self {
        if self.policy & libc::SCHED_RESET_ON_FORK != 0 || self.policy == libc::SCHED_DEADLINE {
            self.policy = libc::SCHED_OTHER;
            self.priority.sched_priority = 0;
        }
        self
    }

    /// Gives them to the calling thread as far as it has others. A policy of real time is only
    /// taken from a thread. A refusal is no error.
    fn take(&self) {
        let Some(now) = Self::of(0) else {
            return;
        };
        let bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: live values; 0 is the calling thread.
        unsafe {
            if !libc::CPU_EQUAL(&now.processors, &self.processors)
                && libc::sched_setaffinity(0, bytes, &raw const self.processors) != 0
            {
                tracing::debug!("a thread of the library stays on the processors of its maker");
            }
            let is_other = (now.policy, now.priority.sched_priority)
                != (self.policy, self.priority.sched_priority);
            if is_other
                && is_real_time(now.policy)
                && libc::sched_setscheduler(0, self.policy, &raw const self.priority) != 0
            {
                tracing::debug!("a thread of the library keeps the policy of its maker");
            }
        }
    }
}

/// Called when the library is loaded, perhaps by a thread that is pinned already: the first thread
/// stands for the process.
extern "C" fn at_load() {
    // SAFETY: plain system call. The number of the first thread is the process's.
    let first = unsafe { libc::getpid() };
    let _ = AT_LOAD.set(Place::of(first).map(Place::inherited));
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
    let _blocked = BlockedSignals::new();
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(|| {
        take_place();
        body();
    });
    started.map(drop)
}

/// The stack for opening a device, which the caller's may be too small for: programs of many
/// threads or coroutines give them 64 KiB and less.
const STACK_BYTES: usize = 2 << 20;

/// Runs `work` on a thread with a stack of its own. It and the threads that it starts block all
/// signals.
pub(crate) fn on_own_thread<T: Send>(work: impl Fn() -> T + Sync) -> T {
    let _blocked = BlockedSignals::new();
    std::thread::scope(|scope| {
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
    })
}
