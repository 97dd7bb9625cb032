//! Every type that an application meets has a name that it can write.

use ringside::driver::rdma::{
    CompletionQueue, Connected, Flags, Fragment, PeerReport, PostError, QueuePair, QueuePairReport,
    RemoteAddress, requests,
};
use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::Path;

/// A request by its own type, as an application passes it on.
fn post(
    queue_pair: &mut QueuePair<Connected>,
    fragments: &[Fragment],
    to: RemoteAddress,
) -> Result<(), PostError> {
    let write = requests::Write {
        fragments,
        remote_address: to.address,
        remote_key: to.key,
        immediate: None,
    };
    queue_pair.post(1, &write, Flags::SIGNALLED)?;
    let read = requests::Read {
        fragments,
        remote_address: to.address,
        remote_key: to.key,
        invalidate_local: false,
    };
    queue_pair.post(2, &read, Flags::SIGNALLED)?;
    queue_pair.post(3, &requests::Nop, Flags::SIGNALLED)
}

#[test]
fn types_of_requests_handles_and_refusals_have_names() {
    let _: fn(&mut QueuePair<Connected>, &[Fragment], RemoteAddress) -> _ = post;
    let _: fn(&CompletionQueue) -> ringside::cq::CompletionQueueHandle = CompletionQueue::handle;
    let _: fn(&QueuePairReport) -> Option<&PeerReport> = |report| report.peer.as_ref();
    let _: [Option<ringside::cm::ListenError>; 0] = [];
    let _: [Option<ringside::cm::RequestError>; 0] = [];
    let _: [Option<ringside::qp::PostReceiveError>; 0] = [];
    let _: [Option<ringside::hmc::PbleError>; 0] = [];
}

/// The crates of this workspace that a manifest names under `[dependencies]`.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = read_to_string(manifest).unwrap();
    // A crate may have none.
    let section = text.split("[dependencies]").nth(1).unwrap_or("");
    let lines = section.lines().skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(".workspace")?.0.strip_prefix("ringside-"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_crate_whose_types_an_exported_one_returns_is_exported_too() {
    let facade = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = read_to_string(facade.join("src/lib.rs")).unwrap();
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("pub use ringside_")?.split_once(" as "))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert!(exported.len() > 10, "{exported:?}");
    for name in &exported {
        let manifest = facade.parent().unwrap().join(name).join("Cargo.toml");
        let missing: Vec<_> = dependencies(&manifest)
            .difference(&exported)
            .cloned()
            .collect();
        assert!(missing.is_empty(), "{name} depends on {missing:?}");
    }
}
