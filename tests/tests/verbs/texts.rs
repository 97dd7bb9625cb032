//! Objects and errors as they are printed.

use ringside_bus::DmaBuffer;
use ringside_pmd::rdma::Access;
use ringside_testkit::Pair;
use std::fmt::Debug;

/// Buffers that form a region, last one first.
fn buffers(pair: &Pair) -> Vec<DmaBuffer> {
    let buffer = |_| pair.a.device.allocate(4096).unwrap();
    (0..500).map(buffer).collect()
}

/// The text of a value has at most a screen of characters.
fn is_short(what: &str, value: &dyn Debug) {
    let text = format!("{value:?}");
    assert!(text.len() < 2_000, "{what}: {} characters", text.len());
    let text = format!("{value:#?}");
    assert!(text.lines().count() < 60, "{what}: {text}");
}

#[test]
fn objects_and_errors_fit_on_a_screen_however_many_buffers_they_hold() {
    let pair = Pair::new();
    is_short("a completion queue", &pair.a.completions);
    let region = pair.a.domain.register_all(buffers(&pair), Access::ALL);
    let region = region.unwrap();
    is_short("a region", &region);
    let other = &pair.b.domain;
    let refused = other.register_all(buffers(&pair), Access::ALL).unwrap_err();
    assert_eq!(refused.buffers.len(), 500);
    is_short("a refused registration", &refused);
    let refused = region.reregister(other, Access::ALL).unwrap_err();
    is_short("a refused change", &refused);
    let mut fast = pair.a.domain.fast_region(4).unwrap();
    let refused = fast.load(buffers(&pair)).unwrap_err();
    is_short("memory that was not loaded", &refused);
    let mut fast = pair.a.domain.fast_region(512).unwrap();
    fast.load(buffers(&pair)).unwrap();
    is_short("a fast region", &fast);
    drop((fast, refused));
    drop(pair);
}
