"""Reads a whole volume, from docs/format.md alone: `reader.py VOLUME KEY_FILE DISK` writes the disk's bytes to DISK.

With `--bare`, VOLUME is a payload without a header, and KEY_FILE a JSON object that says what the header would.
"""

import argparse
import json
import os
import sys

import journal
import luks2
import packed
from aead import NotAuthentic
from packed import PAGE, Layout
from sealing import Keys, Payload, open_sealed, open_slot


class Unreadable(Exception):
    """A sector that is not authentic."""

    def __init__(self, lba):
        super().__init__(f"sector {lba} is not authentic")


class SealedVolume:
    """A sealed payload (section 8)."""

    def __init__(self, image, keys):
        self.image = image
        self.sectors = keys.sectors
        self.seal_len = keys.sectors.seal_len
        payload = keys.payload.offset
        superblock = packed.read_superblock(self._at, payload, keys)
        self.size = superblock.size
        self.layout = Layout(payload, superblock.journal_len, self.seal_len)
        self.zones = {}
        for zone, tag in enumerate(superblock.map_tags):
            self._adopt_map(keys, zone, tag, self._at(self.layout.map_page(zone), PAGE))
        found = journal.Journal(self._at(self.layout.journal, superblock.journal_len), keys)
        frames = found.frames(*superblock.tail)
        if superblock.clean and frames:
            raise journal.Damaged("the superblock is older than the journal")
        self.created = set()
        self.offers = {}
        for frame in frames:
            for record in frame.records:
                self._apply(keys, record)

    def _at(self, offset, length):
        self.image.seek(offset)
        return self.image.read(length).ljust(length, b"\0")

    def _adopt_map(self, keys, zone, tag, page):
        try:
            self.zones[zone] = packed.open_map(keys, zone, tag, page)
        except NotAuthentic:
            self.zones[zone] = None

    def _apply(self, keys, record):
        first = record.numbers[0]
        count = record.numbers[1] if len(record.numbers) > 1 else 1
        if record.kind in (journal.DROP, journal.CREATE):
            dropped = lambda number: first <= number < first + count
            self.offers = {lba: o for lba, o in self.offers.items() if not dropped(self.layout.object_of(lba))}
            self.created = {number for number in self.created if not dropped(number)}
            if record.kind == journal.CREATE:
                self.created.add(first)
        elif record.kind == journal.MAP:
            self._adopt_map(keys, first, record.tag, record.page)
        else:
            for lba in range(first, first + count):
                self.offers.setdefault(lba, []).append(record)

    def read(self, lba):
        """One sector; None for one that is in no object."""
        number = self.layout.object_of(lba)
        existing = self.zones[number // packed.OBJECTS_PER_ZONE]
        if existing is None:
            raise Unreadable(lba)
        if number not in existing:
            return None
        try:
            return self._read_existing(lba, number)
        except NotAuthentic:
            raise Unreadable(lba) from None

    def _read_existing(self, lba, number):
        place = self._at(self.layout.place(lba), PAGE)
        for offer in reversed(self.offers.get(lba, [])):
            if offer.kind == journal.ZERO:
                return bytes(PAGE)
            if offer.page:
                return open_sealed(self.sectors, lba, offer.folded, offer.seal, offer.page)
            try:
                return open_sealed(self.sectors, lba, offer.folded, offer.seal, place)
            except NotAuthentic:
                continue
        if number in self.created:
            return bytes(PAGE)
        return open_slot(self.sectors, lba, self._at(self.layout.slot(lba), self.seal_len), place)


class PlainVolume:
    """An ordinary LUKS2 segment (section 9)."""

    def __init__(self, image, segment, key):
        self.image, self.key = image, key
        self.offset, self.iv_tweak = int(segment["offset"]), int(segment["iv_tweak"])
        self.sector = segment["sector_size"]
        room = (image.seek(0, os.SEEK_END) - self.offset) // self.sector * self.sector
        self.size = room if segment["size"] == "dynamic" else int(segment["size"])

    def read(self, lba):
        self.image.seek(self.offset + lba * PAGE)
        data = self.image.read(min(PAGE, self.size - lba * PAGE))
        first = self.iv_tweak + lba * (PAGE // 512)
        return luks2.xts_plain64(self.key, first, data, decrypt=True, sector=self.sector)


def open_volume(image, passphrase):
    metadata = luks2.read_json(image)
    segment, _ = luks2.check(metadata)
    key = luks2.unlock(image, metadata, passphrase)
    if "sealdisk" not in segment:
        return PlainVolume(image, segment, key)
    return SealedVolume(image, Keys(key, Payload.of_segment(segment)))


def open_bare(image, description):
    says = json.loads(description)
    payload = Payload(says["cipher"], says["fold"], bytes.fromhex(says["lineage"]), says["offset"])
    return SealedVolume(image, Keys(bytes.fromhex(says["key"]), payload))


def copy(volume, disk):
    disk.truncate(volume.size)
    for lba in range(-(-volume.size // PAGE)):
        sector = volume.read(lba)
        if sector is not None:
            disk.seek(lba * PAGE)
            disk.write(sector[: volume.size - lba * PAGE])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("volume")
    parser.add_argument("key_file")
    parser.add_argument("disk")
    arguments = parser.parse_args()
    with open(arguments.key_file, "rb") as key_file:
        secret = key_file.read()
    with open(arguments.volume, "rb") as image, open(arguments.disk, "wb") as disk:
        try:
            copy(open_bare(image, secret) if arguments.bare else open_volume(image, secret), disk)
        except (luks2.BadHeader, NotAuthentic, Unreadable, journal.Damaged) as error:
            sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
