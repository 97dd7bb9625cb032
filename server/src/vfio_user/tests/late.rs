//! Answers about mappings that came after the client had given up waiting.

use super::*;
use ringside_bus::function::DmaAccess;
use ringside_bus::{DmaPool, Function, Iova, Memory, PageSize};

const PLACE: Iova = Iova(0x10_0000);

fn patient(rig: &Rig) -> Arc<VfioUserFunction> {
    let limits = ClientLimits {
        answer: Duration::from_secs(1),
        ..ClientLimits::default()
    };
    let clock = Arc::new(TscClock::new());
    Arc::new(VfioUserFunction::connect(rig.path(0), clock, limits).unwrap())
}

fn is_late<T>(outcome: Result<T, FunctionError>) -> bool {
    matches!(outcome, Err(FunctionError::TimedOut { .. }))
}

/// The outcome of a call that is repeated while the machine is too slow for an answer in time.
fn in_time<T>(mut call: impl FnMut() -> Result<T, FunctionError>) -> Result<T, FunctionError> {
    for _ in 0..20 {
        match call() {
            Err(FunctionError::TimedOut { .. }) => {}
            outcome => return outcome,
        }
    }
    panic!("no answer in 20 tries");
}

fn map(function: &VfioUserFunction, memory: &Memory) -> Result<(), FunctionError> {
    let range = 0..memory.length();
    function.map_dma(PLACE, memory, range, DmaAccess::ReadWrite)
}

fn mappings(rig: &Rig) -> Vec<(Iova, u64)> {
    rig.with(|world| world.snapshot(0).unwrap().mappings)
}

#[test]
fn a_mapping_that_was_ended_late_can_be_ended() {
    let rig = Rig::start(1, |_| {});
    let function = patient(&rig);
    let memory = Memory::allocate(8192, PageSize::FourKiB, None).unwrap();
    in_time(|| map(&function, &memory)).unwrap();
    let held = rig.hold();
    for _ in 0..2 {
        assert!(is_late(function.unmap_dma(PLACE, 8192)));
    }
    drop(held);
    in_time(|| function.unmap_dma(PLACE, 8192)).expect("the server has done it");
    assert_eq!(mappings(&rig), []);
    let refused = in_time(|| function.unmap_dma(PLACE, 8192)).unwrap_err();
    assert!(
        matches!(refused, FunctionError::Mapping { .. }),
        "{refused}: it is known to be gone"
    );
}

#[test]
fn a_mapping_that_was_made_late_is_undone_before_its_addresses_are_used_again() {
    let rig = Rig::start(1, |_| {});
    let function = patient(&rig);
    let [first, second] =
        [8192, 4096].map(|length| Memory::allocate(length, PageSize::FourKiB, None).unwrap());
    let held = rig.hold();
    assert!(is_late(map(&function, &first)));
    drop(held);
    rig.until("the first is mapped", |world| {
        world.snapshot(0).unwrap().mappings == [(PLACE, 8192)]
    });
    in_time(|| map(&function, &second)).unwrap();
    assert_eq!(mappings(&rig), [(PLACE, 4096)]);
    in_time(|| function.unmap_dma(PLACE, 4096)).unwrap();
    assert_eq!(mappings(&rig), []);
    let held = rig.hold();
    assert!(is_late(map(&function, &first)));
    assert!(is_late(map(&function, &second)), "it waits for the undo");
    drop(held);
    in_time(|| map(&function, &second)).unwrap();
    assert_eq!(mappings(&rig), [(PLACE, 4096)]);
}

#[test]
fn memory_of_the_application_comes_back_after_a_late_answer() {
    let rig = Rig::start(1, |_| {});
    let function = patient(&rig);
    let pool = DmaPool::new(
        Arc::clone(&function) as Arc<dyn Function>,
        Default::default(),
    )
    .unwrap();
    let memory = Memory::allocate(8192, PageSize::FourKiB, None).unwrap();
    let mut buffer = pool.map(memory).map_err(|(error, _)| error).unwrap();
    let held = rig.hold();
    buffer = buffer.into_memory().expect_err("no answer");
    drop(held);
    for _ in 0..20 {
        match buffer.into_memory() {
            Ok(_) => return assert_eq!(mappings(&rig), []),
            Err(still) => buffer = still,
        }
    }
    panic!("the memory never comes back");
}

#[test]
fn a_server_that_is_silent_is_not_waited_for_at_each_request() {
    let rig = Rig::start(1, |_| {});
    let function = patient(&rig);
    in_time(|| function.read32(0, 0)).unwrap();
    let held = rig.hold();
    assert!(is_late(function.read32(0, 0)));
    let began = std::time::Instant::now();
    for _ in 0..10 {
        assert!(is_late(function.read32(0, 0)));
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "not 10 times 1 s: {took:?}");
    // Once it sends its late answers, a request has the usual time again.
    drop(held);
    in_time(|| function.read32(0, 0)).unwrap();
    let held = rig.hold();
    let began = std::time::Instant::now();
    assert!(is_late(function.read32(0, 0)));
    assert!(began.elapsed() >= Duration::from_secs(1));
    drop(held);
}
