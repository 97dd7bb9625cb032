//! Functions whose process ends, and its memory with it, while the device works.

use super::rig::{BASE, Cq, LENGTH, Qp, Rig};
use ringside_bus::function::DmaAccess;
use ringside_bus::{Iova, Memory};
use ringside_spec::rdma::ae_codes::AeCode;
use ringside_spec::verbs::{Fragment, SendOpcode};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

const PAGE: usize = 4096;

/// Another program, and a page of its stack.
fn program() -> (Child, Memory) {
    let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn();
    let child = child.expect("sleep");
    let of = |name: &str| format!("/proc/{}/{name}", child.id());
    let maps = std::fs::read_to_string(of("maps")).expect("maps");
    let stack = maps.lines().find(|line| line.ends_with("[stack]"));
    let (start, _) = stack
        .and_then(|line| line.split_once('-'))
        .expect("a stack");
    let start = u64::from_str_radix(start, 16).expect("an address");
    let space = std::fs::File::options()
        .read(true)
        .write(true)
        .open(of("mem"));
    let space = Arc::new(space.expect("the memory of a child").into());
    let memory = Memory::of_peer(space, start, PAGE).expect("a page");
    (child, memory)
}

fn kill(mut child: Child) {
    child.kill().expect("alive");
    child.wait().expect("a child");
}

/// Runs a request of side 0 with a program's memory at the side `of`, which ends before it or
/// afterwards. Returns the events of both sides, and whether the request completed.
fn outcome(case: (SendOpcode, u32), of: usize, ends_before: bool) -> ([Option<AeCode>; 2], bool) {
    let mut rig = Rig::new();
    let (child, memory) = program();
    let mut queues = prepare(&mut rig, case, of, &memory);
    let mut after = Some(child);
    if ends_before && let Some(child) = after.take() {
        kill(child);
    }
    rig.ring(0, &queues.0);
    rig.run_out();
    if let Some(child) = after {
        kill(child);
    }
    rig.assert_no_breach();
    let completion = rig.poll(0, &mut queues.1);
    let succeeded = completion.is_some_and(|(element, _)| !element.error);
    ([0, 1].map(|side| rig.event_code(side)), succeeded)
}

/// Maps a page of a program at the side `of`, and posts a request of side 0 that reads or writes
/// it. The doorbell is not rung. Returns the queue pair and the completion queue of side 0.
fn prepare(rig: &mut Rig, case: (SendOpcode, u32), of: usize, memory: &Memory) -> (Qp, Cq) {
    let (mut pairs, mut queues) = rig.pair();
    let (mut pair, queue) = (pairs.swap_remove(0), queues.swap_remove(0));
    let at = LENGTH as u64;
    assert!(rig.spaces[of].map(Iova(BASE + at), memory, 0, PAGE, DmaAccess::ReadWrite));
    let other = rig.data(1 - of, PAGE as u64);
    let places = if of == 0 { [at, other] } else { [other, at] };
    let tags = [0, 1].map(|side| rig.region(side, 1, places[side], PAGE as u64));
    let piece = Fragment {
        address: BASE + places[0],
        length_bytes: case.1,
        steering_tag: tags[0],
    };
    let target = (BASE + places[1], tags[1]);
    rig.request(0, &mut pair, case.0, target, &[piece]);
    (pair, queue)
}

const CASES: [(SendOpcode, u32); 4] = [
    (SendOpcode::Write, 8),
    (SendOpcode::Write, 3000),
    (SendOpcode::Read, 8),
    (SendOpcode::Read, 3000),
];

#[test]
fn memory_of_another_program_is_sent_and_received() {
    for case in CASES {
        for side in 0..2 {
            assert_eq!(
                outcome(case, side, false),
                ([None; 2], true),
                "{case:?}, side {side}"
            );
        }
    }
}

#[test]
fn a_requester_whose_peer_has_ended_runs_out_of_retries() {
    for case in CASES {
        let (told, succeeded) = outcome(case, 1, true);
        assert_eq!(told, [Some(AeCode::TooManyRetries), None], "{case:?}");
        assert!(!succeeded, "{case:?}");
    }
}

#[test]
fn a_responder_whose_peer_has_ended_is_told_nothing() {
    for case in CASES {
        let ([_, told], succeeded) = outcome(case, 0, true);
        assert_eq!((told, succeeded), (None, false), "{case:?}");
    }
}

/// The driver mapped what the program registered, and cannot know that the program unmapped it.
#[test]
fn memory_that_its_program_has_unmapped_ends_the_request_and_is_no_breach() {
    for case in CASES {
        for side in 0..2 {
            let mut rig = Rig::new();
            let own = std::fs::File::options()
                .read(true)
                .write(true)
                .open("/proc/self/mem");
            let own = Arc::new(own.expect("the memory of this test").into());
            let nowhere = Memory::of_peer(own, PAGE as u64, PAGE).expect("a page");
            let mut queues = prepare(&mut rig, case, side, &nowhere);
            rig.ring(0, &queues.0);
            rig.run_out();
            rig.assert_no_breach();
            let completion = rig.poll(0, &mut queues.1);
            let succeeded = completion.is_some_and(|(element, _)| !element.error);
            assert!(!succeeded, "{case:?}, side {side}");
            assert!(rig.event_code(0).is_some(), "{case:?}, side {side}");
        }
    }
}
