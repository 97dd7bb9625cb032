use super::*;
use ringside_spec::rdma::commands::AeSource;

/// The meaning of each code from a send queue, in the order of the reference; all that
/// are not here fail the queue pair.
const SPECIAL: [(AeCode, Meaning); 12] = [
    (
        AeCode::CompletionQueueError,
        Meaning::QueuePairFailed(Side::SendQueue),
    ),
    (AeCode::EmptyMulticastGroup, Meaning::MulticastRefused),
    (AeCode::BadMulticastAddress, Meaning::MulticastRefused),
    (AeCode::BadMulticastQueuePair, Meaning::MulticastRefused),
    (AeCode::MulticastProtocolMismatch, Meaning::MulticastRefused),
    (AeCode::DoubtfulReachability, Meaning::Notice),
    (AeCode::ConnectionEstablished, Meaning::Notice),
    (AeCode::ResourceExhaustion, Meaning::Notice),
    (AeCode::ResetNotSent, Meaning::Notice),
    (AeCode::FunctionCatastrophic, Meaning::FunctionFailed),
    (
        AeCode::CompletionQueueCatastrophic,
        Meaning::CompletionQueueFailed,
    ),
    (AeCode::SuspendComplete, Meaning::Notice),
];

/// Codes of a queue pair whose source the reference says not to look at.
const ANY_SIDE: [AeCode; 6] = [
    AeCode::BadConnectionClose,
    AeCode::CloseComplete,
    AeCode::ConnectionReset,
    AeCode::FinReceived,
    AeCode::SynReceived,
    AeCode::TerminateReceived,
];

fn event(ae_code: AeCode, source: AeSource) -> AsynchronousEvent {
    AsynchronousEvent {
        ae_code,
        source,
        queue_number: 9,
        ..AsynchronousEvent::ZERO
    }
}

/// Every code that has a name, by number.
fn named() -> Vec<AeCode> {
    let codes = (0..1 << 12).map(AeCode::from_code);
    codes
        .filter(|code| !matches!(code, AeCode::Unknown(_)))
        .collect()
}

#[test]
fn every_named_code_from_a_send_queue_means_what_the_table_says() {
    let codes = named();
    // The reference lists 89 codes.
    assert_eq!(codes.len(), 89);
    for code in codes {
        let listed = SPECIAL.iter().find(|(special, _)| *special == code);
        let side = if ANY_SIDE.contains(&code) {
            Side::Unknown
        } else {
            Side::SendQueue
        };
        let expected = listed.map_or(Meaning::QueuePairFailed(side), |(_, meaning)| *meaning);
        assert_eq!(
            meaning(&event(code, AeSource::SendQueue)),
            expected,
            "{code:?}"
        );
    }
}

#[test]
fn every_named_code_without_a_source_belongs_to_a_queue_pair_by_code_or_to_nothing() {
    for code in named() {
        let found = meaning(&event(code, AeSource::None));
        let by_code = matches!(
            code.attribution(),
            ringside_spec::rdma::ae_codes::Attribution::QueuePair
                | ringside_spec::rdma::ae_codes::Attribution::QueuePairAnySide
        );
        match code {
            AeCode::CompletionQueueError | AeCode::CompletionQueueCatastrophic => {
                assert_eq!(found, Meaning::CompletionQueueFailed);
            }
            AeCode::FunctionCatastrophic => assert_eq!(found, Meaning::FunctionFailed),
            _ if by_code => assert!(
                matches!(
                    found,
                    Meaning::QueuePairFailed(Side::Unknown)
                        | Meaning::Notice
                        | Meaning::MulticastRefused
                ),
                "{code:?}: {found:?}"
            ),
            _ => assert_eq!(found, Meaning::Unattributed, "{code:?}"),
        }
    }
}

#[test]
fn a_code_without_a_name_belongs_to_what_its_source_says() {
    let code = AeCode::from_code(0xABC);
    let cases = [
        (AeSource::None, Meaning::Unattributed),
        (AeSource::CompletionQueue6, Meaning::CompletionQueueFailed),
        (
            AeSource::ReceiveQueue3,
            Meaning::QueuePairFailed(Side::ReceiveQueue),
        ),
        (AeSource::Unknown(4), Meaning::Unattributed),
    ];
    for (source, expected) in cases {
        assert_eq!(meaning(&event(code, source)), expected, "{source:?}");
    }
}
