//! Every cipher at 4 KiB, beside what it is made of and beside `memcpy`.
//!
//! `memcpy`, AWS-LC's AES-256-GCM under one key and its AES-256-XTS are the yardsticks: the sealed ciphers replace a copy,
//! and nothing that authenticates can be faster than its primitive.

use std::hint::black_box;
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sealdisk_cipher::{
    CipherName, FreshNonce, KeyContext, Nonces, SealedForm, SectorRun, SectorSealer, VolumeKey, XtsPlain64, fold,
    sector_sealer,
};
use sealdisk_units::{Lba, Lineage, SECTOR_SIZE};
use zeroize::Zeroizing;

const SEALED: [CipherName; 5] = [
    CipherName::Aegis256,
    CipherName::Aegis256X4,
    CipherName::Aes256Gcm,
    CipherName::XChaCha20Poly1305,
    CipherName::Aes256XtsRandom,
];

fn key(len: u8) -> VolumeKey {
    VolumeKey::new(Zeroizing::new((0..len).collect())).expect("32 or 64 bytes")
}

fn sealer(cipher: CipherName, fold: bool) -> SectorSealer {
    let context = KeyContext { cipher, lineage: Lineage([0; 16]), context: "benchmark", epoch: 0 };
    sector_sealer(&key(64), &context, fold)
}

/// Nonces drawn in batches of 32 sectors, as for a request of 128 KiB.
fn nonces() -> impl Iterator<Item = FreshNonce> {
    std::iter::repeat_with(|| Nonces::draw(32).expect("the kernel has random bytes")).flatten()
}

fn noise() -> [u8; SECTOR_SIZE] {
    let mut state = 1_u64;
    std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
}

/// Like a heap page half full: line pointers, free space, tuples.
fn page() -> [u8; SECTOR_SIZE] {
    let mut page = noise();
    page[200..1600].fill(0);
    page
}

/// Like the leaf of an index: no free space, tuples that differ a little.
fn leaf() -> [u8; SECTOR_SIZE] {
    let mut leaf = noise();
    for (i, tuple) in leaf.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let [low, high] = (i as u16).to_le_bytes();
        *tuple = [0, 0, high, 7, low, 0, 16, 0, low, high, 3, 0, 0, 0, 0, 0];
    }
    leaf
}

fn yardsticks(c: &mut Criterion) {
    let mut group = c.benchmark_group("yardstick");
    group.throughput(Throughput::Bytes(SECTOR_SIZE as u64));
    let (plain, mut out) = (noise(), [0; SECTOR_SIZE]);
    group.bench_function("memcpy", |b| b.iter(|| black_box(&mut out).copy_from_slice(black_box(&plain))));
    let gcm = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32]).expect("a key of 32 bytes"));
    group.bench_function("aws-lc aes-256-gcm, one key, in place", |b| {
        b.iter(|| {
            let nonce = Nonce::assume_unique_for_key([9; 12]);
            gcm.seal_in_place_separate_tag(nonce, Aad::from(&[0; 47]), black_box(&mut out)).expect("4096 bytes")
        });
    });
    let mut draw = nonces();
    group.bench_function("drawing a nonce", |b| b.iter(|| black_box(draw.next())));
    group.finish();
}

fn xts(c: &mut Criterion) {
    let mut group = c.benchmark_group("aes-xts-plain64");
    group.throughput(Throughput::Bytes(SECTOR_SIZE as u64));
    let (plain, mut out) = (noise(), [0; SECTOR_SIZE]);
    for (name, len, sector) in [("256, 4096", 64, 4096), ("256, 512", 64, 512), ("128, 4096", 32, 4096)] {
        let xts = XtsPlain64::new(&key(len), sector, 0).expect("a good key and sector");
        group.bench_function(format!("encrypt {name}"), |b| {
            b.iter(|| xts.encrypt_into(8, black_box(&plain), black_box(&mut out)));
        });
        group.bench_function(format!("decrypt {name}"), |b| b.iter(|| xts.decrypt(8, black_box(&mut out))));
    }
    group.finish();
}

fn sealed(c: &mut Criterion) {
    for cipher in SEALED {
        let mut group = c.benchmark_group(cipher.as_str());
        group.throughput(Throughput::Bytes(SECTOR_SIZE as u64));
        let (plain, mut out, mut draw) = (noise(), [0; SECTOR_SIZE], nonces());
        let mut seal = |b: &mut criterion::Bencher<'_>, sealer: &SectorSealer, plain: &[u8]| {
            // Drawing is measured by itself; here it is set-up.
            b.iter_batched(
                || draw.next().expect("there is always another"),
                |nonce| sealer.seal(Lba(1), nonce, black_box(plain), black_box(&mut out)),
                criterion::BatchSize::SmallInput,
            );
        };
        let (still, folding) = (sealer(cipher, false), sealer(cipher, true));
        group.bench_function("seal", |b| seal(b, &still, &plain));
        group.bench_function("seal, does not fold", |b| seal(b, &folding, &plain));
        group.bench_function("seal, folds: page", |b| seal(b, &folding, &page()));
        group.bench_function("seal, folds: leaf", |b| seal(b, &folding, &leaf()));
        for (name, plain) in [("open", noise()), ("open, folded", leaf())] {
            let mut draw = nonces();
            let mut nonce = || draw.next().expect("there is always another");
            let mut place = [0; SECTOR_SIZE];
            let sealed = folding.seal(Lba(1), nonce(), &plain, &mut place);
            let slot = match sealed.form {
                SealedForm::Plain => sealed.seal,
                SealedForm::Folded => folding.fold_mark(Lba(1), nonce()),
            };
            group.bench_function(name, |b| {
                b.iter_batched_ref(
                    || place,
                    |place| folding.open(Lba(1), &slot, black_box(place)).expect("just sealed"),
                    criterion::BatchSize::SmallInput,
                );
            });
        }
        group.bench_function("seal zero", |b| {
            let mut draw = nonces();
            b.iter_batched(
                || draw.next().expect("there is always another"),
                |nonce| still.seal_zero(Lba(1), nonce),
                criterion::BatchSize::SmallInput,
            );
        });
        group.finish();
    }
}

/// What is in no cache: sectors of a long request are sealed, or opened, where they are.
fn far(c: &mut Criterion) {
    const SECTORS: usize = 64 << 20 >> 12;
    let mut memory = vec![0; SECTORS * SECTOR_SIZE];
    let lbas = || (0..SECTORS as u64).map(Lba);
    for cipher in SEALED {
        let mut group = c.benchmark_group(format!("{}, from memory", cipher.as_str()));
        group.throughput(Throughput::Bytes(SECTOR_SIZE as u64));
        group.sample_size(10);
        let sealer = sealer(cipher, true);
        for (kind, plain) in [("does not fold", noise()), ("folds: page", page()), ("folds: leaf", leaf())] {
            // Seals all of the memory, then opens it, and returns how long either took for each sector.
            let mut pass = || {
                for sector in memory.chunks_exact_mut(SECTOR_SIZE) {
                    sector.copy_from_slice(&plain);
                }
                let mut slots = Vec::with_capacity(SECTORS);
                let nonces: Vec<_> = nonces().take(2 * SECTORS).collect();
                let mut nonces = nonces.into_iter();
                let mut nonce = || nonces.next().expect("two for each sector");
                let mut run = SectorRun::new(&sealer);
                let start = Instant::now();
                for (lba, sector) in lbas().zip(memory.chunks_exact_mut(SECTOR_SIZE)) {
                    let sealed = run.seal_in_place(lba, nonce(), sector);
                    slots.push(match sealed.form {
                        SealedForm::Plain => sealed.seal,
                        SealedForm::Folded => sealer.fold_mark(lba, nonce()),
                    });
                }
                let sealing = start.elapsed();
                let start = Instant::now();
                for ((lba, slot), sector) in lbas().zip(&slots).zip(memory.chunks_exact_mut(SECTOR_SIZE)) {
                    sealer.open(lba, slot, sector).expect("just sealed");
                }
                [sealing, start.elapsed()].map(|time| time / SECTORS as u32)
            };
            for (index, what) in ["seal", "open"].into_iter().enumerate() {
                group.bench_function(format!("{what}, {kind}"), |b| {
                    b.iter_custom(|times| pass()[index] * times as u32);
                });
            }
        }
        group.finish();
    }
}

fn shrinking(c: &mut Criterion) {
    let mut group = c.benchmark_group("fold");
    let mut text = [0; SECTOR_SIZE - 48];
    for (name, sector) in [("noise", noise()), ("page", page()), ("leaf", leaf())] {
        group.bench_function(name, |b| b.iter(|| fold(black_box(&sector), black_box(&mut text))));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = yardsticks, xts, sealed, far, shrinking
}
criterion_main!(benches);
