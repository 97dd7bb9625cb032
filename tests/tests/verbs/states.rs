//! Every state of the driver's queue pair with every call, and with what its peer does.
//!
//! The expected results are those of the InfiniBand Architecture Specification volume 1, 10.3.1:
//! INIT takes receives, and drops what arrives; RTS sends and receives; SQD receives, and sends
//! nothing; ERR drops what arrives; every state may go to ERR, and SQD is between RTS and RTS.
//! Where verbs would refuse at run time, or accept a request only to flush it, this interface
//! either has no such call (states are types) or refuses with the reason. A combination that is
//! missing does not compile.

use ringside_pmd::rdma::{
    Connected, Drained, Event, Flags, Initialised, MemoryRegion, PostError, QueuePair,
    QueuePairStage, RdmaError, Status,
};
use ringside_testkit::Pair;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Initialised,
    Connected,
    Drained,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Receive,
    Send,
    Drain,
    Resume,
    Fail,
    Query,
    PeerWrites,
    PeerBreaksRules,
    Destroy,
}

const STATES: [State; 4] = [
    State::Initialised,
    State::Connected,
    State::Drained,
    State::Failed,
];
const CALLS: [Call; 9] = [
    Call::Receive,
    Call::Send,
    Call::Drain,
    Call::Resume,
    Call::Fail,
    Call::Query,
    Call::PeerWrites,
    Call::PeerBreaksRules,
    Call::Destroy,
];

/// The expected result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// It is done, and the queue pair is in this state.
    Then(State),
    /// The call does not exist in this state: it does not compile.
    NoSuchCall,
    /// Refused because it has failed.
    RefusedFailed,
    /// Arrived messages are discarded: the peer gets no answer, and gives up.
    Silence,
    /// An event reports that the queue pair has failed, and the peer gets the reason.
    FailsByEvent,
    /// It is destroyed.
    Gone,
}

fn expected(state: State, call: Call) -> Expected {
    use Expected as E;
    match (state, call) {
        (State::Initialised | State::Connected | State::Drained, Call::Receive) => E::Then(state),
        (State::Failed, Call::Receive) => E::RefusedFailed,

        (State::Connected, Call::Send) => E::Then(State::Connected),
        (State::Failed, Call::Send) => E::RefusedFailed,
        (State::Initialised | State::Drained, Call::Send) => E::NoSuchCall,

        (State::Connected, Call::Drain) => E::Then(State::Drained),
        (State::Failed, Call::Drain) => E::RefusedFailed,
        (State::Initialised | State::Drained, Call::Drain) => E::NoSuchCall,

        (State::Drained, Call::Resume) => E::Then(State::Connected),
        (State::Initialised | State::Connected | State::Failed, Call::Resume) => E::NoSuchCall,

        (State::Connected | State::Failed, Call::Fail) => E::Then(State::Failed),
        (State::Initialised | State::Drained, Call::Fail) => E::NoSuchCall,

        (State::Initialised | State::Connected | State::Drained | State::Failed, Call::Query) => {
            E::Then(state)
        }

        (State::Connected | State::Drained, Call::PeerWrites) => E::Then(state),
        (State::Initialised | State::Failed, Call::PeerWrites | Call::PeerBreaksRules) => {
            E::Silence
        }
        (State::Connected | State::Drained, Call::PeerBreaksRules) => E::FailsByEvent,

        (State::Initialised | State::Connected | State::Drained | State::Failed, Call::Destroy) => {
            E::Gone
        }
    }
}

/// A queue pair, in whichever type its state has.
enum Any {
    Initialised(QueuePair<Initialised>),
    Connected(QueuePair<Connected>),
    Drained(QueuePair<Drained>),
}

/// Makes a call that every state has.
macro_rules! on_any {
    ($any:expr, $qp:ident => $call:expr) => {
        match $any {
            Any::Initialised($qp) => $call,
            Any::Connected($qp) => $call,
            Any::Drained($qp) => $call,
        }
    };
}

struct PairWithMemory {
    pair: Pair,
    local: MemoryRegion,
    remote: MemoryRegion,
}

impl PairWithMemory {
    /// A queue pair in a state, and the one that is connected to it.
    fn queue_pairs(&self, state: State) -> (Any, QueuePair<Connected>) {
        if state == State::Initialised {
            let waiting = self.pair.a.queue_pair(self.pair.a.config());
            let peer = self.pair.b.queue_pair(self.pair.b.config().retries(1));
            let peer = peer.connect(&waiting.endpoint()).expect("an address");
            return (Any::Initialised(waiting), peer);
        }
        let (mut qp, peer) = self.pair.connect(|config| config.retries(1));
        let any = match state {
            State::Drained => Any::Drained(qp.drain().expect("nothing is under way")),
            State::Failed => {
                qp.fail().expect("from any state");
                Any::Connected(qp)
            }
            State::Initialised | State::Connected => Any::Connected(qp),
        };
        (any, peer)
    }

    fn state(any: &Any) -> State {
        match on_any!(any, qp => qp.query())
            .expect("a device that answers")
            .stage
        {
            QueuePairStage::Initialised => State::Initialised,
            QueuePairStage::ReadyToReceive | QueuePairStage::ReadyToSend => State::Connected,
            QueuePairStage::Drained => State::Drained,
            QueuePairStage::Failed => State::Failed,
        }
    }

    fn posted(result: Result<(), PostError>, any: &Any) -> Expected {
        match result {
            Ok(()) => Expected::Then(Self::state(any)),
            Err(PostError::Failed) => Expected::RefusedFailed,
            Err(other) => panic!("{other}"),
        }
    }

    fn send(&mut self, mut any: Any) -> Expected {
        let Any::Connected(qp) = &mut any else {
            return Expected::NoSuchCall;
        };
        let pieces = [self.local.slice(0..8).expect("inside")];
        let result = qp.write(1, &pieces, self.remote.remote().at(0), Flags::SIGNALLED);
        if result.is_ok() {
            qp.ring();
            assert_eq!(self.pair.wait_a(1)[0].status(), Status::Success);
        }
        Self::posted(result, &any)
    }

    fn drain(any: Any) -> Expected {
        let Any::Connected(qp) = any else {
            return Expected::NoSuchCall;
        };
        match qp.drain() {
            Ok(drained) => Expected::Then(Self::state(&Any::Drained(drained))),
            Err(refused) => {
                assert!(
                    matches!(refused.error, RdmaError::Failed { .. }),
                    "{refused}"
                );
                let handed_back = Any::Connected(refused.into_queue_pair());
                assert_eq!(Self::state(&handed_back), State::Failed);
                Expected::RefusedFailed
            }
        }
    }

    fn peer_writes(&mut self, any: &Any, mut peer: QueuePair<Connected>, key: u32) -> Expected {
        let mut target = self.local.remote().at(0);
        target.key ^= key;
        let pieces = [self.remote.slice(0..8).expect("inside")];
        peer.write(1, &pieces, target, Flags::SIGNALLED)
            .expect("room");
        peer.ring();
        let status = loop {
            self.pair.b.events();
            let mut batch = [ringside_pmd::rdma::Completion::EMPTY; 1];
            if let [done] = self.pair.b.completions.poll(&mut batch) {
                break done.status();
            }
            self.pair.pass();
        };
        let number = on_any!(any, qp => qp.number());
        let failed = self.pair.a.events().iter().any(|event| {
            matches!(event, Event::QueuePairFailed { queue_pair, .. } if *queue_pair == number)
        });
        match (status, failed) {
            (Status::Success, false) => Expected::Then(Self::state(any)),
            (Status::RetryExceeded, false) => Expected::Silence,
            (Status::RemoteAccess, true) => {
                assert_eq!(Self::state(any), State::Failed);
                Expected::FailsByEvent
            }
            other => panic!("{other:?}"),
        }
    }

    fn found(&mut self, state: State, call: Call) -> Expected {
        let (mut any, peer) = self.queue_pairs(state);
        assert_eq!(Self::state(&any), state);
        match call {
            Call::Receive => {
                let pieces = [self.local.slice(0..8).expect("inside")];
                let result = on_any!(&mut any, qp => qp.receive(1, &pieces));
                Self::posted(result, &any)
            }
            Call::Send => self.send(any),
            Call::Drain => Self::drain(any),
            Call::Resume => match any {
                Any::Drained(qp) => {
                    let resumed = qp.resume().expect("it was drained");
                    Expected::Then(Self::state(&Any::Connected(resumed)))
                }
                Any::Initialised(_) | Any::Connected(_) => Expected::NoSuchCall,
            },
            Call::Fail => match &mut any {
                Any::Connected(qp) => {
                    qp.fail().expect("from any state");
                    Expected::Then(Self::state(&any))
                }
                Any::Initialised(_) | Any::Drained(_) => Expected::NoSuchCall,
            },
            Call::Query => Expected::Then(Self::state(&any)),
            Call::PeerWrites => self.peer_writes(&any, peer, 0),
            Call::PeerBreaksRules => self.peer_writes(&any, peer, 0x77),
            Call::Destroy => {
                on_any!(any, qp => qp.destroy()).expect("a device that answers");
                Expected::Gone
            }
        }
    }
}

#[test]
fn every_call_in_every_state_follows_the_specification() {
    let pair = Pair::new();
    let (local, remote) = (pair.a.region(64), pair.b.region(64));
    let mut bench = PairWithMemory {
        pair,
        local,
        remote,
    };
    for state in STATES {
        for call in CALLS {
            let found = bench.found(state, call);
            assert_eq!(found, expected(state, call), "{state:?}, {call:?}");
            // the outstanding requests of the failed queue pair
            bench.pair.a.events();
            bench.pair.b.events();
        }
    }
    let PairWithMemory {
        pair,
        local,
        remote,
    } = bench;
    drop((local, remote));
    pair.finish();
}
