use super::*;
use ringside_bus::{Direction, Iova, Refusal};
use ringside_model::Fault;
use ringside_testkit::{bring_up_all, config, threaded};

const WAIT: Duration = Duration::from_secs(20);

fn own(device: &Device) -> Gid {
    device.local_addresses().unwrap()[0].into()
}

/// A message between two devices.
fn message(from: &Device, to: &Device) -> OutgoingMad {
    OutgoingMad {
        source: own(from),
        destination: own(to),
        traffic_class: 0,
        payload: Box::new([7; MAD_BYTES]),
    }
}

/// The host refuses the device the write of a completion: that completion queue fails alone.
#[test]
fn messages_arrive_again_after_the_completion_queue_has_failed() {
    let model = threaded();
    let devices: [Device; 2] = bring_up_all(|index| model.function(index), &config());
    let [near, far] = &devices;
    let macs = [near, far].map(|device| device.facts().mac().unwrap());
    let mut service = Service::open(near).unwrap();
    let mut peer = Service::open(far).unwrap();
    let former = service.queue_number();
    let ring = service.queue.query().unwrap().ring;
    let refusal = Fault::DmaRefused(Refusal {
        direction: Some(Direction::Write),
        accesses: Some(1),
        first: Iova(ring),
        bytes: 1,
    });
    model.with(move |world| world.inject(0, refusal));
    service.send(message(near, far), &|_| Lookup::Found(macs[1]));

    let limit = Instant::now() + WAIT;
    while service.queue_number() == former {
        assert!(Instant::now() < limit, "the failed queue stays in use");
        near.poll_events(&mut Vec::new()).unwrap();
        service.poll(|_| {});
    }
    assert!(near.failure().is_none() && !service.is_sending());
    let mut received = false;
    peer.send(message(far, near), &|_| Lookup::Found(macs[0]));
    while !received {
        assert!(Instant::now() < limit, "no message arrives");
        peer.poll(|_| {});
        service.poll(|arrived| received = arrived.payload == [7; MAD_BYTES]);
    }
}
