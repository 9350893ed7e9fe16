//! Prometheus metrics (docs/reference/05-metrics.md).

pub mod access;
pub mod process;
pub mod registry;
pub mod scrape;
pub mod server;

use registry::{Definition, Sample, Shape};
use sluice_api::config::CustomLabel;

/// The type of a metric that the manager keeps.
#[derive(Clone, Copy, Debug)]
enum Type {
    Counter,
    Gauge,
    /// With these upper bounds of its buckets, in seconds.
    Histogram(&'static [f64]),
}

/// A metric that the manager keeps, with `N` labels: a sample with another number of values does not compile.
#[derive(Clone, Copy, Debug)]
pub struct Metric<const N: usize> {
    /// Its name.
    pub name: &'static str,
    help: &'static str,
    type_: Type,
    labels: [&'static str; N],
}

impl<const N: usize> Metric<N> {
    const fn counter(name: &'static str, labels: [&'static str; N], help: &'static str) -> Self {
        Self { name, help, type_: Type::Counter, labels }
    }

    const fn gauge(name: &'static str, labels: [&'static str; N], help: &'static str) -> Self {
        Self { name, help, type_: Type::Gauge, labels }
    }

    const fn histogram(name: &'static str, labels: [&'static str; N], help: &'static str) -> Self {
        Self::within(name, labels, prometheus::DEFAULT_BUCKETS, help)
    }

    const fn within(
        name: &'static str,
        labels: [&'static str; N],
        bounds: &'static [f64],
        help: &'static str,
    ) -> Self {
        Self { name, help, type_: Type::Histogram(bounds), labels }
    }

    /// A value of it, with the values of its labels in their order.
    pub fn sample(&self, labels: [&str; N], value: f64) -> Sample {
        Sample::of(self.name, &labels, value)
    }

    fn definition(&self) -> Definition {
        Definition {
            name: self.name,
            help: self.help.to_owned(),
            shape: match self.type_ {
                Type::Counter => Shape::Counter,
                Type::Gauge => Shape::Gauge,
                Type::Histogram(bounds) => Shape::Histogram(bounds.to_vec()),
            },
            labels: self.labels.to_vec(),
            custom: Vec::new(),
            role: false,
        }
    }
}

/// Objects that made the engine fail, by kind.
pub const SET_ASIDE: Metric<1> = Metric::counter(
    "sluice_objects_set_aside_total",
    ["kind"],
    "Objects that made the engine fail and were set aside, by kind.",
);
/// Events that were dropped because too many waited.
pub const EVENTS_DROPPED: Metric<0> = Metric::gauge(
    "sluice_events_dropped",
    [],
    "Events that were not sent: too many waited, their object had too many, they came too late, or the API server did not take them for a minute.",
);
/// How many writes may be in flight.
pub const WRITES_LIMIT: Metric<0> = Metric::gauge(
    "sluice_writes_limit",
    [],
    "Writes that may be in flight at once: the number that the API server handles without slowing down.",
);
/// How many writes are in flight.
pub const WRITES_IN_FLIGHT: Metric<0> =
    Metric::gauge("sluice_writes_in_flight", [], "Writes that are in flight.");
/// How many objects have a write that waits to be sent, by priority class (label `lane`).
pub const WRITES_WAITING: Metric<1> = Metric::gauge(
    "sluice_writes_waiting",
    ["lane"],
    "Objects with a write that waits to be sent, by priority class of the write (label `lane`), from the most important (jobs) to the least (reports).",
);
/// How long writes took, by priority class (label `lane`), kind and result.
pub const WRITE_SECONDS: Metric<3> = Metric::histogram(
    "sluice_write_duration_seconds",
    ["lane", "kind", "result"],
    "Seconds that a write took, retries included, by priority class of the write (label `lane`), kind of the object, and result (written, conflict, gone, refused, failed).",
);
/// How long answers of webhooks took, by what is done there.
pub const REVIEW_SECONDS: Metric<1> = Metric::within(
    "sluice_webhook_review_duration_seconds",
    ["webhook"],
    &[0.0005, 0.002, 0.01, 0.05, 0.25, 1.0, 5.0],
    "Seconds to answer a review of the API server, by webhook (convert, mutate, validate).",
);
/// Lines of the journal that were lost.
pub const JOURNAL_LINES_LOST: Metric<0> = Metric::counter(
    "sluice_journal_lines_lost_total",
    [],
    "Lines missing from the journal, because they came faster than they could be written, the disk was full, or room was needed before they were sent.",
);
/// Files of the journal that were sent.
pub const JOURNAL_FILES_STORED: Metric<0> = Metric::counter(
    "sluice_journal_files_stored_total",
    [],
    "Files of the journal that are in the object store, since the process began.",
);
/// Files of the journal that were not sent.
pub const JOURNAL_STORE_FAILURES: Metric<1> = Metric::counter(
    "sluice_journal_store_failures_total",
    ["reason"],
    "Failed tries to send a file of the journal to the object store, by reason: refused (a wrong key, no such bucket), unavailable.",
);
/// Traces of admissions, by what became of them.
pub const TRACES: Metric<1> = Metric::counter(
    "sluice_traces_total",
    ["result"],
    "Traces of admissions, by result: sent, lost (too many waited, or the collector could not be reached), rejected (by the collector).",
);
/// Whether this replica leads, by lease (controller-runtime's name).
pub const MASTER: Metric<1> = Metric::gauge(
    "leader_election_master_status",
    ["name"],
    "1 if this replica leads, by the name of the lease, else 0.",
);
/// Requests to the API server (client-go's name and labels).
pub const REQUESTS: Metric<3> = Metric::counter(
    "rest_client_requests_total",
    ["code", "method", "host"],
    "Requests to the API server, by the code of its answer (`<error>` if none came), method, and host.",
);
/// What this build is.
pub const BUILD_INFO: Metric<6> = Metric::gauge(
    "kueue_build_info",
    ["git_version", "git_commit", "build_date", "go_version", "compiler", "platform"],
    "Always 1; the labels say which build this is.",
);

/// Every metric, with these custom labels.
pub fn definitions(custom: &[CustomLabel]) -> Vec<Definition> {
    let mut definitions = scrape::engine_definitions(custom);
    definitions.extend(own_definitions());
    definitions
}

/// The metrics that the manager itself keeps.
fn own_definitions() -> Vec<Definition> {
    let mut definitions = vec![
        SET_ASIDE.definition(),
        EVENTS_DROPPED.definition(),
        WRITES_LIMIT.definition(),
        WRITES_IN_FLIGHT.definition(),
        WRITES_WAITING.definition(),
        WRITE_SECONDS.definition(),
        REVIEW_SECONDS.definition(),
        JOURNAL_LINES_LOST.definition(),
        JOURNAL_FILES_STORED.definition(),
        JOURNAL_STORE_FAILURES.definition(),
        TRACES.definition(),
        MASTER.definition(),
        REQUESTS.definition(),
        BUILD_INFO.definition(),
    ];
    definitions.extend(process::definitions());
    definitions
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Upper bounds by their name in the table.
    fn bounds(name: &str) -> Vec<f64> {
        let doubling = |from: f64| std::iter::successors(Some(from), |bound| Some(bound * 2.0));
        let waits = |count: usize| [1.0, 2.5].into_iter().chain(doubling(5.0)).take(count).collect();
        match name {
            "def" => prometheus::DEFAULT_BUCKETS.to_vec(),
            "latency" => doubling(0.01).take(11).collect(),
            count => waits(count.parse().unwrap()),
        }
    }

    #[test]
    fn every_metric_is_that_of_the_contract_line_by_line() {
        let mut own: BTreeMap<_, _> = definitions(&[])
            .into_iter()
            .filter(|d| !d.name.starts_with("sluice_"))
            .map(|d| (d.name, d))
            .collect();
        let table = include_str!("reference.tsv").lines().filter(|line| !line.starts_with('#'));
        for line in table {
            let mut cells = line.split('\t');
            let mut cell = || cells.next().unwrap_or_default();
            let (name, kind, buckets, labels, lacking) = (cell(), cell(), cell(), cell(), cell());
            let Some(definition) = own.remove(name) else {
                assert!(!lacking.is_empty(), "{name} lacks, and nothing says why");
                continue;
            };
            assert_eq!(lacking, "", "{name} is there");
            let shape = match kind {
                "counter" => Shape::Counter,
                "gauge" => Shape::Gauge,
                _ => Shape::Histogram(bounds(buckets)),
            };
            assert_eq!(definition.shape, shape, "{name}");
            assert_eq!(definition.labels.join(","), labels, "{name}");
            let bare = [BUILD_INFO.name, REQUESTS.name].contains(&name);
            assert_eq!(definition.role, !bare, "{name} and replica_role");
        }
        let more: Vec<_> = own.into_keys().filter(|name| name.contains("kueue_")).collect();
        assert!(more.is_empty(), "the contract has no {more:?}");
    }

    /// The words of a name, in order.
    fn words(text: &str) -> Vec<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_ascii_lowercase).collect()
    }

    #[test]
    fn every_help_text_is_a_sentence_that_says_more_than_the_name() {
        let mut seen = BTreeMap::new();
        for definition in definitions(&[]) {
            let (name, help) = (definition.name, definition.help);
            assert!(help.ends_with('.') && help.len() > 20, "{name}: {help}");
            assert!(help.starts_with(|c: char| c.is_ascii_uppercase() || c == '1'), "{name}: {help}");
            assert!(!help.contains("reference"), "{name}: {help}");
            let of_name = words(name.trim_start_matches("kueue_").trim_start_matches("sluice_"));
            assert_ne!(words(&help), of_name, "{name}");
            if let Some(other) = seen.insert(help.clone(), name) {
                panic!("{name} and {other} say the same: {help}");
            }
        }
    }

    #[test]
    fn the_book_lists_the_manager_s_own_metrics_with_their_help() {
        let page = include_str!("../../../../docs/manual/metrics.md");
        for definition in own_definitions() {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", definition.name)));
            assert!(row.is_some_and(|row| row.contains(&definition.help)), "{}", definition.name);
        }
    }

    #[test]
    fn alert_rules_and_dashboard_use_metrics_that_exist() {
        let texts = [
            include_str!("../../../../charts/sluice/files/dashboard.json"),
            include_str!("../../../../charts/sluice/files/dashboard-team.json"),
            include_str!("../../../../charts/sluice/templates/prometheus/rules.yaml"),
        ];
        let known: Vec<_> = definitions(&[]).into_iter().map(|d| d.name).collect();
        for text in texts {
            // Records have names of their own.
            let lines: Vec<_> = text.lines().filter(|line| !line.contains("- record: ")).collect();
            let text = lines.join("\n");
            let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()));
            let ours = ["kueue_", "leader_election_", "sluice_"];
            let used = words.filter(|w| ours.iter().any(|start| w.starts_with(start)));
            let mut count = 0;
            for name in used {
                let name = name.trim_end_matches("_bucket").trim_end_matches("_sum");
                assert!(known.contains(&name), "{name}");
                count += 1;
            }
            assert!(count > 5, "{count}");
        }
    }
}
