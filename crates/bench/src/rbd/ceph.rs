//! Ceph's own programs: what they are told of the cluster, and what they tell of it.

use std::collections::BTreeSet;
use std::process::Command;

use sealdisk_rados::{Credentials, ImageName};
use serde_json::Value;

use crate::places::Places;
use crate::programs::{CEPH, Program, QEMU, QEMU_RBD, RBD, run};
use crate::{BenchError, Interrupt};

/// A program that connects as the benchmark does.
fn client(program: Program, credentials: &Credentials) -> Result<Command, BenchError> {
    let mut command = program.command()?;
    if let Some(conf) = &credentials.conf {
        command.arg("--conf").arg(conf);
    }
    if let Some(id) = &credentials.id {
        command.arg("--id").arg(id);
    }
    if let Some(keyring) = &credentials.keyring {
        command.arg("--keyring").arg(keyring);
    }
    Ok(command)
}

/// `rbd encryption format`: librbd's LUKS2, with its default cipher, AES-256-XTS.
pub(super) fn luks2(image: &ImageName, credentials: &Credentials, places: &Places) -> Result<Command, BenchError> {
    let mut command = client(RBD, credentials)?;
    command.args(["encryption", "format"]).arg(image.to_string()).arg("luks2").arg(places.key());
    Ok(command)
}

/// qemu-storage-daemon with an image as its node `disk`. Without `cache.direct` it would switch librbd's cache on; with it,
/// every read and every write goes to the cluster.
pub(super) fn qemu(
    image: &ImageName,
    luks2: bool,
    credentials: &Credentials,
    places: &Places,
) -> Result<Command, BenchError> {
    let mut command = QEMU.command()?;
    let mut node = format!(
        "driver=rbd,node-name=disk,pool={},image={},cache.direct=on,discard=unmap",
        value(&image.pool),
        value(&image.image)
    );
    if let Some(conf) = &credentials.conf {
        node += &format!(",conf={}", value(&conf.display().to_string()));
    }
    node += &format!(",user={}", value(credentials.id.as_deref().unwrap_or("admin")));
    if luks2 {
        command.arg("--object").arg(format!("secret,id=key,file={}", places.key().display()));
        node += ",encrypt.format=luks2,encrypt.key-secret=key";
    }
    if let Some(keyring) = &credentials.keyring {
        // QEMU has no option for it.
        command.env("CEPH_KEYRING", keyring);
    }
    command.arg("--blockdev").arg(node);
    Ok(command)
}

/// A value among options of QEMU's that are separated by commas.
fn value(text: &str) -> String {
    text.replace(',', ",,")
}

/// A missing driver as what it is: a package that is not installed.
pub(super) fn missing_driver(error: BenchError) -> BenchError {
    match error {
        BenchError::Program { said, .. } if said.contains("Unknown driver 'rbd'") => {
            BenchError::Missing { program: "QEMU's rbd driver", package: QEMU_RBD.package }
        }
        other => other,
    }
}

/// What a cluster tells of itself.
pub(super) struct Facts<'a> {
    pub(super) credentials: &'a Credentials,
    pub(super) pool: &'a str,
    pub(super) interrupt: &'a Interrupt,
}

impl Facts<'_> {
    /// Names and values, for people. What this user may not know is said to be unknown.
    pub(super) fn all(&self) -> Result<Vec<(String, String)>, BenchError> {
        let facts = [
            ("Ceph", self.ask(&["versions"])?.map(|answer| versions(&answer))),
            ("pool", self.ask(&["osd", "pool", "ls", "detail"])?.map(|answer| pool(&answer, self.pool))),
            ("OSDs", self.ask(&["osd", "metadata"])?.map(|answer| osds(&answer))),
            ("settings of osd.0", self.ask(&["config", "show", "osd.0"])?.map(|answer| configured(&answer))),
            ("health", self.ask(&["health"])?.map(|answer| text(&answer["status"]))),
        ];
        let unknown = || "unknown: this user may not ask".to_owned();
        Ok(facts.map(|(name, fact)| (name.to_owned(), fact.unwrap_or_else(unknown))).to_vec())
    }

    /// A command's JSON; `None` where it is refused.
    fn ask(&self, command: &[&str]) -> Result<Option<Value>, BenchError> {
        let mut ceph = client(CEPH, self.credentials)?;
        ceph.args(["--connect-timeout", "10", "--format", "json"]).args(command);
        match run(&mut ceph, self.interrupt) {
            Ok(said) => Ok(serde_json::from_str(said.trim()).ok()),
            Err(BenchError::Program { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn versions(answer: &Value) -> String {
    let all = answer["overall"].as_object().map(|all| all.keys().cloned().collect::<Vec<_>>());
    all.unwrap_or_default().join("; ")
}

/// Kinds of pools are numbers. Source: `osd/osd_types.h`.
fn pool(answer: &Value, name: &str) -> String {
    let mut pools = answer.as_array().into_iter().flatten();
    let Some(pool) = pools.find(|pool| pool["pool_name"] == name) else { return "not listed".to_owned() };
    let kind = match pool["type"].as_u64() {
        Some(1) => format!("replicated, {} copies", pool["size"]),
        Some(3) => format!("erasure-coded, {} parts, profile {}", pool["size"], text(&pool["erasure_code_profile"])),
        _ => format!("type {}", pool["type"]),
    };
    let least = format!("a write waits for all, and needs {} at least", pool["min_size"]);
    format!("{name}: {kind} ({least}), {} placement groups", pool["pg_num"])
}

fn osds(answer: &Value) -> String {
    let all: Vec<&Value> = answer.as_array().into_iter().flatten().collect();
    let different = |field: &str| all.iter().map(|osd| text(&osd[field])).collect::<BTreeSet<_>>();
    let list = |field: &str| different(field).into_iter().collect::<Vec<_>>().join(", ");
    format!(
        "{}; hosts: {}; {}; devices call themselves {}",
        all.len(),
        different("hostname").len(),
        list("osd_objectstore"),
        list("bluestore_bdev_type")
    )
}

/// What an OSD is told beside what Ceph ships, as far as it is about how it works and not where.
fn configured(answer: &Value) -> String {
    let told = answer.as_array().into_iter().flatten().filter_map(|option| {
        let (name, value) = (option["name"].as_str()?, option["value"].as_str()?);
        let matters = name.starts_with("bluestore_") || name.starts_with("osd_op") || name.starts_with("osd_memory");
        (matters && !value.contains('/')).then(|| format!("{name}={value}"))
    });
    let told: Vec<_> = told.collect();
    if told.is_empty() { "as shipped".to_owned() } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn facts_are_for_people() {
        let pools = json!([
            {"pool_name": "p", "type": 1, "size": 2, "min_size": 1, "pg_num": 8},
            {"pool_name": "e", "type": 3, "size": 3, "min_size": 3, "pg_num": 4, "erasure_code_profile": "k2m1"},
        ]);
        assert!(
            pool(&pools, "p").starts_with("p: replicated, 2 copies (")
                && pool(&pools, "p").ends_with(", 8 placement groups")
        );
        assert!(pool(&pools, "e").contains("erasure-coded, 3 parts, profile k2m1"));
        assert_eq!(pool(&pools, "x"), "not listed");
        let osd = |host: &str| json!({"hostname": host, "osd_objectstore": "bluestore", "bluestore_bdev_type": "ssd"});
        let told = osds(&json!([osd("a"), osd("b"), osd("a")]));
        assert_eq!(told, "3; hosts: 2; bluestore; devices call themselves ssd");
        let options = json!([
            {"name": "bluestore_cache_size", "value": "1"},
            {"name": "bluestore_block_path", "value": "/dev/x"},
            {"name": "mon_host", "value": "x"},
        ]);
        assert_eq!(configured(&options), "bluestore_cache_size=1");
        assert_eq!(configured(&json!([])), "as shipped");
    }

    #[test]
    fn a_missing_driver_names_its_package() {
        let said = "qemu-storage-daemon: --blockdev: Unknown driver 'rbd'".to_owned();
        let error = BenchError::Program { command: String::new(), ending: String::new(), said };
        assert!(missing_driver(error).to_string().ends_with("install the Debian package qemu-block-extra"));
    }
}
