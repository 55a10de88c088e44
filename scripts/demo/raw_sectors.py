#!/usr/bin/env python3
"""Looks at a volume's raw file the way someone does who has the file and no key.

    raw_sectors.py compare BEFORE AFTER INFO EXTENTS   count 16-byte blocks that an overwrite left equal
    raw_sectors.py flip VOLUME INFO EXTENTS            flip one bit in the first of the sectors, and print its number

INFO is what `sealdisk info --json` says of the volume. EXTENTS is what `filefrag -b4096 -e` says of a file on the disk:
the sectors concerned. Only the Python standard library is needed.
"""

import json
import re
import sys

SECTOR = 4096
BLOCK = 16  # what AES encrypts at a time
OBJECT = 4 << 20
OBJECTS_PER_ZONE = 16384
SEAL_BYTES = {"aegis-256": 48, "aegis-256x4": 48, "aes-256-gcm": 40, "xchacha20-poly1305": 40, "aes-256-xts-random": 16}


class Places:
    """Where the sectors of a volume lie in its file. The same arithmetic stands in docs/format.md."""

    def __init__(self, volume, info):
        self.offset = info["offset"]
        self.packed = info["layout"] == "packed"
        if self.packed:
            seals_per_page = SECTOR // SEAL_BYTES[info["cipher"]]
            self.sectors_per_object = OBJECT // SECTOR * seals_per_page // (seals_per_page + 1) // 16 * 16
            volume.seek(self.offset + 32)
            journal = int.from_bytes(volume.read(8), "little")
            self.zones = self.offset + OBJECT + -(-journal // OBJECT) * OBJECT

    def of(self, sector):
        if not self.packed:
            return self.offset + sector * SECTOR
        number, index = divmod(sector, self.sectors_per_object)
        maps = number // OBJECTS_PER_ZONE + 1
        return self.zones + (number + maps) * OBJECT + index * SECTOR


def sectors_in(extents):
    for line in open(extents):
        if match := re.match(r"\s*\d+:\s+\d+\.\.\s*\d+:\s+(\d+)\.\.\s*(\d+):", line):
            yield from range(int(match[1]), int(match[2]) + 1)


def read_sector(file, offset):
    file.seek(offset)
    return file.read(SECTOR)


def compare(before_path, after_path, info_path, extents):
    info = json.load(open(info_path))
    overwritten = equal = 0
    with open(before_path, "rb") as before, open(after_path, "rb") as after:
        places = Places(after, info)
        for sector in sectors_in(extents):
            old, new = (read_sector(file, places.of(sector)) for file in (before, after))
            if old != new:
                overwritten += 1
                equal += sum(old[i : i + BLOCK] == new[i : i + BLOCK] for i in range(0, SECTOR, BLOCK))
    if overwritten == 0:
        sys.exit("no sector was overwritten")
    blocks = overwritten * SECTOR // BLOCK
    print(f"{overwritten} sectors were overwritten; {equal} of {blocks} blocks of 16 bytes stayed equal"
          f" ({100 * equal / blocks:.1f} %)")


def flip(volume_path, info_path, extents):
    info = json.load(open(info_path))
    sector = next(sectors_in(extents))
    with open(volume_path, "r+b") as volume:
        place = Places(volume, info).of(sector) + 1000
        volume.seek(place)
        byte = volume.read(1)[0]
        volume.seek(place)
        volume.write(bytes([byte ^ 1]))
    print(sector)


if __name__ == "__main__":
    {"compare": compare, "flip": flip}[sys.argv[1]](*sys.argv[2:])
