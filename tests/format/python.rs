//! The second implementation: Python programs in an environment of their own.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Runs a program of `tests/format/`, which must succeed.
pub fn run(program: &str, arguments: &[&OsStr]) {
    let output = output_of(program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a program of `tests/format/`, which must fail; returns what it said.
pub fn fails(program: &str, arguments: &[&OsStr]) -> String {
    let output = output_of(program, arguments);
    assert_eq!(output.status.code(), Some(1), "{program} {arguments:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn output_of(program: &str, arguments: &[&OsStr]) -> Output {
    // Isolated from the caller's environment, except that the program finds its neighbours; no bytecode in the sources.
    let mut command = Command::new(interpreter());
    command.arg("-EB").arg(folder().join(program)).args(arguments);
    command.output().expect("the environment has an interpreter")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("format")
}

/// The interpreter of an environment below `target/` with what `requirements.txt` names, made when it is first needed.
fn interpreter() -> &'static Path {
    static READY: OnceLock<PathBuf> = OnceLock::new();
    READY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let environment = target.join("format-python");
        // Another run of the suite may be making it.
        let lock = File::create(target.join("format-python.lock")).unwrap();
        lock.lock().unwrap();
        let interpreter = environment.join("bin/python");
        let requirements = fs::read_to_string(folder().join("requirements.txt")).unwrap();
        // Written last, so it says that everything before was done.
        let stamp = environment.join("installed");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == requirements) && imports(&interpreter) {
            return interpreter;
        }
        let advice = "Debian packages python3 and python3-venv must be installed";
        must(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment), advice);
        let advice = "the packages of tests/format/requirements.txt must be installable; where PyPI cannot be reached, \
                      point PIP_FIND_LINKS at a folder with their wheels and set PIP_NO_INDEX=1";
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
        must(Command::new(&interpreter).args(pip).arg(folder().join("requirements.txt")), advice);
        fs::write(stamp, requirements).unwrap();
        interpreter
    })
}

/// Whether the environment still works: the system's Python may have been replaced.
fn imports(interpreter: &Path) -> bool {
    let import = Command::new(interpreter).args(["-E", "-c", "import cryptography"]).output();
    import.is_ok_and(|output| output.status.success())
}

fn must(command: &mut Command, advice: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {advice}"));
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}\n{advice}", String::from_utf8_lossy(&said));
}
