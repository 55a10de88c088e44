"""Section 7: frames and their records."""

import struct
from dataclasses import dataclass

from aead import NotAuthentic
from layouts import PAGE, up
from metadata import TAG, open_map
from sealing import open_sealed

DROP, CREATE, MAP, ZERO, DATA, DATA_FOLDED, IN_PLACE, IN_PLACE_FOLDED = range(1, 9)
CLEAR = struct.Struct("<8sQII16s")
LIST = 96
MAX_LIST = 4 << 20
NUMBERS = {DROP: 2, CREATE: 1, MAP: 1, ZERO: 2, DATA: 1, DATA_FOLDED: 1, IN_PLACE: 1, IN_PLACE_FOLDED: 1}


class Damaged(Exception):
    """Frames are missing that had been durable, or came after the volume was closed."""


@dataclass(frozen=True)
class Record:
    kind: int
    numbers: tuple
    seal: bytes = b""
    check: bytes = b""
    page: bytes = b""
    tag: bytes = b""

    @property
    def folded(self):
        return self.kind in (DATA_FOLDED, IN_PLACE_FOLDED)

    def encode(self):
        numbers = struct.pack(f"<{len(self.numbers)}Q", *self.numbers)
        return bytes([self.kind]) + numbers + self.tag + self.seal + self.check


@dataclass(frozen=True)
class Frame:
    sequence: int
    position: int
    length: int
    tag: bytes
    records: list


class Journal:
    """The bytes of a journal, and the keys that open it."""

    def __init__(self, data, keys):
        self.data = data
        self.keys = keys

    def _associated_data(self, clear, position):
        return b"sealdisk journal 1\0" + self.keys.payload.lineage + clear + struct.pack("<Q", position)

    def seal(self, sequence, position, previous_tag, records, random):
        """The bytes of a frame, and its tag."""
        text = b"".join(record.encode() for record in records)
        pages = b"".join(record.page for record in records)
        clear = CLEAR.pack(b"SDJOURNL", sequence, len(text), len(pages) // PAGE, previous_tag)
        ciphertext, seal = self.keys.seal_metadata(self._associated_data(clear, position), random, text)
        first = (clear + seal).ljust(LIST, b"\0") + ciphertext
        return first.ljust(up(len(first), PAGE), b"\0") + pages, seal[-16:]

    def open(self, position):
        """The frame at a position, its pages not looked at; None where none opens."""
        clear = bytes(self.data[position : position + CLEAR.size])
        if len(clear) < CLEAR.size:
            return None
        magic, sequence, list_len, page_count, previous_tag = CLEAR.unpack(clear)
        pages = position + up(LIST + list_len, PAGE)
        end = pages + page_count * PAGE
        if magic != b"SDJOURNL" or list_len > MAX_LIST or end > len(self.data):
            return None
        seal = bytes(self.data[position + 40 : position + 40 + self.keys.metadata_seal_len])
        text = bytes(self.data[position + LIST : position + LIST + list_len])
        try:
            text = self.keys.open_metadata(self._associated_data(clear, position), seal, text)
            records = self._records(text, [bytes(self.data[at : at + PAGE]) for at in range(pages, end, PAGE)])
        except (NotAuthentic, struct.error, IndexError, KeyError):
            return None
        return previous_tag, Frame(sequence, position, end - position, seal[-16:], records)

    def _records(self, text, pages):
        records, pages = [], iter(pages)
        sectors = self.keys.sectors
        while text:
            kind, count = text[0], NUMBERS[text[0]]
            numbers = struct.unpack_from(f"<{count}Q", text, 1)
            text = text[1 + 8 * count :]
            seal = check = page = tag = b""
            if kind == MAP:
                tag, text = text[:TAG], text[TAG:]
                if len(tag) < TAG:
                    raise IndexError
            if kind >= DATA:
                seal, text = text[: sectors.seal_len], text[sectors.seal_len :]
                if len(seal) < sectors.seal_len:
                    raise IndexError
            if kind in (DATA, DATA_FOLDED) and not sectors.proves:
                check, text = text[: self.keys.metadata_seal_len], text[self.keys.metadata_seal_len :]
            if kind in (MAP, DATA, DATA_FOLDED):
                page = next(pages, None)
                if page is None:
                    raise IndexError
            records.append(Record(kind, numbers, seal, check, page, tag))
        if next(pages, None) is not None:
            raise IndexError
        return records

    def _pages_are_whole(self, frame):
        try:
            for record in frame.records:
                if record.kind == MAP:
                    open_map(self.keys, record.numbers[0], [record.tag], record.page)
                elif record.check:
                    self.keys.open_metadata(record.page, record.check, b"")
                elif record.page:
                    open_sealed(self.keys.sectors, record.numbers[0], record.folded, record.seal, record.page)
        except NotAuthentic:
            return False
        return True

    def frames(self, sequence, position, previous_tag, previous_position):
        """All frames from the tail on (section 8, steps 4 to 6)."""
        found, used = [], 0
        while True:
            for start in dict.fromkeys([position, 0]):
                skipped = 0 if start == position else len(self.data) - position
                previous, frame = self.open(start) or (None, None)
                if frame is None or (frame.sequence, previous) != (sequence, previous_tag):
                    continue
                fitted_before = start != position and frame.length <= skipped
                if fitted_before or used + skipped + frame.length > len(self.data) or not self._pages_are_whole(frame):
                    continue
                found.append(frame)
                used += skipped + frame.length
                sequence, position, previous_tag = sequence + 1, start + frame.length, frame.tag
                break
            else:
                break
        for start in range(0, len(self.data), PAGE):
            _, frame = self.open(start) or (None, None)
            if frame and frame.sequence > sequence:
                raise Damaged(f"frame {sequence} is missing although frame {frame.sequence} was written after it")
        if not found and sequence > 1:
            _, before = self.open(previous_position) or (None, None)
            if before is None or (before.sequence, before.tag) != (sequence - 1, previous_tag):
                raise Damaged(f"frame {sequence - 1}, the last that the superblock knows, is not there")
        return found
