//! The process that writes, from both sides.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use sealdisk_cipher::CipherName;
use sealdisk_rados::{Cluster, Credentials, RbdStore};
use sealdisk_store::OpenMode;
use sealdisk_units::{ByteRange, SECTOR_SIZE};
use sealdisk_volume::{Volume, VolumeError, WriteRequest};
use support::images::{Images, name};
use support::{Fixture, Random, open, read};

const CONF: &str = "SEALDISK_TEST_WRITER_CONF";
const IMAGE: &str = "SEALDISK_TEST_WRITER_IMAGE";
const FIRST_ROUND: &str = "SEALDISK_TEST_WRITER_FIRST_ROUND";

const SECTOR: u64 = SECTOR_SIZE as u64;
/// Groups of sectors that are written together, all over the disk.
const GROUPS: u64 = 75;
const GROUP: u64 = 4;
/// Groups whose writes are on their way together.
const GROUPS_AT_ONCE: usize = 15;

pub fn fixture() -> Fixture {
    Fixture { cipher: CipherName::Aegis256, fold: true, size: 2500 * SECTOR, journal_len: 1 << 20, atomicity: 4096 }
}

fn place(group: u64) -> u64 {
    group * 32 * SECTOR
}

/// What a group is given in a round: each sector begins with the round.
fn content(group: u64, round: u64) -> Vec<u8> {
    let mut bytes = vec![0; (GROUP * SECTOR) as usize];
    for (number, sector) in bytes.chunks_mut(SECTOR_SIZE).enumerate() {
        // Every second sector can be folded.
        let len = if number % 2 == 0 { SECTOR_SIZE } else { 500 };
        Random::new(((round * GROUPS + group) << 8) + number as u64).fill(&mut sector[..len]);
        sector[..8].copy_from_slice(&round.to_le_bytes());
    }
    bytes
}

/// Checks that every sector opens and was written in one of these rounds; never is round 0.
#[track_caller]
pub fn assert_between(volume: &Volume, least: u64, most: u64) {
    let mut found = vec![0; (GROUP * SECTOR) as usize];
    for group in 0..GROUPS {
        read(volume, place(group), &mut found).unwrap();
        for (number, sector) in found.chunks(SECTOR_SIZE).enumerate() {
            let round = u64::from_le_bytes(sector[..8].try_into().unwrap());
            assert!((least..=most).contains(&round), "group {group} is of round {round}, not of {least} to {most}");
            let at = number * SECTOR_SIZE;
            let expected =
                if round == 0 { vec![0; SECTOR_SIZE] } else { content(group, round)[at..][..SECTOR_SIZE].into() };
            assert!(sector == expected, "group {group}, sector {number}");
        }
    }
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert!(report.not_authentic.is_empty() && report.unreadable.is_empty(), "{report:?}");
}

/// A process that writes round after round until something fails.
pub struct Writer {
    process: Child,
    /// The writer ends when this is closed, which waiting for it would do.
    _input: Option<ChildStdin>,
    told: Arc<Told>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Told {
    begun: AtomicU64,
    flushed: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Writer {
    pub fn start(images: &Images, image: &str, first_round: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_writer_that_other_tests_start", "--nocapture"])
            .env(CONF, images.cluster.conf())
            .env(IMAGE, image)
            .env(FIRST_ROUND, first_round.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = Arc::new(Told::default());
        let output = BufReader::new(process.stdout.take().unwrap());
        let listener = std::thread::spawn({
            let told = Arc::clone(&told);
            move || output.lines().map_while(Result::ok).for_each(|line| told.hear(&line))
        });
        let input = process.stdin.take();
        Self { process, _input: input, told, listener: Some(listener) }
    }

    /// The last round that it has begun; 0: none.
    pub fn begun(&self) -> u64 {
        self.told.begun.load(Ordering::SeqCst)
    }

    /// The last round that was flushed.
    pub fn flushed(&self) -> u64 {
        self.told.flushed.load(Ordering::SeqCst)
    }

    /// Why it has ended by itself.
    pub fn failure(&self) -> Option<String> {
        self.told.failure.lock().unwrap().clone()
    }

    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.wait();
    }

    /// Waits until it has ended, and everything that it said was heard.
    pub fn wait(&mut self) {
        self.process.wait().unwrap();
        if let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Told {
    fn hear(&self, line: &str) {
        let number = |text: &str| text.trim().parse::<u64>().unwrap();
        // Before the first line the test's name stands in the same one.
        if let Some((_, round)) = line.split_once("begun: ") {
            self.begun.store(number(round), Ordering::SeqCst);
        } else if let Some((_, round)) = line.split_once("flushed: ") {
            self.flushed.store(number(round), Ordering::SeqCst);
        } else if let Some((_, reason)) = line.split_once("failed: ") {
            *self.failure.lock().unwrap() = Some(reason.to_owned());
        }
    }
}

/// What the process does.
pub fn write_if_asked() {
    let [conf, image, first] = [CONF, IMAGE, FIRST_ROUND].map(|name| std::env::var(name).ok());
    let (Some(conf), Some(image), Some(first)) = (conf, image, first) else { return };
    // It ends with the test that has started it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let credentials = Credentials { conf: Some(PathBuf::from(conf)), ..Credentials::default() };
    let connection = Cluster::connect(&credentials).unwrap();
    let store = Arc::new(RbdStore::open(&connection, &name(&image), OpenMode::ReadWrite).unwrap());
    let mut volume = open(store, &fixture().payload(), false).unwrap();
    volume.start_background();
    let first: u64 = first.parse().unwrap();
    for round in first.. {
        tell(&format!("begun: {round}"));
        if let Err(error) = write_round(&volume, round) {
            tell(&format!("failed: {error}"));
            return;
        }
        tell(&format!("flushed: {round}"));
    }
}

fn write_round(volume: &Volume, round: u64) -> Result<(), VolumeError> {
    let groups: Vec<u64> = (0..GROUPS).collect();
    for together in groups.chunks(GROUPS_AT_ONCE) {
        let contents: Vec<_> = together.iter().map(|group| (place(*group), content(*group, round))).collect();
        let mut batch: Vec<_> = contents
            .iter()
            .map(|(offset, buf)| {
                let range = ByteRange::checked(*offset, buf.len() as u64, volume.size()).unwrap();
                WriteRequest::new(range, buf)
            })
            .collect();
        volume.write(&mut batch);
        batch.into_iter().try_for_each(|request| request.result)?;
    }
    volume.flush()
}

fn tell(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").unwrap();
    output.flush().unwrap();
}
