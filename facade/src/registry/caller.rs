//! The thread of a client.

use super::client::{Client, ClientError};
use super::engine::Call;
use super::handle::DeviceHandle;
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A report of the thread.
#[derive(Debug)]
pub(super) enum Report {
    /// The client returned; `refusal` is the text of the error of `initialise`.
    Returned { refusal: Option<String> },
    /// The client was dropped. The last report.
    Ended,
}

/// A call on its way to the client.
pub(super) type Order = (DeviceHandle, Call);

thread_local! {
    /// The registry and the client whose thread this is.
    static HERE: RefCell<Option<(u64, Arc<str>)>> = const { RefCell::new(None) };
}

/// The client whose callback runs on this thread, if it is one of `registry`.
pub(super) fn client_here(registry: u64) -> Option<Arc<str>> {
    // A registry in a thread-local may be dropped after this one was, at the end of its thread.
    let found = HERE.try_with(|here| match &*here.borrow() {
        Some((of, name)) if *of == registry => Some(Arc::clone(name)),
        _ => None,
    });
    found.ok().flatten()
}

/// Starts the thread. Dropping the sender ends it, once the client has returned. The client is
/// dropped on that thread, or, after an error, here.
pub(super) fn start(
    registry: u64,
    name: &Arc<str>,
    client: impl Client,
    report: impl Fn(Report) + Send + 'static,
) -> Result<Sender<Order>, std::io::Error> {
    let (sender, orders) = channel();
    let here = Arc::clone(name);
    std::thread::Builder::new()
        .name("ringside-client".to_owned())
        .spawn(move || {
            HERE.set(Some((registry, Arc::clone(&here))));
            serve(&here, Box::new(client), &orders, &report);
            report(Report::Ended);
        })?;
    Ok(sender)
}

fn serve(
    name: &str,
    mut client: Box<dyn Client>,
    orders: &Receiver<Order>,
    report: &impl Fn(Report),
) {
    while let Ok((device, call)) = orders.recv() {
        let called = catch_unwind(AssertUnwindSafe(|| {
            let performed = perform(&mut *client, &device, call);
            // The drop of the error is also code of the client.
            performed.err().map(|error| describe(&*error))
        }));
        let refusal = match called {
            Ok(refusal) => refusal,
            Err(panic) => {
                let text = format!("it panicked: {}", text_of(&*panic));
                tracing::error!(
                    client = name,
                    device = device.name(),
                    call = call.name(),
                    "{text}"
                );
                Some(text)
            }
        };
        if let Some(reason) = refusal.as_ref().filter(|_| call == Call::Initialise) {
            tracing::error!(client = name, device = device.name(), %reason, "not initialised");
        }
        drop(device);
        report(Report::Returned { refusal });
    }
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(client))) {
        tracing::error!(
            client = name,
            "its destructor panicked: {}",
            text_of(&*panic)
        );
    }
}

fn perform(client: &mut dyn Client, device: &DeviceHandle, call: Call) -> Result<(), ClientError> {
    match call {
        Call::Initialise => return client.initialise(device),
        Call::Failed(cause) => client.failed(device, cause),
        Call::Recovered { life } => client.recovered(device, life),
        Call::Uninitialise(cause) => client.uninitialise(device, cause),
    }
    Ok(())
}

/// The error and its sources.
fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("without a text")
}
