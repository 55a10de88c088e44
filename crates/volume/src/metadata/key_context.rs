//! What a volume's keys are derived from, beside the volume key.

use sealdisk_cipher::KeyContext;
use sealdisk_layout::SealedPayload;

/// The payload's description as text that derived keys are bound to: an edited header yields keys that open nothing.
pub(crate) fn description(payload: &SealedPayload) -> String {
    let SealedPayload { layout, fold, offset, .. } = payload;
    format!("layout={layout} fold={fold} offset={offset}")
}

/// What the keys of a volume with this payload are derived from, beside the volume key.
pub(crate) fn key_context<'a>(payload: &SealedPayload, description: &'a str) -> KeyContext<'a> {
    KeyContext { cipher: payload.cipher, lineage: payload.lineage, context: description, epoch: 0 }
}
