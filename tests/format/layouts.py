"""Section 6: where everything lies, in every layout."""

from aead import NotAuthentic

PAGE = 4096
OBJECT = 4 << 20
OBJECTS_PER_ZONE = 16384
NAMES = ["packed", "object-end", "omap", "unaligned"]


def object_size(name):
    """Bytes of the store's objects."""
    return 2 * OBJECT if name in ("object-end", "unaligned") else OBJECT


def up(number, unit):
    return -(-number // unit) * unit


class Layout:
    """Offsets in the store, and in its objects."""

    def __init__(self, name, payload_offset, journal_len, seal_len):
        if name != "packed" and journal_len != 0:
            raise NotAuthentic(f"{name} has no journal")
        self.name = name
        self.seal_len = seal_len
        self.slots_per_page = PAGE // seal_len
        packed = 1024 * self.slots_per_page // (self.slots_per_page + 1)
        self.sectors_per_object = packed // 16 * 16 if name == "packed" else 1024
        self.object_size = object_size(name)
        if payload_offset % self.object_size:
            raise NotAuthentic(f"{name} does not begin at {payload_offset}")
        self.journal = payload_offset + self.object_size
        self.zones = self.journal + up(journal_len, self.object_size)

    def object_of(self, lba):
        return lba // self.sectors_per_object

    def object_count(self, size):
        return -(-(-(-size // PAGE)) // self.sectors_per_object)

    def zone_count(self, size):
        return -(-self.object_count(size) // OBJECTS_PER_ZONE)

    def object(self, number):
        return self.zones + (number + number // OBJECTS_PER_ZONE + 1) * self.object_size

    def map_page(self, zone):
        return self.zones + zone * (OBJECTS_PER_ZONE + 1) * self.object_size

    def end(self, size):
        count = self.object_count(size)
        return self.object(count - 1) + self.object_size if count else self.zones

    def place(self, lba):
        """The store's object and where in it the sector's place begins."""
        number, index = divmod(lba, self.sectors_per_object)
        stride = PAGE + self.seal_len if self.name == "unaligned" else PAGE
        return self.object(number) // self.object_size, stride * index

    def slot(self, lba):
        """The store's object and where in it the slot begins; with `omap`, which key has it."""
        number, begin = self.place(lba)
        index = lba % self.sectors_per_object
        if self.name == "omap":
            return number, index
        if self.name == "unaligned":
            return number, begin + PAGE
        page, index = divmod(index, self.slots_per_page)
        return number, PAGE * (self.sectors_per_object + page) + self.seal_len * index

    def read_place(self, store, lba):
        return store.read(*self.place(lba), PAGE)

    def read_slot(self, store, lba):
        if self.name != "omap":
            return store.read(*self.slot(lba), self.seal_len)
        slot = store.value(*self.slot(lba))
        if slot is None or len(slot) != self.seal_len:
            raise NotAuthentic
        return slot

    def write_place(self, store, lba, place):
        store.write(*self.place(lba), place)

    def write_slot(self, store, lba, slot):
        if self.name == "omap":
            store.set_value(*self.slot(lba), slot)
        else:
            store.write(*self.slot(lba), slot)
