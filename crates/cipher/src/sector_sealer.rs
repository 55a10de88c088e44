//! Sealing and opening the sectors of a volume.

use sealdisk_units::{Lba, Lineage, SECTOR_SIZE};
use zeroize::Zeroizing;

use crate::aead::SealingAead;
use crate::fold::{fold, unfold};
use crate::{AssociatedData, CipherName, Form, FreshNonce, NotAuthentic, Seal};

/// Bytes that processors fetch together, or a divisor.
const CACHE_LINE: usize = 64;

/// Why a buffer must have one length.
const WHOLE_SECTOR: &str = "the caller hands over whole sectors";

/// A cipher in terms of sectors.
pub(crate) trait SectorCipher: Send + Sync {
    /// Bytes of a seal.
    fn seal_len(&self) -> usize;
    /// A seal of a form without text: [`Form::Zero`] or [`Form::FoldMark`].
    fn mark(&self, lba: Lba, form: Form, nonce: FreshNonce) -> Seal;
    /// Encrypts `text` into `out`, which has the same length.
    fn seal(&self, lba: Lba, form: Form, nonce: FreshNonce, text: &[u8], out: &mut [u8]) -> Seal;
    /// Encrypts `text` in place.
    fn seal_in_place(&self, lba: Lba, form: Form, nonce: FreshNonce, text: &mut [u8]) -> Seal;
    /// Verifies what [`Self::mark`] has made.
    fn open_mark(&self, lba: Lba, form: Form, slot: &Seal) -> Result<(), NotAuthentic>;
    /// Decrypts in place what was sealed in this form. What is in `text` after a failure is not defined.
    fn open(&self, lba: Lba, form: Form, seal: &Seal, text: &mut [u8]) -> Result<(), NotAuthentic>;
    /// The algorithm, the library and what of the CPU it uses.
    fn implementation(&self) -> &'static str;
}

/// The [`SectorCipher`] of every authenticated cipher.
pub(crate) struct Authenticated {
    pub(crate) aead: Box<dyn SealingAead>,
    pub(crate) lineage: Lineage,
    pub(crate) epoch: u32,
}

impl Authenticated {
    fn associated_data(&self, lba: Lba, form: Form) -> AssociatedData {
        AssociatedData::new(self.lineage, lba, self.epoch, form)
    }
}

impl SectorCipher for Authenticated {
    fn seal_len(&self) -> usize {
        self.aead.seal_len()
    }

    fn mark(&self, lba: Lba, form: Form, nonce: FreshNonce) -> Seal {
        self.seal_in_place(lba, form, nonce, &mut [])
    }

    fn seal(&self, lba: Lba, form: Form, nonce: FreshNonce, text: &[u8], out: &mut [u8]) -> Seal {
        self.aead.seal(form, nonce, self.associated_data(lba, form).as_bytes(), text, out)
    }

    fn seal_in_place(&self, lba: Lba, form: Form, nonce: FreshNonce, text: &mut [u8]) -> Seal {
        self.aead.seal_in_place(form, nonce, self.associated_data(lba, form).as_bytes(), text)
    }

    fn open_mark(&self, lba: Lba, form: Form, slot: &Seal) -> Result<(), NotAuthentic> {
        self.open(lba, form, slot, &mut [])
    }

    fn open(&self, lba: Lba, form: Form, seal: &Seal, text: &mut [u8]) -> Result<(), NotAuthentic> {
        self.aead.open(form, seal, self.associated_data(lba, form).as_bytes(), text)
    }

    fn implementation(&self) -> &'static str {
        self.aead.implementation()
    }
}

/// In which of two forms a sector was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedForm {
    /// The seal belongs in the sector's slot.
    Plain,
    /// The seal is in the sector's last bytes; the slot needs a [fold mark](SectorSealer::fold_mark).
    Folded,
}

/// What [`SectorSealer::seal`] has made beside the ciphertext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Where the seal belongs.
    pub form: SealedForm,
    /// The seal.
    pub seal: Seal,
}

/// Whether these bytes are what a sector that is sealed as zero has in its place.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Comparing takes many bytes at once, looking at each of them does not.
    const ZEROS: [u8; SECTOR_SIZE] = [0; SECTOR_SIZE];
    bytes.chunks(SECTOR_SIZE).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

/// Seals and opens the sectors of one volume under one key epoch. Used from many threads at once.
///
/// A sector is kept as ciphertext in its *place* (4096 bytes) and a seal in its *slot* (`seal_len` bytes). The slot says
/// what the place holds:
///
/// | slot | place |
/// |---|---|
/// | seal of [`Form::Zero`] | 4096 zero bytes, which no ciphertext is |
/// | seal of [`Form::Plain`] | ciphertext of the sector |
/// | seal of [`Form::FoldMark`] | ciphertext of the folded sector, then its seal, of [`Form::Folded`] |
/// | anything else, all zeros among it | never sealed: [`NotAuthentic`] |
///
/// For `aes-256-xts-random` see [`CipherName::Aes256XtsRandom`]: its slots are an IV, all zeros for "reads as zeros", or
/// all ones for "folded", nothing is proof of anything, and `open` fails only where what it finds cannot have been made
/// by a sealer.
pub struct SectorSealer {
    name: CipherName,
    cipher: Box<dyn SectorCipher>,
    folds: bool,
}

impl SectorSealer {
    pub(crate) fn new(name: CipherName, cipher: Box<dyn SectorCipher>, folds: bool) -> Self {
        debug_assert_eq!(name.seal_len(), cipher.seal_len());
        Self { name, cipher, folds }
    }

    /// The cipher.
    pub fn cipher(&self) -> CipherName {
        self.name
    }

    /// Bytes of a seal, and of a slot.
    pub fn seal_len(&self) -> usize {
        self.cipher.seal_len()
    }

    /// Whether [`Self::seal`] tries to fold. Folded sectors are opened either way.
    pub fn folds(&self) -> bool {
        self.folds
    }

    /// Whether a changed sector is noticed.
    pub fn is_authenticated(&self) -> bool {
        self.name.is_authenticated()
    }

    /// The algorithm, the library and what of this CPU it uses.
    pub fn implementation(&self) -> &'static str {
        self.cipher.implementation()
    }

    /// Seals a sector: `plain` to `out`, 4096 bytes each. A folded sector's seal is in `out` already.
    ///
    /// # Panics
    /// If a buffer has another length.
    pub fn seal(&self, lba: Lba, nonce: FreshNonce, plain: &[u8], out: &mut [u8]) -> Sealed {
        self.seal_and_fold(self.folds, lba, nonce, plain, out)
    }

    /// [`seal`](Self::seal), folded if that is wanted and can be.
    pub(crate) fn seal_and_fold(
        &self,
        folds: bool,
        lba: Lba,
        nonce: FreshNonce,
        plain: &[u8],
        out: &mut [u8],
    ) -> Sealed {
        let plain: &[u8; SECTOR_SIZE] = plain.try_into().expect(WHOLE_SECTOR);
        let out: &mut [u8; SECTOR_SIZE] = out.try_into().expect(WHOLE_SECTOR);
        if folds {
            let (text, embedded) = out.split_at_mut(SECTOR_SIZE - self.seal_len());
            if fold(plain, text) {
                let seal = self.cipher.seal_in_place(lba, Form::Folded, nonce, text);
                embedded.copy_from_slice(seal.as_bytes());
                return Sealed { form: SealedForm::Folded, seal };
            }
        }
        Sealed { form: SealedForm::Plain, seal: self.cipher.seal(lba, Form::Plain, nonce, plain, out) }
    }

    /// [`seal_and_fold`](Self::seal_and_fold) where the sector is.
    pub(crate) fn seal_and_fold_in_place(&self, folds: bool, lba: Lba, nonce: FreshNonce, sector: &mut [u8]) -> Sealed {
        let sector: &mut [u8; SECTOR_SIZE] = sector.try_into().expect(WHOLE_SECTOR);
        bring_near(sector);
        if folds {
            let mut folded = [0; SECTOR_SIZE];
            let folded = &mut folded[..SECTOR_SIZE - self.seal_len()];
            if fold(sector, folded) {
                let (text, embedded) = sector.split_at_mut(folded.len());
                let seal = self.cipher.seal(lba, Form::Folded, nonce, folded, text);
                embedded.copy_from_slice(seal.as_bytes());
                return Sealed { form: SealedForm::Folded, seal };
            }
        }
        Sealed { form: SealedForm::Plain, seal: self.cipher.seal_in_place(lba, Form::Plain, nonce, sector) }
    }

    /// The slot of a sector that reads as zeros. Its place must hold zero bytes, or it does not open.
    pub fn seal_zero(&self, lba: Lba, nonce: FreshNonce) -> Seal {
        self.cipher.mark(lba, Form::Zero, nonce)
    }

    /// The slot of a folded sector. It says nothing of the sector's content and stays valid when another folded one
    /// replaces it.
    pub fn fold_mark(&self, lba: Lba, nonce: FreshNonce) -> Seal {
        self.cipher.mark(lba, Form::FoldMark, nonce)
    }

    /// What the slot claims, **unverified**: [`Form::Zero`], [`Form::Plain`] or [`Form::FoldMark`]. `None`: nothing was
    /// ever sealed here, or the slot was overwritten with nonsense.
    pub fn claimed_form(&self, slot: &Seal) -> Option<Form> {
        self.name.claimed_form(slot)
    }

    /// Verifies that the slot says "reads as zeros" of this sector. That its place does is another matter.
    pub fn open_zero(&self, lba: Lba, slot: &Seal) -> Result<(), NotAuthentic> {
        self.cipher.open_mark(lba, Form::Zero, slot)
    }

    /// Verifies that the slot says "folded" of this sector. That the folded sector in its place is authentic is another
    /// matter.
    pub fn open_fold_mark(&self, lba: Lba, slot: &Seal) -> Result<(), NotAuthentic> {
        self.cipher.open_mark(lba, Form::FoldMark, slot)
    }

    /// Opens a sector in place, in whichever form the slot says. After a failure the buffer holds zeros.
    ///
    /// # Panics
    /// If `sector` does not have 4096 bytes.
    pub fn open(&self, lba: Lba, slot: &Seal, sector: &mut [u8]) -> Result<(), NotAuthentic> {
        let sector: &mut [u8; SECTOR_SIZE] = sector.try_into().expect(WHOLE_SECTOR);
        bring_near(sector);
        let opened = match self.claimed_form(slot) {
            // A seal alone is no proof of now: an old one, put back beside a newer sector, would make zeros of it.
            Some(Form::Zero) if is_zero(sector) => self.open_zero(lba, slot),
            Some(Form::Zero) => Err(NotAuthentic),
            Some(Form::Plain) => self.cipher.open(lba, Form::Plain, slot, sector),
            Some(Form::FoldMark) => self.open_fold_mark(lba, slot).and_then(|()| self.open_folded(lba, sector)),
            Some(Form::Folded | Form::Metadata) | None => Err(NotAuthentic),
        };
        opened.inspect_err(|NotAuthentic| sector.fill(0))
    }

    /// The seal that a folded sector carries.
    ///
    /// # Panics
    /// If `sector` does not have 4096 bytes.
    pub fn embedded_seal(&self, sector: &[u8]) -> Seal {
        let sector: &[u8; SECTOR_SIZE] = sector.try_into().expect(WHOLE_SECTOR);
        Seal::from_slice(&sector[SECTOR_SIZE - self.seal_len()..])
    }

    /// Whether `sector` is the ciphertext that `sealed` was made with, for recovery after a crash: plain, it opens under
    /// the seal; folded, it carries that very seal and opens under it.
    ///
    /// A cipher that [is not authenticated](Self::is_authenticated) cannot tell: for it a plain sector always passes, and
    /// a folded one passes if it carries the seal.
    ///
    /// # Panics
    /// If `sector` does not have 4096 bytes.
    pub fn opens_as(&self, lba: Lba, sealed: &Sealed, sector: &[u8]) -> bool {
        let mut scratch: Zeroizing<[u8; SECTOR_SIZE]> = Zeroizing::new(sector.try_into().expect(WHOLE_SECTOR));
        self.open_sealed(lba, sealed, &mut scratch[..]).is_ok()
    }

    /// Opens a sector in place that is known to have been sealed so, without looking at its slot: one that waits to be
    /// written, or one that a journal speaks of. A folded sector must carry that very seal. After a failure the buffer
    /// holds zeros.
    ///
    /// # Panics
    /// If `sector` does not have 4096 bytes.
    pub fn open_sealed(&self, lba: Lba, sealed: &Sealed, sector: &mut [u8]) -> Result<(), NotAuthentic> {
        let opened = match sealed.form {
            SealedForm::Plain => self.cipher.open(lba, Form::Plain, &sealed.seal, sector),
            SealedForm::Folded if self.embedded_seal(sector) != sealed.seal => Err(NotAuthentic),
            SealedForm::Folded => self.open_folded(lba, (&mut *sector).try_into().expect(WHOLE_SECTOR)),
        };
        opened.inspect_err(|NotAuthentic| sector.fill(0))
    }

    /// Opens and unfolds a folded sector with the seal at its end. What is in it after a failure is not defined.
    fn open_folded(&self, lba: Lba, sector: &mut [u8; SECTOR_SIZE]) -> Result<(), NotAuthentic> {
        let seal = self.embedded_seal(sector);
        let mut folded = *sector;
        let folded = &mut folded[..SECTOR_SIZE - self.seal_len()];
        self.cipher.open(lba, Form::Folded, &seal, folded)?;
        // Only a holder of the key could have sealed a text that does not unfold.
        unfold(folded, sector).map_err(|_| NotAuthentic)
    }
}

/// Has the processor bring the whole sector into its nearest cache: one of a long request, or from a distant store, is in
/// none. A cipher reads on only when it has done what it has read, AEGIS-256 sixteen bytes at a time, and would wait for
/// every line; here no line waits for another.
fn bring_near(sector: &[u8; SECTOR_SIZE]) {
    let lines = sector.iter().step_by(CACHE_LINE);
    std::hint::black_box(lines.fold(0, |sum, byte| sum ^ byte));
}
