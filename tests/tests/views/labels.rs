//! Queries name existing metrics and labels: a query with a wrong label has an answer, but a useless one.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use sluice_testkit::assets::{self, Tool};
use sluice_testkit::chart;

use super::prometheus::{queries, rendered};

/// Labels of every metric of ours: `replica_role`, and those of the tables.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let read = |path: &str| std::fs::read_to_string(assets::workspace().join(path)).unwrap();
    let mut known = BTreeMap::new();
    let mut put = |name: &str, kind: &str, labels: Vec<&str>| {
        let mut labels: BTreeSet<_> =
            labels.into_iter().filter(|l| !l.is_empty()).map(str::to_owned).collect();
        labels.insert("replica_role".to_owned());
        if kind == "histogram" {
            for suffix in ["_sum", "_count", "_bucket"] {
                let mut labels = labels.clone();
                labels.extend((suffix == "_bucket").then(|| "le".to_owned()));
                known.insert(format!("{name}{suffix}"), labels);
            }
        } else {
            known.insert(name.to_owned(), labels);
        }
    };
    for line in read("crates/manager/src/metrics/reference.tsv").lines().filter(|line| !line.starts_with('#'))
    {
        let cells: Vec<_> = line.split('\t').collect();
        put(cells[0], cells[1], cells.get(3).unwrap_or(&"").split(',').collect());
    }
    // `NAME = "sluice_…" Gauge ["…", "…"];`
    for line in read("crates/engine/src/metrics/definitions.rs").lines() {
        if let Some((name, rest)) = line.split_once("= \"sluice_").and_then(|(_, rest)| rest.split_once('"'))
        {
            let kind = if rest.trim_start().starts_with("Histogram") { "histogram" } else { "gauge" };
            let labels = rest.split('[').nth(1).unwrap_or_default();
            put(&format!("sluice_{name}"), kind, labels.split('"').skip(1).step_by(2).collect());
        }
    }
    known
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Every metric in a query with the labels of its selector, and every label of its groupings.
fn named(query: &str) -> (Vec<(String, Vec<String>)>, Vec<String>) {
    let (mut metrics, mut groupings) = (Vec::new(), Vec::new());
    let labels = |text: &str| -> Vec<String> {
        let matchers =
            text.split(',').map(|m| m.split(['=', '!']).next().unwrap_or_default().trim().to_owned());
        matchers.filter(|label| !label.is_empty() && label.chars().all(is_word)).collect()
    };
    let mut rest = query;
    while let Some(begin) = rest.find(is_word) {
        rest = &rest[begin..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        let grouped = ["by", "on", "without", "ignoring"].contains(&word);
        if word.starts_with("kueue_") || word.starts_with("sluice_") {
            let selector = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            metrics.push((word.to_owned(), selector.map(|(text, _)| labels(text)).unwrap_or_default()));
            rest = selector.map_or(rest, |(_, rest)| rest);
        } else if grouped
            && let Some((text, after)) = rest.trim_start().strip_prefix('(').and_then(|r| r.split_once(')'))
        {
            groupings.extend(labels(text));
            rest = after;
        } else if rest.starts_with('"') {
            rest = rest[1..].split_once('"').map_or("", |(_, rest)| rest);
        }
    }
    (metrics, groupings)
}

/// What is wrong with a query.
fn wrong(query: &str, known: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let (metrics, groupings) = named(query);
    let mut wrong = Vec::new();
    let mut all = BTreeSet::new();
    for (metric, labels) in metrics {
        match known.get(&metric) {
            None => wrong.push(format!("there is no metric {metric}")),
            Some(has) => {
                wrong.extend(
                    labels.iter().filter(|l| !has.contains(*l)).map(|l| format!("{metric} has no label {l}")),
                );
                all.extend(has.iter().cloned());
            }
        }
    }
    if !all.is_empty() {
        wrong.extend(
            groupings.iter().filter(|l| !all.contains(*l)).map(|l| format!("no metric has the label {l}")),
        );
    }
    wrong
}

#[test]
fn queries_name_metrics_and_labels_that_there_are() {
    let (known, objects) = (known(), rendered(&[]));
    let mut all = queries(&objects);
    let groups = objects["PrometheusRule"][0]["spec"]["groups"].as_array().unwrap();
    let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    all.extend(rules.iter().map(|rule| rule["expr"].as_str().unwrap().to_owned()));
    assert!(all.len() > 45, "{}", all.len());
    let wrong: Vec<_> =
        all.iter().flat_map(|query| wrong(query, &known).into_iter().map(move |why| (why, query))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_query_with_a_wrong_name_is_found() {
    let known = known();
    for (query, why) in [
        ("sum by (queue) (kueue_pending_workloads)", "no metric has the label queue"),
        ("kueue_pending_workloads{name=~\".*\"}", "kueue_pending_workloads has no label name"),
        ("rate(kueue_pending_workload[5m])", "there is no metric kueue_pending_workload"),
        ("kueue_admission_wait_time_seconds", "there is no metric kueue_admission_wait_time_seconds"),
    ] {
        assert_eq!(wrong(query, &known), [why], "{query}");
    }
}

#[test]
fn every_alert_names_a_page_that_there_is() {
    let objects = rendered(&["metrics.prometheusRule.runbookUrl=https://docs.example.com/sluice/"]);
    let page = std::fs::read_to_string(assets::workspace().join("docs/troubleshooting/alerts.md")).unwrap();
    let groups = objects["PrometheusRule"][0]["spec"]["groups"].as_array().unwrap();
    let alerts =
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).filter(|r| r["alert"].is_string());
    let mut count = 0;
    for alert in alerts {
        count += 1;
        let name = alert["alert"].as_str().unwrap();
        assert!(page.contains(&format!("\n## {name}\n")), "{name}");
        let anchor = name.to_lowercase();
        let annotations = &alert["annotations"];
        assert_eq!(annotations["runbook"], format!("docs/troubleshooting/alerts.md#{anchor}"));
        let url = format!("https://docs.example.com/sluice/troubleshooting/alerts.html#{anchor}");
        assert_eq!(annotations["runbook_url"], url);
    }
    assert_eq!(count, 6);
}

/// What helm says once the chart is installed with these values; nothing is installed.
fn notes(values: &[&str]) -> String {
    let mut command = Command::new(assets::path(Tool::Helm).unwrap());
    command.args(["install", "sluice", "--dry-run=client", "--namespace", chart::NAMESPACE]);
    command.arg(assets::workspace().join("charts/sluice")).env("KUBECONFIG", "/dev/null");
    for value in values {
        command.args(["--set", value]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_once("\nNOTES:\n").map(|(_, notes)| notes.to_owned()).unwrap()
}

/// Only the one who installs the chart serves the book.
#[test]
fn alerts_link_to_no_address_until_one_is_given_and_the_notes_say_so() {
    let groups = rendered(&[])["PrometheusRule"][0]["spec"]["groups"].clone();
    let rules = groups.as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let alerts: Vec<_> = rules.filter(|rule| rule["alert"].is_string()).collect();
    assert!(alerts.iter().all(|alert| alert["annotations"]["runbook_url"].is_null()), "{alerts:?}");
    assert!(alerts.iter().all(|alert| alert["annotations"]["runbook"].is_string()), "{alerts:?}");
    let step = "set metrics.prometheusRule.runbookUrl to its address";
    let (rules, url) =
        ("metrics.prometheusRule.enabled=true", "metrics.prometheusRule.runbookUrl=https://docs.example.com");
    assert!(notes(&[rules]).contains(step));
    assert!(!notes(&[rules, url]).contains(step) && !notes(&[]).contains(step));
}
