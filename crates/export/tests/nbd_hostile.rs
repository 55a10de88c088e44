//! Clients that break the protocol, or the connection: each loses its own connection at most, and others notice nothing.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

#[path = "common/nbd.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod nbd;
#[path = "common/ram_disk.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod ram_disk;

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use nbd::Served;
use proptest::prelude::*;
use ram_disk::RamDisk;
use sealdisk_export::nbd::NbdOptions;
use support::raw_client::*;

const SIZE: u64 = 8 << 20;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

fn served() -> Served {
    Served::new(RamDisk::new(SIZE))
}

/// A well-behaved client still gets what it asks for.
fn assert_serving(served: &Served) {
    let mut client = RawClient::ready(&served.socket());
    client.send(&request(0, CMD_READ, 42, 4096, 512));
    assert_eq!(client.simple_reply(), (0, 42));
    client.receive(512);
    client.send(&request(0, CMD_DISC, 43, 0, 0));
    assert_eq!(client.expect_end(), b"");
}

#[test]
fn garbage_in_place_of_magic_numbers_and_flags_ends_the_connection() {
    let served = served();
    let mut client = RawClient::connect(&served.socket());
    client.receive(18);
    client.send(&[0xff; 4]);
    assert_eq!(client.expect_end(), b"");

    let mut client = RawClient::greeted(&served.socket());
    client.send(&[0x41; 16]);
    assert_eq!(client.expect_end(), b"");

    let mut client = RawClient::ready(&served.socket());
    client.send(&[0x41; 28]);
    assert_eq!(client.expect_end(), b"");
    assert_serving(&served);
}

#[test]
fn what_came_before_garbage_is_still_answered() {
    let served = served();
    let mut client = RawClient::ready(&served.socket());
    client.send(&[request(0, CMD_READ, 1, 0, 512), vec![0x41; 28]].concat());
    assert_eq!(client.simple_reply(), (0, 1));
    assert_eq!(client.receive(512), [0; 512]);
    assert_eq!(client.expect_end(), b"");
}

#[test]
fn options_of_absurd_length_are_thrown_away_not_kept() {
    let served = served();
    let mut client = RawClient::greeted(&served.socket());
    client.send(&option(OPT_LIST, &vec![7; 1 << 20]));
    assert_eq!(client.option_reply().0, (1 << 31) + 9);
    client.send(&option(OPT_LIST, b""));
    assert_eq!(client.option_reply().0, 2);
    assert_eq!(client.option_reply().0, 1);
    let endless = [&b"IHAVEOPT"[..], &OPT_GO.to_be_bytes(), &u32::MAX.to_be_bytes()].concat();
    client.send(&endless);
    drop(client);
    assert_serving(&served);
}

#[test]
fn a_refused_write_does_not_put_the_stream_out_of_step() {
    let served = served();
    let mut client = RawClient::ready(&served.socket());
    let payload = vec![0xee; 300_000];
    let mut stream = request(0, CMD_WRITE, 1, SIZE - 1, payload.len() as u32);
    stream.extend(&payload);
    stream.extend(request(1 << 9, CMD_WRITE, 2, 0, payload.len() as u32));
    stream.extend(&payload);
    stream.extend(request(0, 99, 3, 0, 0));
    client.send(&stream);
    // Replies may come in any order.
    let mut replies = [client.simple_reply(), client.simple_reply(), client.simple_reply()];
    replies.sort_by_key(|(_, cookie)| *cookie);
    assert_eq!(replies, [(ENOSPC, 1), (EINVAL, 2), (EINVAL, 3)]);
    client.send(&request(0, CMD_READ, 4, 0, 16));
    assert_eq!(client.simple_reply(), (0, 4));
    assert_eq!(client.receive(16), [0; 16]);
    let too_long = (32 << 20) + 1;
    client.send(&request(0, CMD_WRITE, 5, 0, too_long));
    assert_eq!(client.simple_reply(), (EINVAL, 5));
    client.send(&vec![0xee; too_long as usize]);
    client.send(&request(0, CMD_READ, 6, 0, 16));
    assert_eq!(client.simple_reply(), (0, 6));
    assert_eq!(client.receive(16), [0; 16]);
}

#[test]
fn a_write_that_is_cut_off_writes_nothing_of_its_last_piece() {
    let served = served();
    for (len, sent) in [(4096, 4095), (200_000, 100_000), (1 << 20, 1000), (3 << 20, 1000)] {
        let mut client = RawClient::ready(&served.socket());
        client.send(&request(0, CMD_WRITE, 1, 0, len));
        client.send(&vec![0xee; sent]);
        client.0.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.expect_end(), b"");
        assert_eq!(served.disk.bytes(0, 1 << 20), vec![0; 1 << 20], "{sent} of {len} bytes");
    }
    assert_serving(&served);
}

#[test]
fn headers_that_trickle_in_are_put_together() {
    let served = served();
    let mut client = RawClient::ready(&served.socket());
    for (cookie, stream) in
        [(1, [request(0, CMD_WRITE, 1, 100, 5), b"hello".to_vec()].concat()), (2, request(0, CMD_READ, 2, 99, 7))]
    {
        stream.iter().for_each(|&byte| client.send(&[byte]));
        assert_eq!(client.simple_reply(), (0, cookie));
    }
    assert_eq!(client.receive(7), b"\0hello\0");
}

#[test]
fn a_client_that_never_reads_its_replies_harms_only_itself() {
    let mut served = served();
    let mut deaf = RawClient::ready(&served.socket());
    deaf.0.set_nonblocking(true).unwrap();
    let requests: Vec<u8> = (0..64).flat_map(|cookie| request(0, CMD_READ, cookie, 0, 1 << 20)).collect();
    // Until the server takes no more.
    while deaf.0.write(&requests).is_ok_and(|len| len == requests.len()) {}
    assert_serving(&served);
    served.stop();
}

#[test]
fn a_flood_of_silent_connections_keeps_nobody_out() {
    let options = NbdOptions { negotiation_time: Duration::from_secs(3600), ..NbdOptions::default() };
    let served = Served::with(RamDisk::new(SIZE), options);
    let mut silent: Vec<_> = (0..300).map(|_| RawClient::connect(&served.socket())).collect();
    assert_serving(&served);
    for client in &mut silent[..200] {
        let said = client.expect_end();
        assert!(said.is_empty() || said.len() == 18, "closed to make room for others");
    }
}

#[test]
fn negotiation_has_an_end_for_those_who_say_nothing_and_those_who_keep_talking() {
    let options = NbdOptions { negotiation_time: Duration::from_millis(100), ..NbdOptions::default() };
    let served = Served::with(RamDisk::new(SIZE), options);
    RawClient::connect(&served.socket()).expect_end();
    let mut talker = RawClient::greeted(&served.socket());
    while talker.0.write_all(&option(OPT_STRUCTURED_REPLY, b"")).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn one_client_too_many_is_told_so_and_may_come_later() {
    let options = NbdOptions { max_clients: 2, ..NbdOptions::default() };
    let served = Served::with(RamDisk::new(SIZE), options);
    let first = RawClient::ready(&served.socket());
    let _second = RawClient::ready(&served.socket());
    let mut third = RawClient::greeted(&served.socket());
    third.send(&option(OPT_GO, &[0; 6]));
    let (kind, why) = third.option_reply();
    assert_eq!(kind, (1 << 31) + 2);
    assert_eq!(why, b"the disk has as many clients as it may have");
    drop(first);
    loop {
        third.send(&option(OPT_GO, &[0; 6]));
        if third.option_reply().0 & (1 << 31) == 0 {
            break;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Bytes that look almost like requests, cut anywhere.
    #[test]
    fn no_stream_of_bytes_takes_the_server_down(
        requests in prop::collection::vec((0u16..64, 0u16..10, 0u64..SIZE + 10, 0u32..3 << 20, any::<u8>()), 1..12),
        garbage in prop::collection::vec(any::<u8>(), 0..64),
        cut in any::<prop::sample::Index>(),
    ) {
        thread_local!(static SERVED: Served = served());
        let mut stream = Vec::new();
        for (flags, command, offset, len, fill) in requests {
            stream.extend(request(flags, command, 0, offset, len));
            if command == CMD_WRITE {
                stream.extend(std::iter::repeat_n(fill, len as usize));
            }
        }
        stream.extend(garbage);
        stream.truncate(cut.index(stream.len() + 1));
        SERVED.with(|served| {
            let mut client = RawClient::ready(&served.socket());
            let mut writer = RawClient(client.0.try_clone().unwrap());
            let sender = std::thread::spawn(move || {
                // The server may have closed the connection already, which is its right.
                let _ = writer.0.write_all(&stream);
                let _ = writer.0.shutdown(Shutdown::Write);
            });
            client.expect_end();
            sender.join().unwrap();
            assert_serving(served);
        });
    }
}
