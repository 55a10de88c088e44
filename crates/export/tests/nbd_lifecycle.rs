//! How an export begins and ends.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

#[path = "common/nbd.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod nbd;
#[path = "common/ram_disk.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod ram_disk;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};

use nbd::Served;
use ram_disk::RamDisk;
use sealdisk_export::nbd::{ListenAddress, NbdExport, NbdOptions};
use sealdisk_export::{Disk, Export, ReadQueue};
use sealdisk_units::ByteRange;
use sealdisk_volume::{Allocation, ReadRequest, Space, VolumeError, WriteRequest};
use support::raw_client::{CLIENT_FLAGS, CMD_READ, CMD_WRITE, OPT_EXPORT_NAME, RawClient, SOON, option, request};

fn start(address: &ListenAddress) -> Result<NbdExport, sealdisk_export::ExportError> {
    NbdExport::start(Arc::new(RamDisk::new(1 << 20)), address, NbdOptions::default())
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_export() {
    let mut served = Served::new(RamDisk::new(1 << 20));
    let mode = std::fs::metadata(served.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    served.stop();
    assert!(!served.socket().exists());
}

#[test]
fn a_dead_servers_socket_is_replaced_and_a_live_ones_and_other_files_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let address = ListenAddress::Unix(path.clone());
    drop(UnixListener::bind(&path).unwrap());
    let live = start(&address).unwrap();
    let error = start(&address).err().unwrap();
    assert!(error.to_string().contains("another server listens there"), "{error}");
    UnixStream::connect(&path).unwrap();
    drop(live);

    std::fs::write(&path, "precious").unwrap();
    let error = start(&address).err().unwrap();
    assert!(error.to_string().contains("is not a socket"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_successors_socket_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let address = ListenAddress::Unix(path.clone());
    let first = start(&address).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = start(&address).unwrap();
    drop(first);
    RawClient::ready(&path);
    drop(second);
}

#[test]
fn addresses_that_cannot_be_listened_at_are_errors_that_name_them() {
    let long = format!("unix:/{}", "x".repeat(200));
    for address in ["unix:/nonexistent/directory/socket", &long, "203.0.113.1:10809"] {
        let error = start(&address.parse().unwrap()).err().unwrap().to_string();
        assert!(error.contains(address.trim_start_matches("unix:")), "{error}");
    }
    let taken = start(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let uri = taken.address();
    let port = uri.trim_start_matches("nbd://").trim_end_matches('/');
    assert!(start(&port.parse().unwrap()).is_err());
}

#[test]
fn stopping_ends_idle_half_open_and_talking_clients() {
    let mut served = Served::new(RamDisk::new(1 << 20));
    let mut clients = [
        RawClient::connect(&served.socket()),
        RawClient::greeted(&served.socket()),
        RawClient::ready(&served.socket()),
        RawClient::ready(&served.socket()),
    ];
    clients[3].send(&request(0, CMD_WRITE, 1, 0, 4096));
    clients[3].send(&[1; 100]);
    served.stop();
    clients.iter_mut().for_each(|client| drop(client.expect_end()));
}

#[test]
fn stopping_ends_tcp_clients_too() {
    let export = start(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let uri = export.address();
    let port = uri.trim_start_matches("nbd://").trim_end_matches('/');
    let connect = |said: &[u8], answer: usize| {
        let mut stream = TcpStream::connect(port).unwrap();
        stream.write_all(said).unwrap();
        stream.read_exact(&mut vec![0; answer]).unwrap();
        stream
    };
    let export_name = option(OPT_EXPORT_NAME, b"");
    let read = request(0, CMD_READ, 1, 0, 512);
    let clients = [
        connect(b"", 18),
        connect(&[&CLIENT_FLAGS[..], &export_name].concat(), 18 + 10),
        connect(&[&CLIENT_FLAGS[..], &export_name, &read].concat(), 18 + 10 + 16 + 512),
    ];
    Box::new(export).stop().unwrap();
    for mut client in clients {
        client.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
    assert!(TcpStream::connect(port).is_err());
}

/// A disk whose reads wait for a signal.
#[derive(Default)]
struct SlowDisk {
    state: Mutex<SlowState>,
    changed: Condvar,
}

#[derive(Default)]
struct SlowState {
    reading: usize,
    released: bool,
}

impl SlowDisk {
    fn wait_for_readers(&self, count: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.reading < count).unwrap());
    }

    fn release(&self) {
        self.state.lock().unwrap().released = true;
        self.changed.notify_all();
    }
}

impl Disk for SlowDisk {
    fn size(&self) -> u64 {
        1 << 20
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, batch: &mut [ReadRequest<'_>]) {
        let mut state = self.state.lock().unwrap();
        state.reading += batch.len();
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.released).unwrap());
        batch.iter_mut().for_each(|request| request.buf.fill(7));
    }

    fn read_queue(&self) -> Option<Box<dyn ReadQueue>> {
        None
    }

    fn write(&self, _: &mut [WriteRequest<'_>]) {}

    fn zero(&self, _: ByteRange, _: Space) -> Result<(), VolumeError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    fn allocation(&self, _: ByteRange) -> Result<Vec<Allocation>, VolumeError> {
        Ok(Vec::new())
    }
}

fn slow() -> (Arc<SlowDisk>, tempfile::TempDir, NbdExport) {
    let disk = Arc::new(SlowDisk::default());
    let directory = tempfile::tempdir().unwrap();
    let address = ListenAddress::Unix(directory.path().join("socket"));
    let export = NbdExport::start(Arc::clone(&disk) as Arc<dyn Disk>, &address, NbdOptions::default()).unwrap();
    (disk, directory, export)
}

#[test]
fn stopping_lets_requests_in_progress_end_and_be_answered() {
    let (disk, directory, export) = slow();
    let mut client = RawClient::ready(&directory.path().join("socket"));
    client.send(&request(0, CMD_READ, 1, 0, 512));
    disk.wait_for_readers(1);
    let stopping = std::thread::spawn(move || Box::new(export).stop().unwrap());
    let released = Arc::clone(&disk);
    let releasing = std::thread::spawn(move || released.release());
    assert_eq!(client.simple_reply(), (0, 1));
    assert_eq!(client.receive(512), [7; 512]);
    assert_eq!(client.expect_end(), b"");
    stopping.join().unwrap();
    releasing.join().unwrap();
}

#[test]
fn a_slow_request_holds_up_no_later_one() {
    let (disk, directory, export) = slow();
    let mut client = RawClient::ready(&directory.path().join("socket"));
    client.send(&request(0, CMD_READ, 1, 0, 512));
    disk.wait_for_readers(1);
    client.send(&[request(0, CMD_WRITE, 2, 0, 5), b"hello".to_vec()].concat());
    assert_eq!(client.simple_reply(), (0, 2), "answered while the read before it waits for the disk");
    client.send(&request(0, CMD_READ, 3, 0, 512));
    disk.wait_for_readers(2);
    disk.release();
    let mut cookies = [client.simple_reply().1, {
        client.receive(512);
        client.simple_reply().1
    }];
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 3]);
    client.receive(512);
    drop(export);
}
