//! Database pages to write: real ones, from a PostgreSQL cluster that is made for it.

use std::fs;
use std::path::PathBuf;

use crate::places::Places;
use crate::postgres::cluster::{Cluster, Setting};
use crate::{BenchError, Interrupt};

/// PostgreSQL's page in bytes.
const PAGE: usize = 8192;
/// Out of order by this many pages, so that any few buffers in a row hold pages of the table, of its index and of the
/// log; a prime, so that every page comes up.
const STRIDE: usize = 211;

/// Makes a small cluster, changes some rows, and returns a file of at least `len` bytes: pages of its tables, indexes and
/// log.
pub(crate) fn make(len: u64, places: &Places, interrupt: &Interrupt) -> Result<PathBuf, BenchError> {
    let cluster = Cluster::create(&places.run("pages-cluster"), places, interrupt)?;
    let server = cluster.start(&[Setting::SMALL], interrupt)?;
    cluster.pgbench(&["-i", "-q", "-s", "1"], interrupt)?;
    cluster.pgbench(&["-n", "-t", "500"], interrupt)?;
    cluster.query("checkpoint", interrupt)?;
    let relations = cluster.query(
        "select pg_relation_filepath(oid) from pg_class where relname like 'pgbench%' and relkind in ('r', 'i')",
        interrupt,
    )?;
    let log = cluster.query("select 'pg_wal/' || pg_walfile_name(pg_current_wal_lsn())", interrupt)?;
    cluster.stop(server)?;
    let mut pages = Vec::new();
    for file in relations.lines().chain(log.lines()) {
        let path = cluster.folder().join(file);
        let content = fs::read(&path).map_err(BenchError::path(&path))?;
        pages.extend(content.chunks_exact(PAGE).filter(|page| page.iter().any(|byte| *byte != 0)).map(<[u8]>::to_vec));
    }
    let file = places.run("pages");
    fs::write(&file, mixed(&pages, len as usize)).map_err(BenchError::path(&file))?;
    cluster.remove()?;
    Ok(file)
}

/// At least `len` bytes of the pages, in another order.
fn mixed(pages: &[Vec<u8>], len: usize) -> Vec<u8> {
    let indexes = (0..len.div_ceil(PAGE)).map(|i| i * STRIDE % pages.len().max(1));
    indexes.filter_map(|index| pages.get(index)).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_comes_up() {
        let pages: Vec<Vec<u8>> = (0..100).map(|i| vec![i; PAGE]).collect();
        let file = mixed(&pages, 100 * PAGE - 1);
        assert_eq!(file.len(), 100 * PAGE);
        let mut seen: Vec<u8> = file.chunks(PAGE).map(|page| page[0]).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<u8>>());
        assert!(mixed(&[], 10).is_empty());
    }
}
