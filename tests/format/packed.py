"""Section 6: where everything lies, the superblock and the map pages."""

import hmac
import struct
from dataclasses import dataclass

from aead import NotAuthentic

PAGE = 4096
OBJECT = 4 << 20
OBJECTS_PER_ZONE = 16384
FIELDS = struct.Struct("<8sIIQQQIIQQ16sQ")
MAC = PAGE - 32
MAX_SIZE = 1 << 52
COPY_DISTANCE = 2 << 20
TAG = 16


def up(number, unit):
    return -(-number // unit) * unit


class Layout:
    """Offsets in the store."""

    def __init__(self, payload_offset, journal_len, seal_len):
        self.payload = payload_offset
        self.seal_len = seal_len
        self.slots_per_page = PAGE // seal_len
        self.sectors_per_object = 1024 * self.slots_per_page // (self.slots_per_page + 1)
        self.journal = payload_offset + OBJECT
        self.zones = self.journal + up(journal_len, OBJECT)

    def object_of(self, lba):
        return lba // self.sectors_per_object

    def object_count(self, size):
        return -(-(-(-size // PAGE)) // self.sectors_per_object)

    def zone_count(self, size):
        return -(-self.object_count(size) // OBJECTS_PER_ZONE)

    def object(self, number):
        return self.zones + (number + number // OBJECTS_PER_ZONE + 1) * OBJECT

    def map_page(self, zone):
        return self.zones + zone * (OBJECTS_PER_ZONE + 1) * OBJECT

    def place(self, lba):
        return self.object(self.object_of(lba)) + PAGE * (lba % self.sectors_per_object)

    def slot(self, lba):
        page, index = divmod(lba % self.sectors_per_object, self.slots_per_page)
        return self.object(self.object_of(lba)) + PAGE * (self.sectors_per_object + page) + self.seal_len * index

    def end(self, size):
        count = self.object_count(size)
        return self.object(count - 1) + OBJECT if count else self.zones


@dataclass(frozen=True)
class Superblock:
    generation: int
    size: int
    journal_len: int
    clean: bool
    tail_sequence: int
    tail_position: int
    tail_previous_tag: bytes
    tail_previous_position: int
    map_tags: tuple

    @property
    def tail(self):
        return self.tail_sequence, self.tail_position, self.tail_previous_tag, self.tail_previous_position

    def encode(self, keys):
        page = FIELDS.pack(b"SEALDISK", 1, self.clean, self.generation, self.size, self.journal_len, 0, 0, *self.tail)
        page = page.ljust(MAC, b"\0")
        tags = b"".join(self.map_tags)
        tags = tags.ljust(up(len(tags), PAGE), b"\0")
        return page + keys.superblock_tag(page + tags) + tags

    @classmethod
    def decode(cls, read, keys):
        """`read` gives so many bytes from an offset in the copy on."""
        page = read(0, PAGE)
        magic, version, flags, generation, size, journal_len, epoch, _, *tail = FIELDS.unpack_from(page)
        if magic != b"SEALDISK" or version != 1 or size > MAX_SIZE:
            raise NotAuthentic
        zones = Layout(0, 0, keys.sectors.seal_len).zone_count(size)
        tags = read(PAGE, up(zones * TAG, PAGE))
        if not hmac.compare_digest(keys.superblock_tag(page[:MAC] + tags), page[MAC:]):
            raise NotAuthentic
        if flags not in (0, 1) or epoch != 0 or journal_len % PAGE or journal_len > 16 << 30:
            raise NotAuthentic
        map_tags = tuple(tags[i * TAG :][:TAG] for i in range(zones))
        return cls(generation, size, journal_len, flags == 1, *tail, map_tags)


def read_superblock(read, payload, keys):
    """The newest of the copies that verify; `read` gives so many bytes of the store from an offset on."""
    found = []
    for copy in (payload, payload + COPY_DISTANCE):
        try:
            found.append(Superblock.decode(lambda offset, length: read(copy + offset, length), keys))
        except NotAuthentic:
            pass
    if not found:
        raise NotAuthentic("no superblock that this key vouches for")
    return max(found, key=lambda superblock: superblock.generation)


def _map_data(keys, zone):
    return b"sealdisk map 1\0" + keys.payload.lineage + struct.pack("<Q", zone)


def map_tag(keys, page):
    """Which of all pages that were ever sealed for the zone this is."""
    return page[keys.metadata_seal_len - TAG : keys.metadata_seal_len]


def open_map(keys, zone, tag, page):
    """The numbers of the zone's objects that exist."""
    if map_tag(keys, page) != tag:
        raise NotAuthentic
    text = keys.open_metadata(_map_data(keys, zone), page[: keys.metadata_seal_len], page[48:])
    first = zone * OBJECTS_PER_ZONE
    return {first + i for i in range(OBJECTS_PER_ZONE) if text[i // 8] >> i % 8 & 1}


def seal_map(keys, zone, objects, random):
    text = bytearray(PAGE - 48)
    for number in objects:
        index = number % OBJECTS_PER_ZONE
        text[index // 8] |= 1 << index % 8
    ciphertext, seal = keys.seal_metadata(_map_data(keys, zone), random, bytes(text))
    return seal.ljust(48, b"\0") + ciphertext
