"""Section 2: the LUKS2 header, read and made by hand ("LUKS2 On-Disk Format Specification" 1.1.1)."""

import base64
import hashlib
import hmac
import json
import struct
from itertools import zip_longest

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

import layouts
from layouts import OBJECT, up

MAGICS = {0: b"LUKS\xba\xbe", 1: b"SKUL\xba\xbe"}
BINARY_LEN = 4096
CHECKSUM = slice(448, 512)
# Of the headers that are made here.
COPY_LEN = 16 << 10
STRIPES = 4000


class BadHeader(Exception):
    """Not the header of a volume, or an edited one."""


def read_json(store):
    """The metadata of the newest copy with a right checksum."""
    found = []
    for offset in [0] + [1 << power for power in range(14, 23)]:
        binary = store.at(offset, BINARY_LEN)
        if binary[:6] != MAGICS[offset > 0]:
            continue
        version, length, sequence = struct.unpack_from(">HQQ", binary, 6)
        if version != 2 or not COPY_LEN <= length <= 4 << 20 or length & length - 1 or (offset and offset != length):
            continue
        copy = bytearray(store.at(offset, length))
        name = bytes(copy[72:104]).rstrip(b"\0").decode()
        stored = bytes(copy[CHECKSUM])
        copy[CHECKSUM] = bytes(64)
        digest = hashlib.new(name, copy).digest()
        if stored == digest.ljust(64, b"\0"):
            found.append((sequence, bytes(copy[BINARY_LEN:]).split(b"\0")[0]))
    if not found:
        raise BadHeader("no copy of a LUKS2 header")
    return json.loads(max(found)[1])


def require(condition, story):
    if not condition:
        raise BadHeader(story)


def check(metadata):
    """What a reader requires. Returns segment 0 and its digest."""
    require(not metadata["config"].get("requirements", {}).get("mandatory"), "requirements")
    require(list(metadata["segments"]) == ["0"], "segments")
    segment = metadata["segments"]["0"]
    digests = [digest for digest in metadata["digests"].values() if "0" in digest["segments"]]
    require(len(digests) == 1, "digests")
    salt = base64.b64decode(digests[0]["salt"], validate=True)
    if "sealdisk" not in segment:
        require(segment["encryption"] == "aes-xts-plain64" and "integrity" not in segment, "encryption")
        require(salt[12:18] != mark(salt[:12]), "a sealed header in disguise")
        return segment, digests[0]
    private = segment["sealdisk"]
    require(private["layout"] in layouts.NAMES, "layout")
    words = [private[name] for name in ("cipher", "layout", "fold", "lineage")]
    expected = sealed_segment(*words, segment["offset"])
    require(segment == expected, "the segment is not as a writer makes it")
    require(int(segment["offset"]) % OBJECT == 0, "offset")
    key_area = 2 * (BINARY_LEN + int(metadata["config"]["json_size"])) + int(metadata["config"]["keyslots_size"])
    require(int(segment["offset"]) >= key_area, "the payload begins within the header")
    require(salt == bound_salt(salt[:12], segment), "the salt is not bound to the segment")
    for number in digests[0]["keyslots"]:
        require(metadata["keyslots"][number]["key_size"] == 64, "key size")
    return segment, digests[0]


def sealed_segment(cipher, layout, fold, lineage, offset):
    return {
        "type": "crypt",
        "offset": offset,
        "size": "dynamic",
        "iv_tweak": "0",
        "encryption": "sealdisk-" + cipher,
        "sector_size": 4096,
        "integrity": {"type": "aead", "journal_encryption": "sealdisk", "journal_integrity": "none"},
        "sealdisk": {"format": 1, "cipher": cipher, "layout": layout, "fold": fold, "lineage": lineage},
    }


def mark(nonce):
    return hashlib.sha256(b"sealdisk sealed header" + base64.b64encode(nonce)).digest()[:6]


def bound_salt(nonce, segment):
    private = segment["sealdisk"]
    fold = "true" if private["fold"] else "false"
    words = f" 1 {private['cipher']} {private['layout']} {fold} {private['lineage']} {segment['offset']}"
    text = b"sealdisk segment" + base64.b64encode(nonce) + words.encode()
    return nonce + mark(nonce) + hashlib.sha256(text).digest()[:14]


def unlock(store, metadata, passphrase):
    """The volume key, from whichever slot of the segment's digest opens."""
    _, digest = check(metadata)
    for number in digest["keyslots"]:
        key = open_slot(store, metadata["keyslots"][number], passphrase)
        if hmac.compare_digest(key_digest(digest, key), base64.b64decode(digest["digest"])):
            return key
    raise BadHeader("no key slot opens with this passphrase")


def key_digest(digest, key):
    salt = base64.b64decode(digest["salt"])
    return hashlib.pbkdf2_hmac(digest["hash"], key, salt, digest["iterations"], hashlib.new(digest["hash"]).digest_size)


def stretch(kdf, passphrase, length):
    salt = base64.b64decode(kdf["salt"])
    if kdf["type"] == "pbkdf2":
        return hashlib.pbkdf2_hmac(kdf["hash"], passphrase, salt, kdf["iterations"], length)
    require(kdf["type"] == "argon2id", "this reader knows pbkdf2 and argon2id")
    argon2 = Argon2id(salt=salt, length=length, iterations=kdf["time"], lanes=kdf["cpus"], memory_cost=kdf["memory"])
    return argon2.derive(passphrase)


def open_slot(store, slot, passphrase):
    area = slot["area"]
    require(area["encryption"] == "aes-xts-plain64" and slot["af"]["type"] == "luks1", "key slot encryption")
    length = slot["key_size"] * slot["af"]["stripes"]
    material = store.at(int(area["offset"]), up(length, 512))
    split = xts_plain64(stretch(slot["kdf"], passphrase, area["key_size"]), 0, material, decrypt=True)
    return af_merge(split[:length], slot["af"]["stripes"], slot["af"]["hash"])


def xts_plain64(key, first, data, decrypt, sector=512):
    """Whole encryption sectors; `first` in units of 512 bytes."""
    out = b""
    for start in range(0, len(data), sector):
        tweak = struct.pack("<QQ", (first + start // 512) % 2**64, 0)
        cipher = Cipher(algorithms.AES(key), modes.XTS(tweak))
        out += (cipher.decryptor() if decrypt else cipher.encryptor()).update(data[start : start + sector])
    return out


def _diffuse(block, name):
    size = hashlib.new(name).digest_size
    pieces = [block[start : start + size] for start in range(0, len(block), size)]
    hashed = [hashlib.new(name, struct.pack(">I", i) + piece).digest()[: len(piece)] for i, piece in enumerate(pieces)]
    return b"".join(hashed)


def _xor(a, b):
    return bytes(x ^ y for x, y in zip_longest(a, b, fillvalue=0))


def af_merge(split, stripes, name):
    size = len(split) // stripes
    block = bytes(size)
    for start in range(0, size * (stripes - 1), size):
        block = _diffuse(_xor(block, split[start : start + size]), name)
    return _xor(block, split[-size:])


def af_split(key, stripes, name, random):
    pieces, block = [], bytes(len(key))
    for _ in range(stripes - 1):
        pieces.append(random(len(key)))
        block = _diffuse(_xor(block, pieces[-1]), name)
    return b"".join(pieces) + _xor(block, key)


def make_metadata(segment, key, random):
    """The JSON with one key slot: PBKDF2 with few iterations, which suits tests alone."""
    offset = int(segment["offset"])
    text = lambda data: base64.b64encode(data).decode()
    kdf = {"type": "pbkdf2", "hash": "sha256", "iterations": 1000, "salt": text(random(32))}
    area = {"type": "raw", "encryption": "aes-xts-plain64", "key_size": 64, "offset": str(2 * COPY_LEN), "size": "258048"}
    af = {"type": "luks1", "stripes": STRIPES, "hash": "sha256"}
    salt = bound_salt(random(12), segment) if "sealdisk" in segment else random(32)
    digest = {"type": "pbkdf2", "keyslots": ["0"], "segments": ["0"], "hash": "sha256", "iterations": 1000}
    digest["salt"] = text(salt)
    digest["digest"] = text(key_digest(digest, key))
    return {
        "keyslots": {"0": {"type": "luks2", "key_size": len(key), "af": af, "area": area, "kdf": kdf}},
        "tokens": {},
        "segments": {"0": segment},
        "digests": {"0": digest},
        "config": {"json_size": str(COPY_LEN - BINARY_LEN), "keyslots_size": str(offset - 2 * COPY_LEN)},
    }


def make(segment, key, passphrase, random):
    """The bytes in front of the payload."""
    metadata = make_metadata(segment, key, random)
    slot = metadata["keyslots"]["0"]
    split = af_split(key, STRIPES, "sha256", random)
    split = split.ljust(up(len(split), 512), b"\0")
    material = xts_plain64(stretch(slot["kdf"], passphrase, slot["area"]["key_size"]), 0, split, decrypt=False)
    copies = b"".join(_copy(metadata, second, "sealdisk" in segment, random) for second in (0, 1))
    return (copies + material).ljust(int(segment["offset"]), b"\0")


def _copy(metadata, second, sealed, random):
    uuid = b"01234567-89ab-4cde-8f01-23456789abcd"
    subsystem = b"sealdisk" if sealed else b""
    binary = struct.pack(
        ">6sHQQ48s32s64s40s48sQ",
        *(MAGICS[second], 2, COPY_LEN, 1, b"python", b"sha256", random(64), uuid, subsystem, second * COPY_LEN),
    )
    area = json.dumps(metadata).encode().ljust(COPY_LEN - BINARY_LEN, b"\0")
    copy = bytearray(binary.ljust(BINARY_LEN, b"\0") + area)
    copy[CHECKSUM] = hashlib.sha256(copy).digest().ljust(64, b"\0")
    return bytes(copy)
