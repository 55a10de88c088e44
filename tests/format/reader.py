"""Reads a whole volume, from docs/format.md alone: `reader.py VOLUME KEY_FILE DISK` writes the disk's bytes to DISK.

VOLUME is a file, or a folder with a copy of a volume's RADOS objects (see stores.py).
With `--bare`, it is a payload without a header, and KEY_FILE a JSON object that says what the header would.
"""

import argparse
import contextlib
import json
import os
import sys

import journal
import luks2
import metadata
from aead import NotAuthentic
from layouts import OBJECT, OBJECTS_PER_ZONE, PAGE, Layout
from sealing import Keys, Payload, open_sealed, open_slot
from stores import FileStore, ObjectStore


class Unreadable(Exception):
    """A sector that is not authentic."""

    def __init__(self, lba):
        super().__init__(f"sector {lba} is not authentic")


class SealedVolume:
    """A sealed payload (section 8)."""

    def __init__(self, store, keys):
        if keys.payload.layout != "packed" and not store.holds_objects:
            raise NotAuthentic(f"{keys.payload.layout} is a layout of objects, and this is a file")
        self.store = store
        self.sectors = keys.sectors
        superblock, *older = metadata.read_superblocks(store, keys)
        self.size = superblock.size
        self.layout = Layout(keys.payload.layout, keys.payload.offset, superblock.journal_len, keys.sectors.seal_len)
        self.zones = {}
        says = [superblock]
        frames = []
        if superblock.journal_len == 0:
            if store.object_size != self.layout.object_size:
                raise NotAuthentic(f"{keys.payload.layout} has objects of {self.layout.object_size} bytes")
            # The newest may announce pages that never came.
            says += [copy for copy in older if copy.generation == superblock.generation - 1]
        else:
            found = journal.Journal(store.at(self.layout.journal, superblock.journal_len), keys)
            frames = found.frames(*superblock.tail)
        for zone in range(len(superblock.map_tags)):
            tags = [copy.map_tags[zone] for copy in says if zone < len(copy.map_tags)]
            self._adopt_map(keys, zone, tags, store.at(self.layout.map_page(zone), PAGE))
        if superblock.clean and frames:
            raise journal.Damaged("the superblock is older than the journal")
        self.created = set()
        self.offers = {}
        for frame in frames:
            for record in frame.records:
                self._apply(keys, record)

    def _adopt_map(self, keys, zone, tags, page):
        try:
            self.zones[zone] = metadata.open_map(keys, zone, tags, page)
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
            self._adopt_map(keys, first, [record.tag], record.page)
        else:
            for lba in range(first, first + count):
                self.offers.setdefault(lba, []).append(record)

    def read(self, lba):
        """One sector; None for one that is in no object."""
        number = self.layout.object_of(lba)
        existing = self.zones[number // OBJECTS_PER_ZONE]
        if existing is None:
            raise Unreadable(lba)
        if number not in existing:
            return None
        try:
            return self._read_existing(lba, number)
        except NotAuthentic:
            raise Unreadable(lba) from None

    def _read_existing(self, lba, number):
        place = self.layout.read_place(self.store, lba)
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
        return open_slot(self.sectors, lba, self.layout.read_slot(self.store, lba), place)


class PlainVolume:
    """An ordinary LUKS2 segment (section 9)."""

    def __init__(self, store, segment, key):
        self.store, self.key = store, key
        self.offset, self.iv_tweak = int(segment["offset"]), int(segment["iv_tweak"])
        self.sector = segment["sector_size"]
        room = (store.size() - self.offset) // self.sector * self.sector
        self.size = room if segment["size"] == "dynamic" else int(segment["size"])

    def read(self, lba):
        data = self.store.at(self.offset + lba * PAGE, min(PAGE, self.size - lba * PAGE))
        first = self.iv_tweak + lba * (PAGE // 512)
        return luks2.xts_plain64(self.key, first, data, decrypt=True, sector=self.sector)


def open_volume(store, passphrase):
    says = luks2.read_json(store)
    segment, _ = luks2.check(says)
    key = luks2.unlock(store, says, passphrase)
    if "sealdisk" not in segment:
        return PlainVolume(store, segment, key)
    return SealedVolume(store, Keys(key, Payload.of_segment(segment)))


def open_bare(store, description):
    says = json.loads(description)
    return SealedVolume(store, Keys(bytes.fromhex(says["key"]), Payload.of_members(says, says["offset"])))


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
    parser.add_argument("--object-size", type=int, default=OBJECT, help="of the image that the objects are of")
    parser.add_argument("volume")
    parser.add_argument("key_file")
    parser.add_argument("disk")
    arguments = parser.parse_args()
    with open(arguments.key_file, "rb") as key_file:
        secret = key_file.read()
    with contextlib.ExitStack() as stack:
        if os.path.isdir(arguments.volume):
            store = ObjectStore.load(arguments.volume, arguments.object_size)
        else:
            store = FileStore(stack.enter_context(open(arguments.volume, "rb")))
        disk = stack.enter_context(open(arguments.disk, "wb"))
        try:
            copy(open_bare(store, secret) if arguments.bare else open_volume(store, secret), disk)
        except (luks2.BadHeader, NotAuthentic, Unreadable, journal.Damaged) as error:
            sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
