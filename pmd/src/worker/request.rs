//! A closure for a worker.

use std::any::Any;

/// A request, as it waits in the inbox. It can be sent again as it is.
pub type Request<S> = Box<dyn FnOnce(&mut S) + Send>;

/// Boxes a request; one that is boxed already stays as it is.
///
/// A request that a full inbox refused is sent again, perhaps a million times. If each time put it
/// into one more box, the call of it would go through all of them, and exhaust the worker's stack.
pub(super) fn boxed<S: 'static>(request: impl FnOnce(&mut S) + Send + 'static) -> Request<S> {
    let mut request = Some(request);
    let as_any: &mut dyn Any = &mut request;
    let sent_before = as_any.downcast_mut::<Option<Request<S>>>();
    if let Some(sent_before) = sent_before.and_then(Option::take) {
        return sent_before;
    }
    Box::new(move |state| {
        if let Some(request) = request {
            request(state);
        }
    })
}
