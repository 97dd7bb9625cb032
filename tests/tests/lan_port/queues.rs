//! The place of transmit queues in the scheduler's tree, and the way that queues stop.

use crate::rig::{End, Rig, close, plain_frame, settings};
use ringside_lan::{Burst, TransmitQueue};
use ringside_model::record::{Event, Recorder};
use ringside_model::{Fault, FunctionSnapshot};
use ringside_pmd::admin::Loopback;
use ringside_pmd::lan::port::{FlowMatch, FlowRule, FlowTarget, RuleKind};
use ringside_pmd::lan::{PortError, PortSettings, VsiSettings};
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::scheduler::ElementType;
use ringside_spec::lan::registers::interrupts::{
    CauseControl, INTERRUPT_CONTROL, RECEIVE_QUEUE_CAUSE, THROTTLE_INTERVAL, THROTTLE_RECEIVE,
    TRANSMIT_QUEUE_CAUSE,
};
use std::collections::BTreeMap;

/// Children of a node in a tree of nine layers: Linux, `Documentation/networking/devlink/ice.rst`.
const RADIX: usize = 8;
const RED: [u8; 6] = [0x02, 0xAA, 0, 0, 0, 1];
const OPCODE_AT: usize = 2;

fn snapshot(rig: &Rig) -> FunctionSnapshot {
    rig.world
        .with(|world| world.snapshot(1))
        .expect("a function")
}

fn register(rig: &Rig, offset: u64) -> Option<u32> {
    let registers = snapshot(rig).registers;
    let found = registers.into_iter().find(|(at, _)| *at == offset);
    found.map(|(_, value)| value)
}

/// The number of queues under each node that has any.
fn queues_by_group(rig: &Rig) -> Vec<usize> {
    let mut found = BTreeMap::new();
    for (_, parent, kind) in snapshot(rig).firmware.scheduler_nodes {
        if kind == ElementType::Leaf.code() {
            *found.entry(parent).or_insert(0) += 1;
        }
    }
    found.into_values().collect()
}

/// Each queue sends a frame, and all of them arrive.
fn all_send(queues: &mut [TransmitQueue], frames: impl Fn(usize) -> Burst, rig: &mut Rig) {
    for (number, queue) in queues.iter_mut().enumerate() {
        assert_eq!(queue.send(&mut frames(number)), 1, "queue {number}");
    }
    for _ in 0..200 {
        rig.pass();
    }
    let found = rig.a.poll();
    assert_eq!(found.len(), queues.len());
}

fn with_queues(transmit_queues: usize) -> PortSettings {
    PortSettings {
        transmit_queues,
        transmit_descriptors: 64,
        ..settings()
    }
}

fn any_rule() -> FlowRule {
    FlowRule {
        packets: FlowMatch {
            ether_type: Some(0x88B5),
            ..FlowMatch::of(RuleKind::Ethernet)
        },
        target: FlowTarget::Drop,
        mark: None,
        count: false,
    }
}

#[test]
fn queues_beyond_a_group_go_to_further_ones_in_equal_parts() {
    for queues in [1, 8, 9, 20, 64] {
        let mut rig = Rig::with(&settings(), &with_queues(queues));
        let groups = (queues + 1).div_ceil(RADIX);
        let of_port = queues_by_group(&rig);
        // That of RDMA has one queue set.
        assert_eq!(of_port.iter().sum::<usize>(), queues + 1);
        assert_eq!(of_port.len(), groups + 1, "{of_port:?}");
        let [least, most] = [queues / groups, queues.div_ceil(groups)];
        let mut without_rdma = of_port.clone();
        let rdma = without_rdma.iter().position(|count| *count == 1);
        without_rdma.remove(rdma.expect("one queue set"));
        let fits = |count: &usize| (least..=most).contains(count);
        assert!(without_rdma.iter().all(fits), "{of_port:?}");
        let frame = plain_frame(rig.a.mac(), rig.b.mac(), 60, 1);
        let pool = rig.b.open.pool.clone();
        let frames = |_| {
            let mut burst = Burst::default();
            burst
                .push(pool.packet_with(&frame).expect("buffers"))
                .expect("room");
            burst
        };
        let mut transmit = std::mem::take(&mut rig.b.open.transmit);
        all_send(&mut transmit, frames, &mut rig);
        rig.b.open.transmit = transmit;
        // The rules' queue has its place beside them.
        rig.b.open.port.add_rule(&any_rule()).expect("programmed");
        assert!(queues_by_group(&rig).iter().all(|count| *count <= RADIX));
        drop(pool);
        rig.finish();
    }
}

#[test]
fn groups_of_vsis_that_end_leave_their_place_to_others() {
    let rig = Rig::with(&settings(), &with_queues(64));
    let before = snapshot(&rig).firmware.scheduler_nodes.len();
    let vsi = VsiSettings {
        mac: RED,
        loopback: Loopback::Refused,
        queues: with_queues(17),
    };
    for _ in 0..3 {
        let red = rig.b.open.port.add_vsi(&vsi).expect("possible");
        let now = snapshot(&rig).firmware.scheduler_nodes.len();
        assert!(now >= before + 17 + 3, "three groups");
        close(red);
        assert_eq!(snapshot(&rig).firmware.scheduler_nodes.len(), before);
    }
    rig.finish();
}

/// Source: ice `ice_vsi_stop_tx_ring`: cause off, software interrupt, then 0x0C31; and `ice_down`,
/// which takes the causes of receive queues off first, too.
#[test]
fn a_queue_stops_after_its_cause_was_taken_off_and_the_vector_fired() {
    let mut rig = Rig::new();
    let cause = register(&rig, TRANSMIT_QUEUE_CAUSE.at(0)).expect("bound");
    let vector = CauseControl(cause).vector();
    let fired = |rig: &Rig| {
        rig.world.with(|world| {
            let function = world.function(1).expect("a function");
            function.interrupts_fired(vector as u16)
        })
    };
    assert_eq!(fired(&rig), 0);
    let recorder = Recorder::in_memory(1 << 10);
    rig.world.with(|world| world.record(&recorder));
    drop(std::mem::take(&mut rig.b.open.transmit));
    assert_eq!(fired(&rig), 1);
    assert_eq!(register(&rig, RECEIVE_QUEUE_CAUSE.at(0)), Some(cause));
    let entries = recorder.take();
    let place = |wanted: &dyn Fn(&Event) -> bool| entries.iter().position(|one| wanted(&one.event));
    let off = place(&|event| {
        matches!(event, Event::Register(write)
            if write.offset == TRANSMIT_QUEUE_CAUSE.at(0) && write.value == 0)
    });
    let removed = place(&|event| {
        let Event::Admin(command) = event else {
            return false;
        };
        let opcode = command.before[OPCODE_AT..].first_chunk().copied();
        opcode.map(u16::from_le_bytes) == Some(Opcode::DisableTransmitQueues.code())
    });
    let (Some(off), Some(removed)) = (off, removed) else {
        panic!("{entries:#?}");
    };
    assert!(off < removed, "{off} {removed}");
    rig.finish();
}

/// The first attempt removed the queue, and its answer was lost.
#[test]
fn a_queue_that_the_device_does_not_know_has_stopped() {
    let mut rig = Rig::new();
    let fault = Fault::AdminCommandFails {
        opcode: Opcode::DisableTransmitQueues.code(),
        code: 2,
    };
    rig.world.with(|world| world.inject(1, fault));
    rig.b.open.transmit[0].stop().expect("it is gone");
    rig.world.with(|world| world.clear_faults(1));
    assert_eq!(rig.b.open.port.kept_buffers(), 0);
    rig.no_breach();
}

/// The driver sets interval and unit: they may be those of an earlier driver.
#[test]
fn the_vector_of_the_packet_queues_has_an_interval() {
    let rig = Rig::new();
    let cause = register(&rig, TRANSMIT_QUEUE_CAUSE.at(0)).expect("bound");
    let vector = CauseControl(cause).vector();
    let interval = THROTTLE_INTERVAL.at(THROTTLE_RECEIVE, vector);
    assert_eq!(register(&rig, interval), Some(2));
    assert_eq!(register(&rig, INTERRUPT_CONTROL), Some(0x2222_0000));
    rig.finish();
}

/// The function has no entries for rules until it asks for some, and gives them back.
#[test]
fn entries_for_rules_are_allocated_for_the_first_one_and_freed_at_the_end() {
    let Rig { world, a, b } = Rig::new();
    let held = |world: &ringside_model::Stepped| {
        let snapshot = world.with(|world| world.snapshot(1)).expect("a function");
        let resources = snapshot.firmware.resources.into_iter();
        let entries = resources.filter(|(kind, _)| (0x22..=0x23).contains(kind));
        entries.collect::<Vec<_>>()
    };
    assert_eq!(held(&world), []);
    let refusal = Fault::AdminCommandFails {
        opcode: Opcode::AllocateResource.code(),
        code: 16,
    };
    world.with(|world| world.inject(1, refusal));
    let error = b.open.port.add_rule(&any_rule()).expect_err("no entries");
    let PortError::Invalid { what, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*what, "flow director", "{error}");
    world.with(|world| world.clear_faults(1));
    b.open.port.add_rule(&any_rule()).expect("programmed");
    // The device's guaranteed ones are those of all its functions.
    let [(0x22, own), (0x23, 14336)] = held(&world)[..] else {
        panic!("{:?}", held(&world));
    };
    assert!((1..=1024).contains(&own), "{own}");
    let End { open, device } = b;
    drop(open);
    assert_eq!(held(&world), []);
    End {
        open: device.open_port(&settings()).expect("again"),
        device,
    }
    .close();
    a.close();
}
