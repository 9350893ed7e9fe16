//! The chart's alert and recording rules, tested by promtool with given series.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;

use serde_json::{Value, json};
use sluice_testkit::prometheus::test_rules;

use super::grafana::{boards, panels};
use super::prometheus::rendered;

/// Series of promtool's unit tests, a value per minute: `values` for the metric with these labels.
fn series(metric: &str, labels: &str, values: &str) -> Value {
    json!({"series": format!("{metric}{{replica_role=\"leader\",{labels}}}"), "values": values})
}

/// The labels `label` of what fires under this alert's name at that minute, as a unit test.
fn firing(alert: &str, minute: u32, label: &str, names: &[&str]) -> Value {
    let sample = |name: &&str| json!({"labels": format!("{{{label}=\"{name}\"}}"), "value": 1});
    json!({
        "expr": format!("count by ({label}) (ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})"),
        "eval_time": format!("{minute}m"),
        "exp_samples": names.iter().map(sample).collect::<Vec<_>>(),
    })
}

/// Has promtool play these series to the chart's rules.
fn plays_out(input: &[Value], expected: &[Value]) {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yml");
    fs::write(&rules, rendered(&[])["PrometheusRule"][0]["spec"].to_string()).unwrap();
    let test = json!({"interval": "1m", "input_series": input, "promql_expr_test": expected});
    let tests = json!({"rule_files": [rules], "evaluation_interval": "1m", "tests": [test]});
    let file = folder.path().join("tests.yml");
    fs::write(&file, tests.to_string()).unwrap();
    test_rules(&file).unwrap();
}

/// A queue of a unit test: what waits, whether it is active, how much is free, what it has reserved so far.
fn queue(name: &str, [waiting, active, free, reserved]: [&str; 4]) -> Vec<Value> {
    let of = |more: &str| format!("cluster_queue=\"{name}\"{more}");
    vec![
        series("kueue_pending_workloads", &of(",status=\"active\""), "0x120"),
        series("kueue_pending_workloads", &of(",status=\"inadmissible\""), waiting),
        series("kueue_cluster_queue_status", &of(",status=\"active\""), active),
        series("sluice_cluster_queue_free_quota_ratio", &of(""), free),
        series("kueue_quota_reserved_workloads_total", &of(",priority_class=\"\""), reserved),
    ]
}

#[test]
fn queues_that_reserve_nothing_fire_unless_they_are_stopped_or_used_up() {
    let never = "_x120";
    let queues = [
        queue("never-reserved", ["1x120", "1x120", "1x120", never]),
        queue("something-runs", ["3x120", "1x120", "0.1x120", "5x120"]),
        queue("a-little-left", ["3x120", "1x120", "0.05x120", "5x120"]),
        // One reservation, whose series is new, in minute 40.
        queue("reserved-once", ["1x120", "1x120", "1x120", "_x40 1x80"]),
        // One each ten minutes.
        queue("moves", ["1x120", "1x120", "1x120", "5x9 6x9 7x9 8x9 9x9 10x9 11x9 12x9 13x9 14x9"]),
        queue("used-up", ["9x120", "1x120", "0x120", "5x120"]),
        queue("stopped", ["9x120", "0x120", "1x120", "5x120"]),
        queue("none-waits", ["0x120", "1x120", "1x120", "5x120"]),
        // A scrape failed in minute 50: that is known when it is over, and not once more five minutes later.
        queue("gap", ["1x49 stale 1x70", "1x49 stale 1x70", "1x49 stale 1x70", "5x49 stale 5x70"]),
    ];
    let (nothing, long) = ("SluiceNothingAdmitted", "SluiceWorkloadsWaitLong");
    let (stuck, runs, little) = ("never-reserved", "something-runs", "a-little-left");
    let by_queue = |alert, minute, names: &[&str]| firing(alert, minute, "cluster_queue", names);
    plays_out(
        &queues.concat(),
        &[
            by_queue(nothing, 14, &[]),
            by_queue(nothing, 30, &["gap", stuck, "reserved-once", runs]),
            by_queue(nothing, 41, &["gap", stuck, runs]),
            by_queue(nothing, 51, &[stuck, runs]),
            by_queue(nothing, 68, &["gap", stuck, "reserved-once", runs]),
            by_queue(long, 59, &[]),
            by_queue(long, 70, &[little, stuck, runs]),
            by_queue(long, 112, &["gap", little, stuck, "reserved-once", runs]),
        ],
    );
}

#[test]
fn a_cohort_fires_only_when_more_is_shared_than_there_is_to_share() {
    let cohort = |name: &str, parent: &str, [quota, usage, reserved]: [&str; 3]| {
        let of = format!("cohort=\"{name}\",flavor=\"default\",resource=\"cpu\"");
        vec![
            series("kueue_cohort_info", &format!("cohort=\"{name}\",parent_cohort=\"{parent}\""), "1x20"),
            series("kueue_cohort_subtree_quota", &of, quota),
            series("sluice_cohort_subtree_usage", &of, usage),
            series("kueue_cohort_subtree_resource_reservations", &of, reserved),
        ]
    };
    let cohorts = [
        cohort("keeps-most", "", ["2x20", "2x20", "10x20"]),
        cohort("overdrawn", "", ["2x20", "3x20", "3x20"]),
        cohort("borrows", "overdrawn", ["2x20", "3x20", "3x20"]),
        cohort("unlimited", "", ["+Inf +Inf +Inf +Inf +Inf +Inf +Inf", "3x20", "3x20"]),
    ];
    let alert = "SluiceCohortQuotaExceeded";
    plays_out(
        &cohorts.concat(),
        &[firing(alert, 4, "cohort", &[]), firing(alert, 6, "cohort", &["overdrawn"])],
    );
}

#[test]
fn what_a_series_begins_with_counts_as_of_the_last_hour() {
    let evicted = |queue: &str, values: &str| {
        series(
            "kueue_evicted_workloads_total",
            &format!("cluster_queue=\"{queue}\",reason=\"Preempted\""),
            values,
        )
    };
    let waited = |le: &str| {
        let labels = format!("cluster_queue=\"new\",le=\"{le}\"");
        series("kueue_admission_wait_time_seconds_bucket", &labels, "_x90 1x60")
    };
    let count = |minute: u32, samples: &[(&str, u32)]| {
        let sample = |(queue, value): &(&str, u32)| json!({"labels": format!("{{cluster_queue=\"{queue}\",reason=\"Preempted\"}}"), "value": value});
        json!({
            "expr": "round(cluster_queue_reason:kueue_evicted_workloads:increase_1h)",
            "eval_time": format!("{minute}m"),
            "exp_samples": samples.iter().map(sample).collect::<Vec<_>>(),
        })
    };
    let half = json!({
        "expr": "cluster_queue:kueue_admission_wait_time_seconds:p50_1h", "eval_time": "100m",
        "exp_samples": [{"labels": "cluster_queue:kueue_admission_wait_time_seconds:p50_1h{cluster_queue=\"new\"}", "value": 30}],
    });
    // A first eviction in minute 90; one more of a queue that has had some; two of which one is the series' first.
    plays_out(
        &[
            evicted("new", "_x90 1x80"),
            evicted("old", "5x129 6x40"),
            evicted("twice", "_x100 1x9 2x60"),
            // A scrape failed in minute 60: an hour later nothing is known of that minute.
            evicted("gap", "5x59 stale 5x110"),
            waited("60"),
            waited("+Inf"),
        ],
        &[
            count(80, &[("gap", 0), ("old", 0)]),
            count(105, &[("new", 1), ("gap", 0), ("old", 0), ("twice", 1)]),
            count(115, &[("new", 1), ("gap", 0), ("old", 0), ("twice", 2)]),
            count(119, &[("gap", 0), ("new", 1), ("old", 0), ("twice", 2)]),
            count(120, &[("gap", 0), ("new", 1), ("old", 0), ("twice", 2)]),
            count(121, &[("gap", 0), ("new", 1), ("old", 0), ("twice", 2)]),
            count(140, &[("new", 1), ("gap", 0), ("old", 1), ("twice", 2)]),
            count(155, &[("new", 0), ("gap", 0), ("old", 1), ("twice", 2)]),
            half,
        ],
    );
}

#[test]
fn what_is_lent_is_what_is_borrowed_beyond_the_cohorts_own_quota() {
    let of = |labels: &str| format!("flavor=\"f\",resource=\"cpu\",{labels}");
    // Two Cohorts below one at the top: of 5 that `borrows` borrows 2 are the own quota of `left`, and 3 come from `lends` on the other side.
    // `keeps` lends nothing, so it is no part of what the tree shares. `flat` has no Cohort with quota of its own.
    let queues = [
        ("borrows", "left", "top", "4", "+Inf", "9"),
        ("lends", "right", "top", "6", "+Inf", "1"),
        ("keeps", "right", "top", "5", "0", "0"),
        ("flat-borrows", "flat", "flat", "1", "+Inf", "3"),
        ("flat-lends", "flat", "flat", "4", "+Inf", "0"),
    ];
    let mut input = Vec::new();
    let steady = |value: &str| [value; 6].join(" ");
    for (queue, cohort, root, nominal, limit, held) in queues {
        let labels = of(&format!("cluster_queue=\"{queue}\",cohort=\"{cohort}\""));
        let info = format!("cluster_queue=\"{queue}\",parent_cohort=\"{cohort}\",root_cohort=\"{root}\"");
        input.push(series("kueue_cluster_queue_info", &info, "1x5"));
        input.push(series("kueue_cluster_queue_nominal_quota", &labels, &steady(nominal)));
        input.push(series("kueue_cluster_queue_lending_limit", &labels, &steady(limit)));
        input.push(series("kueue_cluster_queue_resource_reservation", &labels, &steady(held)));
    }
    for (cohort, parent, quota) in
        [("left", "top", "6"), ("right", "top", "6"), ("top", "", "12"), ("flat", "", "5")]
    {
        let info = format!(
            "cohort=\"{cohort}\",parent_cohort=\"{parent}\",root_cohort=\"{}\"",
            if cohort == "flat" { "flat" } else { "top" }
        );
        input.push(series("kueue_cohort_info", &info, "1x5"));
        let labels = of(&format!("cohort=\"{cohort}\""));
        input.push(series("kueue_cohort_subtree_quota", &labels, &steady(quota)));
    }
    let [all, _] = boards();
    let lent = panels(&all)["Borrowed and lent"][1];
    let test = |chosen: &str, samples: &[(&str, u32)]| {
        let sample = |(cohort, value): &(&str, u32)| json!({"labels": format!("{{{}}}", of(&format!("root_cohort=\"{cohort}\""))), "value": value});
        json!({
            "expr": lent.replace("$queue", chosen), "eval_time": "3m",
            "exp_samples": samples.iter().map(sample).collect::<Vec<_>>(),
        })
    };
    plays_out(&input, &[test(".*", &[("flat", 2), ("top", 3)]), test("lends", &[("top", 3)])]);
}
