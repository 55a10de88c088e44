//! What is done with snapshots and clones.

use sealdisk_store::Choices;

use super::{Disk, Family, Past, Snapshot, data_pool};
use crate::compare::{compare_all, look_at};

/// So many images, each a clone of one before.
const IMAGES: usize = 4;
/// So many snapshots of each.
const SNAPSHOTS: usize = 5;

impl Family<'_> {
    /// Makes a snapshot, by Ceph's tool or as our own command does.
    pub fn create_snapshot(&mut self) {
        if self.disk().snapshots.len() == SNAPSHOTS {
            return;
        }
        self.names += 1;
        let (name, by_ceph) = (format!("s{}", self.names), self.random.one_in(2));
        self.tell(format!("snapshot {name}, by Ceph: {by_ceph}"));
        if self.kind.is_volatile() {
            self.flush();
        }
        let image = self.image();
        if by_ceph {
            self.others.rbd(&format!("snap create --no-progress {image}@{name}"));
        } else {
            self.image_of_others(&image).create_snapshot(&name).unwrap();
        }
        let disk = self.disk();
        let mut content = disk.content.clone();
        if let Some(size) = disk.next_size {
            content.resize(size);
        }
        disk.snapshots.push(Snapshot { name, content });
    }

    fn pick_snapshot(&mut self, disk: usize) -> Option<usize> {
        let count = self.disks[disk].snapshots.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    /// Removes a snapshot. If it has clones, it goes to the trash.
    pub fn remove_snapshot(&mut self) {
        let Some(chosen) = self.pick_snapshot(self.current) else { return };
        let snapshot = self.disk().snapshots.remove(chosen).name;
        let image = self.image();
        let full = format!("{image}@{snapshot}");
        self.tell(format!("remove snapshot {snapshot}"));
        self.past.take_if(|past| past.image == full);
        if self.random.one_in(2) {
            self.others.rbd(&format!("snap rm --no-progress {full}"));
        } else {
            self.image_of_others(&image).remove_snapshot(&snapshot).unwrap();
        }
    }

    /// Goes back to a snapshot, which only a detached volume does.
    pub fn roll_back(&mut self) {
        let Some(chosen) = self.pick_snapshot(self.current) else { return };
        let (clean, by_ceph) = (self.random.one_in(2), self.random.one_in(2));
        let Snapshot { name, content } = self.disk().snapshots[chosen].clone();
        self.tell(format!("roll back to {name}, closed: {clean}, by Ceph: {by_ceph}"));
        if clean {
            self.close();
        } else {
            self.crash();
        }
        let image = self.image();
        if by_ceph {
            self.others.rbd(&format!("snap rollback --no-progress {image}@{name}"));
        } else {
            let image = self.image_of_others(&image);
            image.lock().unwrap();
            image.roll_back_with(&name, &mut |_, _| {}).unwrap();
            image.unlock().unwrap();
        }
        let disk = self.disk();
        (disk.content, disk.next_size) = (content, None);
    }

    /// Clones a snapshot, and goes on in the clone.
    pub fn clone(&mut self) {
        if self.disks.len() == IMAGES || !self.kind.can_be_cloned() {
            return;
        }
        let Some(chosen) = self.pick_snapshot(self.current) else { return };
        let Snapshot { name, content } = self.disk().snapshots[chosen].clone();
        let (image, coded) = (self.new_image(), self.random.one_in(3));
        self.tell(format!("clone {name} to {image}, coded: {coded}"));
        self.others.clone_snapshot(&format!("{}@{name}", self.image()), &image, data_pool(coded));
        self.close();
        self.current = self.disks.len();
        self.disks.push(Disk { image, content, next_size: None, snapshots: Vec::new() });
    }

    /// Ceph copies what the image shares with its parent, beside the open volume.
    pub fn flatten(&mut self) {
        if self.attached().store.image().parent().unwrap().is_none() {
            return;
        }
        self.tell("flatten");
        self.others.rbd(&format!("flatten --no-progress {}", self.image()));
        assert!(self.attached().store.image().parent().unwrap().is_none(), "there is a parent still");
        self.look_around();
    }

    /// Looks at any snapshot of any disk, and at the one that is open since long ago.
    pub fn look_back(&mut self) {
        if let Some(past) = &self.past {
            self.told.push(format!("look at {}, open since", past.image));
            look_at(&past.volume, &past.content, &mut self.random, &past.image);
        }
        let disk = self.random.below(self.disks.len() as u64) as usize;
        let Some(chosen) = self.pick_snapshot(disk) else { return };
        let Snapshot { name, content } = self.disks[disk].snapshots[chosen].clone();
        let image = format!("{}@{name}", self.disks[disk].image);
        self.told.push(format!("look at {image}"));
        let volume = self.kind.open(self.own.open(&image), &image, true);
        if self.random.one_in(4) {
            compare_all(&volume, &content, &image);
        } else {
            look_at(&volume, &content, &mut self.random, &image);
        }
        if self.random.one_in(2) {
            self.past = Some(Past { image, volume, content });
        }
    }
}
