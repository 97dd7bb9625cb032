//! Clients that send invalid data: refused with an errno, and the server continues.

use super::*;
use ringside_bus::vfio_user::message::{
    DmaMap, DmaUnmap, HeaderFlags, InterruptInfo, MAX_MESSAGE_BYTES, MapFlags, RegionAccess,
    RegionInfo, SetInterrupts, SetInterruptsFlags, UnmapFlags,
};
use ringside_bus::{Memory, PageSize};
use ringside_spec::lan::registers::interrupts;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, OFlags};
use std::os::fd::{AsFd, OwnedFd};

const EPERM: u32 = 1;
const ENOENT: u32 = 2;
const E2BIG: u32 = 7;
const EEXIST: u32 = 17;
const EINVAL: u32 = 22;
const EPROTO: u32 = 71;
const ENOTSUP: u32 = 95;

/// Checks that the same client is still served.
fn still_serves(raw: &mut Raw) {
    let question = RegionInfo::question(7, 32).encode_question();
    let reply = raw.ask(Command::RegionInfo.code(), &question, &[]).unwrap();
    assert_eq!(RegionInfo::decode(&reply.body).unwrap().size, 4096);
}

fn memory(bytes: usize) -> Memory {
    Memory::allocate(bytes, PageSize::FourKiB, None).unwrap()
}

fn map(
    raw: &mut Raw,
    offset: u64,
    address: u64,
    size: u64,
    fd: &[BorrowedFd<'_>],
) -> Result<(), u32> {
    let flags = MapFlags::ZERO.with_readable(true).with_writable(true);
    let map = DmaMap {
        flags,
        offset,
        address,
        size,
    };
    raw.ask(Command::DmaMap.code(), &map.encode(), fd).map(drop)
}

fn unmap(raw: &mut Raw, flags: UnmapFlags, address: u64, size: u64) -> Result<(), u32> {
    let unmap = DmaUnmap {
        flags,
        address,
        size,
    };
    let reply = raw.ask(Command::DmaUnmap.code(), &unmap.encode(), &[])?;
    assert_eq!(
        DmaUnmap::decode(&reply.body).unwrap(),
        unmap,
        "the reply repeats it"
    );
    Ok(())
}

#[test]
fn the_version_comes_first_once_and_is_one_that_is_spoken() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.raw(0);
    let question = RegionInfo::question(0, 32).encode_question();
    assert_eq!(raw.ask(5, &question, &[]).unwrap_err(), EPROTO);
    let other = Version {
        major: 1,
        minor: 0,
        text: Vec::new(),
    };
    assert_eq!(raw.ask(1, &other.encode(), &[]).unwrap_err(), ENOTSUP);
    assert_eq!(raw.ask(1, &[0; 3], &[]).unwrap_err(), EINVAL);
    let garbage = Version {
        major: 0,
        minor: 0,
        text: b"{\"capabilities\":7}".to_vec(),
    };
    assert_eq!(raw.ask(1, &garbage.encode(), &[]).unwrap_err(), EINVAL);
    let newer = Version {
        major: 0,
        minor: 9,
        text: Vec::new(),
    };
    let reply = raw.ask(1, &newer.encode(), &[]).unwrap();
    assert_eq!(Version::decode(&reply.body).unwrap().minor, 1);
    assert_eq!(raw.ask(1, &newer.encode(), &[]).unwrap_err(), EPROTO);
    still_serves(&mut raw);
}

#[test]
fn unknown_commands_and_those_of_the_other_side_are_refused() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    for command in [0, 6, 11, 12, 14, 15, 16, 17, 18, 19, 0xFFFF] {
        assert_eq!(
            raw.ask(command, &[0; 64], &[]).unwrap_err(),
            ENOTSUP,
            "{command}"
        );
    }
    still_serves(&mut raw);
}

#[test]
fn every_payload_cut_short_is_refused() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    for (command, whole) in [
        (2, 32),
        (3, 24),
        (4, 16),
        (5, 32),
        (7, 16),
        (8, 20),
        (9, 16),
        (10, 16),
    ] {
        for length in 0..whole {
            let refused = raw.ask(command, &vec![0; length], &[]).unwrap_err();
            assert_eq!(refused, EINVAL, "command {command} with {length} bytes");
        }
    }
    still_serves(&mut raw);
}

#[test]
fn sizes_that_make_no_sense_are_refused_and_the_next_message_is_read() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    for (size, errno) in [(0u32, EINVAL), (15, EINVAL), (u32::MAX, E2BIG)] {
        if size == u32::MAX {
            let size = (MAX_MESSAGE_BYTES + 1) as u32;
            let mut bytes = Header::command(5, Command::RegionWrite, false, &[]);
            bytes[4..8].copy_from_slice(&size.to_ne_bytes());
            bytes.resize(size as usize, 0);
            raw.send(bytes, &[]);
        } else {
            let mut bytes = Header::command(5, Command::RegionWrite, false, &[]);
            bytes[4..8].copy_from_slice(&size.to_ne_bytes());
            raw.send(bytes, &[]);
        }
        let reply = raw.reply();
        assert_eq!((reply.header.id, reply.header.error), (5, errno), "{size}");
    }
    still_serves(&mut raw);
}

#[test]
fn an_unexpected_reply_is_dropped_and_another_kind_refused() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    let mut bytes = Vec::new();
    for (id, kind) in [(1, 1), (2, 2), (3, 15)] {
        let flags = HeaderFlags::ZERO.with_kind(kind);
        let (command, size, error) = (13, 16, 0);
        let header = Header {
            id,
            command,
            size,
            flags,
            error,
        };
        header.encode(&mut bytes);
    }
    raw.send(bytes, &[]);
    for id in [2, 3] {
        let reply = raw.reply();
        assert_eq!((reply.header.id, reply.header.error), (id, EINVAL));
    }
    still_serves(&mut raw);
}

#[test]
fn a_message_that_wants_no_reply_gets_none_even_if_refused() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    for command in [
        Command::RegionWrite,
        Command::DmaRead,
        Command::DmaUnmap,
        Command::Reset,
    ] {
        raw.send(Header::command(9, command, true, &[]), &[]);
    }
    still_serves(&mut raw);
}

#[test]
fn mappings_that_are_empty_wrap_overlap_or_point_nowhere_are_refused() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    let memory = memory(16384);
    let fd = [memory.descriptor().expect("a file")];
    for (offset, address, size) in [
        (0, 0x1000, 0),             // empty
        (0, u64::MAX - 4095, 8192), // wraps
        (0, 0x1000, u64::MAX - 4095),
        (0, 0x1001, 4096), // no whole pages
        (0, 0x1000, 4095),
        (16384, 0x1000, 4096), // behind the end of the file
        (12288, 0x1000, 8192),
        (u64::MAX - 4095, 0x1000, 8192),
    ] {
        let refused = map(&mut raw, offset, address, size, &fd);
        assert_eq!(refused, Err(EINVAL), "{offset:#x} {address:#x} {size:#x}");
    }
    map(&mut raw, 0, 0x1_0000, 8192, &fd).unwrap();
    for (address, size) in [
        (0x1_0000, 8192),
        (0xF000, 8192),
        (0x1_1000, 8192),
        (0, 0x10_0000),
    ] {
        let refused = map(&mut raw, 0, address, size, &fd);
        assert_eq!(refused, Err(EEXIST), "{address:#x} {size:#x}");
    }
    map(&mut raw, 0, 0x1_2000, 8192, &fd).unwrap();
    let mapped = rig.with(|world| world.snapshot(0).unwrap().mappings.len());
    assert_eq!(mapped, 2);
}

#[test]
fn descriptors_that_are_missing_too_many_or_of_the_wrong_kind_are_refused() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    let memory = memory(4096);
    let event = eventfd(0, EventfdFlags::empty()).unwrap();
    let (pipe, _other) = std::io::pipe().unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    let read_only: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    let can_shrink = rustix::fs::memfd_create("test", MemfdFlags::empty()).unwrap();
    rustix::fs::ftruncate(&can_shrink, 4096).unwrap();
    for (fd, errno) in [
        (event.as_fd(), EINVAL),
        (pipe.as_fd(), EINVAL),
        (socket.as_fd(), EINVAL),
        (read_only.as_fd(), EPERM),
        (can_shrink.as_fd(), EPERM),
    ] {
        assert_eq!(map(&mut raw, 0, 0x1000, 4096, &[fd]), Err(errno));
    }
    let two = [
        memory.descriptor().expect("a file"),
        memory.descriptor().expect("a file"),
    ];
    assert_eq!(map(&mut raw, 0, 0x1000, 4096, &two), Err(EINVAL));
    let question = RegionInfo::question(0, 32).encode_question();
    assert_eq!(raw.ask(5, &question, &two).unwrap_err(), EINVAL);
    // without a descriptor: recorded, but unreachable for the device
    map(&mut raw, 0, 0x1000, 4096, &[]).unwrap();
    assert_eq!(map(&mut raw, 0, 0x1000, 4096, &two[..1]), Err(EEXIST));
    let mapped = rig.with(|world| world.snapshot(0).unwrap().mappings.len());
    assert_eq!(mapped, 0);
    unmap(&mut raw, UnmapFlags::ZERO, 0x1000, 4096).unwrap();
    map(&mut raw, 0, 0x1000, 4096, &two[..1]).unwrap();
}

#[test]
fn memory_that_can_shrink_is_taken_from_clients_that_are_trusted() {
    let rig = Rig::start(1, |settings| settings.accept_shrinkable_memory = true);
    let mut raw = rig.negotiated(0);
    let can_shrink = rustix::fs::memfd_create("test", MemfdFlags::empty()).unwrap();
    rustix::fs::ftruncate(&can_shrink, 4096).unwrap();
    map(&mut raw, 0, 0x1000, 4096, &[can_shrink.as_fd()]).unwrap();
}

#[test]
fn unmapping_an_unknown_mapping_or_half_of_one_is_refused_and_changes_nothing() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    let memory = memory(16384);
    let fd = [memory.descriptor().expect("a file")];
    let none = UnmapFlags::ZERO;
    assert_eq!(unmap(&mut raw, none, 0x1000, 4096), Err(ENOENT));
    assert_eq!(unmap(&mut raw, none, 0, u64::MAX), Err(ENOENT));
    assert_eq!(unmap(&mut raw, none, u64::MAX, u64::MAX), Err(ENOENT));
    assert_eq!(unmap(&mut raw, none, 0, 0), Err(ENOENT));
    map(&mut raw, 0, 0x1_0000, 16384, &fd).unwrap();
    for (address, size) in [
        (0x1_0000, 8192),
        (0x1_1000, 4096),
        (0, 0x1_1000),
        (0x1_3000, 8192),
    ] {
        assert_eq!(
            unmap(&mut raw, none, address, size),
            Err(EINVAL),
            "{address:#x} {size:#x}"
        );
    }
    assert_eq!(
        unmap(&mut raw, none.with_dirty_bitmap(true), 0x1_0000, 16384),
        Err(ENOTSUP)
    );
    assert_eq!(
        rig.with(|world| world.snapshot(0).unwrap().mappings.len()),
        1
    );
    map(&mut raw, 0, 0x2_0000, 4096, &fd).unwrap();
    unmap(&mut raw, none, 0, u64::MAX).unwrap();
    map(&mut raw, 0, 0x2_0000, 4096, &fd).unwrap();
    unmap(&mut raw, none.with_all(true), 0, 0).unwrap();
    unmap(&mut raw, none.with_all(true), 0, 0).unwrap();
    assert_eq!(
        rig.with(|world| world.snapshot(0).unwrap().mappings.len()),
        0
    );
}

#[test]
fn region_accesses_out_of_bounds_or_of_odd_width_are_refused() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    for (region, offset, count) in [
        (0u32, 0u64, 0u32),
        (0, 0, 1),
        (0, 0, 2),
        (0, 0, 3),
        (0, 0, 5),
        (0, 0, 16),
        (0, 0, 4096),
        (0, 1, 4),
        (0, 2, 8),
        (0, 32 << 20, 4),
        (0, (32 << 20) - 4, 8),
        (0, u64::MAX, 4),
        (0, u64::MAX - 3, 4),
        (1, 0, 4),
        (6, 0, 4),
        (8, 0, 4),
        (9, 0, 4),
        (u32::MAX, 0, 4),
        (3, 64 << 10, 4),
        (7, 4096, 1),
        (7, 4095, 2),
        (7, 0, 4097),
        (7, 0, 0),
        (7, 1 << 16, 4),
        (7, u64::MAX, 1),
    ] {
        let mut access = RegionAccess {
            offset,
            region,
            count,
            data: &[],
        };
        let refused = raw.ask(9, &access.encode(), &[]).unwrap_err();
        assert_eq!(refused, EINVAL, "read {count} at {offset:#x} of {region}");
        let data = vec![0; count as usize];
        access.data = &data;
        let refused = raw.ask(10, &access.encode(), &[]).unwrap_err();
        assert_eq!(refused, EINVAL, "write {count} at {offset:#x} of {region}");
    }
    // counts that do not match the message
    for (count, bytes) in [(4, 3), (4, 5), (4, 0), (u32::MAX, 8)] {
        let data = vec![0; bytes];
        let access = RegionAccess {
            offset: 0,
            region: 0,
            count,
            data: &data,
        };
        assert_eq!(raw.ask(10, &access.encode(), &[]).unwrap_err(), EINVAL);
    }
    let access = RegionAccess {
        offset: 0,
        region: 0,
        count: u32::MAX,
        data: &[],
    };
    assert_eq!(raw.ask(9, &access.encode(), &[]).unwrap_err(), EINVAL);
    still_serves(&mut raw);
}

#[test]
fn queries_of_missing_regions_and_interrupts_are_refused() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    for index in [9, u32::MAX] {
        let question = RegionInfo::question(index, 32).encode_question();
        assert_eq!(raw.ask(5, &question, &[]).unwrap_err(), EINVAL);
    }
    let no_room = RegionInfo::question(0, 31).encode_question();
    assert_eq!(raw.ask(5, &no_room, &[]).unwrap_err(), EINVAL);
    for index in [5, u32::MAX] {
        let flags = Default::default();
        let question = InterruptInfo {
            flags,
            index,
            count: 0,
        };
        assert_eq!(raw.ask(7, &question.encode(), &[]).unwrap_err(), EINVAL);
    }
    // all nine regions and five indexes are answered
    for index in 0..9 {
        raw.ask(5, &RegionInfo::question(index, 32).encode_question(), &[])
            .unwrap();
    }
    for index in 0..5 {
        let flags = Default::default();
        raw.ask(
            7,
            &InterruptInfo {
                flags,
                index,
                count: 0,
            }
            .encode(),
            &[],
        )
        .unwrap();
    }
}

#[test]
fn a_client_raises_those_interrupts_whose_truth_value_is_set() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    let events = [0, 1, 2].map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap());
    let mut set = SetInterrupts {
        flags: SetInterruptsFlags::ZERO
            .with_data_eventfd(true)
            .with_action_trigger(true),
        index: 2,
        start: 0,
        count: 3,
    };
    let borrowed = events.each_ref().map(AsFd::as_fd);
    raw.ask(8, &set.encode(), &borrowed).unwrap();
    set.flags = SetInterruptsFlags::ZERO
        .with_data_bool(true)
        .with_action_trigger(true);
    for wanted in [[0, 1, 1], [1, 0, 0]] {
        let command = [set.encode(), wanted.to_vec()].concat();
        raw.ask(8, &command, &[]).unwrap();
        let raised = events
            .each_ref()
            .map(|event| u8::from(rustix::io::read(event, &mut [0; 8]).is_ok()));
        assert_eq!(raised, wanted);
    }
}

#[test]
fn a_client_that_makes_its_event_descriptor_block_stops_nothing() {
    let rig = Rig::start(2, |_| {});
    let mut hostile = rig.negotiated(0);
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let trigger = SetInterruptsFlags::ZERO.with_action_trigger(true);
    let mut set = SetInterrupts {
        flags: trigger.with_data_eventfd(true),
        index: 2,
        start: 0,
        count: 1,
    };
    hostile.ask(8, &set.encode(), &[event.as_fd()]).unwrap();
    // The flag belongs to the open file, which the server shares.
    rustix::fs::fcntl_setfl(&event, OFlags::empty()).unwrap();
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let control = interrupts::VectorControl::ZERO
        .with_enable(true)
        .with_software_trigger(true);
    let access = RegionAccess {
        offset: interrupts::VECTOR_CONTROL.at(0),
        region: 0,
        count: 4,
        data: &control.0.to_le_bytes(),
    };
    let write = Command::RegionWrite.code();
    hostile.ask(write, &access.encode(), &[]).unwrap();
    set.flags = trigger.with_data_none(true);
    hostile.ask(8, &set.encode(), &[]).unwrap();
    rig.with(|_| ());
    rig.negotiated(1);
}

#[test]
fn interrupts_that_are_not_there_or_half_connected_are_refused() {
    let rig = Rig::start(1, |_| {});
    let mut raw = rig.negotiated(0);
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let memory = memory(4096);
    let connect = SetInterruptsFlags::ZERO
        .with_data_eventfd(true)
        .with_action_trigger(true);
    let mut set = |flags, index, start, count, fds: &[BorrowedFd<'_>]| {
        let set = SetInterrupts {
            flags,
            index,
            start,
            count,
        };
        raw.ask(8, &set.encode(), fds).map(drop)
    };
    let one = [event.as_fd()];
    set(connect, 2, 0, 1, &one).unwrap();
    for (flags, index, start, count, fds) in [
        (connect, 2, 1024, 1, &one[..]),
        (connect, 2, u32::MAX, 2, &one),
        (connect, 2, 0, 2, &one),
        (connect, 0, 0, 1, &one),
        (connect, 5, 0, 1, &one),
        (connect, 2, 0, 1, &[memory.descriptor().expect("a file")]),
        (connect.with_data_none(true), 2, 0, 1, &one),
        (connect.with_action_mask(true), 2, 0, 1, &one),
        (SetInterruptsFlags::ZERO, 2, 0, 1, &[]),
        (
            SetInterruptsFlags::ZERO
                .with_data_none(true)
                .with_action_trigger(true),
            2,
            0,
            1,
            &one,
        ),
        (
            SetInterruptsFlags::ZERO
                .with_data_bool(true)
                .with_action_trigger(true),
            2,
            0,
            1,
            &[],
        ),
    ] {
        assert_eq!(
            set(flags, index, start, count, fds),
            Err(EINVAL),
            "{flags:?} {start} {count}"
        );
    }
    let mask = SetInterruptsFlags::ZERO
        .with_data_none(true)
        .with_action_mask(true);
    assert_eq!(set(mask, 2, 0, 1, &[]), Err(ENOTSUP));
    // the connected vector is still connected: the client raises it itself
    let raise = SetInterruptsFlags::ZERO
        .with_data_none(true)
        .with_action_trigger(true);
    set(raise, 2, 0, 1, &[]).unwrap();
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);
    // and everything is disconnected at once
    set(raise, 2, 0, 0, &[]).unwrap();
    assert_eq!(
        rig.with(|world| world.snapshot(0).unwrap().vectors),
        [0u16; 0]
    );
}

#[test]
fn a_client_that_stalls_in_the_middle_of_a_message_delays_no_other_client() {
    let rig = Rig::start(2, |_| {});
    let mut stalled = rig.negotiated(0);
    let bytes = Header::command(1, Command::RegionWrite, false, &[0; 20]);
    stalled.send(bytes[..19].to_vec(), &[]);
    let other = rig.client(1).unwrap();
    other.config_space_is_there();
    drop(stalled);
    rig.until("the stalled client's end is seen", |world| {
        world.snapshot(0).unwrap().mappings.is_empty()
    });
    other.config_space_is_there();
}

trait IsThere {
    fn config_space_is_there(&self);
}

impl IsThere for VfioUserFunction {
    fn config_space_is_there(&self) {
        let mut vendor = [0; 2];
        ringside_bus::Function::config_read(self, 0, &mut vendor).unwrap();
        assert_eq!(vendor, [0x86, 0x80]);
    }
}

#[test]
fn a_client_that_does_not_read_its_answers_is_not_read_and_costs_no_memory() {
    let rig = Rig::start(2, |_| {});
    let deaf = rig.negotiated(0);
    let access = RegionAccess {
        offset: 0,
        region: 7,
        count: 4096,
        data: &[],
    };
    let question = Header::command(1, Command::RegionRead, false, &access.encode());
    // until both sockets are full
    let mut accepted = 0;
    let mut deaf = deaf;
    while !deaf.0.is_clogged() && accepted < 1_000_000 {
        deaf.0.send(question.clone(), &[]).unwrap();
        accepted += 1;
        if accepted % 64 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(
        deaf.0.is_clogged(),
        "the server read {accepted} questions without an answer taken"
    );
    rig.client(1).unwrap().config_space_is_there();
    // once the client reads, it gets every answer
    for _ in 0..64 {
        assert_eq!(deaf.reply().body.len(), 16 + 4096);
    }
}

#[test]
fn noise_of_all_kinds_ends_in_refusals_or_the_end_of_that_client_only() {
    use rand::{Rng, SeedableRng};
    let rig = Rig::start(2, |_| {});
    let seed = 0x5EED_u64;
    let mut random = rand::rngs::SmallRng::seed_from_u64(seed);
    for round in 0..60 {
        let mut raw = if round % 2 == 0 {
            rig.raw(0)
        } else {
            rig.negotiated(0)
        };
        for _ in 0..40 {
            let length = random.random_range(0..80);
            let mut body = vec![0u8; length];
            random.fill(&mut body[..]);
            // headers that are mostly valid, so that the payloads are decoded
            let mut bytes = Header::command(0, Command::Version, true, &body);
            bytes[2] = random.random_range(0..20);
            if random.random_ratio(1, 40) {
                random.fill(&mut bytes[4..12]);
            }
            if raw.0.send(bytes, &[]).is_err() || raw.0.is_clogged() {
                break;
            }
        }
        drop(raw);
        rig.until("the noisy client's end is seen", |world| {
            world.snapshot(0).unwrap().mappings.is_empty()
        });
    }
    rig.client(1).unwrap().config_space_is_there();
    let end = std::time::Instant::now() + LIMIT;
    while std::time::Instant::now() < end {
        match rig.client(0) {
            Ok(function) => return function.config_space_is_there(),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    panic!("the server does not serve the next client; seed {seed:#x}");
}

#[test]
fn clients_beyond_the_first_are_refused_however_many() {
    let rig = Rig::start(1, |_| {});
    let mut first = rig.negotiated(0);
    let mut others: Vec<_> = (0..6).map(|_| rig.raw(0)).collect();
    for other in &mut others {
        assert_eq!(other.ask(1, &Raw::version(), &[]).unwrap_err(), 16, "EBUSY");
        assert!(other.is_closed());
    }
    still_serves(&mut first);
}
