//! The data path allocates nothing after start.

use ringside_benches::{CHAIN, Rig};
use ringside_qp::SendFlags;

#[test]
fn posting_and_polling_allocate_nothing_after_start() {
    let mut rig = Rig::new().expect("a rig");
    let mut completed = 0;
    let counted = allocation_counter::measure(|| {
        for id in 0..10_000 {
            rig.post_write(id, SendFlags::SIGNALLED).expect("room");
            rig.post_write_inline(id, SendFlags::SIGNALLED)
                .expect("room");
            rig.send.ring_doorbell();
            rig.complete(2);
            completed += rig.poll();
        }
        for _ in 0..1_000 {
            for id in 0..CHAIN as u64 {
                rig.post_write(id, SendFlags::SIGNALLED).expect("room");
            }
            rig.complete(CHAIN);
            completed += rig.poll();
        }
    });
    assert_eq!(completed, 20_000 + 1_000 * CHAIN);
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

#[test]
fn the_counter_would_notice_an_allocation() {
    let counted = allocation_counter::measure(|| {
        std::hint::black_box(vec![1u8; 100]);
    });
    assert_eq!(counted.count_total, 1);
}
