//! Saying so when Ceph does not answer: it has no patience that ends, and a command that says nothing looks broken.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use sealdisk_rados::Cluster;

/// What nobody need be told of: a placement group that moves to another OSD takes this long.
pub const UNREMARKABLE: Duration = Duration::from_secs(5);

/// A thread that tells the user, on standard error, once for every wait. It ends when this is dropped.
pub struct Patience {
    cluster: Arc<Mutex<Option<Weak<Cluster>>>>,
    _end: Sender<()>,
}

impl Patience {
    /// Begins with the connection that is about to be made.
    pub fn begin() -> Self {
        let cluster = Arc::new(Mutex::new(None));
        let (end, ended) = mpsc::channel();
        let theirs = Arc::clone(&cluster);
        // Without the thread the same happens in silence.
        let _ = std::thread::Builder::new().name("patience".into()).spawn(move || {
            let connecting = Instant::now();
            let mut told = None;
            while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let watched: Option<Weak<Cluster>> = theirs.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let since = match watched {
                    None => Some(connecting),
                    Some(cluster) => cluster.upgrade().and_then(|cluster| cluster.waiting_since()),
                };
                let long = since.filter(|since| since.elapsed() >= UNREMARKABLE && told != Some(*since));
                if let Some(since) = long {
                    told = Some(since);
                    eprintln!("sealdisk: waiting for Ceph; `ceph status` tells what is wrong with it");
                }
            }
        });
        Self { cluster, _end: end }
    }

    /// From now on, what this connection waits for.
    pub fn watch(&self, cluster: &Arc<Cluster>) {
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(cluster));
    }
}
