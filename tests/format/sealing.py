"""Sections 3 and 4: keys, and sectors with their seals."""

import hashlib
import hmac
import struct
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

import aead
from aead import NotAuthentic
from folding import SECTOR, fold, unfold

ZERO, PLAIN, FOLD_MARK, FOLDED, METADATA = 1, 2, 3, 4, 5


@dataclass(frozen=True)
class Payload:
    """What the header says of a sealed payload."""

    cipher: str
    layout: str
    fold: bool
    lineage: bytes
    offset: int

    @classmethod
    def of_segment(cls, segment):
        return cls.of_members(segment["sealdisk"], int(segment["offset"]))

    @classmethod
    def of_members(cls, says, offset):
        return cls(says["cipher"], says["layout"], says["fold"], bytes.fromhex(says["lineage"]), offset)

    def info(self, purpose):
        fold = "true" if self.fold else "false"
        context = f"layout={self.layout} fold={fold} offset={self.offset}"
        return f"sealdisk/1/{purpose}/{self.cipher}/{context}/epoch=0"


class Keys:
    """Everything that is derived from a volume key for one payload."""

    def __init__(self, volume_key, payload):
        self.payload = payload
        self.volume_key = volume_key
        if payload.cipher == "aes-256-xts-random":
            self.sectors = XtsRandom(self.derive("sector", 64))
            self.metadata = aead.Xaes256Gcm(self.derive("metadata", 32))
        else:
            algorithm = aead.BY_NAME[payload.cipher]
            self.sectors = Authenticated(algorithm(self.derive("sector", 32)), payload.lineage)
            self.metadata = algorithm(self.derive("metadata", 32))
        self.superblock = self.derive("superblock", 32)

    def derive(self, purpose, length):
        info = self.payload.info(purpose).encode()
        return HKDF(hashes.SHA512(), length, self.payload.lineage, info).derive(self.volume_key)

    def superblock_tag(self, page):
        return hmac.new(self.superblock, page, hashlib.sha256).digest()

    @property
    def metadata_seal_len(self):
        return self.metadata.NONCE_LEN + aead.TAG_LEN

    def open_metadata(self, ad, seal, text):
        nonce, tag = seal[: self.metadata.NONCE_LEN], seal[self.metadata.NONCE_LEN :]
        if nonce[0] != METADATA:
            raise NotAuthentic
        return self.metadata.open(nonce, ad, text, tag)

    def seal_metadata(self, ad, random, text):
        """Ciphertext and seal."""
        nonce = bytes([METADATA]) + random(self.metadata.NONCE_LEN - 1)
        ciphertext, tag = self.metadata.seal(nonce, ad, text)
        return ciphertext, nonce + tag


class Authenticated:
    """Sectors under one of the AEADs."""

    proves = True

    def __init__(self, algorithm, lineage):
        self.algorithm = algorithm
        self.lineage = lineage
        self.seal_len = algorithm.NONCE_LEN + aead.TAG_LEN

    def _associated_data(self, lba, form):
        return b"sealdisk sector 1\0" + self.lineage + struct.pack("<QIB", lba, 0, form)

    def form(self, slot):
        return slot[0]

    def open(self, lba, form, seal, text):
        if seal[0] != form:
            raise NotAuthentic
        nonce, tag = seal[: self.algorithm.NONCE_LEN], seal[self.algorithm.NONCE_LEN :]
        return self.algorithm.open(nonce, self._associated_data(lba, form), text, tag)

    def seal(self, lba, form, random, text):
        nonce = bytes([form]) + random(self.algorithm.NONCE_LEN - 1)
        ciphertext, tag = self.algorithm.seal(nonce, self._associated_data(lba, form), text)
        return ciphertext, nonce + tag


class XtsRandom:
    """Sectors under AES-256-XTS with a random IV, which proves nothing."""

    proves = False
    seal_len = 16
    MARKS = {bytes(16): ZERO, b"\xff" * 16: FOLD_MARK}

    def __init__(self, key):
        self.key = key

    def form(self, slot):
        return self.MARKS.get(slot, PLAIN)

    def _xts(self, lba, iv):
        tweak = (int.from_bytes(iv, "little") ^ lba).to_bytes(16, "little")
        return Cipher(algorithms.AES(self.key), modes.XTS(tweak))

    def open(self, lba, form, seal, text):
        if form in (ZERO, FOLD_MARK):
            if self.form(seal) != form:
                raise NotAuthentic
            return b""
        if seal in self.MARKS:
            raise NotAuthentic
        return self._xts(lba, seal).decryptor().update(text)

    def seal(self, lba, form, random, text):
        for slot, mark in self.MARKS.items():
            if mark == form:
                return b"", slot
        iv = random(16)
        return self._xts(lba, iv).encryptor().update(text), iv


def open_slot(sectors, lba, slot, place):
    """The sector, as its slot and its place have it."""
    form = sectors.form(slot)
    if form == ZERO:
        sectors.open(lba, ZERO, slot, b"")
        if any(place):
            raise NotAuthentic
        return place
    if form == FOLD_MARK:
        sectors.open(lba, FOLD_MARK, slot, b"")
        return open_folded(sectors, lba, place)
    if form != PLAIN:
        raise NotAuthentic
    return sectors.open(lba, PLAIN, slot, place)


def open_folded(sectors, lba, place):
    seal = place[-sectors.seal_len :]
    return unfold(sectors.open(lba, FOLDED, seal, place[: -sectors.seal_len]))


def open_sealed(sectors, lba, folded, seal, place):
    """The sector that a journal record says was sealed so."""
    if not folded:
        return sectors.open(lba, PLAIN, seal, place)
    if place[-sectors.seal_len :] != seal:
        raise NotAuthentic
    return open_folded(sectors, lba, place)


def seal_sector(sectors, lba, random, sector, try_fold):
    """What goes to the sector's place, its seal, and whether it is folded."""
    text = fold(sector, sectors.seal_len) if try_fold else None
    if text is None:
        place, seal = sectors.seal(lba, PLAIN, random, sector)
        return place, seal, False
    ciphertext, seal = sectors.seal(lba, FOLDED, random, text)
    return ciphertext + seal, seal, True
