//! When the Workloads of a queue start: the same estimates as in an explanation, with their ranges and preempted jobs.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

#[path = "worlds/queue.rs"]
mod queue;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use queue::{WORLD, job, question, read};
use sluice_core::WorkloadKey;
use sluice_sim::explain::Patience;
use sluice_sim::starts::{Expected, Start, expected, why_not};
use sluice_sim::{Manifests, Options, Simulation, prepare};

/// A queue whose admissions are checked.
const CHECKED: &str = "---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: checked}
spec: {namespaceSelector: {}, admissionChecksStrategy: {admissionChecks: [{name: prov}]}}
";
/// Run times that differ from future to future.
const DRAWN: &str = "---\napiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec:\n  runTime: {lognormal: {p50: 10m, p90: 40m}}\n";

fn present(manifests: &Manifests) -> Simulation {
    let options = Options::new(Options::default_configuration());
    let mut simulation = prepare(manifests, &BTreeMap::new(), options).unwrap();
    simulation.advance(SignedDuration::from_secs(1)).unwrap();
    simulation
}

/// What is expected of all jobs, by the job's name.
fn all(present: &Simulation, patience: Patience<'_>) -> (Expected, BTreeMap<String, Start>) {
    let workloads: Vec<_> = present.engine().workloads().collect();
    let keys: Vec<_> = workloads
        .iter()
        .map(|(key, _)| WorkloadKey { namespace: key.namespace.clone(), name: key.name.clone() })
        .collect();
    let found = expected(present, &keys, SignedDuration::from_hours(72), patience).unwrap();
    let owner = |key: &WorkloadKey| {
        let (_, workload) = workloads.iter().find(|(reference, _)| reference.name == key.name).unwrap();
        workload.metadata.owner_references.as_ref().unwrap()[0].name.clone()
    };
    let by_job = found.starts.iter().map(|(key, start)| (owner(key), start.clone())).collect();
    (found, by_job)
}

#[test]
fn each_has_the_estimate_of_its_explanation_and_a_range() {
    let jobs: String = (0..4).map(|n| job(&format!("j{n}"), 6, "")).collect();
    let manifests = read(&format!("{WORLD}{jobs}{DRAWN}"));
    let (found, starts) = all(&present(&manifests), Patience::ENDLESS);
    assert_eq!((found.futures, found.complete, starts.len()), (20, true, 4));
    let mut waiting = 0;
    for (name, start) in &starts {
        let options = Options::new(Options::default_configuration());
        let question = question(&manifests, options, 1, name);
        let Some(forecast) = question.forecast_only().unwrap() else {
            assert_eq!((start.p10, start.p90, start.starts), (Some(0), Some(0), 20), "{name} runs");
            continue;
        };
        waiting += 1;
        assert_eq!(
            (start.p50, start.p90, start.starts),
            (forecast.p50, forecast.p90, forecast.starts),
            "{name}"
        );
        assert_eq!(found.basis, forecast.basis);
        assert!(start.p10 < start.p50 && start.p50 < start.p90, "{start:?}");
    }
    assert_eq!(waiting, 3);
}

#[test]
fn what_is_known_has_one_future_and_says_what_it_preempts() {
    let first = job("first", 8, "sluice.dev/run-seconds: \"3600\"");
    let urgent = job("urgent", 4, "sluice.dev/run-seconds: \"60\", sluice.dev/submit-after-seconds: \"1\"");
    let urgent =
        urgent.replace("queue-name: main", "queue-name: main, kueue.x-k8s.io/priority-class: urgent");
    let manifests = read(&format!("{WORLD}{first}{urgent}"));
    let (found, starts) = all(&present(&manifests), Patience::ENDLESS);
    assert_eq!((found.futures, found.complete), (1, true));
    let urgent = &starts["urgent"];
    assert_eq!((urgent.p10, urgent.p50, urgent.p90), (Some(1), Some(1), Some(1)), "{starts:?}");
    assert_eq!(urgent.preempts, ["a/first"]);
    assert!(starts["first"].preempts.is_empty());
    // It comes back when the other has ended.
    assert!(starts["first"].p50 > Some(50), "{starts:?}");
}

#[test]
fn when_time_is_over_the_futures_that_were_played_count() {
    let jobs: String = (0..3).map(|n| job(&format!("j{n}"), 6, "")).collect();
    let manifests = read(&format!("{WORLD}{jobs}{DRAWN}"));
    let asked = std::cell::Cell::new(0);
    let over = || {
        asked.set(asked.get() + 1);
        asked.get() > 12
    };
    let (found, starts) = all(&present(&manifests), Patience::until(&over));
    assert!(!found.complete && (1..20).contains(&found.futures), "{found:?}");
    assert!(starts.values().all(|start| start.starts <= found.futures), "{found:?}");
    let (none, starts) = all(&present(&manifests), Patience::until(&|| true));
    assert_eq!(none.futures, 0);
    assert!(starts.values().all(|start| start.p50.is_none()));
}

#[test]
fn queues_with_admission_checks_have_no_estimate() {
    let present = present(&read(&format!("{WORLD}{CHECKED}")));
    assert_eq!(why_not(&present, "cq"), None);
    assert!(why_not(&present, "checked").unwrap().contains("admission checks"));
}
