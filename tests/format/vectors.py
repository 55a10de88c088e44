"""Makes the test vectors of docs/format.md: `vectors.py FOLDER`, or compares them to what lies there: `vectors.py --check FOLDER`.

`--ciphers FOLDER` holds the ciphers to the published vectors in that folder first.
"""

import argparse
import dataclasses
import json
import pathlib
import struct
import sys

import aead
import luks2
from aead import NotAuthentic
from folding import SECTOR, fold, unfold
from layouts import NAMES, OBJECTS_PER_ZONE, PAGE
from metadata import seal_map
from sealing import FOLD_MARK, ZERO, Keys, Payload, open_slot
from stores import FileStore, ObjectStore
from writer import NO_JOURNAL, Stream, Writer

OFFSET = 16 << 20
CIPHERS = [*aead.BY_NAME, "aes-256-xts-random"]


class Pages(FileStore):
    """A file of which only what was written counts."""

    def __init__(self):
        self.written, self.store_size = {}, 0

    def set_size(self, size):
        self.store_size = size

    def put(self, offset, data):
        self.written[offset] = data


class Pieces(ObjectStore):
    """Objects of which only what was written counts."""

    def write(self, number, offset, data):
        self.bytes.setdefault(number, {})[offset] = data


def sectors(writer):
    """One sector in each form."""
    plain, like_page = writer.random_sector(), writer.page_like_sector()
    place, seal, folded = writer.sealed(1000, plain)
    assert not folded
    yield "plain", 1000, seal, place, plain
    place, seal, folded = writer.sealed(2**40 + 1, like_page)
    assert folded
    mark = writer.sectors.seal(2**40 + 1, FOLD_MARK, writer.random, b"")[1]
    yield "folded", 2**40 + 1, mark, place, like_page
    zero = writer.sectors.seal(0, ZERO, writer.random, b"")[1]
    yield "zero", 0, zero, bytes(PAGE), bytes(PAGE)


def superblock(keys, random):
    pages = Pages()
    # Three zones.
    size = (150 << 30) + 789
    writer = Writer(pages, keys, size, 64 << 10, random)
    writer.put_map()
    tag = random(16)
    writer.put_superblock(6, False, (77, 8192, tag, 4096))
    fields = {"generation": 6, "size": size, "journal_len": 64 << 10, "clean": False}
    tail = {"tail_sequence": 77, "tail_position": 8192, "tail_previous_tag": tag.hex(), "tail_previous_position": 4096}
    tags = [tag.hex() for tag in writer.map_tags]
    return {**fields, **tail, "map_tags": tags, "pages": pages.written[OFFSET].hex()}


def journaled(keys, random):
    """A volume of one object that only its journal knows of."""
    pages = Pages()
    writer = Writer(pages, keys, 100 * PAGE, 64 << 10, random)
    writer.put_map()
    tail = (7, 8192, random(16), 4096)
    writer.put_superblock(2, False, tail)
    records = [writer.create(0), writer.map(0), writer.zero(5, 2)]
    records += [writer.data(4, writer.page_like_sector()), writer.in_place(8, writer.random_sector(), False)]
    records += [writer.in_place(9, writer.random_sector(), True)]
    writer.frame(*tail[:3], records)
    store = {str(offset): data.hex() for offset, data in sorted(pages.written.items())}
    disk = {str(lba): sector.hex() for lba, sector in sorted(writer.disk.items())}
    return {"size": 100 * PAGE, "store_size": pages.store_size, "store": store, "disk": disk}


def derived_keys(keys):
    lengths = {"sector": 64 if keys.payload.cipher == "aes-256-xts-random" else 32, "metadata": 32, "superblock": 32}
    return {
        purpose: {"info": keys.payload.info(purpose), "key": keys.derive(purpose, length).hex()}
        for purpose, length in lengths.items()
    }


def of_layout(payload, key, layout):
    """Sectors in the first object of the second zone of a volume without a journal.

    There is no map page of the first zone. The newest superblock announces a page for the second that never came.
    """
    random = Stream(f"vectors {payload.cipher} {layout}")
    store = Pieces()
    keys = Keys(key, dataclasses.replace(payload, layout=layout))
    writer = Writer(store, keys, 0, 0, random)
    n, s = writer.layout.sectors_per_object, writer.layout.slots_per_page
    writer.size = (OBJECTS_PER_ZONE + 1) * n * PAGE + 300 * PAGE + 789
    writer.objects = {OBJECTS_PER_ZONE}
    pages = writer.seal_maps()
    writer.at(writer.layout.map_page(1), pages[1])
    writer.put_superblock(6, True, NO_JOURNAL)
    writer.seal_maps()
    writer.put_superblock(7, True, NO_JOURNAL)
    first = OBJECTS_PER_ZONE * n
    writer.put_slot(first, ZERO)
    writer.disk[first] = bytes(PAGE)
    # The last of a page of slots, the first of the next one, and the object's last.
    for index, sector in [(s - 1, writer.random_sector()), (s, writer.page_like_sector()), (n - 1, writer.random_sector())]:
        writer.put(first + index, sector)
    objects = {}
    for number, pieces in sorted(store.bytes.items()):
        pieces = {str(offset): data.hex() for offset, data in sorted(pieces.items())}
        values = {key.hex(): value.hex() for key, value in sorted(store.values.get(number, {}).items())}
        objects[f"{number:016x}"] = {"bytes": pieces, "omap": values}
    disk = {str(lba): sector.hex() for lba, sector in sorted(writer.disk.items())}
    return {"layout": layout, "keys": derived_keys(keys), "size": writer.size, "objects": objects, "disk": disk}


def of_cipher(cipher):
    random = Stream(f"vectors {cipher}")
    payload = Payload(cipher, "packed", True, random(16), OFFSET)
    key = random(64)
    keys = Keys(key, payload)
    writer = Writer(Pages(), keys, 0, 0, random)
    segment = luks2.sealed_segment(cipher, "packed", True, payload.lineage.hex(), str(OFFSET))
    sealed = []
    for form, lba, slot, place, sector in sectors(writer):
        assert open_slot(keys.sectors, lba, slot, place) == sector
        sealed.append({"form": form, "lba": lba, "slot": slot.hex(), "place": place.hex(), "sector": sector.hex()})
    objects = [3 * OBJECTS_PER_ZONE, 3 * OBJECTS_PER_ZONE + 9, 4 * OBJECTS_PER_ZONE - 1]
    return {
        "cipher": cipher,
        "fold": True,
        "lineage": payload.lineage.hex(),
        "offset": OFFSET,
        "volume_key": key.hex(),
        "header": luks2.make_metadata(segment, key, random),
        "keys": derived_keys(keys),
        "sectors": sealed,
        "superblock": superblock(keys, random),
        "map": {"zone": 3, "objects": objects, "page": seal_map(keys, 3, objects, random).hex()},
        "journal": journaled(keys, random),
        "layouts": [of_layout(payload, key, layout) for layout in NAMES],
    }


def folded():
    writer = Writer(Pages(), Keys(bytes(64), Payload("aegis-256", "packed", True, bytes(16), OFFSET)), 0, 0, Stream("folding"))
    found = []
    for room in (48, 40, 16):
        sector = writer.page_like_sector()
        text = fold(sector, room)
        assert unfold(text) == sector
        found.append({"text": text.hex(), "sector": sector.hex()})
    hole = lambda before, distance, length: struct.pack("<BI", 1, before | distance << 12 | (length - 1) << 24)
    # A start, and how many zeros follow it.
    malformed = {
        "no holes, a byte too few": (bytes([0]), 4095),
        "more holes than bytes": (bytes([255]), 1019),
        "distance 0": (hole(8, 0, 53), 4043),
        "distance before the sector": (hole(8, 9, 53), 4043),
        "a hole at the very start": (hole(0, 1, 53), 4043),
        "a hole beyond the end": (hole(4050, 1, 53), 4043),
        "a byte too few": (hole(8, 8, 53), 4042),
        "a byte too many": (hole(8, 8, 53), 4044),
    }
    for name, (start, zeros) in malformed.items():
        try:
            unfold(start + bytes(zeros))
        except NotAuthentic:
            found.append({"text": start.hex(), "zeros": zeros, "malformed": name})
        else:
            raise AssertionError(name)
    return found


def check_ciphers(folder):
    """The published vectors that Sealdisk is held to are ours as well."""
    count = 0
    for file, cipher in [
        ("rfc10032-aegis-256.json", aead.Aegis256),
        ("rfc10032-aegis-256x4.json", aead.Aegis256X4),
        ("c2sp-xaes-256-gcm.json", aead.Xaes256Gcm),
        ("draft-irtf-cfrg-xchacha.json", aead.XChaCha20Poly1305),
    ]:
        data = json.loads((folder / file).read_text())
        for test in data["tests"] if isinstance(data, dict) else data:
            if "key" not in test or "msg" not in test:
                continue
            field = lambda *names: bytes.fromhex(next((test[name] for name in names if name in test), ""))
            ciphertext, tag = field("ct"), field("tag128", "tag")
            if not tag:
                ciphertext, tag = ciphertext[:-16], ciphertext[-16:]
            algorithm, nonce, ad = cipher(field("key")), field("nonce", "iv"), field("ad", "aad")
            assert algorithm.seal(nonce, ad, field("msg")) == (ciphertext, tag), (file, test)
            assert algorithm.open(nonce, ad, ciphertext, tag) == field("msg"), (file, test)
            count += 1
    assert count >= 10, f"only {count} published vectors"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--ciphers", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.ciphers:
        check_ciphers(arguments.ciphers)
    made = {f"{cipher}.json": of_cipher(cipher) for cipher in CIPHERS} | {"folding.json": folded()}
    for name, content in made.items():
        text = json.dumps(content, indent=1) + "\n"
        file = arguments.folder / name
        if not arguments.check:
            file.write_text(text)
        elif file.read_text() != text:
            sys.exit(f"{file} is not what vectors.py makes")


if __name__ == "__main__":
    main()
