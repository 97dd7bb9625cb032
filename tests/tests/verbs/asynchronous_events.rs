//! Every named asynchronous event in every state of its subject: the driver's report and action,
//! and that nothing is reported or completed twice. The model injects events without a cause in its
//! own state, so only the driver decides.
//!
//! The meaning of an event follows irdma (`hw.c`, `irdma_set_flush_fields`, `irdma_process_aeq`).

use ringside_model::Fault;
use ringside_pmd::rdma::{
    Completion, CompletionQueue, Connected, Drained, Event, Initialised, MemoryRegion, QueuePair,
    QueuePairConfig, QueuePairStage, Status,
};
use ringside_pmd::recovery::FailureCause;
use ringside_spec::rdma::ae_codes::{AeCode, QueuePairEvent};
use ringside_spec::rdma::commands::AeSource;
use ringside_testkit::{Bed, End, Pair, config};

/// The meaning of an event about a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// The queue pair fails, for this reason.
    Fails(QueuePairEvent),
    /// It continues.
    Notice,
    /// It continues; the group differs from the request.
    GroupRefused,
    /// The completion queue of that number fails.
    QueueFails,
    /// The device fails.
    DeviceFails,
}

use Means::{DeviceFails, Fails, GroupRefused, Notice, QueueFails};
use QueuePairEvent::{AccessError, Catastrophic, RequestError};

const TABLE: [(AeCode, Means); 89] = [
    (AeCode::UnallocatedStag, Fails(AccessError)),
    (AeCode::InvalidStag, Fails(AccessError)),
    (AeCode::BadQueuePair, Fails(AccessError)),
    (AeCode::BadProtectionDomain, Fails(AccessError)),
    (AeCode::BadStagKey, Fails(AccessError)),
    (AeCode::BadStagIndex, Fails(AccessError)),
    (AeCode::BoundsViolation, Fails(AccessError)),
    (AeCode::RightsViolation, Fails(AccessError)),
    (AeCode::TaggedOffsetWrap, Fails(AccessError)),
    (AeCode::FastRegisterValidStag, Fails(Catastrophic)),
    (AeCode::FastRegisterWindowStag, Fails(Catastrophic)),
    (AeCode::FastRegisterInvalidRights, Fails(Catastrophic)),
    (AeCode::FastRegisterInvalidLength, Fails(Catastrophic)),
    (AeCode::InvalidateShared, Fails(Catastrophic)),
    (AeCode::InvalidateWithoutRemoteAccess, Fails(AccessError)),
    (AeCode::InvalidateWithBoundWindows, Fails(Catastrophic)),
    (AeCode::BindAlreadyValid, Fails(AccessError)),
    (AeCode::BindOfMemoryRegion, Fails(Catastrophic)),
    (AeCode::BindToZeroBased, Fails(Catastrophic)),
    (AeCode::BindToWindow, Fails(Catastrophic)),
    (AeCode::BindInvalidRights, Fails(AccessError)),
    (AeCode::BindInvalidBounds, Fails(AccessError)),
    (AeCode::BindInvalidParent, Fails(Catastrophic)),
    (AeCode::BindDisabled, Fails(AccessError)),
    (AeCode::PrivilegedOperationDenied, Fails(AccessError)),
    (AeCode::InvalidateTypeOneWindow, Fails(Catastrophic)),
    (AeCode::ZeroBasedTypeOneBind, Fails(Catastrophic)),
    (AeCode::FastRegisterBadPageSize, Fails(Catastrophic)),
    (AeCode::BindWrongType, Fails(Catastrophic)),
    (AeCode::FastRegisterPageListMismatch, Fails(Catastrophic)),
    (AeCode::DatagramTooLong, Fails(Catastrophic)),
    (AeCode::DatagramBadProtectionDomain, Fails(Catastrophic)),
    (AeCode::DatagramTooShort, Fails(Catastrophic)),
    (AeCode::BadLayerFourLength, Fails(Catastrophic)),
    (AeCode::BadClose, Fails(Catastrophic)),
    (AeCode::BadConnectionClose, Fails(Catastrophic)),
    (AeCode::CompletionQueueError, Fails(Catastrophic)),
    (AeCode::ReadWithOrdZero, Fails(Catastrophic)),
    (AeCode::StagZeroNotAllowed, Fails(AccessError)),
    (AeCode::InboundReadQueueFull, Fails(Catastrophic)),
    (AeCode::InvalidInfinibandRequest, Fails(RequestError)),
    (AeCode::UnexpectedWqeOpcode, Fails(Catastrophic)),
    (AeCode::InvalidWqeParameter, Fails(Catastrophic)),
    (AeCode::InvalidWqeFragment, Fails(Catastrophic)),
    (AeCode::RemoteAccessError, Fails(AccessError)),
    (AeCode::RemoteOperationError, Fails(Catastrophic)),
    (AeCode::LastStreamingMessageTooLong, Fails(Catastrophic)),
    (AeCode::InvalidRequest, Fails(Catastrophic)),
    (AeCode::GapInMessageNumbers, Fails(Catastrophic)),
    (AeCode::MessageTooLong, Fails(Catastrophic)),
    (AeCode::BadDdpVersion, Fails(Catastrophic)),
    (AeCode::BadMessageOffset, Fails(Catastrophic)),
    (AeCode::NoBufferForMessage, Fails(Catastrophic)),
    (AeCode::BadDdpQueueNumber, Fails(Catastrophic)),
    (AeCode::NoLastBit, Fails(Catastrophic)),
    (AeCode::BadRdmapVersion, Fails(Catastrophic)),
    (AeCode::UnexpectedRdmapOpcode, Fails(Catastrophic)),
    (AeCode::InvalidReadRequest, Fails(Catastrophic)),
    (AeCode::InvalidWriteOrReadResponse, Fails(Catastrophic)),
    (AeCode::RoceResponseLength, Fails(Catastrophic)),
    (AeCode::EmptyMulticastGroup, GroupRefused),
    (AeCode::BadMulticastAddress, GroupRefused),
    (AeCode::BadMulticastQueuePair, GroupRefused),
    (AeCode::MulticastProtocolMismatch, GroupRefused),
    (AeCode::InvalidArpEntry, Fails(Catastrophic)),
    (AeCode::InvalidTcpOption, Fails(Catastrophic)),
    (AeCode::StaleArpEntry, Fails(Catastrophic)),
    (AeCode::InvalidAddressHandle, Fails(Catastrophic)),
    (AeCode::CloseComplete, Fails(Catastrophic)),
    (AeCode::ConnectionReset, Fails(Catastrophic)),
    (AeCode::FinReceived, Fails(Catastrophic)),
    (AeCode::MarkerMismatch, Fails(Catastrophic)),
    (AeCode::BadCrc, Fails(Catastrophic)),
    (AeCode::SegmentTooSmall, Fails(Catastrophic)),
    (AeCode::SynReceived, Fails(Catastrophic)),
    (AeCode::TerminateReceived, Fails(Catastrophic)),
    (AeCode::TooManyRetries, Fails(Catastrophic)),
    (AeCode::TooManyKeepalives, Fails(Catastrophic)),
    (AeCode::DoubtfulReachability, Notice),
    (AeCode::ConnectionEstablished, Notice),
    (AeCode::TooManyReceiverNotReady, Fails(Catastrophic)),
    (AeCode::ResourceExhaustion, Notice),
    (AeCode::ResetSent, Fails(Catastrophic)),
    (AeCode::TerminateSent, Fails(Catastrophic)),
    (AeCode::ResetNotSent, Notice),
    (AeCode::QueuePairCatastrophic, Fails(Catastrophic)),
    (AeCode::FunctionCatastrophic, DeviceFails),
    (AeCode::CompletionQueueCatastrophic, QueueFails),
    (AeCode::SuspendComplete, Notice),
];

/// The kind of a queue pair at the time of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Initialised,
    Connected,
    Drained,
    Failed,
    /// Destroyed: the event was still queued.
    Gone,
}

const STATES: [State; 5] = [
    State::Initialised,
    State::Connected,
    State::Drained,
    State::Failed,
    State::Gone,
];

/// The expected result of an event in a state: the stage of the queue pair afterwards, and true if
/// its receive is flushed by the event.
fn expected(means: Means, state: State) -> (Option<QueuePairStage>, bool) {
    use QueuePairStage as Stage;
    match (means, state) {
        (_, State::Gone) => (None, false),
        (_, State::Failed) => (Some(Stage::Failed), false),
        (Fails(_), State::Initialised | State::Connected | State::Drained) => {
            (Some(Stage::Failed), true)
        }
        (Notice | GroupRefused | QueueFails | DeviceFails, State::Initialised) => {
            (Some(Stage::Initialised), false)
        }
        (Notice | GroupRefused | QueueFails | DeviceFails, State::Connected) => {
            (Some(Stage::ReadyToSend), false)
        }
        (Notice | GroupRefused | QueueFails | DeviceFails, State::Drained) => {
            (Some(Stage::Drained), false)
        }
    }
}

/// A queue pair, in whichever type its state has, with one receive posted.
enum Subject {
    Initialised(QueuePair<Initialised>),
    Connected(QueuePair<Connected>),
    Drained(QueuePair<Drained>),
    Gone,
}

struct Scene {
    pair: Pair,
    region: MemoryRegion,
}

impl Scene {
    fn subject(&mut self, state: State) -> (Subject, u32, Option<QueuePair<Connected>>) {
        let place = [self.region.slice(0..8).expect("inside")];
        let number;
        if state == State::Initialised {
            let mut waiting = self.pair.a.queue_pair(self.pair.a.config());
            waiting.receive(1, &place).expect("room");
            number = waiting.number();
            return (Subject::Initialised(waiting), number, None);
        }
        let (mut connected, peer) = self.pair.connect(|config| config);
        connected.receive(1, &place).expect("room");
        number = connected.number();
        let subject = match state {
            State::Drained => Subject::Drained(connected.drain().expect("nothing under way")),
            State::Failed => {
                connected.fail().expect("from any state");
                assert_eq!(self.flushed(), 1);
                Subject::Connected(connected)
            }
            State::Gone => {
                connected.destroy().expect("a device that answers");
                Subject::Gone
            }
            State::Initialised | State::Connected => Subject::Connected(connected),
        };
        (subject, number, Some(peer))
    }

    /// Receives that have come back flushed.
    fn flushed(&mut self) -> usize {
        let mut batch = [Completion::EMPTY; 4];
        let mut count = 0;
        for _ in 0..3 {
            for done in self.pair.a.completions.poll(&mut batch) {
                assert_ne!(done.status(), Status::Success, "{done:?}");
                count += 1;
            }
            // The peers' queue learns of them when it is polled.
            assert!(self.pair.b.completions.poll(&mut batch).is_empty());
            self.pair.pass();
        }
        count
    }

    /// Makes the device report this event; returns the driver's events.
    fn report(&self, code: AeCode, source: AeSource, queue_number: u32) -> Vec<Event> {
        let fault = Fault::EngineEvent {
            code: code.code(),
            source: source.code(),
            queue_number,
        };
        self.pair.world.with(move |world| world.inject(0, fault));
        self.pair.pass();
        self.pair.a.events()
    }
}

fn stage(subject: &Subject) -> Option<QueuePairStage> {
    let report = match subject {
        Subject::Initialised(queue_pair) => queue_pair.query(),
        Subject::Connected(queue_pair) => queue_pair.query(),
        Subject::Drained(queue_pair) => queue_pair.query(),
        Subject::Gone => return None,
    };
    Some(report.expect("a device that answers").stage)
}

/// True if an event matches the table.
fn says(event: &Event, means: Means, code: AeCode, number: u32) -> bool {
    match (*event, means) {
        (
            Event::QueuePairFailed {
                queue_pair,
                code: told,
                reason,
                ..
            },
            Fails(expected),
        ) => (queue_pair, told, reason) == (number, code, expected),
        (
            Event::Notice {
                queue_pair,
                code: told,
            },
            Notice,
        )
        | (
            Event::MulticastRefused {
                queue_pair,
                code: told,
            },
            GroupRefused,
        ) => (queue_pair, told) == (number, code),
        (
            Event::CompletionQueueFailed {
                completion_queue,
                code: told,
            },
            QueueFails,
        ) => (completion_queue, told) == (number, code),
        (Event::DeviceFailed { cause }, DeviceFails) => {
            cause == FailureCause::FunctionFailed { code: code.code() }
        }
        _ => false,
    }
}

#[test]
fn every_event_of_a_queue_pair_in_every_state_follows_the_table() {
    let pair = Pair::new();
    let region = pair.a.region(64);
    let mut scene = Scene { pair, region };
    for (code, means) in TABLE {
        // Those about other objects have tests of their own.
        if matches!(means, QueueFails | DeviceFails) {
            continue;
        }
        for state in STATES {
            let (subject, number, peer) = scene.subject(state);
            let told = scene.report(code, AeSource::SendQueue, number);
            let [event] = told.as_slice() else {
                panic!("{code:?}, {state:?}: {told:?}");
            };
            assert!(
                says(event, means, code, number),
                "{code:?}, {state:?}: {event:?}"
            );
            let found = (stage(&subject), scene.flushed() == 1);
            assert_eq!(found, expected(means, state), "{code:?}, {state:?}");
            drop((subject, peer));
            // A destroyed queue pair drops its receive.
            scene.flushed();
        }
    }
    let Scene { pair, region } = scene;
    drop(region);
    pair.finish();
}

/// A completion queue when the event comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueState {
    Unused,
    InUse,
    Failed,
    Gone,
}

#[test]
fn every_event_about_a_completion_queue_in_every_state_fails_it_and_its_queue_pairs_once() {
    let mut pair = Pair::new();
    let region = pair.a.region(64);
    let sources = [
        AeSource::CompletionQueue,
        AeSource::CompletionQueue6,
        AeSource::CompletionQueueA,
        AeSource::CompletionQueueE,
    ];
    for (place, (code, _)) in TABLE.into_iter().enumerate() {
        // By code these belong to queue pairs or to the device, for any source.
        if code.attribution() == ringside_spec::rdma::ae_codes::Attribution::QueuePair
            || code.attribution() == ringside_spec::rdma::ae_codes::Attribution::QueuePairAnySide
            || code == AeCode::FunctionCatastrophic
        {
            continue;
        }
        let source = sources[place % sources.len()];
        for state in [
            QueueState::Unused,
            QueueState::InUse,
            QueueState::Failed,
            QueueState::Gone,
        ] {
            fail_queue(&mut pair, &region, code, source, state);
        }
    }
    drop(region);
    pair.finish();
}

fn fail_queue(
    pair: &mut Pair,
    region: &MemoryRegion,
    code: AeCode,
    source: AeSource,
    state: QueueState,
) {
    let mut queue = Some(pair.a.device.completion_queue(16).expect("a queue"));
    let number = queue
        .as_ref()
        .map(CompletionQueue::number)
        .expect("a queue");
    let mut user = queue
        .as_ref()
        .filter(|_| state != QueueState::Unused)
        .map(|queue| {
            let made = pair.a.domain.queue_pair(QueuePairConfig::reliable(queue));
            made.expect("a queue pair")
        });
    if let Some(user) = &mut user {
        let place = [region.slice(0..8).expect("inside")];
        user.receive(7, &place).expect("room");
    }
    let report = |pair: &Pair| {
        let fault = Fault::EngineEvent {
            code: code.code(),
            source: source.code(),
            queue_number: number,
        };
        pair.world.with(move |world| world.inject(0, fault));
        pair.pass();
        pair.a.events()
    };
    if state == QueueState::Failed {
        report(pair);
    }
    if state == QueueState::Gone {
        drop((user.take(), queue.take()));
    }
    let told = report(pair);
    let expected = Event::CompletionQueueFailed {
        completion_queue: number,
        code,
    };
    assert_eq!(told, [expected], "{code:?}, {state:?}");
    let Some(queue) = &mut queue else {
        return;
    };
    let mut batch = [Completion::EMPTY; 4];
    let mut done = Vec::new();
    for _ in 0..4 {
        done.extend_from_slice(queue.poll(&mut batch));
        pair.pass();
    }
    let owed = usize::from(user.is_some());
    assert_eq!(done.len(), owed, "{code:?}, {state:?}: {done:?}");
    assert!(
        done.iter()
            .all(|one| (one.id, one.status()) == (7, Status::Flushed))
    );
    assert!(queue.query().expect("a device that answers").failed);
    if let Some(user) = &user {
        assert!(user.has_failed(), "{code:?}, {state:?}");
    }
}

#[test]
fn an_event_about_the_function_or_its_command_queue_fails_the_device_once() {
    let control = |code| (code, AeSource::CompletionQueue, 0);
    for (code, source, number) in [
        (AeCode::FunctionCatastrophic, AeSource::None, 0),
        (AeCode::FunctionCatastrophic, AeSource::SendQueue, 9),
        (AeCode::FunctionCatastrophic, AeSource::CompletionQueue, 3),
        control(AeCode::CompletionQueueCatastrophic),
        control(AeCode::CompletionQueueError),
    ] {
        let bed = Bed::open();
        let mut end = End::new(&bed, 0, &config());
        let fault = Fault::EngineEvent {
            code: code.code(),
            source: source.code(),
            queue_number: number,
        };
        for _ in 0..2 {
            bed.with(move |world| world.inject(0, fault));
        }
        bed.clock().pause(std::time::Duration::from_millis(1));
        let told = end.events();
        let cause = FailureCause::FunctionFailed { code: code.code() };
        assert_eq!(told, [Event::DeviceFailed { cause }], "{code:?}");
        end.device.recover().expect("back in service");
        assert_eq!(end.events(), []);
        bed.check_breaches(&[]);
    }
}

#[test]
fn the_table_lists_every_code_that_has_a_name_once() {
    let named = (0..1 << 12).map(AeCode::from_code);
    let named: Vec<AeCode> = named
        .filter(|code| !matches!(code, AeCode::Unknown(_)))
        .collect();
    let listed: Vec<AeCode> = TABLE.iter().map(|(code, _)| *code).collect();
    assert_eq!(listed, named);
}
