//! Adding, changing and removing what opens a volume.
//!
//! libcryptsetup writes new key material and syncs it before the JSON names it, and writes the JSON's two copies one
//! after the other, each with a sync: at any moment a crash leaves a header that the old or the new passphrase opens.

use crate::session::Session;
use crate::{Description, Header, HeaderError, HeaderErrorKind, Passphrase, Pbkdf};

/// Whether the last key slot may go. Without it nothing opens the volume any more, except a backup of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastSlot {
    /// Refuse.
    Keep,
    /// Remove it as well.
    Remove,
}

impl Header {
    /// Adds a key slot that `new` opens, with the volume key out of a slot that `existing` opens. Number `slot`, or the
    /// first free one; returns which.
    pub fn add_key(
        &mut self,
        existing: &Passphrase,
        new: &Passphrase,
        slot: Option<u32>,
        pbkdf: Pbkdf,
    ) -> Result<u32, HeaderError> {
        let (mut session, description) = self.session()?;
        if let Some(number) = slot
            && description.key_slots.iter().any(|other| other.number == number)
        {
            return Err(self.error(HeaderErrorKind::SlotInUse, format!("key slot {number} is in use")));
        }
        self.refuse_without_room(&description, "a key slot must be removed first")?;
        session.set_pbkdf(pbkdf).map_err(|error| session.failure("setting the key derivation", error))?;
        let added = session.device.keyslot_handle().add_by_passphrase(slot, existing.expose(), new.expose());
        let number = added.map_err(|error| self.slot_failure(&session, &description, "adding a key slot", error))?;
        self.reload(session)?;
        Ok(number)
    }

    /// Makes the key slot that `old` opens, or number `slot`, open with `new` instead. Returns its number, which stays.
    ///
    /// The new key material is written beside the old one, which is wiped last. Where there is no room for that, the
    /// change is refused: made in place, it could lose the slot in a crash.
    pub fn change_key(
        &mut self,
        old: &Passphrase,
        new: &Passphrase,
        slot: Option<u32>,
        pbkdf: Pbkdf,
    ) -> Result<u32, HeaderError> {
        let (mut session, description) = self.session()?;
        // Left to itself, libcryptsetup also tries slots that hold other keys.
        let slot = match slot {
            None if description.key_slots.iter().all(|slot| slot.bound) => None,
            _ => Some(self.open_slot(&mut session, &description, old, slot)?.1),
        };
        self.refuse_without_room(&description, "a change in place could lose the key in a crash, so remove one first")?;
        session.set_pbkdf(pbkdf).map_err(|error| session.failure("setting the key derivation", error))?;
        let changed = session.device.keyslot_handle().change_by_passphrase(slot, None, old.expose(), new.expose());
        let number =
            changed.map_err(|error| self.slot_failure(&session, &description, "changing a key slot", error))?;
        self.reload(session)?;
        Ok(number)
    }

    /// Removes the key slot that `passphrase` opens, and wipes its key material. Returns which it was.
    pub fn remove_key(&mut self, passphrase: &Passphrase, last: LastSlot) -> Result<u32, HeaderError> {
        let (mut session, description) = self.session()?;
        let (_, number) = self.open_slot(&mut session, &description, passphrase, None)?;
        self.destroy(session, &description, number, last)?;
        Ok(number)
    }

    /// Removes key slot `number`, whoever can open it, and wipes its key material. Asks for no passphrase.
    pub fn kill_slot(&mut self, number: u32, last: LastSlot) -> Result<(), HeaderError> {
        let (session, description) = self.session()?;
        if !description.key_slots.iter().any(|slot| slot.number == number) {
            return Err(self.error(HeaderErrorKind::NoSuchSlot, format!("key slot {number} is not in use")));
        }
        self.destroy(session, &description, number, last)
    }

    /// Destroys every key slot: the volume is lost for whoever has no backup of its header.
    pub fn erase(&mut self) -> Result<(), HeaderError> {
        let (mut session, description) = self.session()?;
        for slot in &description.key_slots {
            let destroyed = session.device.keyslot_handle().destroy(slot.number);
            destroyed.map_err(|error| session.failure("wiping a key slot", error))?;
        }
        self.reload(session)
    }

    fn destroy(
        &mut self,
        mut session: Session,
        description: &Description,
        number: u32,
        last: LastSlot,
    ) -> Result<(), HeaderError> {
        let another = description.key_slots.iter().any(|slot| slot.bound && slot.number != number);
        if !another && last == LastSlot::Keep {
            let story = format!("key slot {number} is the last one; without it the volume is lost");
            return Err(self.error(HeaderErrorKind::LastSlot, story));
        }
        let destroyed = session.device.keyslot_handle().destroy(number);
        destroyed.map_err(|error| session.failure("wiping a key slot", error))?;
        self.reload(session)
    }

    fn refuse_without_room(&self, description: &Description, advice: &str) -> Result<(), HeaderError> {
        if description.has_room_for_a_slot() {
            return Ok(());
        }
        Err(self.error(HeaderErrorKind::NoFreeSlot, format!("there is no room for another key slot; {advice}")))
    }

    /// What the device says after a change that went well.
    fn reload(&mut self, mut session: Session) -> Result<(), HeaderError> {
        *self = Self::of_session(&mut session, &self.device)?;
        Ok(())
    }
}
