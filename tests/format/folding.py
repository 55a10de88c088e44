"""Section 5: making room in a sector for its own seal, and the inverse."""

import struct

from aead import NotAuthentic

SECTOR = 4096


def unfold(text):
    """The sector of a folded text."""
    count = text[0]
    if len(text) < 1 + 4 * count:
        raise NotAuthentic
    holes = struct.unpack_from(f"<{count}I", text, 1)
    rest = text[1 + 4 * count :]
    sector = bytearray()
    for hole in holes:
        before, distance, length = hole & 0xFFF, hole >> 12 & 0xFFF, (hole >> 24) + 1
        if before > len(rest):
            raise NotAuthentic
        sector += rest[:before]
        rest = rest[before:]
        if not 1 <= distance <= len(sector) or len(sector) + length > SECTOR:
            raise NotAuthentic
        for _ in range(length):
            sector.append(sector[-distance])
    sector += rest
    if len(sector) != SECTOR:
        raise NotAuthentic
    return bytes(sector)


def fold(sector, room):
    """A text that is `room` bytes shorter, or None. Not the holes that Sealdisk would choose, and they need not be."""
    holes, seen, start, wanted = [], {}, 0, room + 1
    while start < SECTOR - 4 and len(holes) < 255:
        word = sector[start : start + 5]
        earlier = seen.setdefault(word, start)
        if earlier == start:
            start += 1
            continue
        length, most = 5, min(256, wanted + 4, SECTOR - start)
        while length < most and sector[earlier + length] == sector[start + length]:
            length += 1
        holes.append((start, start - earlier, length))
        wanted += 4 - length
        start += length
        if wanted == 0:
            return _text(sector, holes)
    return None


def _text(sector, holes):
    text, rest, end = bytes([len(holes)]), b"", 0
    for start, distance, length in holes:
        text += struct.pack("<I", start - end | distance << 12 | (length - 1) << 24)
        rest += sector[end:start]
        end = start + length
    return text + rest + sector[end:]
