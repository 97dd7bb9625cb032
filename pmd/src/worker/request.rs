//! A closure for a worker.

/// A request, as it waits in the inbox. It can be sent again as it is.
pub type Request<S> = Box<dyn FnOnce(&mut S) + Send>;
