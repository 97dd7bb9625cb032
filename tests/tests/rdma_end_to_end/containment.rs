//! Memory that the device cannot access, because it was unmapped or never mapped: an access is
//! refused and reported, and other requests are not affected.
//!
//! Over VFIO the IOMMU refuses; the lines that begin with `refused:` are the entries that its log
//! must have (`tests/guest`, scenario `vfio-contained`).

use crate::withholding::Withholding;
use ringside_bus::Iova;
use ringside_bus::function::DmaAccess;
use ringside_pmd::rdma::{
    Access, Completion, Connected, Event, Flags, MemoryRegion, QueuePair, Status,
};
use ringside_testkit::{Bed, End, Pair, config};

/// Larger than any existing block, so that it gets its own.
const BYTES: usize = 8 << 20;

/// Bytes of a message that is refused; so many are not taken along with the request.
const REFUSED_BYTES: usize = 4096;

/// The model's name for it where the driver is certainly the cause.
const NOT_MAPPED: &str = "the device is given memory that is not mapped";

/// Messages of the neighbour at least, while and after something is refused.
const NEIGHBOURLY: u64 = 30;

#[test]
fn memory_that_was_unmapped_is_refused_and_only_its_queue_pair_fails() {
    refused_when_unmapped(REFUSED_BYTES, &[NOT_MAPPED]);
}

/// So short that the device reads the data together with the request.
#[test]
fn a_short_message_from_memory_that_was_unmapped_is_refused_as_well() {
    refused_when_unmapped(64, &[NOT_MAPPED]);
}

/// Traffic of others on the same function and completion queue, every message compared.
struct Neighbour {
    queue_pair: QueuePair<Connected>,
    _peer: QueuePair<Connected>,
    from: MemoryRegion,
    to: MemoryRegion,
    sent: u64,
}

/// The effect on the other queue pairs meanwhile.
#[derive(Default)]
struct Meanwhile {
    done: Vec<Completion>,
    events: Vec<Event>,
}

impl Neighbour {
    fn new(pair: &Pair) -> Self {
        let (queue_pair, peer) = pair.connect(|config| config);
        Self {
            queue_pair,
            _peer: peer,
            from: pair.a.region(4096),
            to: pair.b.region(4096),
            sent: 0,
        }
    }

    /// Performs one write, whose bytes must arrive; completions of other requests are kept.
    fn write(&mut self, pair: &mut Pair, meanwhile: &mut Meanwhile) {
        self.sent += 1;
        let id = 1_000_000 + self.sent;
        let sent: Vec<u8> = (0..1000u64)
            .map(|at| (at * 7 + self.sent * 13 + 1) as u8)
            .collect();
        assert!(self.from.write(0, &sent));
        let fragment = self.from.slice(0..sent.len()).unwrap();
        let to = self.to.remote().at(0);
        let queue_pair = &mut self.queue_pair;
        queue_pair
            .write(id, &[fragment], to, Flags::SIGNALLED)
            .expect("the neighbour's queue pair works");
        queue_pair.ring();
        let mut own = None;
        while own.is_none() {
            for done in pair.wait_a(1) {
                if done.id == id {
                    own = Some(done.status());
                } else {
                    meanwhile.done.push(done);
                }
            }
        }
        assert_eq!(own, Some(Status::Success), "message {}", self.sent);
        let mut arrived = vec![0; sent.len()];
        assert!(self.to.read(0, &mut arrived));
        assert!(arrived == sent, "message {} is not intact", self.sent);
        meanwhile.events.extend(pair.a.events());
    }

    /// Writes until `queue_pair` has been reported as failed, and some more.
    fn goes_on(&mut self, pair: &mut Pair, queue_pair: u32) -> Meanwhile {
        let mut meanwhile = Meanwhile::default();
        let until = self.sent + 2000;
        while !told_of(&meanwhile.events, queue_pair) {
            assert!(self.sent < until, "no event: {:?}", meanwhile.events);
            self.write(pair, &mut meanwhile);
        }
        for _ in 0..NEIGHBOURLY {
            self.write(pair, &mut meanwhile);
        }
        meanwhile
    }
}

fn told_of(events: &[Event], number: u32) -> bool {
    events.iter().any(
        |event| matches!(event, Event::QueuePairFailed { queue_pair, .. } if *queue_pair == number),
    )
}

/// The report of the IOMMU: `Read` or `Write`, by which function, where.
fn say_refused(end: &End, kind: &str, iova: Iova) {
    println!(
        "refused: {kind} {} {:#x}",
        end.device.function().address(),
        iova.0
    );
}

/// A block of `a`, registered, with its address.
fn block(end: &End) -> (MemoryRegion, Iova) {
    let buffer = end.device.allocate(BYTES).expect("memory");
    let (iova, (memory, offset)) = (buffer.iova(), buffer.memory());
    assert_eq!((offset, memory.length()), (0, BYTES), "a block of its own");
    let region = end.domain.register(buffer, Access::ALL);
    (region.expect("a region"), iova)
}

fn refused_when_unmapped(length: usize, breaches: &[&str]) {
    let mut pair = Pair::new();
    let to = pair.b.region(4096);
    let buffer = pair.a.device.allocate(BYTES).expect("memory");
    let iova = buffer.iova();
    let memory = buffer.memory().0.clone();
    assert_eq!(memory.length(), BYTES, "a block of its own");
    let registered = pair.a.domain.register(buffer, Access::ALL);
    let from = registered.expect("a region");
    let (mut doomed, doomed_peer) = pair.connect(|config| config);
    let mut neighbour = Neighbour::new(&pair);
    let fragment = from.slice(0..length).unwrap();
    let remote = to.remote().at(0);
    doomed
        .write(1, &[fragment], remote, Flags::SIGNALLED)
        .unwrap();
    doomed.ring();
    assert_eq!(pair.wait_a(1)[0].status(), Status::Success);

    // Unknown to the driver: the region is still registered, but its memory is no longer mapped.
    let function = pair.a.device.function().clone();
    function.unmap_dma(iova, BYTES as u64).expect("unmap");
    doomed
        .write(2, &[fragment], remote, Flags::SIGNALLED)
        .unwrap();
    doomed.ring();
    say_refused(&pair.a, "Read", iova);
    let meanwhile = neighbour.goes_on(&mut pair, doomed.number());
    assert_eq!(ended(&meanwhile), [(2, false)], "{:?}", meanwhile.events);

    // Given back, so that the pool finds its block as it left it.
    function
        .map_dma(iova, &memory, 0..BYTES, DmaAccess::ReadWrite)
        .expect("map");
    drop((doomed, doomed_peer, neighbour));
    drop((from, to));
    pair.finish_with(breaches);
}

/// Requests of the failed queue pair, each with true if it succeeded.
fn ended(meanwhile: &Meanwhile) -> Vec<(u64, bool)> {
    let each = meanwhile.done.iter();
    each.map(|done| (done.id, done.is_success())).collect()
}

/// A pair whose first function withholds blocks of `BYTES`.
fn withholding_pair() -> (Pair, std::sync::Arc<Withholding>) {
    let (world, config) = (Bed::open(), config());
    let function = Withholding::new(world.function(0), BYTES);
    let a = End::on(function.clone(), 0, &config);
    let b = End::new(&world, 1, &config);
    (Pair { world, a, b }, function)
}

#[test]
fn memory_that_was_never_mapped_is_not_read_and_only_its_queue_pair_fails() {
    let (mut pair, function) = withholding_pair();
    let to = pair.b.region(4096);
    let (from, iova) = block(&pair.a);
    assert_eq!(function.count(), 1, "the block was given to the device");
    let (mut doomed, doomed_peer) = pair.connect(|config| config);
    let mut neighbour = Neighbour::new(&pair);
    let fragment = from.slice(0..REFUSED_BYTES).unwrap();
    doomed
        .write(2, &[fragment], to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    doomed.ring();
    say_refused(&pair.a, "Read", iova);
    let meanwhile = neighbour.goes_on(&mut pair, doomed.number());
    assert_eq!(ended(&meanwhile), [(2, false)], "{:?}", meanwhile.events);
    let mut arrived = [0xEE; 64];
    assert!(to.read(0, &mut arrived));
    assert_eq!(arrived, [0; 64], "something was written instead");
    drop((doomed, doomed_peer, neighbour, from, to, function));
    pair.finish_with(&[NOT_MAPPED]);
}

#[test]
fn memory_that_was_never_mapped_is_not_written_by_a_peer_and_only_their_queue_pair_fails() {
    let (mut pair, function) = withholding_pair();
    let from = pair.b.region(4096);
    let (to, iova) = block(&pair.a);
    assert!(to.write(0, &[0x5A; REFUSED_BYTES]));
    let (doomed, mut doomed_peer) = pair.connect(|config| config);
    let mut neighbour = Neighbour::new(&pair);
    assert!(from.write(0, &[0xEE; 1000]));
    let fragment = from.slice(0..1000).unwrap();
    doomed_peer
        .write(2, &[fragment], to.remote().at(0), Flags::SIGNALLED)
        .unwrap();
    doomed_peer.ring();
    say_refused(&pair.a, "Write", iova);
    let meanwhile = neighbour.goes_on(&mut pair, doomed.number());
    assert!(meanwhile.done.is_empty(), "{:?}", meanwhile.done);
    // The other side's driver is notified as well, and completes the request.
    let mut theirs = Meanwhile::default();
    let mut batch = [Completion::EMPTY; 16];
    for _ in 0..200_000 {
        theirs.events.extend(pair.b.events());
        theirs.done.extend(pair.b.completions.poll(&mut batch));
        if !theirs.done.is_empty() {
            break;
        }
        pair.pass();
    }
    assert_eq!(ended(&theirs), [(2, false)], "{:?}", theirs.events);
    assert!(told_of(&theirs.events, doomed_peer.number()));
    let mut kept = [0; REFUSED_BYTES];
    assert!(to.read(0, &mut kept) && kept == [0x5A; REFUSED_BYTES]);
    drop((doomed, doomed_peer, neighbour, from, to, function));
    pair.finish_with(&[NOT_MAPPED]);
}
