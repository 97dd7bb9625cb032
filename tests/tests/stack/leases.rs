//! The lease of a stack on a thread of its own, as other threads see it.

use crate::dhcp_server::{lease, searching};
use ringside_bus::Clock;
use ringside_stack::{StackError, StackThread};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

#[test]
fn a_lease_is_known_to_other_threads_while_the_stack_s_thread_is_busy() {
    let (bed, near, mut stack, mut server) = searching(&["192.0.2.1/24"]);
    let heard = lease(&bed, &mut stack, &mut server);
    assert!(!heard.is_empty());
    let clock: Arc<dyn Clock> = bed.world.clock();
    let thread = StackThread::start(stack, clock).unwrap();
    let resolver = thread.resolver();
    std::thread::scope(|scope| {
        let (begun, begins) = sync_channel(1);
        let (goes_on, waits) = sync_channel::<()>(1);
        let busy = scope.spawn(|| {
            resolver.with(move |_| {
                begun.send(()).unwrap();
                waits.recv().unwrap();
            })
        });
        begins.recv().unwrap();
        let leased = resolver.leased().unwrap();
        assert_eq!(leased.unwrap().to_string(), "198.51.100.77/24");
        goes_on.send(()).unwrap();
        assert_eq!(busy.join().unwrap(), Ok(()));
    });
    drop(thread);
    assert_eq!(resolver.leased(), Err(StackError::Ended));
    bed.finish([near, server.into_device()]);
}
