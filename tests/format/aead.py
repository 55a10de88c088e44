"""The authenticated ciphers of section 4: `seal` gives ciphertext and tag, `open` the text or NotAuthentic."""

import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

import aegis256

TAG_LEN = 16


class NotAuthentic(Exception):
    """Changed, misplaced or never sealed."""


class Aegis256:
    NONCE_LEN = 32
    LANES = 1

    def __init__(self, key):
        self.key = key

    def seal(self, nonce, ad, text):
        return aegis256.encrypt(self.key, nonce, ad, text, self.LANES)

    def open(self, nonce, ad, ciphertext, tag):
        text, expected = aegis256.decrypt(self.key, nonce, ad, ciphertext, self.LANES)
        if not hmac.compare_digest(expected, tag):
            raise NotAuthentic
        return text


class Aegis256X4(Aegis256):
    LANES = 4


class _WithDerivedKey:
    """A cipher that makes a key for each nonce out of its first bytes."""

    NONCE_LEN = 24

    def seal(self, nonce, ad, text):
        cipher, rest = self.derive(nonce)
        sealed = cipher.encrypt(rest, text, ad)
        return sealed[:-TAG_LEN], sealed[-TAG_LEN:]

    def open(self, nonce, ad, ciphertext, tag):
        cipher, rest = self.derive(nonce)
        try:
            return cipher.decrypt(rest, ciphertext + tag, ad)
        except InvalidTag:
            raise NotAuthentic from None


class Xaes256Gcm(_WithDerivedKey):
    """C2SP XAES-256-GCM."""

    def __init__(self, key):
        self.block = Cipher(algorithms.AES(key), modes.ECB())
        carry_out = int.from_bytes(self._aes(bytes(16)), "big") << 1
        self.k1 = (carry_out & (1 << 128) - 1) ^ (0x87 if carry_out >> 128 else 0)

    def _aes(self, block):
        return self.block.encryptor().update(block)

    def derive(self, nonce):
        halves = []
        for counter in (1, 2):
            message = struct.pack(">HBB12s", counter, ord("X"), 0, nonce[:12])
            halves.append(self._aes((int.from_bytes(message, "big") ^ self.k1).to_bytes(16, "big")))
        return AESGCM(b"".join(halves)), nonce[12:]


class XChaCha20Poly1305(_WithDerivedKey):
    """draft-irtf-cfrg-xchacha-03."""

    def __init__(self, key):
        self.key = key

    def derive(self, nonce):
        # HChaCha20 is ChaCha20's block function (RFC 8439, section 2.3) without the final addition of the initial state,
        # so it is the key stream's first block less that state. The 16 bytes are counter and nonce.
        stream = Cipher(algorithms.ChaCha20(self.key, nonce[:16]), None).encryptor().update(bytes(64))
        initial = b"expand 32-byte k" + self.key + nonce[:16]
        words = zip(struct.unpack("<16I", stream), struct.unpack("<16I", initial))
        permuted = [(after - before) % 2**32 for after, before in words]
        return ChaCha20Poly1305(struct.pack("<8I", *permuted[:4], *permuted[12:])), bytes(4) + nonce[16:]


BY_NAME = {
    "aegis-256": Aegis256,
    "aegis-256x4": Aegis256X4,
    "aes-256-gcm": Xaes256Gcm,
    "xchacha20-poly1305": XChaCha20Poly1305,
}
