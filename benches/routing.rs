//! How long it takes to place a key: `cargo bench --bench routing`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use laneway_client::routing::partition_of;

fn place_keys(criterion: &mut Criterion) {
    for bytes in [8, 36, 256] {
        let key = vec![7_u8; bytes];
        criterion.bench_function(&format!("place a key of {bytes} bytes"), |bencher| {
            bencher.iter(|| partition_of(black_box(&key), black_box(64)));
        });
    }
}

criterion_group!(benches, place_keys);
criterion_main!(benches);
