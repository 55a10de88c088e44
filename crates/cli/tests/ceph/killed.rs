//! `sealdisk` killed in the middle of writing, a hundred times: every sector is old or new, and authentic.

mod client;
mod sectors;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use sealdisk_store::Choices;
use support::Random;

use crate::Images;
use crate::harness::CHEAP;
use client::Client;
use sectors::{Outcome, Sectors};

/// Neither whole objects nor few.
const SIZE: u64 = (9 << 20) + (300 << 10);
/// What is killed how often.
const LAYOUTS: [(&str, bool, u32); 5] = [
    ("packed", false, 30),
    ("packed", true, 31),
    ("object-end", true, 13),
    ("omap", false, 13),
    ("unaligned", true, 13),
];
/// The longest life of a disk between its first write and its end.
const LIFE: Duration = Duration::from_millis(200);

/// A server of the disk, not as a daemon, so that its end can be waited for.
struct Server {
    process: Child,
    socket: PathBuf,
}

impl Server {
    fn attach(images: &Images, volume: &str) -> Self {
        let attach = ["attach", volume, "--as", "nbd", "--key-file", "key", "--foreground"];
        let mut process = images.place.sealdisk(&attach).stdout(Stdio::piped()).spawn().unwrap();
        let mut announced = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut announced).unwrap();
        let (_, socket) = announced.trim_end().split_once("?socket=").unwrap_or_else(|| panic!("{volume}: no disk"));
        Self { socket: socket.into(), process }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn ends(mut self) {
        assert!(self.process.wait().unwrap().success());
    }
}

/// A volume whose server is killed so often. From half of that on it is a clone, whose objects are copied before they are
/// changed. Layouts whose seals no clone has stay what they are.
fn kill_often(images: &Images, layout: &str, fold: bool, kills: u32) -> Outcome {
    let mut image = format!("{layout}-{fold}");
    let mut volume = images.name(&image);
    let size = SIZE.to_string();
    let mut format = vec!["format", &volume, "--size", &size, "--layout", layout, "--key-file", "key"];
    format.extend(fold.then_some("--fold"));
    images.place.ok(&[&format[..], &CHEAP].concat());

    let random = &mut Random::new(Random::seed_from_environment(&image));
    let mut sectors = Sectors::new(SIZE);
    let (mut all, mut interrupted) = (Outcome::default(), 0);
    for kill in 0..kills {
        let server = Server::attach(images, &volume);
        let mut client = Client::connect(&server.socket);
        let outcome = sectors.found(&client.read(SIZE));
        all.old += outcome.old;
        all.new += outcome.new;
        let life = LIFE * random.below(1000) as u32 / 1000;
        let mut choices = Random::new(random.bits());
        let unanswered = std::thread::scope(|scope| {
            let writer = scope.spawn(|| client.write_until_killed(&mut sectors, &mut choices));
            std::thread::sleep(life);
            server.kill();
            writer.join().unwrap()
        });
        interrupted += u32::from(unanswered > 0);
        if layout == "packed" && kill == kills / 2 {
            images.place.ok(&["detach", &image]);
            volume = clone(images, &image, &format!("{image}-clone"));
            image += "-clone";
        }
    }
    let server = Server::attach(images, &volume);
    sectors.found(&Client::connect(&server.socket).read(SIZE));
    images.place.ok(&["detach", &image]);
    server.ends();
    images.place.ok(&["check", &volume, "--key-file", "key"]);
    assert!(interrupted > kills / 2, "{image}: only {interrupted} of {kills} kills met a write");
    all
}

fn clone(images: &Images, parent: &str, child: &str) -> String {
    images.rbd(&format!("snap create --no-progress {parent}@s"));
    let features = "--image-feature layering,exclusive-lock,deep-flatten";
    images.rbd(&format!("clone --rbd-default-clone-format 2 {features} {parent}@s {}/{child}", images.pool));
    images.name(child)
}

#[test]
fn a_server_killed_in_mid_write_leaves_every_sector_old_or_new() {
    let images = Images::new("killed");
    assert_eq!(LAYOUTS.iter().map(|(_, _, kills)| kills).sum::<u32>(), 100);
    // They mostly wait for Ceph.
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let images = &images;
        let each = LAYOUTS.map(|(layout, fold, kills)| scope.spawn(move || kill_often(images, layout, fold, kills)));
        each.into_iter().map(|layout| layout.join().unwrap()).collect()
    });
    // Otherwise nothing was interrupted that could have gone wrong.
    for outcome in outcomes {
        assert!(outcome.old > 0 && outcome.new > 0, "{outcome:?}");
    }
}
