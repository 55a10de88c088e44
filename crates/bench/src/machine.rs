//! The machine that was measured on.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// What figures depend on.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Its instructions that ciphers use.
    pub instructions: Vec<String>,
    /// How many processors the system has.
    pub processors: usize,
    /// Main memory in bytes.
    pub memory: u64,
    /// The hypervisor's flag: whether this is a virtual machine.
    pub is_virtual: bool,
    /// The kernel's name and version.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// The file system that was measured on, with its device and options.
    pub file_system: String,
    /// What others were doing meanwhile: the load average of the last minute, at the beginning and the end.
    pub load: Vec<f64>,
    /// Programs and their versions.
    pub versions: Vec<(String, String)>,
}

impl Machine {
    /// This one; files lie in `folder`.
    pub(crate) fn of(folder: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let flags: Vec<&str> = value_of(&processors, "flags").unwrap_or_default().split(' ').collect();
        let known = ["aes", "pclmulqdq", "avx2", "vaes", "vpclmulqdq", "avx512f", "avx512vl"];
        let uname = rustix::system::uname();
        let memory = read("/proc/meminfo");
        let memory = value_of(&memory, "MemTotal").and_then(|total| total.strip_suffix(" kB")?.parse::<u64>().ok());
        let release = read("/etc/os-release");
        let system = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or_default();
        Self {
            processor: value_of(&processors, "model name").unwrap_or("unknown").to_owned(),
            instructions: known.into_iter().filter(|name| flags.contains(name)).map(str::to_owned).collect(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.unwrap_or(0) << 10,
            is_virtual: flags.contains(&"hypervisor"),
            kernel: [uname.sysname(), uname.release(), uname.machine()].map(|part| part.to_string_lossy()).join(" "),
            system: system.trim_matches('"').to_owned(),
            file_system: file_system_of(&read("/proc/self/mounts"), folder).unwrap_or_default(),
            load: Vec::new(),
            versions: Vec::new(),
        }
    }

    /// What others were doing before the benchmark began, if it was enough to disturb it.
    pub(crate) fn was_busy(&self) -> Option<f64> {
        self.load.first().copied().filter(|load| *load > self.processors as f64 / 2.0)
    }

    /// Notes what others are doing.
    pub(crate) fn note_load(&mut self) {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        self.load.extend(load.split(' ').next().and_then(|load| load.parse::<f64>().ok()));
    }
}

fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// The mount with the longest path that the folder lies in.
fn file_system_of(mounts: &str, folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let around = lines.filter(|fields| fields.len() > 3 && folder.starts_with(fields[1]));
    let closest = around.max_by_key(|fields| fields[1].len())?;
    Some(format!("{} on {} ({})", closest[2], closest[0], closest[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_mount_is_named() {
        let mounts = "/dev/a / ext4 rw 0 0\n/dev/b /us xfs rw 0 0\n/dev/c /usr xfs ro,noatime 0 0\n";
        assert_eq!(file_system_of(mounts, Path::new("/usr")).unwrap(), "xfs on /dev/c (ro,noatime)");
        assert_eq!(file_system_of(mounts, Path::new("/")).unwrap(), "ext4 on /dev/a (rw)");
    }

    #[test]
    fn a_busy_machine_is_noticed_by_the_load_before_the_benchmark() {
        let machine = |load: &[f64]| Machine { processors: 2, load: load.to_vec(), ..Machine::default() };
        assert_eq!(machine(&[5.0, 1.0]).was_busy(), Some(5.0));
        assert_eq!(machine(&[0.9, 7.0]).was_busy(), None);
        assert_eq!(machine(&[]).was_busy(), None);
    }

    #[test]
    fn this_machine_has_a_kernel_and_memory() {
        let mut machine = Machine::of(Path::new("/"));
        machine.note_load();
        assert!(machine.kernel.starts_with("Linux ") && machine.memory > 0 && machine.load.len() == 1);
    }
}
