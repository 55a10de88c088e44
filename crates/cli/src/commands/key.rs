//! `key`: what opens a volume. Allowed while the volume is attached: the volume key stays the same.

use sealdisk_header::{Header, KeySlot, LastSlot, Passphrase, Pbkdf, Priority, SlotPbkdf};
use serde::Serialize;

use crate::arguments::{Key, KeyAdd, KeyChange, KeyDerivation, KeyList, KeyRemove, TwoKeys, Volume};
use crate::failure::Failure;
use crate::header_file::HeaderFile;
use crate::location::Location;
use crate::output;
use crate::passphrase::{self, Origin, Purpose};

/// Runs one of the commands.
pub fn run(key: &Key, quiet: bool) -> Result<(), Failure> {
    match key {
        Key::Add(options) => add(options, quiet),
        Key::Remove(options) => remove(options, quiet),
        Key::Change(options) => change(options, quiet),
        Key::List(options) => list(options),
    }
}

fn add(options: &KeyAdd, quiet: bool) -> Result<(), Failure> {
    let (mut file, existing, new) = read_keys(&options.keys, "Any passphrase that opens the volume", None)?;
    let derivation = pbkdf(&options.keys.derivation);
    let slot = file.change(|path| Header::load(path)?.add_key(&existing, &new, options.slot, derivation))?;
    tell(quiet, &format!("Added in key slot {slot}."))
}

fn change(options: &KeyChange, quiet: bool) -> Result<(), Failure> {
    let (mut file, old, new) = read_keys(&options.keys, "Passphrase to be changed", options.slot)?;
    let derivation = pbkdf(&options.keys.derivation);
    let slot = file.change(|path| Header::load(path)?.change_key(&old, &new, options.slot, derivation))?;
    tell(quiet, &format!("Changed key slot {slot}."))
}

/// The header, what opens it (the key slot `slot`, if there is a number), and what is to open it.
fn read_keys(keys: &TwoKeys, prompt: &str, slot: Option<u32>) -> Result<(HeaderFile, Passphrase, Passphrase), Failure> {
    let (existing_file, new_file) = (keys.key.key_file.as_deref(), keys.new_key_file.as_deref());
    passphrase::refuse_two_on_stdin(existing_file, new_file)?;
    let file = find(&keys.volume)?;
    let header = file.load()?;
    let existing = passphrase::read(existing_file, prompt, Purpose::Open)?;
    // A passphrase that opens nothing is reported before somebody thinks of a new one. Where nobody is asked, it is
    // reported soon enough: every derivation is a second's work.
    if passphrase::origin(new_file) == Origin::Terminal {
        header.unlock(&existing, slot).map_err(|error| file.failure(error))?;
    }
    let new = passphrase::read(new_file, "New passphrase", Purpose::Create)?;
    Ok((file, existing, new))
}

fn remove(options: &KeyRemove, quiet: bool) -> Result<(), Failure> {
    let mut file = find(&options.volume)?;
    file.load()?;
    let last = if options.force { LastSlot::Remove } else { LastSlot::Keep };
    let slot = match options.slot {
        Some(slot) => {
            file.change(|path| Header::load(path)?.kill_slot(slot, last))?;
            slot
        }
        None => {
            let key_file = options.key.key_file.as_deref();
            let passphrase = passphrase::read(key_file, "Passphrase to be removed", Purpose::Open)?;
            file.change(|path| Header::load(path)?.remove_key(&passphrase, last))?
        }
    };
    tell(quiet, &format!("Removed key slot {slot}."))
}

/// One key slot, as `key list --json` shows it: an array of these. Fields are added, never renamed or removed.
#[derive(Serialize)]
pub struct Slot {
    /// 0 to 31.
    slot: u32,
    /// `ignore`, `normal` or `prefer`: when it is tried.
    priority: &'static str,
    /// `argon2id`, `argon2i` or `pbkdf2`.
    pbkdf: String,
    /// Passes of Argon2, iterations of PBKDF2.
    iterations: u32,
    /// Memory of Argon2 in KiB.
    memory_kib: Option<u32>,
    /// Threads of Argon2.
    threads: Option<u32>,
    /// Whether it holds the key of this volume.
    bound: bool,
}

impl From<&KeySlot> for Slot {
    fn from(slot: &KeySlot) -> Self {
        let (pbkdf, iterations, memory_kib, threads) = match &slot.pbkdf {
            SlotPbkdf::Pbkdf2 { iterations, .. } => ("pbkdf2".to_owned(), *iterations, None, None),
            SlotPbkdf::Argon2 { variant, passes, memory_kib, threads } => {
                (variant.clone(), *passes, Some(*memory_kib), Some(*threads))
            }
        };
        let priority = match slot.priority {
            Priority::Ignore => "ignore",
            Priority::Normal => "normal",
            Priority::Prefer => "prefer",
        };
        Self { slot: slot.number, priority, pbkdf, iterations, memory_kib, threads, bound: slot.bound }
    }
}

fn list(options: &KeyList) -> Result<(), Failure> {
    let header = find(&options.volume)?.load()?;
    let slots = slots(&header);
    if options.json {
        return output::say_json(&slots);
    }
    output::say(&slot_table(&slots))
}

/// The key slots of a header.
pub fn slots(header: &Header) -> Vec<Slot> {
    header.key_slots().iter().map(Slot::from).collect()
}

/// The key slots for people.
pub fn slot_table(slots: &[Slot]) -> String {
    if slots.is_empty() {
        return "no key slots: the volume was erased".to_owned();
    }
    let heading = ["SLOT", "KEY DERIVATION", "ITERATIONS", "MEMORY", "PRIORITY"].map(str::to_owned).to_vec();
    let rows = slots.iter().map(|slot| {
        let memory =
            slot.memory_kib.map_or("-".to_owned(), |kib| crate::size::ByteSize(u64::from(kib) << 10).to_string());
        let kind = if slot.bound { slot.pbkdf.clone() } else { format!("{} (another key)", slot.pbkdf) };
        vec![slot.slot.to_string(), kind, slot.iterations.to_string(), memory, slot.priority.to_owned()]
    });
    output::table(&std::iter::once(heading).chain(rows).collect::<Vec<_>>())
}

/// What the options say of the key derivation, in the header's terms.
pub fn pbkdf(options: &KeyDerivation) -> Pbkdf {
    let Some(passes) = options.pbkdf_force_iterations else {
        return Pbkdf::Calibrated { time_ms: options.iter_time };
    };
    // The defaults of cryptsetup 2.6.
    let memory_kib = options.pbkdf_memory.unwrap_or(1 << 20);
    Pbkdf::Fixed { passes, memory_kib, threads: options.pbkdf_parallel.unwrap_or(4) }
}

fn find(volume: &Volume) -> Result<HeaderFile, Failure> {
    Location::find(volume)?.header_file()
}

fn tell(quiet: bool, what: &str) -> Result<(), Failure> {
    if quiet { Ok(()) } else { output::say(what) }
}
