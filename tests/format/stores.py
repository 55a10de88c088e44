"""What holds a volume's bytes, by objects: a file, or a folder with a copy of RADOS objects.

In the folder, a file has the bytes of the object whose number in the store, in 16 hexadecimal digits, it is called after
(as the object's own name ends), zeros at its end left out. `NUMBER.omap` beside it is a JSON object of the object's keys and
their values, in hexadecimal.
"""

import json
import os
import pathlib

from layouts import OBJECT


class FileStore:
    """A file, which lies one object after the other."""

    holds_objects = False
    object_size = OBJECT

    def __init__(self, file):
        self.file = file

    def size(self):
        return self.file.seek(0, os.SEEK_END)

    def set_size(self, size):
        self.file.truncate(size)

    def at(self, offset, length):
        """Bytes of the store, zeros where it has none."""
        self.file.seek(offset)
        return self.file.read(length).ljust(length, b"\0")

    def put(self, offset, data):
        self.file.seek(offset)
        self.file.write(data)

    def read(self, number, offset, length):
        """Bytes of an object."""
        return self.at(number * self.object_size + offset, length)

    def write(self, number, offset, data):
        self.put(number * self.object_size + offset, data)


class ObjectStore:
    """Objects as they were at one moment."""

    holds_objects = True
    object_size = OBJECT

    def __init__(self):
        self.bytes, self.values = {}, {}

    @classmethod
    def load(cls, folder, object_size):
        store = cls()
        store.object_size = object_size
        for path in pathlib.Path(folder).iterdir():
            number = int(path.name.partition(".")[0], 16)
            if path.suffix == ".omap":
                values = json.loads(path.read_text())
                store.values[number] = {bytes.fromhex(key): bytes.fromhex(value) for key, value in values.items()}
            else:
                store.bytes[number] = bytearray(path.read_bytes())
        return store

    def save(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir()
        for number, data in self.bytes.items():
            (folder / f"{number:016x}").write_bytes(data.rstrip(b"\0"))
        for number, values in self.values.items():
            values = {key.hex(): value.hex() for key, value in values.items()}
            (folder / f"{number:016x}.omap").write_text(json.dumps(values))

    def set_size(self, size):
        """The size of an RBD image is in none of these objects."""

    def read(self, number, offset, length):
        """Bytes of an object, zeros where it has none."""
        return bytes(self.bytes.get(number, b"")[offset : offset + length]).ljust(length, b"\0")

    def write(self, number, offset, data):
        has = self.bytes.setdefault(number, bytearray())
        has.extend(bytes(max(0, offset + len(data) - len(has))))
        has[offset : offset + len(data)] = data

    def value(self, number, key):
        """The value of a key; None where there is none."""
        return self.values.get(number, {}).get(key.to_bytes(4, "big"))

    def set_value(self, number, key, value):
        self.values.setdefault(number, {})[key.to_bytes(4, "big")] = value

    def at(self, offset, length):
        """Bytes of the store, from as many objects as they lie in."""
        return b"".join(self.read(*piece) for piece in self._pieces(offset, length))

    def put(self, offset, data):
        taken = 0
        for number, begin, length in self._pieces(offset, len(data)):
            self.write(number, begin, data[taken : taken + length])
            taken += length

    def _pieces(self, offset, length):
        end = offset + length
        while offset < end:
            number, begin = divmod(offset, self.object_size)
            part = min(self.object_size - begin, end - offset)
            yield number, begin, part
            offset += part
