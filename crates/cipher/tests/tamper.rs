//! Whatever is changed in a sealed sector, in its seal or in where it is said to be: it does not open, and nothing of it
//! is given out.

use proptest::prelude::*;
use sealdisk_cipher::{
    CipherName, Form, FreshNonce, KeyContext, Nonces, NotAuthentic, Seal, Sealed, SealedForm, SectorRun, SectorSealer,
    VolumeKey, metadata_cipher, sector_sealer, superblock_mac,
};
use sealdisk_units::{Lba, Lineage, SECTOR_SIZE};
use zeroize::Zeroizing;

/// Ciphers that notice changes.
fn authenticated() -> Vec<CipherName> {
    CipherName::ALL.into_iter().filter(|cipher| cipher.is_authenticated()).collect()
}

/// Those, and the one that has seals and does not.
fn sealing() -> Vec<CipherName> {
    CipherName::ALL.into_iter().filter(|cipher| cipher.seal_len() > 0).collect()
}

fn nonce() -> FreshNonce {
    Nonces::draw(1).expect("the kernel has random bytes").next().expect("one was drawn")
}

fn key(byte: u8) -> VolumeKey {
    VolumeKey::new(Zeroizing::new(vec![byte; 64].into())).expect("64 bytes")
}

fn context(cipher: CipherName) -> KeyContext<'static> {
    KeyContext { cipher, lineage: Lineage([3; 16]), context: "layout=packed fold=true offset=16777216", epoch: 7 }
}

fn sealer(cipher: CipherName, fold: bool) -> SectorSealer {
    sector_sealer(&key(9), &context(cipher), fold)
}

/// A sector as the store keeps it.
#[derive(Clone, Debug)]
struct Stored {
    lba: Lba,
    slot: Seal,
    place: Vec<u8>,
}

impl Stored {
    fn seal(sealer: &SectorSealer, lba: Lba, plain: &[u8]) -> Self {
        let mut place = vec![0; SECTOR_SIZE];
        let sealed = sealer.seal(lba, nonce(), plain, &mut place);
        Self { lba, slot: Self::slot(sealer, lba, &sealed), place }
    }

    fn seal_in_place(sealer: &SectorSealer, lba: Lba, plain: &[u8]) -> Self {
        let mut place = plain.to_vec();
        let sealed = SectorRun::new(sealer).seal_in_place(lba, nonce(), &mut place);
        Self { lba, slot: Self::slot(sealer, lba, &sealed), place }
    }

    fn slot(sealer: &SectorSealer, lba: Lba, sealed: &Sealed) -> Seal {
        match sealed.form {
            SealedForm::Plain => sealed.seal,
            SealedForm::Folded => sealer.fold_mark(lba, nonce()),
        }
    }

    fn open(&self, sealer: &SectorSealer) -> Result<Vec<u8>, NotAuthentic> {
        let mut sector = self.place.clone();
        let opened = sealer.open(self.lba, &self.slot, &mut sector);
        assert!(opened.is_ok() || sector.iter().all(|byte| *byte == 0), "a sector that does not open is wiped");
        opened.map(|()| sector)
    }
}

/// A sector that folds, or one that does not.
fn text(folds: bool, seed: u8) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32 ^ u32::from(seed);
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..SECTOR_SIZE).map(|i| if folds && i % 512 > 400 { 0 } else { noise() }).collect()
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8 % bytes.len()] ^= 1 << (bit % 8);
}

fn flipped(seal: &Seal, bit: usize) -> Seal {
    let mut bytes = seal.as_bytes().to_vec();
    flip(&mut bytes, bit);
    Seal::from_slice(&bytes)
}

#[test]
fn what_is_sealed_opens() {
    for cipher in sealing() {
        for (fold, folds) in [(false, false), (false, true), (true, false), (true, true)] {
            let (sealer, plain) = (sealer(cipher, fold), text(folds, 1));
            let expected = if fold && folds { Form::FoldMark } else { Form::Plain };
            for seal in [Stored::seal, Stored::seal_in_place] {
                let stored = seal(&sealer, Lba(5), &plain);
                assert_eq!(sealer.claimed_form(&stored.slot), Some(expected), "{cipher}");
                assert_eq!(stored.open(&sealer).as_ref(), Ok(&plain), "{cipher} {fold} {folds}");
                // A sealer that does not fold opens what one that does has sealed.
                assert_eq!(stored.open(&crate::sealer(cipher, false)).as_ref(), Ok(&plain));
                assert_ne!(stored.place, plain);
            }
        }
    }
}

/// How the sectors of a run are sealed, each of which folds or does not; and that each opens to what it was.
fn run(sealer: &SectorSealer, folds: &[bool]) -> Vec<SealedForm> {
    let (mut run, mut run_in_place) = (SectorRun::new(sealer), SectorRun::new(sealer));
    let seal = |(lba, folds): (u64, &bool)| {
        let (lba, plain) = (Lba(lba), text(*folds, lba as u8));
        let (mut copied, mut in_place) = (vec![0; SECTOR_SIZE], plain.clone());
        let sealed = run.seal(lba, nonce(), &plain, &mut copied);
        let sealed_in_place = run_in_place.seal_in_place(lba, nonce(), &mut in_place);
        assert_eq!(sealed.form, sealed_in_place.form);
        for (sealed, place) in [(sealed, copied), (sealed_in_place, in_place)] {
            let stored = Stored { lba, slot: Stored::slot(sealer, lba, &sealed), place };
            assert_eq!(stored.open(sealer).as_ref(), Ok(&plain));
        }
        sealed.form
    };
    (0..).zip(folds).map(seal).collect()
}

#[test]
fn a_run_of_sectors_stops_looking_for_what_it_does_not_find() {
    let forms = |folds: &[bool]| -> Vec<_> {
        folds.iter().map(|folds| if *folds { SealedForm::Folded } else { SealedForm::Plain }).collect()
    };
    for cipher in sealing() {
        let folding = sealer(cipher, true);
        // What folds, folds; few others among them, or before them, change nothing.
        let few = [[true; 20], std::array::from_fn(|i| i % 4 == 3), std::array::from_fn(|i| i > 2)].concat();
        assert_eq!(run(&folding, &few), forms(&few), "{cipher}");
        // After four others every eighth is tried, and from the first that folds on, all are.
        let many = [[false; 21], [true; 21]].concat();
        let expected = [[false; 24].as_slice(), &[true; 18]].concat();
        assert_eq!(run(&folding, &many), forms(&expected), "{cipher}");
        assert_eq!(run(&sealer(cipher, false), &[true; 20]), forms(&[false; 20]), "{cipher}");
    }
}

#[test]
fn a_seal_of_zero_is_good_for_a_place_of_zeros_only() {
    for cipher in sealing() {
        let sealer = sealer(cipher, false);
        let slot = sealer.seal_zero(Lba(1), nonce());
        let mut stored = Stored { lba: Lba(1), slot, place: vec![0; SECTOR_SIZE] };
        assert_eq!(stored.open(&sealer), Ok(vec![0; SECTOR_SIZE]));
        stored.place[SECTOR_SIZE - 1] = 1;
        assert_eq!(stored.open(&sealer), Err(NotAuthentic));
        stored.place = text(false, 2);
        assert_eq!(stored.open(&sealer), Err(NotAuthentic));
        assert_eq!(sealer.open_zero(Lba(1), &slot), Ok(()));
        assert_eq!(sealer.open_fold_mark(Lba(1), &slot), Err(NotAuthentic));
        assert_eq!(sealer.open_zero(Lba(1), &sealer.fold_mark(Lba(1), nonce())), Err(NotAuthentic));
    }
}

#[test]
fn every_write_gives_another_seal_and_another_ciphertext() {
    for cipher in sealing() {
        let sealer = sealer(cipher, false);
        let plain = text(false, 3);
        let [one, other] = [(); 2].map(|()| Stored::seal(&sealer, Lba(1), &plain));
        assert_ne!(one.slot, other.slot);
        let equal = one.place.chunks(16).zip(other.place.chunks(16)).filter(|(a, b)| a == b).count();
        assert_eq!(equal, 0, "{cipher}");
        assert_ne!(sealer.seal_zero(Lba(1), nonce()) == sealer.seal_zero(Lba(1), nonce()), cipher.is_authenticated());
    }
}

#[test]
fn an_absent_seal_is_never_zeros() {
    for cipher in authenticated() {
        let sealer = sealer(cipher, true);
        for slot in [vec![0; sealer.seal_len()], vec![0xff; sealer.seal_len()], vec![], vec![1], vec![2; 48]] {
            let stored = Stored { lba: Lba(0), slot: Seal::from_slice(&slot), place: vec![0; SECTOR_SIZE] };
            assert_eq!(stored.open(&sealer), Err(NotAuthentic));
            assert_eq!(sealer.open_zero(Lba(0), &stored.slot), Err(NotAuthentic));
        }
        assert_eq!(sealer.claimed_form(&Seal::from_slice(&vec![0; sealer.seal_len()])), None);
    }
}

#[test]
fn a_seal_of_one_form_is_none_of_another() {
    for cipher in authenticated() {
        let sealer = sealer(cipher, true);
        let folded = Stored::seal(&sealer, Lba(4), &text(true, 1));
        // The seal that a folded sector carries, put into the slot.
        let moved = Stored { slot: sealer.embedded_seal(&folded.place), ..folded.clone() };
        assert_eq!(moved.open(&sealer), Err(NotAuthentic));
        for form in 0..=255 {
            for slot in [folded.slot, moved.slot, sealer.seal_zero(Lba(4), nonce())] {
                let mut bytes = slot.as_bytes().to_vec();
                if bytes[0] != form {
                    bytes[0] = form;
                    let forged = Stored { slot: Seal::from_slice(&bytes), ..folded.clone() };
                    assert_eq!(forged.open(&sealer), Err(NotAuthentic), "{cipher} {form}");
                }
            }
        }
    }
}

#[test]
fn anything_else_in_the_key_context_opens_nothing() {
    for cipher in authenticated() {
        let stored = Stored::seal(&sealer(cipher, false), Lba(6), &text(false, 4));
        let context = context(cipher);
        let others = [
            KeyContext { lineage: Lineage([4; 16]), ..context },
            KeyContext { context: "layout=packed fold=false offset=16777216", ..context },
            KeyContext { epoch: 8, ..context },
            KeyContext { cipher: authenticated().into_iter().find(|other| *other != cipher).unwrap(), ..context },
        ];
        for other in others {
            assert_eq!(stored.open(&sector_sealer(&key(9), &other, false)), Err(NotAuthentic), "{other:?}");
            let mac = superblock_mac(&key(9), &context).tag(&[b"superblock"]);
            assert_eq!(superblock_mac(&key(9), &other).verify(&[b"superblock"], &mac), Err(NotAuthentic));
        }
        assert_eq!(stored.open(&sector_sealer(&key(8), &context, false)), Err(NotAuthentic));
    }
}

#[test]
fn recovery_tells_the_sealed_sector_from_every_other() {
    for cipher in authenticated() {
        for folds in [false, true] {
            let sealer = sealer(cipher, true);
            let [mut old, mut new] = [(); 2].map(|()| vec![0xaa; SECTOR_SIZE]);
            let of_old = sealer.seal(Lba(3), nonce(), &text(folds, 1), &mut old);
            let of_new = sealer.seal(Lba(3), nonce(), &text(folds, 2), &mut new);
            assert!(sealer.opens_as(Lba(3), &of_old, &old));
            assert!(sealer.opens_as(Lba(3), &of_new, &new));
            assert!(!sealer.opens_as(Lba(3), &of_old, &new));
            assert!(!sealer.opens_as(Lba(4), &of_old, &old));
            // Half of one and half of the other: a write torn by a crash.
            let torn = [&new[..512], &old[512..]].concat();
            assert!(!sealer.opens_as(Lba(3), &of_old, &torn));
            assert!(!sealer.opens_as(Lba(3), &of_new, &torn));
            let swapped = Sealed { form: if folds { SealedForm::Plain } else { SealedForm::Folded }, ..of_old };
            assert!(!sealer.opens_as(Lba(3), &swapped, &old));
        }
    }
}

#[test]
fn random_ivs_without_tags_keep_what_they_promise() {
    let sealer = sealer(CipherName::Aes256XtsRandom, true);
    assert!(!sealer.is_authenticated());
    assert_eq!(sealer.claimed_form(&Seal::from_slice(&[0; 16])), Some(Form::Zero));
    assert_eq!(sealer.claimed_form(&Seal::from_slice(&[0xff; 16])), Some(Form::FoldMark));
    assert_eq!(sealer.claimed_form(&Seal::from_slice(&[0; 15])), None);
    let plain = text(false, 1);
    let stored = Stored::seal(&sealer, Lba(8), &plain);
    let misplaced = Stored { lba: Lba(9), ..stored.clone() };
    let read = misplaced.open(&sealer).unwrap();
    let equal = read.chunks(16).zip(plain.chunks(16)).filter(|(a, b)| a == b).count();
    assert_eq!(equal, 0, "a misplaced sector reads as noise");
    // A fold mark over what was never folded: noise does not unfold, or its end is no IV.
    let mut place = stored.place.clone();
    place[SECTOR_SIZE - 16..].fill(0);
    let mark = sealer.fold_mark(Lba(8), nonce());
    assert_eq!(Stored { slot: mark, place, ..stored }.open(&sealer), Err(NotAuthentic));
}

#[test]
fn records_open_only_as_what_they_were_sealed() {
    for cipher in sealing() {
        let metadata = metadata_cipher(&key(9), &context(cipher));
        let record = b"a record of the journal".to_vec();
        let mut text = record.clone();
        let seal = metadata.seal(b"journal 1", nonce(), &mut text);
        assert_eq!(seal.as_bytes().len(), metadata.seal_len());
        let sealed = text.clone();
        assert_eq!(metadata.open(b"journal 2", &seal, &mut text), Err(NotAuthentic));
        assert!(text.iter().all(|byte| *byte == 0));
        for bit in 0..seal.as_bytes().len() * 8 {
            text.copy_from_slice(&sealed);
            assert_eq!(metadata.open(b"journal 1", &flipped(&seal, bit), &mut text), Err(NotAuthentic));
            assert!(text.iter().all(|byte| *byte == 0), "a record that does not open is wiped");
        }
        text.copy_from_slice(&sealed);
        assert_eq!(metadata.open(b"journal 1", &seal, &mut text), Ok(()));
        assert_eq!(text, record);
    }
}

#[test]
fn a_superblock_tag_vouches_for_every_bit() {
    let mac = superblock_mac(&key(9), &context(CipherName::Aegis256));
    let mut bytes = vec![0x5a; 100];
    let mut tag = mac.tag(&[&bytes]);
    assert_eq!(mac.verify(&[&bytes], &tag), Ok(()));
    assert_eq!(mac.verify(&[&bytes], &tag[..31]), Err(NotAuthentic));
    for bit in 0..bytes.len() * 8 {
        flip(&mut bytes, bit);
        assert_eq!(mac.verify(&[&bytes], &tag), Err(NotAuthentic));
        flip(&mut bytes, bit);
    }
    for bit in 0..tag.len() * 8 {
        flip(&mut tag, bit);
        assert_eq!(mac.verify(&[&bytes], &tag), Err(NotAuthentic));
        flip(&mut tag, bit);
    }
}

#[test]
fn many_threads_share_a_sealer() {
    for cipher in sealing() {
        let sealer = sealer(cipher, true);
        std::thread::scope(|scope| {
            // More threads than a cipher has contexts, on most machines.
            for thread in 0..20_u8 {
                let sealer = &sealer;
                scope.spawn(move || {
                    for i in 0..50 {
                        let plain = text(i % 2 == 0, thread);
                        let stored = Stored::seal(sealer, Lba(u64::from(thread) << 8 | i), &plain);
                        assert_eq!(stored.open(sealer).as_ref(), Ok(&plain));
                    }
                });
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn one_flipped_bit_anywhere_is_noticed(cipher in prop::sample::select(authenticated()), folds: bool, lba: u64, bit: usize, in_slot: bool) {
        let sealer = sealer(cipher, true);
        let mut stored = Stored::seal(&sealer, Lba(lba), &text(folds, bit as u8));
        if in_slot {
            stored.slot = flipped(&stored.slot, bit);
        } else {
            flip(&mut stored.place, bit);
        }
        prop_assert_eq!(stored.open(&sealer), Err(NotAuthentic));
    }

    #[test]
    fn a_sector_elsewhere_is_noticed(cipher in prop::sample::select(authenticated()), folds: bool, lba: u64, bit in 0..64_u32) {
        let sealer = sealer(cipher, true);
        let stored = Stored::seal(&sealer, Lba(lba), &text(folds, bit as u8));
        let moved = Stored { lba: Lba(lba ^ 1 << bit), ..stored };
        prop_assert_eq!(moved.open(&sealer), Err(NotAuthentic));
        let zero = sealer.seal_zero(Lba(lba), nonce());
        prop_assert_eq!(sealer.open_zero(Lba(lba ^ 1 << bit), &zero), Err(NotAuthentic));
    }

    #[test]
    fn an_old_sector_beside_a_new_slot_is_noticed(cipher in prop::sample::select(authenticated()), folds: bool, lba: u64) {
        let sealer = sealer(cipher, false);
        let [old, new] = [1, 2].map(|seed| Stored::seal(&sealer, Lba(lba), &text(folds, seed)));
        prop_assert_eq!(Stored { slot: new.slot, ..old.clone() }.open(&sealer), Err(NotAuthentic));
        prop_assert_eq!(Stored { slot: old.slot, ..new }.open(&sealer), Err(NotAuthentic));
    }
}
