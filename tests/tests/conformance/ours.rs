//! Our driver on the same model: bring-up, a connection with traffic, datagrams, shutdown.

use ringside_model::Stepped;
use ringside_model::record::{Entry, Recorder};
use ringside_pmd::rdma::{Destination, Flags, QueuePairConfig, To};
use ringside_testkit::{Bed, End, Pair, config, world_settings};

/// More than one run has.
const MAX_ENTRIES: usize = 100_000;

const QUEUE_KEY: u32 = 0x1234_5678;

/// The requests of our driver to both functions; function 0 is compared.
pub(crate) fn record() -> Vec<Entry> {
    let recorder = Recorder::in_memory(MAX_ENTRIES);
    let world = Bed::Stepped(Stepped::new(&world_settings(2)));
    world.with(|world| world.record(&recorder));
    let config = config();
    let a = End::new(&world, 0, &config);
    let b = End::new(&world, 1, &config);
    let mut pair = Pair { world, a, b };
    connection(&mut pair);
    datagrams(&mut pair);
    pair.finish();
    let count = usize::try_from(recorder.count()).expect("a count");
    assert!(count < MAX_ENTRIES, "{count} entries: some are lost");
    recorder.take()
}

fn connection(pair: &mut Pair) {
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    let back = pair.a.region(4096);
    let (mut qp, mut peer) = pair.connect(|config| config);
    assert!(from.write(0, b"ringside"));
    let data = [from.slice(0..8).expect("a slice")];
    qp.write(1, &data, to.remote().at(0), Flags::SIGNALLED)
        .expect("a write");
    let answer = [back.slice(0..8).expect("a slice")];
    qp.read(2, &answer, to.remote().at(0), Flags::SIGNALLED)
        .expect("a read");
    peer.receive(3, &[to.slice(64..128).expect("a slice")])
        .expect("a receive");
    qp.send(4, &data, Flags::SIGNALLED).expect("a send");
    qp.ring();
    assert_eq!(pair.wait_a(3).len(), 3);
    assert_eq!(pair.wait_b(1).len(), 1);
    let mut arrived = [0; 8];
    assert!(back.read(0, &mut arrived));
    assert_eq!(&arrived, b"ringside");
}

fn datagrams(pair: &mut Pair) {
    let ready = |end: &End| {
        let config = QueuePairConfig::datagram(&end.completions);
        let made = end.domain.datagram_queue_pair(config);
        made.expect("a queue pair").ready(QUEUE_KEY).expect("ready")
    };
    let (mut qp, mut peer) = (ready(&pair.a), ready(&pair.b));
    let destination = Destination::from(&peer.endpoint());
    let handle = pair.a.domain.address_handle(&destination).expect("handle");
    let (from, to) = (pair.a.region(4096), pair.b.region(4096));
    peer.receive(1, &[to.slice(0..256).expect("a slice")])
        .expect("a receive");
    let to = To {
        handle: &handle,
        queue_pair: peer.number(),
        queue_key: QUEUE_KEY,
    };
    let data = [from.slice(0..64).expect("a slice")];
    qp.post_send_to(2, &to, &data, None, Flags::SIGNALLED)
        .expect("a datagram");
    qp.ring();
    assert_eq!(pair.wait_a(1).len(), 1);
    assert_eq!(pair.wait_b(1).len(), 1);
    let group = "239.1.2.3".parse().expect("an address");
    qp.join(group).expect("joined");
    qp.leave(group).expect("left");
}
