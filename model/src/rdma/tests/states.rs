//! Every state of a queue pair with every command of the control queue that names it.
//!
//! The expected results are those of the InfiniBand Architecture Specification volume 1, 10.3.1
//! (which state follows which; ERROR follows any and is left only by destroying; SQD is reached
//! from RTS and left to RTS), read through the E810 reference 3.5 and 4.5: IDLE stands for reset
//! and initialised, CLOSING for SQD, "no state" takes the context anew and changes nothing,
//! TERMINATE is iWARP's. A flush is for queue pairs in error; Linux asks for one after a change to
//! SQD too. IDLE follows only IDLE: a driver resets by ERROR and destroys. A pair that is missing
//! does not compile.

use super::rig::{Cq, Qp, Rig};
use ringside_spec::rdma::commands::*;
use strum::VariantArray;

/// The state of the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
enum State {
    Idle,
    ReadyToReceive,
    ReadyToSend,
    Draining,
    Failed,
    Gone,
}

/// A command that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
enum Asked {
    Keep,
    ToIdle,
    ToReadyToReceive,
    ToReadyToSend,
    ToDraining,
    ToTerminate,
    ToError,
    Flush,
    EventOnly,
    Suspend,
    Resume,
    Upload,
    Destroy,
    Create,
}

/// The expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Carried out; the queue pair is then in this state.
    Then(State),
    /// Refused; nothing changes.
    Refused,
}

fn expected(state: State, asked: Asked) -> Expected {
    use Asked as A;
    use Expected::{Refused, Then};
    use State as S;
    match (state, asked) {
        // what changes no state
        (
            S::Idle | S::ReadyToReceive | S::ReadyToSend | S::Draining | S::Failed,
            A::Keep | A::EventOnly | A::Suspend | A::Resume | A::Upload,
        ) => Then(state),
        (S::Idle | S::ReadyToReceive | S::ReadyToSend | S::Draining | S::Failed, A::Destroy) => {
            Then(S::Gone)
        }
        // its number is taken
        (S::Idle | S::ReadyToReceive | S::ReadyToSend | S::Draining | S::Failed, A::Create) => {
            Refused
        }
        // every state ends in error
        (S::Idle | S::ReadyToReceive | S::ReadyToSend | S::Draining | S::Failed, A::ToError) => {
            Then(S::Failed)
        }
        // and that is the last
        (
            S::Failed,
            A::ToIdle | A::ToReadyToReceive | A::ToReadyToSend | A::ToDraining | A::ToTerminate,
        ) => Refused,
        (S::Failed, A::Flush) => Then(S::Failed),
        (S::Idle | S::ReadyToReceive | S::ReadyToSend | S::Draining, A::Flush | A::ToTerminate) => {
            Refused
        }

        (S::Idle, A::ToIdle) => Then(S::Idle),
        (S::Idle, A::ToReadyToReceive) => Then(S::ReadyToReceive),
        (S::Idle, A::ToReadyToSend | A::ToDraining) => Refused,

        // again, with the context anew
        (S::ReadyToReceive, A::ToReadyToReceive) => Then(S::ReadyToReceive),
        (S::ReadyToReceive, A::ToReadyToSend) => Then(S::ReadyToSend),
        (S::ReadyToReceive, A::ToIdle | A::ToDraining) => Refused,

        (S::ReadyToSend, A::ToReadyToSend) => Then(S::ReadyToSend),
        (S::ReadyToSend, A::ToDraining) => Then(S::Draining),
        (S::ReadyToSend, A::ToIdle | A::ToReadyToReceive) => Refused,

        (S::Draining, A::ToDraining) => Then(S::Draining),
        (S::Draining, A::ToReadyToSend) => Then(S::ReadyToSend),
        (S::Draining, A::ToIdle | A::ToReadyToReceive) => Refused,

        // there is nothing that could be changed
        (
            S::Gone,
            A::Keep
            | A::ToIdle
            | A::ToReadyToReceive
            | A::ToReadyToSend
            | A::ToDraining
            | A::ToTerminate
            | A::ToError
            | A::Flush
            | A::EventOnly
            | A::Suspend
            | A::Resume
            | A::Upload
            | A::Destroy,
        ) => Refused,
        (S::Gone, A::Create) => Then(S::Idle),
    }
}

/// Number of the first queue pair; each command gets one of its own.
const FIRST: u32 = 3;
/// Of the last that the rig has memory for.
const LAST: u32 = 15;

/// The commands that lead to a state, from the state that a queue pair is created in.
fn way_to(state: State) -> &'static [Asked] {
    match state {
        State::Idle => &[],
        State::ReadyToReceive => &[Asked::ToReadyToReceive],
        State::ReadyToSend => &[Asked::ToReadyToReceive, Asked::ToReadyToSend],
        State::Draining => &[
            Asked::ToReadyToReceive,
            Asked::ToReadyToSend,
            Asked::ToDraining,
        ],
        State::Failed => &[Asked::ToError],
        State::Gone => &[Asked::Destroy],
    }
}

struct QueuePairRig {
    rig: Rig,
    qp: Qp,
    cq: Cq,
}

impl QueuePairRig {
    fn new() -> Self {
        let mut rig = Rig::new();
        let cq = rig.cq(0, 3, 64);
        let qp = rig.qp(0, FIRST, &cq);
        let command = ManageArp {
            arp_index: 3,
            entry_valid: true,
            permanent: true,
            ..ManageArp::ZERO
        };
        rig.done(0, command);
        Self { rig, qp, cq }
    }

    /// Goes on with another queue pair, while there are some.
    fn next(&mut self) {
        if self.qp.number == LAST {
            *self = Self::new();
            return;
        }
        self.qp = self.rig.qp(0, self.qp.number + 1, &self.cq);
    }

    fn modify(&mut self, state: QueuePairState) -> Command {
        self.rig.modify(&self.qp, state).into()
    }

    /// True if it was carried out.
    fn ask(&mut self, asked: Asked) -> bool {
        let command = match asked {
            Asked::Keep => self.modify(QueuePairState::Invalid),
            Asked::ToIdle => self.modify(QueuePairState::Idle),
            Asked::ToReadyToReceive => self.modify(QueuePairState::ReadyToReceive),
            Asked::ToReadyToSend => self.modify(QueuePairState::ReadyToSend),
            Asked::ToDraining => self.modify(QueuePairState::Closing),
            Asked::ToTerminate => self.modify(QueuePairState::Terminate),
            Asked::ToError => self.modify(QueuePairState::Error),
            Asked::Flush => FlushWorkQueues {
                qp_number: self.qp.number,
                flush_sq: true,
                flush_rq: true,
                ..FlushWorkQueues::ZERO
            }
            .into(),
            Asked::EventOnly => FlushWorkQueues {
                qp_number: self.qp.number,
                generate_ae: true,
                ae_code: 0x0505,
                ..FlushWorkQueues::ZERO
            }
            .into(),
            Asked::Suspend => SuspendQueuePair {
                qp_number: self.qp.number,
            }
            .into(),
            Asked::Resume => ResumeQueuePair {
                qp_number: self.qp.number,
                queue_set_handle: Rig::QUEUE_SET.into(),
            }
            .into(),
            Asked::Upload => {
                let at = self.rig.ring_memory(0, 256);
                UploadContext {
                    qp_number: self.qp.number,
                    buffer_address: self.qp_base() + at,
                    ..UploadContext::ZERO
                }
                .into()
            }
            Asked::Destroy => DestroyQueuePair {
                qp_number: self.qp.number,
                qp_type: QueuePairType::RoceReliableConnected,
                ..DestroyQueuePair::ZERO
            }
            .into(),
            Asked::Create => {
                let (_, command) = self.rig.describe_qp(0, self.qp.number, self.cq.number);
                command.into()
            }
        };
        !self.rig.command(0, command).error
    }

    fn qp_base(&mut self) -> u64 {
        // the address of the context, as the device sees it, less where the rig has it
        self.rig
            .modify(&self.qp, QueuePairState::Invalid)
            .host_context_address
            - self.qp.context_at
    }

    fn state(&mut self) -> State {
        let slots = &self.rig.sides[0].engine.queue_pairs;
        let found = slots[self.qp.number as usize].as_ref();
        match found.map(|queue_pair| queue_pair.state) {
            None => State::Gone,
            Some(QueuePairState::Idle) => State::Idle,
            Some(QueuePairState::ReadyToReceive) => State::ReadyToReceive,
            Some(QueuePairState::ReadyToSend) => State::ReadyToSend,
            Some(QueuePairState::Closing) => State::Draining,
            Some(QueuePairState::Error) => State::Failed,
            Some(other) => panic!("a queue pair in {other:?}"),
        }
    }
}

#[test]
fn every_command_in_every_state_does_what_the_specification_says() {
    let mut wrong = Vec::new();
    for &state in State::VARIANTS {
        let mut bench = QueuePairRig::new();
        for &asked in Asked::VARIANTS {
            bench.next();
            for step in way_to(state) {
                assert!(bench.ask(*step), "on the way to {state:?}: {step:?}");
            }
            assert_eq!(bench.state(), state);
            let done = bench.ask(asked);
            let then = bench.state();
            let found = if done {
                Expected::Then(then)
            } else {
                Expected::Refused
            };
            let wanted = expected(state, asked);
            if found != wanted || (!done && then != state) {
                wrong.push(format!(
                    "{state:?}, {asked:?}: {found:?} ({then:?}), not {wanted:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_flush_after_a_change_to_sqd_is_refused_without_blame() {
    let mut bench = QueuePairRig::new();
    for step in way_to(State::Draining) {
        assert!(bench.ask(*step));
    }
    assert!(!bench.ask(Asked::Flush));
    assert_eq!(bench.state(), State::Draining);
    bench.rig.assert_no_breach();
    assert!(bench.ask(Asked::ToReadyToSend));
    assert!(!bench.ask(Asked::Flush));
    assert_eq!(
        bench.rig.kinds(0),
        ["flush of a queue pair that is not in error"]
    );
}
