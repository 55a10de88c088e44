"""Makes a small sealed volume from docs/format.md alone: `writer.py VOLUME KEY_FILE DISK --cipher NAME [--fold] [--clean]`.

Writes the volume, which the contents of KEY_FILE open, and to DISK the bytes that it must give. Without `--clean` its journal
holds every kind of record, in frames that wrap, before frames of an earlier round and one that a crash has torn.

With `--objects LAYOUT` the volume has no journal, and VOLUME is made a folder with its RADOS objects (see stores.py). Without
`--clean` its superblock announces a map page that never came.
"""

import argparse
import hashlib

import journal
import luks2
from journal import CREATE, DATA, DATA_FOLDED, DROP, IN_PLACE, IN_PLACE_FOLDED, MAP, Journal, Record
from layouts import NAMES, OBJECT, PAGE, Layout
from metadata import COPY_DISTANCE, Superblock, map_tag, seal_map
from sealing import FOLD_MARK, ZERO, Keys, Payload, seal_sector
from stores import FileStore, ObjectStore

OFFSET = 16 << 20
JOURNAL_LEN = 40 * PAGE
# The tail of a superblock without a journal.
NO_JOURNAL = (1, 0, bytes(16), 0)


class Stream:
    """Bytes that depend on a seed alone, so that what is made can be made again. Good for tests and nothing else."""

    def __init__(self, seed):
        self.seed, self.count = seed, 0

    def __call__(self, length):
        self.count += 1
        return hashlib.shake_128(f"{self.seed} {self.count}".encode()).digest(length)


class Writer:
    """A volume on the way to a store, and the disk that it is to give."""

    def __init__(self, store, keys, size, journal_len, random):
        self.store, self.keys, self.size, self.random = store, keys, size, random
        self.sectors = keys.sectors
        self.layout = Layout(keys.payload.layout, keys.payload.offset, journal_len, keys.sectors.seal_len)
        self.journal_len = journal_len
        self.journal = Journal(b"", keys)
        self.disk = {}
        self.objects = set()
        self.map_tags = []
        store.object_size = self.layout.object_size
        store.set_size(self.layout.end(size))

    def at(self, offset, data):
        self.store.put(offset, data)

    def random_sector(self):
        return self.random(PAGE)

    def page_like_sector(self):
        """Little at the start, little at the end, nothing in between; or text that repeats itself."""
        self.random.count += 1
        if self.random.count % 2:
            return self.random(200) + bytes(PAGE - 300) + self.random(100)
        words = self.random(64)
        return b"".join(words[i % 57 : i % 57 + 7] + bytes([i % 251]) for i in range(PAGE // 8))

    def sealed(self, lba, sector):
        return seal_sector(self.sectors, lba, self.random, sector, self.keys.payload.fold)

    # In place

    def create_object(self, number):
        self.objects.add(number)
        first = number * self.layout.sectors_per_object
        for lba in range(first, first + self.layout.sectors_per_object):
            self.put_slot(lba, ZERO)

    def put_slot(self, lba, mark):
        self.layout.write_slot(self.store, lba, self.sectors.seal(lba, mark, self.random, b"")[1])

    def put_place(self, lba, place):
        self.layout.write_place(self.store, lba, place)

    def put(self, lba, sector):
        """A sector that is in place, with its slot."""
        place, seal, folded = self.sealed(lba, sector)
        self.put_place(lba, place)
        if folded:
            self.put_slot(lba, FOLD_MARK)
        else:
            self.layout.write_slot(self.store, lba, seal)
        self.disk[lba] = sector

    def seal_maps(self):
        """The pages that say what exists now, which the next superblock has the tags of."""
        zones = range(self.layout.zone_count(self.size))
        pages = [seal_map(self.keys, zone, self.objects, self.random) for zone in zones]
        self.map_tags = [map_tag(self.keys, page) for page in pages]
        return pages

    def put_map(self):
        for zone, page in enumerate(self.seal_maps()):
            self.at(self.layout.map_page(zone), page)

    def put_superblock(self, generation, clean, tail):
        superblock = Superblock(generation, self.size, self.journal_len, clean, *tail, tuple(self.map_tags))
        self.at(self.keys.payload.offset + generation % 2 * COPY_DISTANCE, superblock.encode(self.keys))

    # Journal

    def data(self, lba, sector):
        place, seal, folded = self.sealed(lba, sector)
        check = b"" if self.sectors.proves else self.keys.seal_metadata(place, self.random, b"")[1]
        self.disk[lba] = sector
        return Record(DATA_FOLDED if folded else DATA, (lba,), seal, check, place)

    def in_place(self, lba, sector, written):
        """Whether the sector came to be written before the crash."""
        if not self.sectors.proves:
            return self.data(lba, sector) if written else None
        place, seal, folded = self.sealed(lba, sector)
        if written:
            self.put_place(lba, place)
            self.disk[lba] = sector
        return Record(IN_PLACE_FOLDED if folded else IN_PLACE, (lba,), seal)

    def zero(self, first, count):
        for lba in range(first, first + count):
            self.disk.pop(lba, None)
        return Record(journal.ZERO, (first, count))

    def drop(self, first, count):
        gone = range(first, first + count)
        self.objects -= set(gone)
        self.disk = {lba: s for lba, s in self.disk.items() if self.layout.object_of(lba) not in gone}
        return Record(DROP, (first, count))

    def create(self, number):
        """Its places are zeros from now on; its slots are what they were."""
        self.objects.add(number)
        self.at(self.layout.object(number), bytes(PAGE * self.layout.sectors_per_object))
        return Record(CREATE, (number,))

    def map(self, zone):
        page = seal_map(self.keys, zone, self.objects, self.random)
        return Record(MAP, (zone,), page=page, tag=map_tag(self.keys, page))

    def frame(self, sequence, position, previous_tag, records):
        """Writes a frame; returns its tag and the position behind it."""
        records = [record for record in records if record]
        data, tag = self.journal.seal(sequence, position, previous_tag, records, self.random)
        assert position + len(data) <= self.journal_len
        self.at(self.layout.journal + position, data)
        return tag, position + len(data)

    # The disk

    def write_disk(self, disk):
        disk.truncate(self.size)
        for lba, sector in sorted(self.disk.items()):
            disk.seek(lba * PAGE)
            disk.write(sector[: self.size - lba * PAGE])


def write_in_place(writer):
    """Objects 0, 2 and 4 exist; 1 and 3 do not, and there is nonsense where they would be."""
    n = writer.layout.sectors_per_object
    for number in (0, 2, 4):
        writer.create_object(number)
    for lba in [0, 1, 84, 85, 101, 102, 255, 256, n - 1, 2 * n, 3 * n - 1]:
        writer.put(lba, writer.random_sector())
        writer.put(lba + (2 if lba % n < n - 2 else -2), writer.page_like_sector())
    writer.at(writer.layout.object(1), writer.random(OBJECT))
    # The last sector reaches beyond the end of the disk, with zeros.
    last = writer.size // PAGE
    writer.put(last, writer.random(writer.size % PAGE).ljust(PAGE, b"\0"))


def put_frame_before(writer, position):
    """The tail at this position. Before it lies frame 6, which counts no more."""
    tag, end = writer.frame(6, position - PAGE, writer.random(16), [Record(journal.ZERO, (30, 1))])
    assert end == position
    return 7, position, tag, position - PAGE


def write_journal(writer):
    """Frames 7 to 12 count. The ring's end lies between 8 and 9. Returns the tail."""
    n = writer.layout.sectors_per_object
    for lba in (30, 31, 32, 33, 34, 35):
        writer.put(lba, writer.page_like_sector() if lba % 2 else writer.random_sector())
    # Before the end: the two pages of frame 7, those of frame 8, and one more.
    tail = put_frame_before(writer, writer.journal_len - (6 if writer.sectors.proves else 8) * PAGE)
    tag, position = writer.frame(*tail[:3], [writer.data(30, writer.random_sector()), writer.zero(31, 1)])
    # Object 1 begins to exist: one sector by data, two in place, and one whose writing the crash forestalled.
    created = [writer.create(1), writer.map(0), writer.data(n + 3, writer.page_like_sector())]
    created += [writer.in_place(n + 4, writer.random_sector(), True)]
    created += [writer.in_place(n + 5, writer.page_like_sector(), True)]
    created += [writer.in_place(n + 6, writer.random_sector(), False)]
    tag, position = writer.frame(8, position, tag, created)
    assert position == writer.journal_len - PAGE, "one page is left, and frame 9 has two"
    changed = [writer.zero(0, 2), writer.data(33, writer.page_like_sector())]
    changed += [writer.in_place(32, writer.random_sector(), False), writer.in_place(34, writer.random_sector(), True)]
    changed += [writer.in_place(35, writer.page_like_sector(), True)]
    tag, position = writer.frame(9, 0, tag, changed)
    # An object goes, another too and comes back empty but for one sector; its old slots are still in place.
    gone = [writer.drop(2, 1), writer.drop(4, 1), writer.map(0)]
    tag, position = writer.frame(10, position, tag, gone)
    back = [writer.create(4), writer.map(0), writer.data(4 * n + 7, writer.random_sector())]
    tag, position = writer.frame(11, position, tag, back)
    again = [writer.data(4 * n + 8, writer.random_sector()), writer.data(4 * n + 8, writer.page_like_sector())]
    tag, position = writer.frame(12, position, tag, again)
    # Frame 13 is torn: its last page never came.
    kept = dict(writer.disk)
    torn = [writer.data(40, writer.random_sector()), writer.data(41, writer.random_sector()), writer.zero(n + 3, 1)]
    _, end = writer.frame(13, position, tag, torn)
    writer.disk = kept
    writer.at(writer.layout.journal + end - PAGE, bytes(PAGE))
    # Frames of an earlier round.
    writer.frame(5, end, writer.random(16), [Record(journal.ZERO, (30, 1))])
    return tail


def make(store, payload, key, size, clean, random):
    writer = Writer(store, Keys(key, payload), size, JOURNAL_LEN, random)
    write_in_place(writer)
    writer.put_map()
    tail = put_frame_before(writer, 3 * PAGE) if clean else write_journal(writer)
    # The newer one counts.
    writer.put_superblock(4, True, (3, 0, bytes(16), 0))
    writer.put_superblock(5, clean, tail)
    return writer


def make_without_journal(store, payload, key, size, clean, random):
    writer = Writer(store, Keys(key, payload), size, 0, random)
    write_in_place(writer)
    writer.put_map()
    writer.put_superblock(4, True, NO_JOURNAL)
    if not clean:
        # Object 3 is whole, and the page that makes it exist was on its way when the crash came.
        kept, n = dict(writer.disk), writer.layout.sectors_per_object
        writer.create_object(3)
        writer.put(3 * n + 5, writer.random_sector())
        writer.seal_maps()
        writer.disk = kept
    writer.put_superblock(5, True, NO_JOURNAL)
    return writer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cipher", required=True)
    parser.add_argument("--fold", action="store_true")
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--objects", choices=NAMES, metavar="LAYOUT")
    parser.add_argument("volume")
    parser.add_argument("key_file")
    parser.add_argument("disk")
    arguments = parser.parse_args()
    random = Stream(f"{arguments.cipher} {arguments.fold} {arguments.clean}")
    payload = Payload(arguments.cipher, arguments.objects or "packed", arguments.fold, random(16), OFFSET)
    key = random(64)
    words = [payload.cipher, payload.layout, payload.fold, payload.lineage.hex(), str(OFFSET)]
    with open(arguments.key_file, "rb") as key_file:
        header = luks2.make(luks2.sealed_segment(*words), key, key_file.read(), random)
    layout = Layout(payload.layout, OFFSET, 0, Keys(key, payload).sectors.seal_len)
    size = (4 * layout.sectors_per_object + 300) * PAGE + 512
    if arguments.objects:
        store = ObjectStore()
        writer = make_without_journal(store, payload, key, size, arguments.clean, random)
        writer.at(0, header)
        store.save(arguments.volume)
    else:
        with open(arguments.volume, "wb") as file:
            writer = make(FileStore(file), payload, key, size, arguments.clean, random)
            writer.at(0, header)
    with open(arguments.disk, "wb") as disk:
        writer.write_disk(disk)


if __name__ == "__main__":
    main()
