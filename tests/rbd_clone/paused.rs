//! A reader that is paused between an object that its image does not have and the parent's, while the parent goes.

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sealdisk_rados::{Cluster, Credentials, RbdStore};
use sealdisk_store::{Choices, OpenMode, Store, WriteExtent};
use support::Random;
use support::ceph::Pool as Kind;
use support::images::{Images, content, name};

const CONF: &str = "SEALDISK_TEST_READER_CONF";
const IMAGE: &str = "SEALDISK_TEST_READER_IMAGE";
const OBJECT: u64 = 64 << 10;
const SIZE: u64 = 64 * OBJECT;

/// A process that reads an image over and over, and tells how often it has, or that something is wrong.
struct Reader {
    process: Child,
    /// It ends when this is closed.
    _input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Reader {
    fn start(images: &Images, image: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "paused::the_reader_that_other_tests_start", "--nocapture"])
            .env(CONF, images.cluster.conf())
            .env(IMAGE, image)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, _input: input, lines }
    }

    /// Waits until it has read the image so often since it said so last, each time rightly.
    fn reads(&mut self, times: u32) {
        for _ in 0..times {
            let line = self.lines.by_ref().map(Result::unwrap).find(|line| line.contains("image: "));
            let line = line.expect("it goes on");
            assert!(line.contains("image: right"), "{line}");
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_reader_paused_while_the_parent_goes_finds_what_was_copied() {
    let images = Images::new(&[("reader", Kind::Replicated(2))]);
    let random = &mut Random::new(Random::seed_from_environment("a paused reader"));
    for round in 0..6 {
        let [parent, child] = ["parent", "child"].map(|image| format!("reader/{image}{round}"));
        images.create(&parent, SIZE, OBJECT);
        images.open(&parent).write(&[WriteExtent { offset: 0, buf: &[7; SIZE as usize] }]).unwrap();
        images.clone(&format!("{parent}@s"), &child, "");
        let mut reader = Reader::start(&images, &child);
        reader.reads(3);
        std::thread::sleep(std::time::Duration::from_micros(random.below(20_000)));
        reader.signal(Signal::STOP);
        images.rbd(&format!("flatten --no-progress {child}"));
        images.rbd(&format!("snap rm --no-progress {parent}@s"));
        images.rbd(&format!("rm --no-progress {parent}"));
        reader.signal(Signal::CONT);
        // What it had said before the pause may not have been heard before.
        reader.reads(60);
    }
}

/// Does nothing unless a test of this program has started it for that.
#[test]
fn the_reader_that_other_tests_start() {
    let [conf, image] = [CONF, IMAGE].map(|name| std::env::var(name).ok());
    let (Some(conf), Some(image)) = (conf, image) else { return };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let credentials = Credentials { conf: Some(conf.into()), ..Credentials::default() };
    let connection = Cluster::connect(&credentials).unwrap();
    let store = RbdStore::open(&connection, &name(&image), OpenMode::ReadOnly).unwrap();
    assert_eq!(store.size().unwrap(), SIZE);
    loop {
        let right = content(&store).iter().all(|byte| *byte == 7);
        println!("image: {}", if right { "right" } else { "wrong" });
    }
}
