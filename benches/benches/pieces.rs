//! The time of a lookup and of its pieces, in nanoseconds: `cargo bench -p enrich-benches`. For information
//! only; `./test nightly` compares instruction counts instead of times (see `instructions`).

use criterion::{Criterion, criterion_group, criterion_main};
use enrich_benches::pieces::{Chain, Piece, Pieces};

fn pieces(c: &mut Criterion) {
    let mut pieces = Pieces::new().expect("the inputs can be created");
    for piece in Piece::ALL {
        c.bench_function(piece.name(), |b| b.iter(|| pieces.run(piece)));
    }
}

fn chain(c: &mut Criterion) {
    let mut chain = Chain::new().expect("the service can be created");
    c.bench_function("chain", |b| b.iter(|| chain.run()));
}

criterion_group!(benches, pieces, chain);
criterion_main!(benches);
