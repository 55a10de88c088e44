//! Databases keep what they acknowledged, on a sealed disk whose server is killed.
//!
//! Each test runs a real server of Debian's on a file system on an attached volume. It needs root, and the packages that a
//! missing program's message names.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod database;
mod disk;
mod history;
mod mariadb;
mod postgres;
mod redis;
mod sql;

use database::survives_kills;
use disk::{FileSystem, Kind, Place};
use mariadb::MariaDb;
use postgres::Postgres;
use redis::Redis;

#[test]
fn postgresql_on_ext4_folded() {
    survives_kills::<Postgres>(Kind {
        place: Place::File,
        cipher: "aegis-256",
        fold: true,
        file_system: FileSystem::Ext4,
    });
}

#[test]
fn postgresql_on_xfs_with_aes_gcm() {
    survives_kills::<Postgres>(Kind {
        place: Place::File,
        cipher: "aes-256-gcm",
        fold: false,
        file_system: FileSystem::Xfs,
    });
}

#[test]
fn postgresql_on_ext4_on_ceph() {
    survives_kills::<Postgres>(Kind {
        place: Place::Image,
        cipher: "aegis-256",
        fold: true,
        file_system: FileSystem::Ext4,
    });
}

#[test]
fn mariadb_on_ext4() {
    survives_kills::<MariaDb>(Kind {
        place: Place::File,
        cipher: "aegis-256",
        fold: false,
        file_system: FileSystem::Ext4,
    });
}

#[test]
fn mariadb_on_xfs_folded_with_aes_gcm() {
    survives_kills::<MariaDb>(Kind {
        place: Place::File,
        cipher: "aes-256-gcm",
        fold: true,
        file_system: FileSystem::Xfs,
    });
}

#[test]
fn redis_on_ext4_folded_with_xchacha() {
    survives_kills::<Redis>(Kind {
        place: Place::File,
        cipher: "xchacha20-poly1305",
        fold: true,
        file_system: FileSystem::Ext4,
    });
}

#[test]
fn redis_on_xfs() {
    survives_kills::<Redis>(Kind {
        place: Place::File,
        cipher: "aegis-256",
        fold: false,
        file_system: FileSystem::Xfs,
    });
}
