//! Time of the data path against a consumer that only writes completions.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ringside_benches::{CHAIN, Rig};
use ringside_qp::SendFlags;

const SIGNALLED: SendFlags = SendFlags::SIGNALLED;

fn data_path(criterion: &mut Criterion) {
    let mut rig = match Rig::new() {
        Ok(rig) => rig,
        Err(error) => panic!("{error:?}"),
    };
    let mut group = criterion.benchmark_group("write of 8 bytes");
    group.throughput(Throughput::Elements(1));
    group.bench_function("one in flight", |bencher| {
        bencher.iter(|| {
            rig.post_write(1, SIGNALLED).expect("room for one");
            rig.send.ring_doorbell();
            rig.complete(1);
            assert_eq!(rig.poll(), 1);
        });
    });
    group.bench_function("one in flight, inline", |bencher| {
        bencher.iter(|| {
            rig.post_write_inline(1, SIGNALLED).expect("room for one");
            rig.send.ring_doorbell();
            rig.complete(1);
            assert_eq!(rig.poll(), 1);
        });
    });
    group.throughput(Throughput::Elements(CHAIN as u64));
    group.bench_function("chain of 32", |bencher| {
        bencher.iter(|| {
            for id in 0..CHAIN as u64 {
                rig.post_write(id, SIGNALLED).expect("room for a chain");
            }
            rig.send.ring_doorbell();
            rig.complete(CHAIN);
            assert_eq!(rig.poll(), CHAIN);
        });
    });
    group.finish();
}

criterion_group!(benches, data_path);
criterion_main!(benches);
