//! The end of a thread's own storage.
//!
//! Handlers of `atexit`, destructors of C++ objects and those of `pthread_key_create` run after it,
//! and may call the library. The log formats its lines in that storage, and would panic there.

use tracing::{Event, Metadata, Subscriber, subscriber::Interest};
use tracing_subscriber::layer::{Context, Layer};

/// A value whose destructor the thread notes.
struct Mark;

impl Drop for Mark {
    fn drop(&mut self) {}
}

thread_local! {
    static MARK: Mark = const { Mark };
}

/// True until the calling thread has destroyed its storage.
fn has_storage() -> bool {
    MARK.try_with(|_| ()).is_ok()
}

/// Drops the events of threads that have no storage any more. Belongs before all other layers: then
/// the mark of a thread is made before, and destroyed after, what those keep in its storage.
pub(crate) struct WhileThreadsLast;

impl<S: Subscriber> Layer<S> for WhileThreadsLast {
    /// The layers behind decide whether an event is formed at all.
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::always()
    }

    fn enabled(&self, _metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        has_storage()
    }

    /// Also for events that the layers behind always want, for which [`Self::enabled`] is not
    /// asked.
    fn event_enabled(&self, _event: &Event<'_>, _context: Context<'_, S>) -> bool {
        has_storage()
    }
}
