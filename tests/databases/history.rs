//! What clients were told, and what must therefore be found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use support::programs::eventually;

/// One transaction: the client that made it, and the how-manieth of that client it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transaction {
    pub client: u32,
    pub number: u32,
}

impl Transaction {
    /// What it stores: 100 to 3000 characters that only this transaction has.
    pub fn text(self) -> String {
        let word = format!("{}/{}.", self.client, self.number);
        let len = 100 + (self.client * 7919 + self.number * 2909) as usize % 2900;
        word.chars().cycle().take(len).collect()
    }
}

/// A connection to a database.
pub trait Client: Send {
    /// Makes the transaction. Returns whether the database said that it is committed.
    fn commit(&mut self, transaction: Transaction) -> bool;
}

/// How many transactions of each client were acknowledged, counted from its first.
#[derive(Default)]
pub struct History {
    acknowledged: BTreeMap<u32, u32>,
}

impl History {
    /// Holds it against the transactions that a database has.
    ///
    /// A client makes one transaction after another, so exactly its first ones are there: all that were acknowledged and
    /// at most one more, whose acknowledgement the crash swallowed. From now on that one must stay, too.
    #[track_caller]
    pub fn verify(&mut self, found: Vec<(Transaction, String)>) {
        let mut numbers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (transaction, text) in found {
            assert_eq!(text, transaction.text(), "{transaction:?} has another's content");
            numbers.entry(transaction.client).or_default().push(transaction.number);
        }
        for client in numbers.keys() {
            assert!(self.acknowledged.contains_key(client), "there never was a client {client}");
        }
        for (client, acknowledged) in &mut self.acknowledged {
            let mut found = numbers.remove(client).unwrap_or_default();
            found.sort_unstable();
            let count = found.len() as u32;
            assert!(count >= *acknowledged, "client {client}: {acknowledged} were acknowledged, {count} are there");
            assert!(count <= *acknowledged + 1, "client {client}: {acknowledged} were acknowledged, {count} are there");
            assert_eq!(found, (0..count).collect::<Vec<_>>(), "client {client}");
            *acknowledged = count;
        }
    }
}

/// Clients at work, each in a thread of its own, until the database no longer answers.
pub struct Load {
    clients: Vec<(u32, JoinHandle<u32>)>,
    acknowledged: Arc<AtomicU32>,
}

impl Load {
    /// Sets clients to work that no history knows yet.
    pub fn start(history: &History, count: u32, connect: impl Fn() -> Box<dyn Client>) -> Self {
        let first = history.acknowledged.len() as u32;
        let acknowledged = Arc::new(AtomicU32::new(0));
        let start = |client: u32| {
            let mut connection = connect();
            let total = Arc::clone(&acknowledged);
            let work = move || {
                let mut number = 0;
                while connection.commit(Transaction { client, number }) {
                    number += 1;
                    total.fetch_add(1, Ordering::Relaxed);
                }
                number
            };
            (client, std::thread::spawn(work))
        };
        Self { clients: (first..first + count).map(start).collect(), acknowledged }
    }

    /// Waits until the load is well under way.
    #[track_caller]
    pub fn wait_for(&self, acknowledgements: u32) {
        eventually("so many acknowledgements", || {
            assert!(self.clients.iter().all(|(_, client)| !client.is_finished()), "a client ended by itself");
            self.acknowledged.load(Ordering::Relaxed) >= acknowledgements
        });
    }

    /// Notes what was acknowledged, when the database is gone.
    pub fn end(self, history: &mut History) {
        for (client, thread) in self.clients {
            history.acknowledged.insert(client, thread.join().unwrap());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(numbers: &[u32]) -> Vec<(Transaction, String)> {
        let transaction = |number: &u32| Transaction { client: 0, number: *number };
        numbers.iter().map(transaction).map(|transaction| (transaction, transaction.text())).collect()
    }

    fn history() -> History {
        History { acknowledged: [(0, 2)].into() }
    }

    #[test]
    fn the_acknowledged_and_at_most_one_more_satisfy() {
        history().verify(found(&[1, 0]));
        let mut seen = history();
        seen.verify(found(&[0, 1, 2]));
        assert_eq!(seen.acknowledged[&0], 3);
    }

    #[test]
    #[should_panic(expected = "2 were acknowledged, 1 are there")]
    fn a_lost_one_is_noticed() {
        history().verify(found(&[0]));
    }

    #[test]
    #[should_panic(expected = "client 0")]
    fn a_gap_is_noticed() {
        history().verify(found(&[0, 2]));
    }

    #[test]
    #[should_panic(expected = "another's content")]
    fn changed_content_is_noticed() {
        let mut changed = found(&[0, 1]);
        changed[1].1.push('x');
        history().verify(changed);
    }
}
