//! The load on a relational database: money moves between accounts, each transfer with a note of its own. Every statement
//! is understood by PostgreSQL and MariaDB alike.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::history::{Client, Transaction};

/// Accounts; few, so that transactions meet.
const ACCOUNTS: u32 = 32;

/// Makes the tables.
pub fn schema() -> String {
    let accounts: Vec<String> = (0..ACCOUNTS).map(|account| format!("({account}, 0)")).collect();
    format!(
        "create table account (id integer primary key, balance bigint not null);
         create table transfer (client integer, number integer, payer integer not null, payee integer not null,
                                amount bigint not null, note text not null, primary key (client, number));
         create index transfer_payer on transfer (payer);
         insert into account values {};",
        accounts.join(", ")
    )
}

/// Lists every transfer as client, number and note.
pub const TRANSFERS: &str = "select concat(client, ' ', number, ' ', note) from transfer;";

/// Counts the accounts whose balance is not what their transfers make it.
pub const WRONG_BALANCES: &str = "select count(*) from account where balance <>
    (select coalesce(sum(amount), 0) from transfer where payee = id) -
    (select coalesce(sum(amount), 0) from transfer where payer = id);";

/// What [`TRANSFERS`] printed.
pub fn parse_transfers(lines: &str) -> Vec<(Transaction, String)> {
    let parse = |line: &str| {
        let mut fields = line.splitn(3, ' ');
        let mut number = || fields.next()?.parse().ok();
        let transaction = Transaction { client: number()?, number: number()? };
        Some((transaction, fields.next()?.to_owned()))
    };
    lines.lines().map(|line| parse(line).unwrap_or_else(|| panic!("no transfer: {line}"))).collect()
}

fn transfer(Transaction { client, number }: Transaction) -> String {
    let payer = (client * 31 + number * 7) % ACCOUNTS;
    let payee = (payer + 1 + number % (ACCOUNTS - 1)) % ACCOUNTS;
    let amount = 1 + number % 100;
    let update = |account: u32, sign: char| {
        format!("update account set balance = balance {sign} {amount} where id = {account};")
    };
    // Everybody locks accounts in the same order.
    let mut updates = [(payer, update(payer, '-')), (payee, update(payee, '+'))];
    updates.sort();
    let note = Transaction { client, number }.text();
    format!(
        "begin; insert into transfer values ({client}, {number}, {payer}, {payee}, {amount}, '{note}'); {} {} commit; \
         select 'committed {client}/{number}';",
        updates[0].1, updates[1].1
    )
}

/// A database's own command-line client, which reads statements and prints results line by line and ends at the first
/// error.
pub struct SqlClient {
    process: Child,
    statements: ChildStdin,
    results: BufReader<ChildStdout>,
}

impl SqlClient {
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let statements = process.stdin.take().unwrap();
        let results = BufReader::new(process.stdout.take().unwrap());
        Self { process, statements, results }
    }
}

impl Client for SqlClient {
    fn commit(&mut self, transaction: Transaction) -> bool {
        let mut answer = String::new();
        let asked = writeln!(self.statements, "{}", transfer(transaction)).and_then(|()| self.statements.flush());
        // The answer comes from the statement after the commit, which is only made if the commit succeeded.
        let answered = asked.and_then(|()| self.results.read_line(&mut answer));
        answered.is_ok() && answer == format!("committed {}/{}\n", transaction.client, transaction.number)
    }
}

impl Drop for SqlClient {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
