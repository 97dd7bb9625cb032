//! Clients that follow the protocol.

use super::*;
use crate::ports::SocketPathError;
use ringside_bus::config_space::ConfigSpace;
use ringside_bus::function::DmaAccess;
use ringside_bus::vfio_user::message::{self, RegionAccess, SetInterrupts, SetInterruptsFlags};
use ringside_bus::{Doorbell, Function, Iova, Memory, PageSize};
use ringside_model::TimerAccess;
use ringside_spec::lan::registers::{clock, interrupts};
use ringside_spec::rdma::registers::{DOORBELL_PAGE, DOORBELL_PAGE_BYTES};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::AsFd;

fn reset_took_everything(world: &mut World) -> bool {
    let snapshot = world.snapshot(0).unwrap();
    snapshot.mappings.is_empty() && snapshot.vectors.is_empty()
}

#[test]
fn a_client_finds_the_function_as_the_model_has_it() {
    let rig = Rig::start(1, |_| {});
    let function = rig.client(0).unwrap();
    let config = ConfigSpace::read(&*function).unwrap();
    assert_eq!((config.vendor, config.device), (0x8086, 0x1592));
    assert!(config.function_level_reset);
    let sizes = [0, 1, 2, 3, 4, 5].map(|bar| function.bar(bar).unwrap().size);
    assert_eq!(sizes, [32 << 20, 0, 0, 64 << 10, 0, 0]);
    assert_eq!(function.interrupt_vectors().unwrap(), 1024);
    assert_eq!(function.dma_limits().unwrap().page_bytes, 4096);
    // a posted write is seen by the read that follows it
    let at = interrupts::VECTOR_CONTROL.at(5);
    function.write32(0, at, 0x18).unwrap();
    assert_eq!(function.read32(0, at).unwrap(), 0x18);
    assert_eq!(function.read64(0, at).unwrap() & 0xFFFF_FFFF, 0x18);
}

/// The server may answer many messages in a row.
#[test]
fn each_read_of_the_devices_clock_gives_a_later_time() {
    let rig = Rig::start(1, |settings| {
        settings.world.functions[0].timer = TimerAccess::Running;
    });
    let function = rig.client(0).unwrap();
    let times: Vec<u32> = (0..2000)
        .map(|_| function.read32(0, clock::TIMER_TIME[1].at(0)).unwrap())
        .collect();
    let stands_still = times.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(stands_still, 0, "of {}", times.len());
}

#[test]
fn accesses_outside_a_region_are_refused_before_they_are_sent() {
    let rig = Rig::start(1, |_| {});
    let function = rig.client(0).unwrap();
    let outside = |outcome: Result<u32, FunctionError>| {
        matches!(outcome, Err(FunctionError::OutOfRange { .. }))
    };
    assert!(outside(function.read32(0, 32 << 20)));
    assert!(outside(function.read32(0, 2)));
    assert!(outside(function.read32(1, 0)));
    assert!(outside(function.read32(200, 0)));
    assert!(outside(function.write32(0, u64::MAX - 1, 0).map(|()| 0)));
    assert!(outside(function.config_read(4095, &mut [0; 2]).map(|()| 0)));
}

#[test]
fn memory_that_a_client_maps_is_the_memory_that_the_device_reaches() {
    let rig = Rig::start(1, |_| {});
    let function = rig.client(0).unwrap();
    let memory = Memory::allocate(32768, PageSize::FourKiB, None).unwrap();
    let access = DmaAccess::ReadWrite;
    function
        .map_dma(Iova(0x10_0000), &memory, 8192..16384, access)
        .unwrap();
    function
        .map_dma(Iova(0x20_0000), &memory, 0..4096, DmaAccess::Read)
        .unwrap();
    function.config_write(4, &[6, 0]).unwrap();
    assert!(memory.write(8192, b"from the client"));
    let read = rig.with(|world| {
        let space = world.space(0).unwrap();
        let mut bytes = [0; 15];
        space.read(Iova(0x10_0000), &mut bytes).unwrap();
        space.write(Iova(0x10_1000), b"from the device").unwrap();
        assert!(space.write(Iova(0x20_0000), b"no").is_err(), "read only");
        assert!(
            space.read(Iova(0x10_2000), &mut bytes).is_err(),
            "not mapped"
        );
        bytes
    });
    assert_eq!(&read, b"from the client");
    let mut bytes = [0; 15];
    assert!(memory.read(12288, &mut bytes));
    assert_eq!(&bytes, b"from the device");
    function.unmap_dma(Iova(0x10_0000), 8192).unwrap();
    let left = rig.with(|world| world.snapshot(0).unwrap().mappings);
    assert_eq!(left, [(Iova(0x20_0000), 4096)]);
    let refused = function.unmap_dma(Iova(0x10_0000), 8192).unwrap_err();
    assert!(
        matches!(refused, FunctionError::Mapping { .. }),
        "{refused}"
    );
    let refused = function
        .map_dma(Iova(0x20_0000), &memory, 0..4096, access)
        .unwrap_err();
    assert!(
        matches!(refused, FunctionError::Mapping { .. }),
        "{refused}"
    );
}

fn doorbell_at(function: &Arc<VfioUserFunction>, offset: u64) -> Doorbell {
    Arc::clone(function).doorbell(0, offset).unwrap()
}

#[test]
fn the_doorbell_page_is_mapped_where_the_server_offers_it() {
    let rig = Rig::start(1, |settings| settings.doorbell_page = true);
    let function = rig.client(0).unwrap();
    let page = DOORBELL_PAGE..DOORBELL_PAGE + DOORBELL_PAGE_BYTES;
    assert_eq!(function.bar(0).unwrap().mappable, [page]);
    assert!(doorbell_at(&function, DOORBELL_PAGE).is_mapped());
    assert!(doorbell_at(&function, DOORBELL_PAGE + 0x40).is_mapped());
    assert!(!doorbell_at(&function, DOORBELL_PAGE - 4).is_mapped());
    assert!(!doorbell_at(&function, DOORBELL_PAGE + DOORBELL_PAGE_BYTES).is_mapped());
}

#[test]
fn without_that_offer_every_doorbell_is_a_message() {
    let rig = Rig::start(1, |_| {});
    let function = rig.client(0).unwrap();
    assert_eq!(function.bar(0).unwrap().mappable, []);
    assert!(!doorbell_at(&function, DOORBELL_PAGE).is_mapped());
}

/// Fires vector `number` by its own software trigger.
fn trigger(function: &VfioUserFunction, number: u32) {
    let at = interrupts::VECTOR_CONTROL.at(number);
    let control = interrupts::VectorControl::ZERO
        .with_enable(true)
        .with_software_trigger(true);
    function.write32(0, at, control.0).unwrap();
    function.read32(0, at).unwrap();
}

fn raised(event: &impl AsFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(event, &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

#[test]
fn vectors_raise_the_event_descriptors_that_they_are_connected_to() {
    let rig = Rig::start(1, |_| {});
    let function = rig.client(0).unwrap();
    // more than fit into one message, with gaps
    let events: Vec<_> = (0..40)
        .map(|number| (number % 7 != 3).then(|| eventfd(0, EventfdFlags::NONBLOCK).unwrap()))
        .collect();
    let borrowed: Vec<_> = events
        .iter()
        .map(|event| event.as_ref().map(AsFd::as_fd))
        .collect();
    function.set_interrupts(2, &borrowed).unwrap();
    for number in [2, 4, 41] {
        trigger(&function, number);
        let event = events[number as usize - 2].as_ref().unwrap();
        assert_eq!(raised(event), 1, "vector {number}");
    }
    function.set_interrupts(4, &[None]).unwrap();
    trigger(&function, 4);
    assert_eq!(raised(events[2].as_ref().unwrap()), 0);
    let refused = function.set_interrupts(1020, &[None; 8]).unwrap_err();
    assert!(refused.to_string().contains("refuses"), "{refused}");
}

/// The value of the device control register of PCI Express that initiates a function-level reset.
const RESET: [u8; 2] = [0, 0x80];

/// The address of that register in the configuration space that `read` returns two bytes of.
fn device_control(mut read: impl FnMut(u16) -> [u8; 2]) -> u16 {
    let [first, _] = read(0x34);
    let mut at = u16::from(first);
    loop {
        let [capability, next] = read(at);
        if capability == 0x10 {
            return at + 8;
        }
        at = u16::from(next);
        assert_ne!(at, 0, "no PCI Express capability");
    }
}

#[test]
fn interrupts_stay_connected_through_a_reset_by_configuration_space() {
    let rig = Rig::start(1, |_| {});
    let function = rig.client(0).unwrap();
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    function.set_interrupts(0, &[Some(event.as_fd())]).unwrap();
    let control = device_control(|at| {
        let mut bytes = [0; 2];
        function.config_read(at, &mut bytes).unwrap();
        bytes
    });
    function
        .write32(0, interrupts::VECTOR_CONTROL.at(9), 0x18)
        .unwrap();
    function.config_write(control, &RESET).unwrap();
    assert_eq!(
        function
            .read32(0, interrupts::VECTOR_CONTROL.at(9))
            .unwrap(),
        0,
        "it was reset"
    );
    trigger(&function, 0);
    assert_eq!(raised(&event), 1);
    function.reset().unwrap();
    trigger(&function, 0);
    assert_eq!(raised(&event), 0, "a reset by message disconnects");
    function.config_write(control, &RESET).unwrap();
    trigger(&function, 0);
    assert_eq!(raised(&event), 0, "and no later write connects again");
}

#[test]
fn interrupts_stay_connected_if_those_of_an_index_without_any_are_disconnected() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let trigger = SetInterruptsFlags::ZERO.with_action_trigger(true);
    let connect = SetInterrupts {
        flags: trigger.with_data_eventfd(true),
        index: message::INTERRUPT_MSIX,
        start: 0,
        count: 1,
    };
    let command = Command::SetInterrupts.code();
    raw.ask(command, &connect.encode(), &[event.as_fd()])
        .unwrap();
    let indexes = 0..message::INTERRUPTS;
    for index in indexes.filter(|index| *index != message::INTERRUPT_MSIX) {
        let disconnect = SetInterrupts {
            flags: trigger.with_data_none(true),
            index,
            start: 0,
            count: 0,
        };
        raw.ask(command, &disconnect.encode(), &[]).unwrap();
    }
    let control = device_control(|at| {
        let access = RegionAccess {
            offset: at.into(),
            region: message::REGION_CONFIG,
            count: 2,
            data: &[],
        };
        let command = Command::RegionRead.code();
        let reply = raw.ask(command, &access.encode(), &[]).unwrap();
        let answer = RegionAccess::decode_with_data(&reply.body).unwrap();
        answer.data.try_into().unwrap()
    });
    let mut write = |region, offset, data: &[u8]| {
        let access = RegionAccess {
            offset,
            region,
            count: data.len() as u32,
            data,
        };
        let command = Command::RegionWrite.code();
        raw.ask(command, &access.encode(), &[]).unwrap();
    };
    write(message::REGION_CONFIG, control.into(), &RESET);
    let fired = interrupts::VectorControl::ZERO
        .with_enable(true)
        .with_software_trigger(true);
    let at = interrupts::VECTOR_CONTROL.at(0);
    write(message::REGION_BAR_0, at, &fired.0.to_le_bytes());
    assert_eq!(raised(&event), 1);
}

#[test]
fn a_client_that_dies_leaves_a_clean_function_and_a_server_that_serves_the_next() {
    let rig = Rig::start(2, |settings| settings.doorbell_page = true);
    let neighbour = rig.client(1).unwrap();
    for _ in 0..3 {
        let function = rig.client(0).unwrap();
        let memory = Memory::allocate(4096, PageSize::FourKiB, None).unwrap();
        function
            .map_dma(Iova(0x1000), &memory, 0..4096, DmaAccess::ReadWrite)
            .unwrap();
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        function.set_interrupts(0, &[Some(event.as_fd())]).unwrap();
        function
            .write32(0, interrupts::VECTOR_CONTROL.at(9), 0x18)
            .unwrap();
        function.read32(0, 0).unwrap();
        drop(function);
        rig.until("everything is taken back", reset_took_everything);
        let registers = rig.with(|world| world.snapshot(0).unwrap().registers);
        assert_eq!(registers, [], "as after reset");
    }
    assert_eq!(neighbour.bar(0).unwrap().size, 32 << 20);
    assert_ne!(
        neighbour
            .read32(0, interrupts::VECTOR_CONTROL.at(0))
            .unwrap(),
        u32::MAX
    );
}

#[test]
fn a_second_client_is_refused_because_the_function_is_in_use() {
    let rig = Rig::start(1, |_| {});
    let first = rig.client(0).unwrap();
    let refused = rig.client(0).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(&format!("(pid {})", std::process::id())),
        "{refused}"
    );
    first.read32(0, 0).unwrap();
    drop(first);
    rig.until("the first is gone", reset_took_everything);
    rig.client(0).unwrap().read32(0, 0).unwrap();
}

#[test]
fn the_death_of_the_server_is_reported_at_once_and_for_good() {
    let mut rig = Rig::start(1, |_| {});
    let function = rig.client(0).unwrap();
    function.read32(0, 0).unwrap();
    rig.stop();
    let began = std::time::Instant::now();
    for _ in 0..3 {
        let gone = function.read32(0, 0).unwrap_err();
        assert!(matches!(gone, FunctionError::Gone { .. }), "{gone}");
    }
    let gone = function.write32(0, 0, 0).unwrap_err();
    assert!(matches!(gone, FunctionError::Gone { .. }), "{gone}");
    // No call waited for an answer.
    let took = began.elapsed();
    assert!(took < ClientLimits::default().answer, "{took:?}");
}

#[test]
fn a_server_that_does_not_answer_is_an_error_after_the_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("silent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let limits = ClientLimits {
        connect: Duration::from_millis(50),
        answer: Duration::from_millis(50),
    };
    let clock = Arc::new(TscClock::new());
    let error = VfioUserFunction::connect(&path, clock, limits).unwrap_err();
    assert!(matches!(error, FunctionError::TimedOut { .. }), "{error}");
    drop(listener);
}

#[test]
fn sockets_that_are_missing_stale_or_in_use_are_clear_errors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.sock");
    let connect = || {
        let clock = Arc::new(TscClock::new());
        VfioUserFunction::connect(&path, clock, ClientLimits::default())
    };
    let text = connect().unwrap_err().to_string();
    assert!(text.contains("the socket does not exist"), "{text}");

    std::fs::write(&path, "a file").unwrap();
    let text = connect().unwrap_err().to_string();
    assert!(text.contains("it is not a socket"), "{text}");
    let settings = ServerSettings::new(vec![path.clone()]);
    let refused = Server::bind(&settings).map(drop).unwrap_err();
    assert!(
        matches!(
            refused,
            ServerError::Path(SocketPathError::NotASocket { .. })
        ),
        "{refused}"
    );
    std::fs::remove_file(&path).unwrap();

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let text = connect().unwrap_err().to_string();
    assert!(text.contains("no process listens"), "{text}");
    let server = Server::bind(&settings).unwrap();
    let refused = Server::bind(&settings).map(drop).unwrap_err();
    assert!(
        matches!(refused, ServerError::Path(SocketPathError::InUse { .. })),
        "{refused}"
    );
    drop(server);
    assert!(!path.exists(), "a server takes its socket with it");

    let nowhere = ServerSettings::new(vec![directory.path().join("no/where.sock")]);
    let refused = Server::bind(&nowhere).map(drop).unwrap_err();
    assert!(
        matches!(refused, ServerError::Path(SocketPathError::System { .. })),
        "{refused}"
    );
    let mut odd = ServerSettings::new(vec![path.clone()]);
    odd.sockets.clear();
    let refused = Server::bind(&odd).map(drop).unwrap_err();
    assert!(matches!(refused, ServerError::Counts { .. }), "{refused}");
}

#[test]
fn one_end_of_a_pair_of_sockets_is_served_like_a_client_that_connected() {
    let directory = tempfile::tempdir().unwrap();
    let settings = ServerSettings::new(vec![directory.path().join("0.sock")]);
    let mut server = Server::bind(&settings).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    assert!(server.adopt(0, theirs) && server.is_connected(0));
    let (_second, refused) = UnixStream::pair().unwrap();
    assert!(!server.adopt(0, refused), "the function is taken");
    let (_third, nowhere) = UnixStream::pair().unwrap();
    assert!(!server.adopt(1, nowhere), "there is one function");
    let mut stream = Stream::new(ours).unwrap();
    let version = Version {
        major: 0,
        minor: 0,
        text: Capabilities::OURS.to_text(),
    };
    let greeting = Header::command(7, Command::Version, false, &version.encode());
    stream.send(greeting, &[]).unwrap();
    let mut now = Instant(0);
    let mut round = |server: &mut Server| {
        now = now.plus(SOCKETS_EVERY);
        server.round_at(now)
    };
    assert!(round(&mut server));
    let Received::Message(answer) = stream.receive().unwrap() else {
        panic!("no answer");
    };
    assert_eq!((answer.header.id, answer.header.error), (7, 0));
    drop(stream);
    round(&mut server);
    assert!(!server.is_connected(0));
    assert_eq!(server.counters(0).unwrap().clients, 1);
}

/// Looking for a client is a system call: eight functions of which two have clients took ten times
/// as long to pass on a message while each look at the sockets asked for six more.
#[test]
fn a_function_without_a_client_looks_for_one_now_and_then() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.sock");
    let mut server = Server::bind(&ServerSettings::new(vec![path.clone()])).unwrap();
    let begin = Instant(0).plus(Duration::from_secs(1));
    server.round_at(begin);
    let _client = UnixStream::connect(&path).unwrap();
    for look in 1..=5 {
        server.round_at(begin.plus(SOCKETS_EVERY * look));
        assert!(!server.is_connected(0), "look {look}");
    }
    server.round_at(begin.plus(Duration::from_millis(1)));
    assert!(server.is_connected(0));
}
