"""AEGIS-256 and AEGIS-256X with 128-bit tags, from the text of RFC 10032.

In plain Python, so that the cipher itself is a second implementation too: Sealdisk and the packages on PyPI share libaegis.
"""

import struct

TAG_LEN = 16

# Section 2.1: the first 32 Fibonacci numbers modulo 256.
C0 = bytes.fromhex("000101020305080d1522375990e97962")
C1 = bytes.fromhex("db3d18556dc22ff12011314273b528dd")


def _tables():
    """SubBytes, ShiftRows' columns and MixColumns of AES (FIPS 197) as four tables of words."""
    double = lambda x: (x << 1 ^ (0x11B if x & 0x80 else 0)) & 0xFF
    # Powers and logarithms of the generator 3.
    powers, x = [], 1
    for _ in range(255):
        powers.append(x)
        x ^= double(x)
    logarithms = {power: i for i, power in enumerate(powers)}
    sbox = []
    for x in range(256):
        inverse = powers[-logarithms[x] % 255] if x else 0
        rotated = [(inverse << i | inverse >> (8 - i)) & 0xFF for i in range(5)]
        sbox.append(rotated[0] ^ rotated[1] ^ rotated[2] ^ rotated[3] ^ rotated[4] ^ 0x63)
    columns = [(double(s), s, s, double(s) ^ s) for s in sbox]
    return [[int.from_bytes(bytes(c[-row % 4 :] + c[: -row % 4]), "big") for c in columns] for row in range(4)]


T0, T1, T2, T3 = _tables()


def _words(block):
    return struct.unpack(">4I", block)


def _xor(a, b):
    return (a[0] ^ b[0], a[1] ^ b[1], a[2] ^ b[2], a[3] ^ b[3])


def _and(a, b):
    return (a[0] & b[0], a[1] & b[1], a[2] & b[2], a[3] & b[3])


def _aes_round(block, key):
    a, b, c, d = block
    return (
        T0[a >> 24] ^ T1[b >> 16 & 255] ^ T2[c >> 8 & 255] ^ T3[d & 255] ^ key[0],
        T0[b >> 24] ^ T1[c >> 16 & 255] ^ T2[d >> 8 & 255] ^ T3[a & 255] ^ key[1],
        T0[c >> 24] ^ T1[d >> 16 & 255] ^ T2[a >> 8 & 255] ^ T3[b & 255] ^ key[2],
        T0[d >> 24] ^ T1[a >> 16 & 255] ^ T2[b >> 8 & 255] ^ T3[c & 255] ^ key[3],
    )


class _Lane:
    """One AEGIS-256: its state of six blocks. Of several, `number` says which it is."""

    def __init__(self, key, nonce, number, lanes):
        c0, c1 = _words(C0), _words(C1)
        k0, k1 = _words(key[:16]), _words(key[16:])
        n0, n1 = _words(nonce[:16]), _words(nonce[16:])
        # Section 5.5: what sets the lanes of AEGIS-256X apart. It is zero where there is one.
        context = _words(bytes([number, lanes - 1]) + bytes(14))
        self.s = [_xor(k0, n0), _xor(k1, n1), c1, c0, _xor(k0, c0), _xor(k1, c1)]
        for _ in range(4):
            for message in (k0, k1, _xor(k0, n0), _xor(k1, n1)):
                self.s[3] = _xor(self.s[3], context)
                self.s[5] = _xor(self.s[5], context)
                self.update(message)

    def update(self, message):
        s0, s1, s2, s3, s4, s5 = self.s
        self.s = [
            _aes_round(s5, _xor(s0, message)),
            _aes_round(s0, s1),
            _aes_round(s1, s2),
            _aes_round(s2, s3),
            _aes_round(s3, s4),
            _aes_round(s4, s5),
        ]

    def key_stream(self):
        _, s1, s2, s3, s4, s5 = self.s
        return _xor(_xor(_xor(s1, s4), s5), _and(s2, s3))

    def tag(self, lengths):
        message = _xor(self.s[3], lengths)
        for _ in range(7):
            self.update(message)
        tag = self.s[0]
        for block in self.s[1:]:
            tag = _xor(tag, block)
        return tag


class _State:
    """Lanes that take blocks in turn. A text is filled up with zeros until every lane has as many."""

    def __init__(self, key, nonce, ad, lanes):
        self.lanes = [_Lane(key, nonce, number, lanes) for number in range(lanes)]
        for stripe in self.stripes(ad):
            self.update(stripe)
        self.ad_bits = len(ad) * 8

    def stripes(self, text):
        width = 16 * len(self.lanes)
        for start in range(0, len(text), width):
            yield text[start : start + width]

    def update(self, stripe):
        stripe = stripe.ljust(16 * len(self.lanes), b"\0")
        for number, lane in enumerate(self.lanes):
            lane.update(_words(stripe[16 * number : 16 * number + 16]))

    def key_stream(self):
        return b"".join(struct.pack(">4I", *lane.key_stream()) for lane in self.lanes)

    def tag(self, text_len):
        lengths = struct.unpack(">4I", struct.pack("<QQ", self.ad_bits, text_len * 8))
        tag = (0, 0, 0, 0)
        for lane in self.lanes:
            tag = _xor(tag, lane.tag(lengths))
        return struct.pack(">4I", *tag)


def _masked(text, key_stream):
    return bytes(a ^ b for a, b in zip(text, key_stream))


def encrypt(key, nonce, ad, text, lanes=1):
    """Ciphertext and tag."""
    state = _State(key, nonce, ad, lanes)
    out = bytearray()
    for stripe in state.stripes(text):
        out += _masked(stripe, state.key_stream())
        state.update(stripe)
    return bytes(out), state.tag(len(text))


def decrypt(key, nonce, ad, ciphertext, lanes=1):
    """Text, and the tag that it must have."""
    state = _State(key, nonce, ad, lanes)
    out = bytearray()
    for stripe in state.stripes(ciphertext):
        text = _masked(stripe, state.key_stream())
        state.update(text)
        out += text
    return bytes(out), state.tag(len(ciphertext))
