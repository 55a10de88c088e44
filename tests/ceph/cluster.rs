//! A Ceph cluster to try things on by hand. It is gone when this ends.

use std::io;

use support::ceph::Cluster;

fn main() -> io::Result<()> {
    let cluster = Cluster::start();
    println!("export CEPH_CONF={}", cluster.conf().display());
    println!("Enter or Ctrl-C ends it.");
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}
