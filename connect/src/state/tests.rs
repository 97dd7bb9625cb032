use super::*;
use crate::lookup::Lookup;
use ringside_cm::mad::MAD_BYTES;
use ringside_cm::{Gid, Identity};
use ringside_testkit::{bring_up_all, config, threaded};
use std::time::Instant;

const WAIT: Duration = Duration::from_secs(20);

/// A peer that ends many connections sends the next message within microseconds, and there is room
/// for 512: the thread of the manager does not rest for 5 ms after a look that found a message.
#[test]
fn a_look_that_found_a_message_is_followed_by_another_one() {
    let model = threaded();
    let devices: [Device; 2] = bring_up_all(|index| model.function(index), &config());
    let mac = devices[0].facts().mac().unwrap();
    let [near, far] = [0, 1].map(|index| Service::open(&devices[index]).unwrap());
    let mut far = far;
    let manager = Manager::new(Identity::of(1, 2));
    let mut state = State::new(manager, near, Arc::new(|_| Lookup::Unknown), 3);
    assert!(!state.serve(Duration::ZERO));
    let own = |device: &Device| Gid::from(device.local_addresses().unwrap()[0]);
    let message = OutgoingMad {
        source: own(&devices[1]),
        vlan: None,
        destination: own(&devices[0]),
        traffic_class: 0,
        payload: Box::new([7; MAD_BYTES]),
    };
    far.send(message, &|_, _| Lookup::Found(mac));
    let limit = Instant::now() + WAIT;
    while !state.serve(Duration::ZERO) {
        assert!(Instant::now() < limit, "no look has found the message");
        far.poll(|_| {});
    }
    assert!(!state.serve(Duration::ZERO), "it was the only one");
}
