"""Section 6: the superblock and the map pages."""

import hmac
import struct
from dataclasses import dataclass

from aead import NotAuthentic
from layouts import OBJECTS_PER_ZONE, PAGE, Layout, up

FIELDS = struct.Struct("<8sIIQQQIIQQ16sQ")
MAC = PAGE - 32
MAX_SIZE = 1 << 52
COPY_DISTANCE = 2 << 20
TAG = 16


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
        zones = Layout(keys.payload.layout, 0, 0, keys.sectors.seal_len).zone_count(size)
        tags = read(PAGE, up(zones * TAG, PAGE))
        if not hmac.compare_digest(keys.superblock_tag(page[:MAC] + tags), page[MAC:]):
            raise NotAuthentic
        if flags not in (0, 1) or epoch != 0 or journal_len % PAGE or journal_len > 16 << 30:
            raise NotAuthentic
        map_tags = tuple(tags[i * TAG :][:TAG] for i in range(zones))
        return cls(generation, size, journal_len, flags == 1, *tail, map_tags)


def read_superblocks(store, keys):
    """The copies that verify, the newest first."""
    found = []
    for copy in (keys.payload.offset, keys.payload.offset + COPY_DISTANCE):
        try:
            found.append(Superblock.decode(lambda offset, length: store.at(copy + offset, length), keys))
        except NotAuthentic:
            pass
    if not found:
        raise NotAuthentic("no superblock that this key vouches for")
    return sorted(found, key=lambda superblock: superblock.generation, reverse=True)


def _map_data(keys, zone):
    return b"sealdisk map 1\0" + keys.payload.lineage + struct.pack("<Q", zone)


def map_tag(keys, page):
    """Which of all pages that were ever sealed for the zone this is."""
    return page[keys.metadata_seal_len - TAG : keys.metadata_seal_len]


def open_map(keys, zone, tags, page):
    """The numbers of the zone's objects that exist, if the page has one of the tags."""
    if map_tag(keys, page) not in tags:
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
