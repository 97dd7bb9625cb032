//! Further VSIs of a port: queues, filters, spreading and statistics of their own.

use crate::rig::{End, Flow, Rig, close, ip_frame, plain_frame, poll, settings};
use ringside_lan::{Burst, Packet, QueueState, Toeplitz};
use ringside_model::{Fault, FirmwareSnapshot};
use ringside_pmd::admin::{AdminError, Loopback};
use ringside_pmd::lan::port::{DEFAULT_KEY, FlowKind, FlowTarget, HashField, Spreading};
use ringside_pmd::lan::port::{FlowMatch, FlowRule, RuleKind};
use ringside_pmd::lan::{OpenVsi, PortError, PortSettings, VlanStripping, Vsi, VsiSettings};
use ringside_spec::lan::admin::Opcode;

const RED: [u8; 6] = [0x02, 0xAA, 0, 0, 0, 1];
const BLUE: [u8; 6] = [0x02, 0xAA, 0, 0, 0, 2];
const STRANGER: [u8; 6] = [0x02, 0xAA, 0, 0, 0, 9];
const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0, 9];
const ALL: [u8; 6] = [0xFF; 6];

fn vsi(mac: [u8; 6], loopback: Loopback, receive_queues: usize) -> VsiSettings {
    VsiSettings {
        mac,
        loopback,
        queues: PortSettings {
            receive_queues,
            ..settings()
        },
    }
}

/// The port of device 1 with two further VSIs; device 0 is the station at the other end.
struct Bed {
    rig: Rig,
    red: OpenVsi,
    blue: OpenVsi,
}

/// Packets of the port, red and blue, each with its queue.
type Arrivals = [Vec<(usize, Packet)>; 3];

fn send(open: &mut OpenVsi, frame: &[u8]) {
    let mut burst = Burst::default();
    burst
        .push(open.pool.packet_with(frame).expect("buffers"))
        .expect("room");
    assert_eq!(open.transmit[0].send(&mut burst), 1);
}

fn counted(open: &OpenVsi, name: &str) -> u64 {
    let all = open.vsi.statistics().expect("statistics");
    let found = all.iter().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).value
}

impl Bed {
    fn new(loopback: Loopback) -> Self {
        Self::with(&vsi(RED, loopback, 1), &vsi(BLUE, loopback, 1))
    }

    fn with(red: &VsiSettings, blue: &VsiSettings) -> Self {
        let rig = Rig::new();
        let port = &rig.b.open.port;
        let red = port.add_vsi(red).expect("red");
        let blue = port.add_vsi(blue).expect("blue");
        Self { rig, red, blue }
    }

    /// The packets that have come once the switch is quiet.
    fn arrivals(&mut self) -> Arrivals {
        let mut found = Arrivals::default();
        for _ in 0..30 {
            let [port, red, blue] = &mut found;
            port.extend(poll(&mut self.rig.b.open.receive));
            red.extend(poll(&mut self.red.receive));
            blue.extend(poll(&mut self.blue.receive));
            self.rig.pass();
        }
        found
    }

    /// A frame from device 0: the number of its copies at the port, red and blue.
    fn copies_of(&mut self, to: [u8; 6], vlan: Option<u16>) -> [usize; 3] {
        let frame = plain_frame(to, self.rig.a.mac(), 100, 1);
        let mut packet = self.rig.a.packet(&frame);
        packet.set_vlan(vlan);
        self.rig.a.send([packet]);
        self.arrivals().map(|found| found.len())
    }

    /// Packets that left through the port of device 1.
    fn left(&self) -> u64 {
        let all = self.rig.b.open.port.statistics().expect("statistics");
        let names = ["tx_unicast.nic", "tx_multicast.nic", "tx_broadcast.nic"];
        let counted = all.iter().filter(|one| names.contains(&one.name));
        counted.map(|one| one.value).sum()
    }

    fn snapshot(&self) -> FirmwareSnapshot {
        snapshot(&self.rig)
    }

    fn finish(self) {
        let Self { rig, red, blue } = self;
        rig.no_breach();
        close(red);
        close(blue);
        rig.finish();
    }
}

/// The firmware of device 1, but for its rings, which move on.
pub(crate) fn snapshot(rig: &Rig) -> FirmwareSnapshot {
    rig.world.with(|world| {
        let space = world.space(1).expect("space 1");
        let mut found = world
            .function(1)
            .expect("function 1")
            .snapshot(space)
            .firmware;
        found.rings.clear();
        found
    })
}

#[test]
fn each_vsi_receives_the_packets_to_its_address_and_all_those_to_all_stations() {
    let mut bed = Bed::new(Loopback::Refused);
    let own = bed.rig.b.mac();
    assert_eq!(bed.copies_of(own, None), [1, 0, 0]);
    assert_eq!(bed.copies_of(RED, None), [0, 1, 0]);
    assert_eq!(bed.copies_of(BLUE, None), [0, 0, 1]);
    assert_eq!(bed.copies_of(ALL, None), [1, 1, 1]);
    assert_eq!(bed.copies_of(STRANGER, None), [0, 0, 0]);
    bed.red.vsi.add_address(STRANGER).expect("free");
    assert_eq!(bed.copies_of(STRANGER, None), [0, 1, 0]);
    assert_eq!(bed.red.vsi.remove_address(STRANGER), Ok(true));
    assert_eq!(bed.copies_of(STRANGER, None), [0, 0, 0]);
    // What they send reaches the wire.
    let frame = plain_frame(bed.rig.a.mac(), BLUE, 200, 3);
    send(&mut bed.blue, &frame);
    bed.arrivals();
    let found = bed.rig.a.poll().into_iter();
    let found: Vec<_> = found.map(|(_, packet)| packet.to_vec()).collect();
    assert_eq!(found, [frame]);
    let (port, red, blue) = (&bed.rig.b.open.port, &bed.red.vsi, &bed.blue.vsi);
    let numbers = [port.vsi(), red.number(), blue.number()];
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert_eq!((red.mac(), blue.mac()), (RED, BLUE));
    // The queue after the port's own is left to its rules.
    assert_eq!((red.receive_queues(), blue.transmit_queues()), (2..3, 3..4));
    assert_eq!(red.port().vsi(), port.vsi());
    bed.finish();
}

/// A rule has one entry in the switch: VSIs that let the same in share it.
#[test]
fn groups_vlans_and_promiscuous_mode_are_each_vsis_own() {
    let mut bed = Bed::new(Loopback::Refused);
    let before = bed.snapshot();
    let port = bed.rig.b.open.port.clone();
    for vsi in [&port, &bed.red.vsi, &bed.blue.vsi] {
        vsi.add_address(GROUP).expect("groups may be shared");
    }
    assert_eq!(bed.copies_of(GROUP, None), [1, 1, 1]);
    assert_eq!(bed.red.vsi.remove_address(GROUP), Ok(true));
    assert_eq!(bed.copies_of(GROUP, None), [1, 0, 1]);
    assert_eq!(port.remove_address(GROUP), Ok(true));
    assert_eq!(bed.copies_of(GROUP, None), [0, 0, 1]);
    assert_eq!(bed.blue.vsi.remove_address(GROUP), Ok(true));
    assert_eq!(bed.copies_of(GROUP, None), [0, 0, 0]);

    bed.blue.vsi.set_promiscuous(true).expect("set");
    assert_eq!(bed.copies_of(STRANGER, None), [0, 0, 1]);
    bed.red.vsi.set_promiscuous(true).expect("set");
    assert_eq!(bed.copies_of(STRANGER, None), [0, 1, 1]);
    bed.blue.vsi.set_promiscuous(false).expect("set");
    assert_eq!(bed.copies_of(STRANGER, None), [0, 1, 0]);
    assert_eq!(bed.copies_of(GROUP, None), [0, 1, 0]);
    bed.red.vsi.set_promiscuous(false).expect("set");
    assert_eq!(bed.copies_of(STRANGER, None), [0, 0, 0]);

    bed.red.vsi.add_vlan(5).expect("added");
    bed.blue.vsi.add_vlan(5).expect("added");
    bed.blue.vsi.add_vlan(6).expect("added");
    assert_eq!(bed.copies_of(ALL, Some(5)), [1, 1, 1]);
    assert_eq!(bed.copies_of(ALL, Some(6)), [1, 0, 1], "red has 5 alone");
    assert_eq!(
        bed.copies_of(ALL, Some(7)),
        [1, 0, 0],
        "the port does not filter"
    );
    assert_eq!(bed.copies_of(ALL, None), [1, 1, 1]);
    assert_eq!(bed.blue.vsi.remove_vlan(5), Ok(true));
    assert_eq!(bed.copies_of(ALL, Some(5)), [1, 1, 0]);
    assert_eq!(bed.blue.vsi.remove_vlan(6), Ok(true));
    assert_eq!(bed.red.vsi.remove_vlan(5), Ok(true));
    assert_eq!(bed.copies_of(ALL, Some(7)), [1, 1, 1]);
    let after = bed.snapshot();
    // Rules for packets without a tag stay as long as their VSI.
    let count = |found: &FirmwareSnapshot| found.rules.len();
    assert_eq!(count(&after), count(&before) + 1);
    bed.finish();
}

#[test]
fn packets_between_vsis_stay_inside_only_if_both_ask_for_it() {
    for (red, blue) in [
        (Loopback::Refused, Loopback::Refused),
        (Loopback::Allowed, Loopback::Allowed),
        (Loopback::Allowed, Loopback::Refused),
    ] {
        let mut bed = Bed::with(&vsi(RED, red, 1), &vsi(BLUE, blue, 1));
        let red_is_in = usize::from(red == Loopback::Allowed);
        let both = usize::from((red, blue) == (Loopback::Allowed, Loopback::Allowed));
        let (own, far) = (bed.rig.b.mac(), bed.rig.a.mac());
        // The filters of a VLAN leave the loopback as it was.
        bed.red.vsi.add_vlan(3).expect("added");
        bed.blue.vsi.add_vlan(3).expect("added");
        let found = |bed: &mut Bed| bed.arrivals().map(|all| all.len());
        let mut left = bed.left();
        let mut expect = |step: &str, bed: &mut Bed, expected: [usize; 3], wire: u64| {
            let now = (found(bed), bed.left() - left);
            left += now.1;
            assert_eq!(now, (expected, wire), "{step}: red {red:?}, blue {blue:?}");
        };
        send(&mut bed.red, &plain_frame(BLUE, RED, 100, 1));
        expect("red to blue", &mut bed, [0, 0, both], 1 - both as u64);
        send(&mut bed.blue, &plain_frame(RED, BLUE, 100, 1));
        expect("blue to red", &mut bed, [0, both, 0], 1 - both as u64);
        bed.rig
            .b
            .send([bed.rig.b.packet(&plain_frame(RED, own, 100, 1))]);
        expect(
            "port to red",
            &mut bed,
            [0, red_is_in, 0],
            1 - red_is_in as u64,
        );
        send(&mut bed.red, &plain_frame(own, RED, 100, 1));
        expect(
            "red to port",
            &mut bed,
            [red_is_in, 0, 0],
            1 - red_is_in as u64,
        );
        // One that is not among them.
        send(&mut bed.red, &plain_frame(far, RED, 100, 1));
        expect("red to the wire", &mut bed, [0, 0, 0], 1);
        // A group: all of its receivers, or none. It reaches the wire, too.
        send(&mut bed.red, &plain_frame(ALL, RED, 100, 1));
        expect("red to all", &mut bed, [both, 0, both], 1);
        bed.rig
            .b
            .send([bed.rig.b.packet(&plain_frame(ALL, own, 100, 1))]);
        expect("port to all", &mut bed, [0, both, both], 1);
        bed.finish();
    }
}

/// Queue and hash of a datagram to a VSI.
fn spreads(bed: &mut Bed, to: [u8; 6], port: u16) -> (usize, Option<u32>) {
    let flow = Flow {
        v6: false,
        protocol: 17,
        ports: (port, 2000),
    };
    let frame = ip_frame(to, bed.rig.a.mac(), flow, b"x");
    let packet = bed.rig.a.packet(&frame);
    bed.rig.a.send([packet]);
    let found: Vec<_> = bed.arrivals().into_iter().flatten().collect();
    assert_eq!(found.len(), 1);
    (found[0].0, found[0].1.hash())
}

#[test]
fn each_vsi_spreads_by_its_own_key_table_and_fields() {
    let mut blue = vsi(BLUE, Loopback::Refused, 3);
    blue.queues.hash_key =
        std::array::from_fn(|byte| (byte as u8).wrapping_mul(37).wrapping_add(11));
    let keys = [DEFAULT_KEY, blue.queues.hash_key];
    let mut bed = Bed::with(&vsi(RED, Loopback::Refused, 4), &blue);
    let entries = bed.red.vsi.hash_table_entries();
    assert_eq!(entries, 64);
    let ports = SourcePortBytes;
    bed.blue
        .vsi
        .set_hash_fields(FlowKind::UdpV4, &[HashField::SourcePort])
        .expect("possible");
    let mut queues = [[0; 4]; 2];
    for port in 1000..1020 {
        let red = Toeplitz::new(keys[0]).hash_bytes(ports.all(port));
        let blue = Toeplitz::new(keys[1]).hash_bytes(port.to_be_bytes());
        let red_queue = red as usize % entries % 4;
        let blue_queue = blue as usize % entries % 3;
        assert_eq!(spreads(&mut bed, RED, port), (red_queue, Some(red)));
        assert_eq!(spreads(&mut bed, BLUE, port), (blue_queue, Some(blue)));
        queues[0][red_queue] += 1;
        queues[1][blue_queue] += 1;
    }
    assert!(queues[0].iter().all(|count| *count > 0), "{queues:?}");
    assert!(queues[1][..3].iter().all(|count| *count > 0), "{queues:?}");
    // Another table of one of them leaves the other's alone.
    let last = Spreading {
        key: keys[0],
        table: vec![3],
    };
    bed.red.vsi.spread(&last).expect("possible");
    for port in 1000..1010 {
        assert_eq!(spreads(&mut bed, RED, port).0, 3);
        let blue = Toeplitz::new(keys[1]).hash_bytes(port.to_be_bytes());
        let queue = blue as usize % entries % 3;
        assert_eq!(spreads(&mut bed, BLUE, port).0, queue);
    }
    let beyond = Spreading {
        key: keys[0],
        table: vec![0, 4],
    };
    let refused = bed.red.vsi.spread(&beyond).expect_err("queue 4 of 4");
    assert!(refused.to_string().contains("queue 4 of 4"), "{refused}");
    bed.finish();
}

/// Input of the hash of the rig's datagrams.
struct SourcePortBytes;

impl SourcePortBytes {
    fn all(&self, port: u16) -> Vec<u8> {
        let [a, b] = port.to_be_bytes();
        let [c, d] = 2000u16.to_be_bytes();
        vec![10, 0, 0, 1, 10, 0, 0, 2, a, b, c, d]
    }
}

/// Port 4791 is that of RoCEv2. Only the RDMA engine looks for an invariant CRC.
#[test]
fn datagrams_to_the_port_of_rdma_reach_all_stations_and_vsis_without_rdma() {
    let mut bed = Bed::new(Loopback::Refused);
    let discarded = |bed: &Bed| {
        let all = bed.rig.b.device.statistics().expect("statistics");
        let found = all.iter().find(|one| one.name == "ip4InDiscards");
        found.expect("a counter").value
    };
    let before = discarded(&bed);
    let flow = Flow {
        v6: false,
        protocol: 17,
        ports: (7, 4791),
    };
    let own = bed.rig.b.mac();
    for (to, arrive) in [(RED, [0, 1, 0]), (ALL, [1, 1, 1]), (own, [0, 0, 0])] {
        let frame = ip_frame(to, bed.rig.a.mac(), flow, b"no packet of RDMA");
        let packet = bed.rig.a.packet(&frame);
        bed.rig.a.send([packet]);
        let found = bed.arrivals().map(|all| all.len());
        assert_eq!(found, arrive, "{to:02x?}");
    }
    assert_eq!(discarded(&bed), before + 1, "the one to the engine");
    bed.finish();
}

#[test]
fn each_vsi_counts_its_own_packets() {
    let mut bed = Bed::new(Loopback::Refused);
    for _ in 0..3 {
        bed.copies_of(RED, None);
    }
    bed.copies_of(BLUE, None);
    bed.copies_of(ALL, None);
    let far = bed.rig.a.mac();
    send(&mut bed.blue, &plain_frame(far, BLUE, 60, 0));
    bed.arrivals();
    let counts = |open: &OpenVsi| {
        ["rx_unicast", "rx_broadcast", "tx_unicast", "rx_dropped"].map(|name| counted(open, name))
    };
    assert_eq!(counts(&bed.red), [3, 1, 0, 0]);
    assert_eq!(counts(&bed.blue), [1, 1, 1, 0]);
    let of_port = |name: &str| {
        let all = bed.rig.b.open.port.statistics().expect("statistics");
        let found = all.iter().find(|one| one.name == name);
        found.map(|one| one.value)
    };
    assert_eq!(of_port("rx_unicast"), Some(0));
    assert_eq!(of_port("rx_broadcast"), Some(1));
    assert_eq!(of_port("rx_unicast.nic"), Some(4));
    let names = bed.red.vsi.statistics().expect("statistics");
    assert!(names.iter().all(|one| !one.name.ends_with(".nic")));
    // A queue that is full drops packets of its VSI alone.
    bed.red.receive[0].stop().expect("stopped");
    bed.copies_of(RED, None);
    assert_eq!(counted(&bed.red, "rx_dropped"), 1);
    assert_eq!(counted(&bed.blue, "rx_dropped"), 0);
    bed.finish();
}

#[test]
fn a_vsi_that_is_dropped_leaves_nothing_and_its_queues_are_free_again() {
    let mut rig = Rig::new();
    let before = snapshot(&rig);
    for _ in 0..3 {
        let port = &rig.b.open.port;
        let red = port.add_vsi(&vsi(RED, Loopback::Allowed, 4)).expect("red");
        let blue = port
            .add_vsi(&vsi(BLUE, Loopback::Refused, 2))
            .expect("blue");
        assert_eq!(red.vsi.receive_queues(), 2..6);
        assert_eq!(blue.vsi.receive_queues(), 6..8);
        for vsi in [&red.vsi, &blue.vsi] {
            vsi.add_vlan(5).expect("added");
            vsi.add_address(GROUP).expect("added");
            vsi.set_promiscuous(true).expect("set");
        }
        let mut bed = Bed { rig, red, blue };
        assert_eq!(bed.copies_of(GROUP, Some(5)), [0, 1, 1]);
        bed.rig.no_breach();
        close(bed.red);
        assert_ne!(snapshot(&bed.rig), before, "blue is there");
        // The place of red serves another one, while blue works.
        let settings = vsi(RED, Loopback::Refused, 2);
        bed.red = bed.rig.b.open.port.add_vsi(&settings).expect("red again");
        assert_eq!(bed.red.vsi.receive_queues(), 2..4);
        assert_eq!(
            bed.copies_of(RED, Some(5)),
            [0, 1, 1],
            "blue is promiscuous"
        );
        close(bed.red);
        close(bed.blue);
        rig = bed.rig;
        assert_eq!(snapshot(&rig), before);
    }
    rig.finish();
}

#[test]
fn a_vsi_keeps_its_port_open_and_goes_with_the_device() {
    let bed = Bed::new(Loopback::Refused);
    let Bed { rig, red, blue } = bed;
    close(blue);
    let Rig { world, a, b } = rig;
    let End { open, device } = b;
    drop(open);
    let again = device.open_port(&settings()).map(|_| ());
    assert_eq!(again, Err(PortError::AlreadyOpen), "red has it");
    let report = device.shutdown();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert_eq!(report.leaked_bytes, 0);
    assert_eq!(red.vsi.state(), QueueState::Stopped);
    close(red);
    a.close();
    for index in [0, 1] {
        let breaches = world.with(|world| world.breaches(index));
        assert!(breaches.is_empty(), "{breaches:#?}");
    }
}

#[test]
fn a_reset_under_traffic_gives_every_packet_back_and_the_vsis_are_added_again() {
    let settings_of = [
        vsi(RED, Loopback::Allowed, 2),
        vsi(BLUE, Loopback::Allowed, 1),
    ];
    let mut bed = Bed::with(&settings_of[0], &settings_of[1]);
    let fields = [HashField::DestinationPort];
    let table = Spreading {
        key: DEFAULT_KEY,
        table: vec![1],
    };
    for _ in 0..3 {
        bed.red.vsi.add_vlan(5).expect("added");
        bed.red.vsi.add_address(STRANGER).expect("added");
        bed.red.vsi.spread(&table).expect("possible");
        bed.red
            .vsi
            .set_hash_fields(FlowKind::UdpV4, &fields)
            .expect("possible");
        bed.blue.vsi.set_promiscuous(true).expect("set");
        if bed.red.vsi.rules().is_empty() {
            let drop = rule(7, FlowTarget::Drop);
            bed.red.vsi.add_rule(&drop).expect("programmed");
        }
        bed.copies_of(RED, Some(5));
        // On their way in both directions when the reset comes.
        let frame = plain_frame(bed.rig.a.mac(), BLUE, 500, 1);
        send(&mut bed.blue, &frame);
        let to_red = plain_frame(RED, bed.rig.a.mac(), 100, 1);
        bed.rig.a.send([bed.rig.a.packet(&to_red)]);
        let setups = [bed.red.vsi.setup(), bed.blue.vsi.setup()];
        bed.rig.b.device.give_up().expect("in service");
        let refused = bed.rig.b.open.port.add_vsi(&settings_of[0]).map(|_| ());
        assert_eq!(refused, Err(PortError::OutOfService));
        let mut burst = Burst::default();
        let packet = bed.blue.pool.packet_with(&frame).expect("buffers");
        burst.push(packet).expect("room");
        assert_eq!(bed.blue.transmit[0].send(&mut burst), 0);
        drop(burst);
        assert_eq!(bed.red.vsi.setup(), setups[0], "it can be read now, too");
        bed.rig.b.device.recover().expect("back in service");
        assert_eq!(bed.red.vsi.state(), QueueState::Stopped);
        close(bed.red);
        close(bed.blue);
        let new = bed.rig.b.device.open_port(&settings()).expect("in service");
        drop(std::mem::replace(&mut bed.rig.b.open, new));
        let port = &bed.rig.b.open.port;
        bed.red = port.add_vsi(&settings_of[0]).expect("red again");
        bed.blue = port.add_vsi(&settings_of[1]).expect("blue again");
        bed.red.vsi.restore(&setups[0]).expect("as before");
        bed.blue.vsi.restore(&setups[1]).expect("as before");
        assert_eq!(bed.red.vsi.setup(), setups[0]);
        assert_eq!(bed.copies_of(STRANGER, Some(5)), [0, 1, 1]);
        assert_eq!(bed.copies_of(STRANGER, Some(6)), [0, 0, 1]);
        bed.blue.vsi.set_promiscuous(false).expect("set");
        let hash = Toeplitz::new(DEFAULT_KEY).hash_bytes(2000u16.to_be_bytes());
        assert_eq!(spreads(&mut bed, RED, 1), (1, Some(hash)));
        assert_eq!(steered(&mut bed, RED, 7), [vec![], vec![], vec![]]);
    }
    bed.finish();
}

/// The settings with which a VSI was added are not those that it had at last.
#[test]
fn a_restored_vsi_has_the_mode_and_the_tags_that_it_had_and_not_those_it_was_added_with() {
    let mut red = vsi(RED, Loopback::Refused, 1);
    red.queues.promiscuous = true;
    red.queues.vlan_stripping = VlanStripping::On;
    let mut bed = Bed::with(&red, &vsi(BLUE, Loopback::Refused, 1));
    bed.red.vsi.set_promiscuous(false).expect("set");
    bed.red.vsi.strip_vlan(VlanStripping::Off).expect("set");
    bed.blue
        .vsi
        .strip_vlan(VlanStripping::On)
        .expect("possible");
    for (open, settings) in [
        (&mut bed.red, &red),
        (&mut bed.blue, &vsi(BLUE, Loopback::Refused, 1)),
    ] {
        let setup = open.vsi.setup();
        let port = bed.rig.b.open.port.clone();
        let place = std::mem::replace(
            open,
            port.add_vsi(&vsi(STRANGER, Loopback::Refused, 1))
                .expect("room"),
        );
        close(place);
        let new = port.add_vsi(settings).expect("added again");
        close(std::mem::replace(open, new));
        open.vsi.restore(&setup).expect("as before");
        assert_eq!(open.vsi.setup(), setup);
    }
    assert_eq!(bed.copies_of(STRANGER, None), [0, 0, 0]);
    for (station, to, tag) in [(1, RED, None), (2, BLUE, Some(5))] {
        let frame = plain_frame(to, bed.rig.a.mac(), 100, 1);
        let mut packet = bed.rig.a.packet(&frame);
        packet.set_vlan(Some(5));
        bed.rig.a.send([packet]);
        let found = bed.arrivals();
        let tags: Vec<_> = found[station].iter().map(|(_, one)| one.vlan()).collect();
        assert_eq!(tags, [tag], "station {station}");
    }
    bed.finish();
}

#[test]
fn queues_of_a_vsi_dropped_while_the_device_is_down_keep_their_packets_until_it_was_reset() {
    let mut bed = Bed::new(Loopback::Refused);
    bed.rig.b.device.give_up().expect("in service");
    bed.red.receive.clear();
    bed.red.transmit.clear();
    assert!(
        bed.red.pool.usage().in_use > 0,
        "the device may still write"
    );
    bed.rig.b.device.recover().expect("back in service");
    assert_eq!(bed.red.pool.usage().in_use, 0);
    let Bed { mut rig, red, blue } = bed;
    close(red);
    let new = rig.b.device.open_port(&settings()).expect("in service");
    // Blue is of the life before: it does not count any more.
    let again = new
        .port
        .add_vsi(&vsi(BLUE, Loopback::Refused, 1))
        .expect("free");
    assert_eq!(again.vsi.receive_queues(), 2..3);
    close(blue);
    let further = new
        .port
        .add_vsi(&vsi(RED, Loopback::Refused, 1))
        .expect("free");
    assert_eq!(
        further.vsi.receive_queues(),
        3..4,
        "blue's end freed nothing"
    );
    drop(std::mem::replace(&mut rig.b.open, new));
    close(again);
    close(further);
    rig.finish();
}

#[test]
fn what_is_not_possible_is_refused_by_name_and_leaves_nothing() {
    let rig = Rig::new();
    let own = rig.b.mac();
    let port = rig.b.open.port.clone();
    let red = port
        .add_vsi(&vsi(RED, Loopback::Refused, 1))
        .expect("possible");
    let before = snapshot(&rig);
    let refused = |settings: &VsiSettings| port.add_vsi(settings).map(|_| ()).expect_err("not so");
    for wrong in [[0; 6], ALL, GROUP] {
        let error = refused(&vsi(wrong, Loopback::Refused, 1));
        assert!(error.to_string().starts_with("MAC address"), "{error}");
    }
    // An address that another VSI has.
    let taken = |vsi: u16| PortError::Admin(AdminError::AddressTaken { vsi });
    assert_eq!(
        refused(&vsi(RED, Loopback::Allowed, 1)),
        taken(red.vsi.number())
    );
    assert_eq!(refused(&vsi(own, Loopback::Refused, 1)), taken(port.vsi()));
    assert_eq!(red.vsi.add_address(own), Err(taken(port.vsi())));
    assert_eq!(port.add_address(RED), Err(taken(red.vsi.number())));
    assert_eq!(port.set_address(RED), Err(taken(red.vsi.number())));
    assert_eq!(port.mac(), own);
    assert_eq!(snapshot(&rig), before);
    let queues = |receive_queues, transmit_queues| {
        let mut settings = vsi(BLUE, Loopback::Refused, receive_queues);
        settings.queues.transmit_queues = transmit_queues;
        settings
    };
    let error = refused(&queues(17, 1));
    let limit = PortError::TooMany {
        what: "receive queues of a further VSI",
        wanted: 17,
        limit: 16,
    };
    assert_eq!(error, limit);
    // 512 transmit queues: one of the port, one for its rules, one of red.
    let mut others = Vec::new();
    for number in 0..7 {
        let mut settings = queues(1, 64);
        settings.mac = [2, 0, 0, 0, 1, number];
        settings.queues.transmit_descriptors = 64;
        others.push(port.add_vsi(&settings).expect("possible"));
    }
    let error = refused(&queues(1, 64));
    assert_eq!(
        error.to_string(),
        "64 transmit queues in a row beside those in use are not possible: this function has 61"
    );
    others.into_iter().for_each(close);
    assert_eq!(snapshot(&rig), before);
    drop(port);
    close(red);
    rig.finish();
}

#[test]
fn rules_of_the_port_go_to_its_own_queues_beside_those_of_a_vsi() {
    let mut bed = Bed::new(Loopback::Refused);
    let port = bed.rig.b.open.port.clone();
    let rule = FlowRule {
        packets: FlowMatch {
            destination_port: Some(2),
            ..FlowMatch::of(RuleKind::Flow(FlowKind::UdpV4))
        },
        target: FlowTarget::Drop,
        mark: None,
        count: true,
    };
    let number = port.add_rule(&rule).expect("a queue is left for it");
    let flow = Flow {
        v6: false,
        protocol: 17,
        ports: (1, 2),
    };
    let own = bed.rig.b.mac();
    for (to, comes) in [(own, [0, 0, 0]), (RED, [0, 1, 0])] {
        let frame = ip_frame(to, bed.rig.a.mac(), flow, b"x");
        bed.rig.a.send([bed.rig.a.packet(&frame)]);
        assert_eq!(bed.arrivals().map(|found| found.len()), comes);
    }
    assert_eq!(port.rule_hits(number), Ok(Some(1)));
    drop(port);
    bed.finish();
}

fn udp_to(port: u16) -> FlowMatch {
    FlowMatch {
        destination_port: Some(port),
        ..FlowMatch::of(RuleKind::Flow(FlowKind::UdpV4))
    }
}

fn rule(port: u16, target: FlowTarget) -> FlowRule {
    FlowRule {
        packets: udp_to(port),
        target,
        mark: None,
        count: false,
    }
}

/// The arrivals of a packet to `to` and this UDP port: queue and mark of each, at the port, red and
/// blue.
fn steered(bed: &mut Bed, to: [u8; 6], port: u16) -> [Vec<(usize, Option<u32>)>; 3] {
    let flow = Flow {
        v6: false,
        protocol: 17,
        ports: (1, port),
    };
    let frame = ip_frame(to, bed.rig.a.mac(), flow, b"x");
    bed.rig.a.send([bed.rig.a.packet(&frame)]);
    let seen = |(queue, packet): (usize, Packet)| (queue, packet.mark());
    bed.arrivals()
        .map(|found| found.into_iter().map(seen).collect())
}

#[test]
fn rules_of_a_further_vsi_are_for_its_packets_alone_and_end_with_it() {
    let (red, blue) = (
        vsi(RED, Loopback::Refused, 4),
        vsi(BLUE, Loopback::Refused, 2),
    );
    let mut bed = Bed::with(&red, &blue);
    let own = bed.rig.b.mac();
    let before = bed.snapshot();
    let [plain_red, plain_blue] =
        [RED, BLUE].map(|to| [1, 2].map(|at| steered(&mut bed, to, 7)[at].clone()));
    // The queue of red that the hash does not choose: counted from red's first.
    let chosen = (plain_red[0][0].0 as u16 + 1) % 4;
    let marked = FlowRule {
        mark: Some(77),
        count: true,
        ..rule(7, FlowTarget::Queue(chosen))
    };
    let number = bed.red.vsi.add_rule(&marked).expect("programmed");
    let seen = vec![(usize::from(chosen), Some(77))];
    assert_eq!(steered(&mut bed, RED, 7), [vec![], seen.clone(), vec![]]);
    assert_eq!(
        steered(&mut bed, BLUE, 7),
        [vec![], vec![], plain_blue[1].clone()]
    );
    assert_eq!(
        steered(&mut bed, own, 7)[0].len(),
        1,
        "the port has no rule"
    );
    assert_eq!(bed.red.vsi.rule_hits(number), Ok(Some(1)));
    // The same packets at the port and at blue, with other actions.
    let port = bed.rig.b.open.port.clone();
    let of_port = port.add_rule(&rule(7, FlowTarget::Drop)).expect("its own");
    let last = FlowTarget::Queue(1 - plain_blue[1][0].0 as u16);
    bed.blue.vsi.add_rule(&rule(7, last)).expect("its own");
    assert_eq!(steered(&mut bed, own, 7), [vec![], vec![], vec![]]);
    assert_eq!(steered(&mut bed, RED, 7)[1], seen);
    assert_ne!(steered(&mut bed, BLUE, 7)[2], plain_blue[1]);
    // A rule is its VSI's.
    assert_eq!(port.remove_rule(number), Ok(false));
    assert_eq!(bed.red.vsi.remove_rule(of_port), Ok(false));
    assert_eq!(port.rule_hits(number), Ok(None));
    let rules = |vsi: &Vsi| vsi.rules().len();
    let counts = [&*port, &bed.red.vsi, &bed.blue.vsi].map(rules);
    assert_eq!(counts, [1, 1, 1]);
    // Several rules of a kind, and a group of queues.
    let group = FlowTarget::Group { first: 2, count: 2 };
    bed.red.vsi.add_rule(&rule(8, group)).expect("programmed");
    let found = steered(&mut bed, RED, 8)[1][0].0;
    assert!((2..4).contains(&found), "queue {found}");
    close(bed.red);
    // The others' rules are what they were.
    bed.red = port.add_vsi(&red).expect("red again");
    assert_eq!(rules(&bed.red.vsi), 0);
    assert_eq!(
        steered(&mut bed, RED, 7)[1],
        plain_red[0],
        "its rules ended"
    );
    assert_eq!(steered(&mut bed, own, 7), [vec![], vec![], vec![]]);
    assert_eq!(port.remove_rule(of_port), Ok(true));
    assert_eq!(steered(&mut bed, own, 7)[0].len(), 1);
    let (left, _) = bed.blue.vsi.rules().remove(0);
    assert_eq!(bed.blue.vsi.remove_rule(left), Ok(true));
    assert_eq!(steered(&mut bed, BLUE, 7)[2], plain_blue[1]);
    // Only the block of counters and both kinds of entries stay, until the port is closed.
    let more = bed.snapshot().resources.len() - before.resources.len();
    assert!(more <= 3, "{more} resources of rules are left");
    drop(port);
    bed.finish();
}

#[test]
fn a_first_rule_of_a_further_vsi_that_fails_leaves_nothing_and_succeeds_later() {
    let mut bed = Bed::with(
        &vsi(RED, Loopback::Refused, 4),
        &vsi(BLUE, Loopback::Refused, 1),
    );
    let plain = steered(&mut bed, RED, 7)[1].clone();
    let chosen = (plain[0].0 as u16 + 1) % 4;
    // The port's first rule makes the queues, so that only the VSI's own steps can fail.
    let port = bed.rig.b.open.port.clone();
    let of_port = port
        .add_rule(&rule(9, FlowTarget::Drop))
        .expect("the port's");
    for opcode in [Opcode::UpdateVsi, Opcode::UpdatePackage] {
        let fault = Fault::AdminCommandFails {
            opcode: opcode.code(),
            code: 12,
        };
        for _ in 0..2 {
            bed.rig.world.with(|world| world.inject(1, fault));
            let wanted = rule(7, FlowTarget::Queue(chosen));
            let error = bed.red.vsi.add_rule(&wanted).expect_err("refused");
            assert!(error.to_string().contains("ebusy (12)"), "{error}");
            bed.rig.world.with(|world| world.clear_faults(1));
        }
    }
    let wanted = rule(7, FlowTarget::Queue(chosen));
    let number = bed.red.vsi.add_rule(&wanted).expect("programmed");
    let seen = vec![(usize::from(chosen), None)];
    assert_eq!(steered(&mut bed, RED, 7)[1], seen);
    assert_eq!(bed.red.vsi.remove_rule(number), Ok(true));
    assert_eq!(port.remove_rule(of_port), Ok(true));
    drop(port);
    bed.finish();
}

#[test]
fn rules_of_a_further_vsi_that_are_not_possible_are_refused_by_name() {
    let bed = Bed::with(
        &vsi(RED, Loopback::Refused, 2),
        &vsi(BLUE, Loopback::Refused, 1),
    );
    let red = &bed.red.vsi;
    let refused = |rule: &FlowRule, named: &str| {
        let error = red.add_rule(rule).expect_err("not possible").to_string();
        assert!(error.contains(named), "{error}");
    };
    // The port and the device have more queues.
    refused(&rule(7, FlowTarget::Queue(2)), "2 to 2 of 2");
    let first = red.add_rule(&rule(7, FlowTarget::Queue(1)));
    first.expect("possible");
    refused(
        &rule(7, FlowTarget::Drop),
        "another rule has the same packets",
    );
    // The device has one set of fields for each kind, for all VSIs of the function.
    let other = FlowMatch {
        destination_port: None,
        source_port: Some(1),
        ..udp_to(7)
    };
    let other = FlowRule {
        packets: other,
        ..rule(7, FlowTarget::Drop)
    };
    let error = bed.blue.vsi.add_rule(&other).expect_err("other fields");
    assert!(matches!(error, PortError::Rule { .. }), "{error}");
    let error = bed.rig.b.open.port.add_rule(&other).expect_err("fields");
    assert!(matches!(error, PortError::Rule { .. }), "{error}");
    bed.finish();
}
