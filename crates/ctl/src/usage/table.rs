//! Output of usage.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::journal::ledger::{self, Account, Ledger, Shared, Used};

use super::By;
use crate::print::table;
use crate::table::hours;

/// The usage table.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    by: Vec<By>,
    since: Timestamp,
    until: Timestamp,
    lost: u64,
    /// By what was asked for, and the resource.
    accounts: BTreeMap<(Vec<String>, String), Used>,
    /// By ClusterQueue, flavor and resource.
    places: BTreeMap<ledger::QuotaSlot, Shared>,
}

impl By {
    fn heading(self) -> &'static str {
        match self {
            Self::Namespace => "NAMESPACE",
            Self::Localqueue => "LOCALQUEUE",
            Self::Clusterqueue => "CLUSTERQUEUE",
            Self::Flavor => "FLAVOR",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Localqueue => "localQueue",
            Self::Clusterqueue => "clusterQueue",
            Self::Flavor => "flavor",
        }
    }

    fn of(self, account: &Account) -> &str {
        match self {
            Self::Namespace => &account.namespace,
            Self::Localqueue => &account.local_queue,
            Self::Clusterqueue => &account.cluster_queue,
            Self::Flavor => &account.flavor,
        }
    }
}

impl Usage {
    /// Adds up a ledger by the requested keys. A LocalQueue is identified with its namespace.
    pub(super) fn of(ledger: &Ledger, by: &[By], since: Timestamp, until: Timestamp) -> Self {
        let mut columns = by.to_vec();
        if by.contains(&By::Localqueue) {
            columns.push(By::Namespace);
        }
        columns.sort_unstable();
        columns.dedup();
        let mut accounts: BTreeMap<(Vec<String>, String), Used> = BTreeMap::new();
        for (account, used) in &ledger.accounts {
            let names = columns.iter().map(|by| by.of(account).to_owned()).collect();
            let sum = accounts.entry((names, account.resource.clone())).or_default();
            sum.total += used.total;
            sum.borrowed += used.borrowed;
            sum.evicted += used.evicted;
            sum.failed += used.failed;
        }
        let places = ledger.places.clone();
        Self { by: columns, since, until, lost: ledger.lost, accounts, places }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} – {}\n\n", self.since.strftime("%F %R"), self.until.strftime("%F %R UTC"));
        if self.accounts.is_empty() {
            text += "Nothing was used.\n";
        } else {
            let headings = self.by.iter().map(|by| by.heading());
            let headings: Vec<_> =
                headings.chain(["RESOURCE", "HOURS", "BORROWED", "EVICTED", "FAILED"]).collect();
            let row = |((names, resource), used): (&(Vec<String>, String), &Used)| {
                let amounts = [used.total, used.borrowed, used.evicted, used.failed];
                let amounts = amounts.map(|time| hours(resource, ledger::hours(resource, time)));
                names.iter().map(|name| plain(name)).chain([plain(resource)]).chain(amounts).collect()
            };
            text += &table(&headings, &self.accounts.iter().map(row).collect::<Vec<_>>(), true);
        }
        if !self.places.is_empty() {
            let headings = ["CLUSTERQUEUE", "FLAVOR", "RESOURCE", "NOMINAL", "HOURS", "BORROWED", "USED %"];
            let row = |((queue, flavor, resource), shared): (&ledger::QuotaSlot, &Shared)| {
                let amounts = [shared.nominal, shared.used, shared.borrowed];
                let [nominal, used, borrowed] = amounts.map(|time| ledger::hours(resource, time));
                let share =
                    if nominal > 0.0 { format!("{:.1}", 100.0 * used / nominal) } else { "-".to_owned() };
                let amounts = [nominal, used, borrowed].map(|amount| hours(resource, amount));
                [queue, flavor, resource]
                    .map(|name| plain(name))
                    .into_iter()
                    .chain(amounts)
                    .chain([share])
                    .collect()
            };
            text += "\n";
            text += &table(&headings, &self.places.iter().map(row).collect::<Vec<_>>(), true);
        }
        text
    }

    /// Both tables; hours in the resource's unit: processors, bytes, pieces.
    pub(super) fn json(&self) -> String {
        let usage = self.accounts.iter().map(|((names, resource), used)| {
            let names = self.by.iter().zip(names).map(|(by, name)| (by.key().to_owned(), json!(name)));
            let mut row: serde_json::Map<String, Value> = names.collect();
            row.insert("resource".to_owned(), json!(resource));
            for (key, time) in [
                ("hours", used.total),
                ("borrowedHours", used.borrowed),
                ("evictedHours", used.evicted),
                ("failedHours", used.failed),
            ] {
                row.insert(key.to_owned(), json!(ledger::hours(resource, time)));
            }
            Value::Object(row)
        });
        let queues = self.places.iter().map(|((queue, flavor, resource), shared)| {
            let [nominal, used, borrowed] =
                [shared.nominal, shared.used, shared.borrowed].map(|time| ledger::hours(resource, time));
            json!({"clusterQueue": queue, "flavor": flavor, "resource": resource,
                "nominalHours": nominal, "hours": used, "borrowedHours": borrowed})
        });
        let document = json!({
            "since": self.since.to_string(), "until": self.until.to_string(), "missingLines": self.lost,
            "usage": usage.collect::<Vec<_>>(), "clusterQueues": queues.collect::<Vec<_>>(),
        });
        format!("{document:#}\n")
    }

    /// The first table; hours in the resource's unit: processors, bytes, pieces.
    pub(super) fn csv(&self) -> String {
        let keys: Vec<_> = self.by.iter().map(|by| by.key()).collect();
        let mut text = keys
            .into_iter()
            .chain(["resource", "hours", "borrowedHours", "evictedHours", "failedHours"])
            .collect::<Vec<_>>()
            .join(",");
        text.push('\n');
        for ((names, resource), used) in &self.accounts {
            for name in names.iter().chain([resource]) {
                text.push_str(&cell(name));
                text.push(',');
            }
            let [total, borrowed, evicted, failed] = [used.total, used.borrowed, used.evicted, used.failed]
                .map(|time| ledger::hours(resource, time));
            // Writing into a String does not fail.
            let _ = writeln!(text, "{total},{borrowed},{evicted},{failed}");
        }
        text
    }
}

/// A name without what a terminal would act on: files may come from anywhere.
fn plain(name: &str) -> String {
    let name = name.replace(|c: char| c.is_control(), "?");
    if name.is_empty() { "-".to_owned() } else { name }
}

/// A CSV cell. Text that a spreadsheet would take for a formula is escaped.
fn cell(name: &str) -> String {
    let name = plain(name);
    let name = if name.starts_with(['=', '+', '@']) { format!("'{name}") } else { name };
    if name.contains([',', '"']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i128 = 3_600_000 * 1000;

    fn usage(by: &[By], namespace: &str) -> Usage {
        let account = |queue: &str, flavor: &str| Account {
            namespace: namespace.to_owned(),
            local_queue: queue.to_owned(),
            cluster_queue: "team".to_owned(),
            flavor: flavor.to_owned(),
            resource: "cpu".to_owned(),
        };
        let used = Used { total: 6 * HOUR, borrowed: HOUR, evicted: HOUR, failed: 0 };
        let shared = Shared { used: 12 * HOUR, borrowed: 2 * HOUR, nominal: 24 * HOUR };
        let ledger = Ledger {
            accounts: BTreeMap::from([(account("a", "spot"), used), (account("b", "spot"), used)]),
            places: BTreeMap::from([(("team".to_owned(), "spot".to_owned(), "cpu".to_owned()), shared)]),
            lost: 0,
            earliest: None,
        };
        let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        Usage::of(&ledger, by, since, "2026-01-02T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn the_tables_are_for_people() {
        insta::assert_snapshot!(usage(&[By::Flavor, By::Namespace], "x").text(), @"
        2026-01-01 00:00 – 2026-01-02 00:00 UTC

        NAMESPACE   FLAVOR   RESOURCE   HOURS   BORROWED   EVICTED   FAILED
        x           spot     cpu        12.00   2.00       2.00      0.00

        CLUSTERQUEUE   FLAVOR   RESOURCE   NOMINAL   HOURS   BORROWED   USED %
        team           spot     cpu        24.00     12.00   2.00       50.0
        ");
    }

    #[test]
    fn local_queues_are_shown_with_their_namespaces() {
        insta::assert_snapshot!(usage(&[By::Localqueue], "x").csv(), @"
        namespace,localQueue,resource,hours,borrowedHours,evictedHours,failedHours
        x,a,cpu,6,1,1,0
        x,b,cpu,6,1,1,0
        ");
    }

    #[test]
    fn names_of_hostile_files_do_nothing() {
        let text = usage(&[By::Namespace], "\u{1b}[2J=x,\"").text();
        assert!(!text.contains('\u{1b}'), "{text}");
        let csv = usage(&[By::Namespace], "=cmd(\"x\",1)").csv();
        assert!(csv.contains("\n\"'=cmd(\"\"x\"\",1)\",cpu,12,2,2,0\n"), "{csv}");
        let json: Value = serde_json::from_str(&usage(&[By::Namespace], "\u{1b}").json()).unwrap();
        assert_eq!(
            (&json["usage"][0]["hours"], &json["usage"][0]["borrowedHours"]),
            (&json!(12.0), &json!(2.0))
        );
        assert_eq!(json["clusterQueues"][0]["borrowedHours"], 2.0);
    }
}
