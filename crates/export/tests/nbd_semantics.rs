//! What the protocol promises, asked by libnbd.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

#[path = "common/nbd.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod nbd;
#[path = "common/ram_disk.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod ram_disk;

use nbd::Served;
use ram_disk::RamDisk;
use sealdisk_units::Lba;

/// Fails unless `CALL` raises `ERRNO`; for use in scripts.
const EXPECT: &str = "
def expect(number, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except nbd.Error as error:
        assert error.errnum == number, (error.errnum, number, error.string)
        return error.string
    raise AssertionError('no error')
h.set_strict_mode(0)
";

fn served() -> Served {
    Served::new(RamDisk::new(16 << 20))
}

/// A disk at hand and one that is far: their requests get memory and threads in different ways.
fn near_and_far() -> [Served; 2] {
    [served(), Served::new(RamDisk::new(16 << 20).far())]
}

#[test]
fn single_bytes_are_read_and_written_anywhere() {
    for served in near_and_far() {
        served.nbdsh(
            "
for offset in [0, 1, 511, 4095, 4096, 12345, h.get_size() - 1]:
    h.pwrite(bytes([offset % 251 + 1]), offset)
    assert h.pread(1, offset) == bytes([offset % 251 + 1])
h.pwrite(b'abc', 4095)
assert h.pread(5, 4094) == b'\\0abc\\0'
",
        );
        assert_eq!(served.disk.bytes(4095, 3), b"abc");
    }
}

#[test]
fn requests_beyond_the_end_and_malformed_ones_are_refused_and_the_connection_goes_on() {
    for served in near_and_far() {
        served.nbdsh(&format!(
            "{EXPECT}
end = h.get_size()
expect(errno.EINVAL, h.pread, 2, end - 1)
expect(errno.EINVAL, h.pread, 1, 2 ** 63)
expect(errno.ENOSPC, h.pwrite, b'ab', end - 1)
expect(errno.ENOSPC, h.zero, 2, end - 1)
expect(errno.EINVAL, h.trim, 2, end - 1)
expect(errno.EINVAL, h.cache, 2, end - 1)
expect(errno.EINVAL, h.block_status, 2, end - 1, lambda *a: 0)
expect(errno.EINVAL, h.pread, 512, 0, flags=1 << 5)
expect(errno.EINVAL, h.pwrite, b'x' * 4096, 0, flags=nbd.CMD_FLAG_DF)
expect(errno.EINVAL, h.flush, flags=nbd.CMD_FLAG_NO_HOLE)
h.pwrite(b'fine', 0)
assert h.pread(4, 0) == b'fine'
"
        ));
    }
}

#[test]
fn empty_requests_do_nothing() {
    served().nbdsh(&format!(
        "{EXPECT}
h.pread(0, 100)
h.pwrite(b'', 100)
h.zero(0, 100)
h.trim(0, 100)
expect(errno.EINVAL, h.block_status, 0, 100, lambda *a: 0)
"
    ));
}

#[test]
fn a_read_only_disk_refuses_what_writes() {
    Served::new(RamDisk::new(1 << 20).read_only()).nbdsh(&format!(
        "{EXPECT}
assert h.is_read_only()
for write in [lambda: h.pwrite(b'x', 0), lambda: h.zero(4096, 0), lambda: h.trim(4096, 0)]:
    expect(errno.EPERM, write)
h.flush()
assert h.pread(4, 0) == bytes(4)
"
    ));
}

#[test]
fn fua_and_flush_reach_the_disk_and_plain_writes_do_not_flush() {
    for served in near_and_far() {
        served.nbdsh("h.pwrite(b'x' * 4096, 0); h.zero(4096, 4096); h.trim(4096, 8192)");
        assert_eq!(served.disk.flushes(), 0);
        served.nbdsh("h.pwrite(b'x', 0, flags=nbd.CMD_FLAG_FUA)");
        assert_eq!(served.disk.flushes(), 1);
        served.nbdsh("h.zero(4096, 0, flags=nbd.CMD_FLAG_FUA)");
        assert_eq!(served.disk.flushes(), 2);
        served.nbdsh("h.trim(4096, 0, flags=nbd.CMD_FLAG_FUA)");
        assert_eq!(served.disk.flushes(), 3);
        served.nbdsh("h.pwrite(b'x' * (3 * 1024 * 1024), 0, flags=nbd.CMD_FLAG_FUA)");
        assert_eq!(served.disk.flushes(), 4, "a write of several pieces is flushed once");
        served.nbdsh("h.flush(); h.pread(1, 0, flags=0)");
        assert_eq!(served.disk.flushes(), 5);
    }
}

#[test]
fn zeroing_zeroes_exactly_the_range_and_trimming_only_whole_sectors() {
    let served = served();
    served.nbdsh(
        "
h.pwrite(b'x' * 65536, 0)
h.zero(10000, 100)
assert h.pread(10200, 0) == b'x' * 100 + bytes(10000) + b'x' * 100
h.pwrite(b'x' * 65536, 0)
h.trim(10000, 100)
assert h.pread(12288, 0) == b'x' * 4096 + bytes(4096) + b'x' * 4096
h.trim(100, 100)
",
    );
}

#[test]
fn fast_zero_is_refused_where_it_would_not_be_fast() {
    served().nbdsh(&format!(
        "{EXPECT}
fast = nbd.CMD_FLAG_FAST_ZERO
h.pwrite(b'x' * 65536, 0)
expect(errno.ENOTSUP, h.zero, 4096, 1, flags=fast)
assert h.pread(65536, 0) == b'x' * 65536
h.zero(4096, 1)
h.zero(8192, 1, flags=fast)
assert h.pread(8193, 0) == b'x' + bytes(8192)
h.zero(h.get_size(), 0, flags=fast | nbd.CMD_FLAG_NO_HOLE)
"
    ));
}

#[test]
fn block_status_tells_holes_from_data() {
    served().nbdsh(
        "
def status(length, offset, flags=0):
    told = []
    def tell(context, at, extents, error):
        assert context == 'base:allocation' and at == offset
        told.extend(zip(extents[::2], extents[1::2]))
    h.block_status(length, offset, tell, flags)
    return told
hole = nbd.STATE_HOLE | nbd.STATE_ZERO
assert status(65536, 0) == [(65536, hole)]
h.pwrite(b'x', 5000)
h.pwrite(b'x' * 8192, 16384)
assert status(65536, 0) == [(4096, hole), (4096, 0), (8192, hole), (8192, 0), (40960, hole)]
assert status(5000, 5000) == [(3192, 0), (1808, hole)]
assert status(65536, 5000, nbd.CMD_FLAG_REQ_ONE) == [(3192, 0)]
h.zero(4096, 16384)
assert status(8192, 16384) == [(4096, hole), (4096, 0)]
h.zero(4096, 16384, nbd.CMD_FLAG_NO_HOLE)
assert status(8192, 16384) == [(8192, 0)]
for sector in range(0, 4096, 2):
    h.pwrite(b'x', sector * 4096)
told = status(h.get_size(), 0)
assert len(told) == 1024, 'an answer is bounded, and a client asks on'
",
    );
}

#[test]
fn what_one_connection_wrote_another_flushes_and_reads() {
    let served = served();
    served.nbdsh(
        "
other = nbd.NBD()
other.connect_uri(uri)
assert h.can_multi_conn() and other.can_multi_conn()
h.pwrite(b'from one' * 512, 8192)
other.flush()
assert other.pread(8, 8192) == b'from one'
other.pwrite(b'from two' * 512, 8192)
assert h.pread(8, 8192) == b'from two'
",
    );
    assert_eq!(served.disk.flushes(), 1);
}

#[test]
fn many_requests_in_flight_are_all_answered_and_once() {
    for served in near_and_far() {
        served.nbdsh(
            "
count, size = 0, h.get_size()
answers = []
def answered(cookie):
    def callback(error):
        assert error.value == 0
        answers.append(cookie)
        return 1
    return callback
buffers = {}
for i in range(2000):
    length, offset = [1, 512, 4096, 70000, 1 << 20, 3000000][i % 6], (i * 7919 * 512) % (size - 3000000)
    if i % 3 == 0:
        h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(length)), offset, completion=answered(i))
    elif i % 50 == 1:
        h.aio_flush(completion=answered(i))
    else:
        buffers[i] = nbd.Buffer(length)
        h.aio_pread(buffers[i], offset, completion=answered(i))
    while h.aio_in_flight() >= 100:
        h.poll(-1)
while h.aio_in_flight():
    h.poll(-1)
assert sorted(answers) == list(range(2000))
",
        );
    }
}

#[test]
fn clients_without_structured_replies_are_served_too() {
    for served in near_and_far() {
        served.disk.break_sector(Lba(3));
        served.disk.break_sector(Lba(1000));
        served.nbdsh_unconnected(&format!(
            "import errno, nbd, os
h.set_request_structured_replies(False)
h.connect_uri(os.environ['SEALDISK_URI'])
{EXPECT}
assert not h.get_structured_replies_negotiated() and not h.can_df()
data = bytes(range(256)) * 10240
h.pwrite(data, 32768)
assert h.pread(len(data), 32768) == data
expect(errno.EIO, h.pread, 4096, 12288)
expect(errno.EIO, h.pread, 2 << 20, 8192)
expect(errno.EINVAL, h.pread, 1, h.get_size())
assert h.pread(256, 32768) == data[:256], 'errors before the first byte leave the connection up'
try:
    h.pread(2 << 20, 2 << 20)
    raise AssertionError('no error')
except nbd.Error:
    pass
assert h.aio_is_dead() or h.aio_is_closed(), 'an error after the first byte ends the connection'
"
        ));
    }
}

#[test]
fn an_inauthentic_sector_is_named_in_an_error_that_says_where() {
    for served in near_and_far() {
        served.disk.break_sector(Lba(300));
        served.nbdsh(&format!(
            "{EXPECT}
said = []
h.set_debug(True)
h.set_debug_callback(lambda context, text: said.append(text))
errors = []
def chunk(data, offset, status, error):
    if status == nbd.READ_ERROR:
        errors.append((offset, error.value))
expect(errno.EIO, h.pread_structured, 5000, 300 * 4096 + 7, chunk)
expect(errno.EIO, h.pread_structured, 8 << 20, 0, chunk)
assert errors == [(300 * 4096 + 7, errno.EIO), (300 * 4096, errno.EIO)], errors
assert sum('sector 300 of volume ram is not authentic' in text for text in said) == 2, said
h.set_debug(False)
"
        ));
    }
}

#[test]
fn an_unfragmented_read_is_one_chunk_or_refused() {
    for served in near_and_far() {
        served.nbdsh(&format!(
            "{EXPECT}
def chunks(length, flags):
    told = []
    h.pread_structured(length, 0, lambda data, offset, status, error: told.append((offset, len(data))), flags)
    return told
assert chunks(1 << 20, nbd.CMD_FLAG_DF) == [(0, 1 << 20)]
assert sum(length for _, length in chunks(5 << 20, 0)) == 5 << 20
expect(errno.EOVERFLOW, h.pread_structured, 2 << 20, 0, lambda *a: 0, nbd.CMD_FLAG_DF)
"
        ));
    }
}

/// Whoever stalls with memory that was lent to it holds up nobody for long, and those who insist on one chunk get it.
#[test]
fn clients_that_stall_in_long_writes_do_not_stop_others() {
    let served = Served::new(RamDisk::new(16 << 20).far());
    served.nbdsh(&format!(
        "{EXPECT}
import socket, struct, time
stalled = []
for length in [4 << 20] * 8 + [1 << 20] * 4:
    s = socket.socket(socket.AF_UNIX)
    s.connect(uri.split('socket=')[1])
    assert s.recv(18, socket.MSG_WAITALL)
    s.sendall(struct.pack('>I', 3) + b'IHAVEOPT' + struct.pack('>II', 1, 0))
    assert s.recv(10, socket.MSG_WAITALL)
    s.sendall(struct.pack('>IHHQQI', 0x25609513, 0, 1, 1, 0, length) + b'x' * 100)
    stalled.append(s)
time.sleep(0.5)
data = os.urandom(5 << 20)
h.pwrite(data, 4096)
assert h.pread(len(data), 4096) == data
told = []
h.pread_structured(1 << 20, 0, lambda data, offset, status, error: told.append((offset, len(data))), nbd.CMD_FLAG_DF)
assert told == [(0, 1 << 20)], told
for s in stalled:
    s.close()
assert h.pread(len(data), 4096) == data
"
    ));
}

#[test]
fn export_name_alone_is_enough() {
    let options = sealdisk_export::nbd::NbdOptions { name: "pgdata".into(), ..Default::default() };
    let served = Served::with(RamDisk::new(1 << 20), options);
    served.nbdsh_unconnected(
        "
import os, socket, struct
path = os.environ['SEALDISK_URI'].split('socket=')[1]
for flags, padding in [(1, 124), (3, 0)]:
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    assert s.recv(18, socket.MSG_WAITALL) == b'NBDMAGICIHAVEOPT' + bytes([0, 3])
    s.sendall(struct.pack('>I', flags) + b'IHAVEOPT' + struct.pack('>II', 1, 6) + b'pgdata')
    size, flags = struct.unpack('>QH', s.recv(10, socket.MSG_WAITALL))
    assert size == 1 << 20 and flags & 1
    assert s.recv(padding, socket.MSG_WAITALL) == bytes(padding)
    s.sendall(struct.pack('>IHHQQI', 0x25609513, 0, 0, 77, 0, 512))
    assert s.recv(16, socket.MSG_WAITALL) == struct.pack('>IIQ', 0x67446698, 0, 77)
    assert s.recv(512, socket.MSG_WAITALL) == bytes(512)
    s.sendall(struct.pack('>IHHQQI', 0x25609513, 0, 2, 78, 0, 0))
    assert s.recv(1) == b''
",
    );
}
