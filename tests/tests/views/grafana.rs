//! The dashboards of the chart, read by Grafana's own types (`tests/control-plane/grafana`): Grafana itself is not available as a package that may be
//! used here.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;
use sluice_testkit::assets;

use super::prometheus::rendered;

/// Whether Grafana reads these dashboards, and what is said of them.
fn checked(boards: &[(String, String)]) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("go");
    command.current_dir(assets::workspace().join("tests/control-plane/grafana"));
    command.args(["run", "-mod=readonly", "."]).env("GOWORK", "off").env("CGO_ENABLED", "0");
    for (name, text) in boards {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        command.arg(file);
    }
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The dashboards of the chart: of the administrator, and of a team.
pub(super) fn boards() -> [Value; 2] {
    let objects = rendered(&[]);
    let maps = objects["ConfigMap"].iter().filter_map(|map| map["data"].as_object()).flatten();
    let boards = maps.filter(|(name, _)| name.starts_with("sluice")).map(|(_, text)| text.as_str().unwrap());
    let mut boards: Vec<Value> = boards.map(|text| serde_json::from_str(text).unwrap()).collect();
    let is_team = |board: &Value| board.to_string().contains("$namespace");
    boards.sort_by_key(is_team);
    assert_eq!(boards.iter().map(is_team).collect::<Vec<_>>(), [false, true]);
    boards.try_into().unwrap()
}

/// The expressions of each panel, by its title.
pub(super) fn panels(board: &Value) -> BTreeMap<&str, Vec<&str>> {
    fn expressions(panel: &Value) -> Vec<&str> {
        let targets = panel["targets"].as_array().unwrap().iter();
        targets.map(|target| target["expr"].as_str().unwrap()).collect()
    }
    let panels = board["panels"].as_array().unwrap().iter();
    panels.map(|panel| (panel["title"].as_str().unwrap(), expressions(panel))).collect()
}

#[test]
fn each_board_has_quota_beside_use_what_is_borrowed_waits_and_what_was_lost() {
    let [all, team] = boards();
    let percentiles = ["histogram_quantile(0.5,", "histogram_quantile(0.9,", "histogram_quantile(0.99,"];
    let quota = ["kueue_cluster_queue_nominal_quota{", "kueue_cluster_queue_resource_reservation{"];
    let borrowed = ["clamp_min(sum by (cluster_queue,", "sum by (root_cohort, flavor, resource)"];
    let of_all: [(&str, &[&str], &str); 7] = [
        ("Quota beside use", &quota, "sum by (cluster_queue, flavor, resource)"),
        ("Borrowed and lent", &borrowed, " - sum by ("),
        ("Admission wait", &percentiles, "kueue_admission_wait_time_seconds_bucket"),
        ("Wait for quota", &percentiles, "kueue_quota_reserved_wait_time_seconds_bucket"),
        (
            "Preemptions per hour",
            &["sum by (preempting_cluster_queue, reason)"],
            "kueue_preempted_workloads_total",
        ),
        (
            "Run time before evictions, per hour",
            &["sum by (cluster_queue, reason)"],
            "kueue_pods_ready_to_evicted_time_seconds_sum",
        ),
        ("Shares of cohorts", &["max by (cohort, cluster_queue)"], "kueue_cluster_queue_weighted_share"),
    ];
    let of_team: [(&str, &[&str], &str); 7] = [
        ("In use", &["sum by (namespace, name, flavor, resource)"], "kueue_local_queue_resource_usage"),
        ("Quota of the ClusterQueue beside its use", &quota, "sum by (cluster_queue, flavor, resource)"),
        ("Borrowed and lent", &borrowed, " - sum by ("),
        ("Wait until admission", &percentiles, "kueue_local_queue_admission_wait_time_seconds_bucket"),
        ("Run time of workloads", &percentiles, "kueue_local_queue_execution_time_seconds_bucket"),
        (
            "Evictions per hour",
            &["sum by (namespace, name, reason, underlying_cause)"],
            "kueue_local_queue_evicted_workloads_total",
        ),
        (
            "Run time lost to evictions, per hour",
            &["sum by (namespace, name, reason)"],
            "sluice_local_queue_pods_ready_to_evicted_time_seconds_sum",
        ),
    ];
    for (board, wanted) in [(&all, of_all), (&team, of_team)] {
        let panels = panels(board);
        for (title, each, every) in wanted {
            let drawn = panels.get(title).unwrap_or_else(|| unreachable!("no panel {title:?}"));
            assert_eq!(drawn.len(), each.len(), "{title}: {drawn:?}");
            for (expression, part) in drawn.iter().zip(each) {
                assert!(expression.contains(part) && expression.contains(every), "{title}: {expression}");
            }
        }
    }
}

#[test]
fn times_and_evictions_of_a_team_are_those_of_each_of_its_local_queues() {
    let [_, team] = boards();
    let mut asked = 0;
    for expression in panels(&team).into_values().flatten() {
        if expression.contains("_bucket{") || expression.contains("_evicted_") {
            assert!(expression.contains("sum by (namespace, name, "), "{expression}");
            asked += 1;
        }
    }
    assert_eq!(asked, 3 + 3 + 1 + 1);
}

#[test]
fn whatever_a_team_s_board_asks_of_local_queues_is_asked_of_those_that_are_chosen() {
    let [_, team] = boards();
    let mut asked = 0;
    for expression in panels(&team).into_values().flatten() {
        for metric in ["kueue_local_queue_", "sluice_local_queue_"] {
            // Each after the first begins in the middle of a metric's name.
            for rest in expression.split(metric).skip(1) {
                let (_, labels) = rest.split_once('{').unwrap();
                let (labels, _) = labels.split_once('}').unwrap();
                assert!(labels.contains("namespace=~\"$namespace\",name=~\"$queue\""), "{expression}");
                asked += 1;
            }
        }
    }
    assert!(asked > 20, "{asked}");
    let names: Vec<&str> = team["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["datasource", "namespace", "queue", "clusterqueue"]);
}

#[test]
fn grafana_s_own_types_read_the_dashboards_and_refuse_what_they_do_not_know() {
    let objects = rendered(&[]);
    let maps = objects["ConfigMap"].iter().filter_map(|map| map["data"].as_object()).flatten();
    let text = |(name, text): (&String, &Value)| (name.clone(), text.as_str().unwrap().to_owned());
    let boards: Vec<_> = maps.filter(|(name, _)| name.starts_with("sluice")).map(text).collect();
    assert_eq!(boards.len(), 2, "{:?}", objects["ConfigMap"]);
    let (fine, said) = checked(&boards);
    assert!(fine && said.contains("16 panels") && said.contains("11 panels"), "{said}");
    let wrong = [
        ("legendFormat", "legend_format"),
        ("fieldConfig", "fieldconfig"),
        ("schemaVersion\": 39", "schemaVersion\": \"39\""),
    ];
    for (word, other) in wrong {
        let broken = (boards[0].0.clone(), boards[0].1.replace(word, other));
        assert_ne!(broken.1, boards[0].1, "{word}");
        let (fine, said) = checked(&[broken]);
        assert!(
            !fine && (said.contains("unexpected field") || said.contains("cannot unmarshal")),
            "{other}: {said}"
        );
    }
}
