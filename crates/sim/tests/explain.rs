//! Explanations: the reason, the holders, remedies that were tried, the forecast.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

#[path = "worlds/queue.rs"]
mod queue;

use std::collections::BTreeMap;

use jiff::SignedDuration;
use queue::{WORLD, job, question, read};
use sluice_sim::explain::{Explained, State};
use sluice_sim::{File, JobRecord, Manifests, Observed, Options, settings};

fn explain(jobs: &str, name: &str) -> Explained {
    explain_in(&format!("{WORLD}{jobs}"), 10, name)
}

fn texts(explained: &Explained) -> Vec<&str> {
    explained.remedies.iter().map(|r| r.text.as_str()).collect()
}

#[test]
fn a_waiting_job_learns_why_who_and_what_helps() {
    let first = job("first", 8, "sluice.dev/run-seconds: \"3610\"");
    let explained = explain(&format!("{first}{}", job("second", 4, "")), "second");
    assert_eq!((explained.state, explained.position), (State::Waiting, Some(0)));
    assert_eq!(explained.reason.as_deref(), Some("WaitingForQuota"));
    let refused = &explained.flavors[0];
    assert_eq!((refused.needed.as_deref(), refused.free.as_deref()), (Some("4"), Some("2")));
    assert_eq!(refused.held_by, ["a/first (8 by cq)"]);
    assert_eq!(
        texts(&explained),
        [
            "starts now with parallelism 2",
            "needs 2 more cpu of flavor default as nominal quota of ClusterQueue cq",
            "starts now with the WorkloadPriorityClass urgent",
        ]
    );
    assert_eq!(explained.remedies[2].preempts, ["a/first"]);
    let forecast = explained.forecast.as_ref().unwrap();
    assert_eq!((forecast.p50, forecast.p90), (Some(3600), Some(3600)));
    assert!(explained.text().contains("estimated start: in 1h\n"), "{}", explained.text());
}

#[test]
fn a_change_of_a_job_is_tried_beside_what_happens_without_it() {
    let first = job("first", 8, "sluice.dev/run-seconds: \"3610\"");
    let manifests = read(&format!("{WORLD}{first}{}", job("second", 4, "")));
    let question = question(&manifests, Options::new(Options::default_configuration()), 10, "second");
    let what_if = |change: serde_json::Value| question.what_if(&change).unwrap();
    let fewer = what_if(serde_json::json!({"spec": {"parallelism": 2}}));
    assert!(
        !fewer.before.starts_now && fewer.after.starts_now && fewer.after.preempts.is_empty(),
        "{fewer:?}"
    );
    assert_eq!(fewer.before.forecast.as_ref().unwrap().p50, Some(3600));
    assert!(fewer.text().contains("with the change: starts now\n"), "{}", fewer.text());
    let urgent = serde_json::json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "urgent"}}});
    assert_eq!(what_if(urgent).after.preempts, ["a/first"]);
    let more = what_if(serde_json::json!({"spec": {"parallelism": 9}}));
    assert!(!more.after.starts_now && more.after.refused.is_none(), "{more:?}");
    let wrong = what_if(serde_json::json!({"spec": {"parallelism": "\u{1b}[2J"}}));
    assert!(wrong.after.refused.is_some() && !wrong.text().contains('\u{1b}'), "{}", wrong.text());
    assert!(serde_json::from_str::<serde_json::Value>(&wrong.json()).is_ok());
}

#[test]
fn only_what_users_change_of_a_job_may_be_tried() {
    use sluice_sim::explain::check_change;
    for good in [r#"{"spec":{"x":1}}"#, r#"{"metadata":{"labels":{"a":null}},"spec":{}}"#] {
        assert!(check_change(&serde_json::from_str(good).unwrap()).is_ok(), "{good}");
    }
    for wrong in [
        "{}",
        "[]",
        "1",
        r#"{"spec":1}"#,
        r#"{"status":{}}"#,
        r#"{"metadata":{"uid":"x"}}"#,
        r#"{"kind":"Job"}"#,
    ] {
        assert!(check_change(&serde_json::from_str(wrong).unwrap()).is_err(), "{wrong}");
    }
}

/// Two flavors, the second behind a taint and a label; a neighbour that borrows; and what happens to the queue meanwhile.
const TWO_FLAVORS: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
spec: {nodeLabels: {kind: spot}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: reserved}
spec:
  nodeLabels: {kind: reserved}
  nodeTaints: [{key: reserved, value: \"yes\", effect: NoSchedule}, {key: costly, effect: NoExecute}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: own}
spec:
  cohortName: all
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: spot, resources: [{name: cpu, nominalQuota: 4}]}
    - {name: reserved, resources: [{name: cpu, nominalQuota: 20}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: neighbour}
spec:
  cohortName: all
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: a}
spec: {clusterQueue: own}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: other, namespace: a}
spec: {clusterQueue: neighbour}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 100
";

fn explain_in(world: &str, seconds: i64, name: &str) -> Explained {
    let file = File { name: "world".to_owned(), text: world.to_owned(), named: true };
    let manifests = Manifests::read(&[file]).unwrap();
    let mut options = Options::new(Options::default_configuration());
    settings(&mut options, &manifests.scenarios, false);
    question(&manifests, options, seconds, name).answer().unwrap()
}

/// A job that borrows six of the eight that there are.
fn borrower() -> String {
    job("borrower", 6, "sluice.dev/run-seconds: \"600\"").replace("queue-name: main", "queue-name: other")
}

/// One that comes when the borrower runs.
fn later(name: &str, pods: u32) -> String {
    job(name, pods, "sluice.dev/submit-after-seconds: \"1\"")
}

#[test]
fn the_policy_that_spares_each_holder_is_named() {
    let world = format!("{TWO_FLAVORS}{}{}", borrower(), later("mine", 4));
    let refused = &explain_in(&world, 10, "mine").flavors[0];
    assert!(refused.preemption.as_ref().unwrap().starts_with("considered"), "{refused:?}");
    assert_eq!(
        refused.spared,
        ["a/borrower is spared: reclaimWithinCohort is LowerPriority, and its priority 0 is not below 0"]
    );
    let world = world.replace("reclaimWithinCohort: LowerPriority", "reclaimWithinCohort: Never");
    let refused = &explain_in(&world, 10, "mine").flavors[0];
    assert_eq!(refused.spared, ["a/borrower is spared: reclaimWithinCohort is Never"]);
    let world = format!("{TWO_FLAVORS}{}{}", borrower(), later("wide", 5));
    let refused = &explain_in(&world, 10, "wide").flavors[0];
    assert_eq!(
        refused.preemption.as_deref(),
        Some(
            "not considered: 5 are more than the nominal quota of 4, and borrowWithinCohort of ClusterQueue own is Never"
        )
    );
    let own = job("first", 3, "sluice.dev/run-seconds: \"600\"");
    let world = format!("{WORLD}{}{}", own.replace("cpu: 1", "cpu: 3"), job("second", 4, ""));
    let refused = &explain_in(&world, 10, "second").flavors[0];
    assert_eq!(
        refused.spared,
        ["a/first is spared: withinClusterQueue is LowerPriority, and its priority 0 is not below 0"]
    );
}

#[test]
fn a_flavor_that_the_pods_keep_out_is_a_remedy_even_for_a_job_that_is_short() {
    let selector = job("mine", 5, "sluice.dev/run-seconds: \"20\"")
        .replace("restartPolicy: Never", "restartPolicy: Never\n      nodeSelector: {kind: spot}");
    let world = format!("{TWO_FLAVORS}{}{selector}", borrower());
    let explained = explain_in(&world, 10, "mine");
    let wanted = "starts now if flavor reserved is allowed: tolerate the taint costly, tolerate the taint reserved, \
                  without the node selector kind=spot";
    let remedy = explained.remedies.iter().find(|r| r.text == wanted);
    assert!(remedy.is_some(), "{:?}", texts(&explained));
    let patch = &remedy.unwrap().patches[0];
    assert_eq!((patch.kind.as_str(), patch.name.as_str()), ("Job", "mine"));
    assert_eq!(texts(&explained)[0], "starts now with parallelism 2");
}

#[test]
fn a_jobset_may_be_allowed_on_another_flavor_too() {
    let jobset = "---\napiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: set\n  namespace: a\n  labels: \
                  {kueue.x-k8s.io/queue-name: main}\nspec:\n  replicatedJobs:\n  - name: w\n    replicas: 2\n    template:\n      spec:\n        \
                  parallelism: 3\n        completions: 3\n        template:\n          spec:\n            restartPolicy: Never\n            \
                  containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]\n";
    let explained = explain_in(&format!("{TWO_FLAVORS}{}{jobset}", borrower()), 10, "set");
    let wanted =
        "starts now if flavor reserved is allowed: tolerate the taint costly, tolerate the taint reserved";
    let remedy = explained.remedies.iter().find(|r| r.text == wanted);
    assert_eq!(remedy.map(|r| r.patches[0].kind.as_str()), Some("JobSet"), "{:?}", texts(&explained));
}

#[test]
fn what_changed_since_the_submission_is_reported_and_which_jobs_overtook_it() {
    let urgent = job("urgent", 8, "sluice.dev/submit-after-seconds: \"5\"")
        .replace("labels: {", "labels: {kueue.x-k8s.io/priority-class: urgent, ");
    let scenario = "---\napiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec:\n  events:\n  - at: 4s\n    patch: {kind: clusterqueue, \
                    name: own, merge: {spec: {preemption: {withinClusterQueue: Never}}}}\n  - at: 6s\n    patch: {kind: clusterqueue, \
                    name: neighbour, merge: {spec: {stopPolicy: Hold}}}\n";
    let world = format!("{TWO_FLAVORS}{}{}{urgent}{scenario}", borrower(), later("mine", 4));
    let explained = explain_in(&world, 10, "mine");
    assert_eq!(
        explained.changes,
        ["4s ClusterQueue own: preemption.withinClusterQueue: LowerPriority -> Never"]
    );
    assert_eq!(explained.position, Some(1));
    let ahead = &explained.ahead[0];
    assert!(
        ahead.starts_with("a/job-urgent-") && ahead.ends_with(" (priority 100, came 4s later)"),
        "{ahead}"
    );
    let text = explained.text();
    assert!(text.contains("changed since it was submitted:\n  4s ClusterQueue own: "), "{text}");
}

#[test]
fn what_can_never_start_says_so() {
    let explained = explain(&job("huge", 1, "").replace("cpu: 1", "cpu: 20"), "huge");
    assert_eq!(explained.reason.as_deref(), Some("ExceedsMaxQuota"));
    assert_eq!(
        texts(&explained),
        [
            "needs 10 more cpu of flavor default as nominal quota of ClusterQueue cq",
            "ask for at most 10 cpu for each of the 1 pod(s) (flavor default)",
        ]
    );
    assert_eq!(explained.forecast.as_ref().unwrap().starts, 0);
}

/// Priority classes of these names and values.
fn classes(all: &[(&str, i64)]) -> String {
    let one = |(name, value): &(&str, i64)| {
        format!(
            "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {{name: {name}}}\nvalue: {value}\n"
        )
    };
    all.iter().map(one).collect()
}

#[test]
fn the_lowest_priority_class_is_offered_with_which_a_job_starts() {
    let first = job("first", 8, "sluice.dev/run-seconds: \"3610\"")
        .replace("labels: {", "labels: {kueue.x-k8s.io/priority-class: middle, ");
    let jobs = format!("{first}{}", later("second", 4));
    let offered = |more: &[(&str, i64)]| {
        let explained =
            explain(&format!("{}{}{jobs}", classes(&[("low", 10), ("middle", 50)]), classes(more)), "second");
        let of = |r: &&sluice_sim::explain::Remedy| r.text.contains("WorkloadPriorityClass");
        explained.remedies.iter().filter(of).map(|r| (r.text.clone(), r.preempts.clone())).collect::<Vec<_>>()
    };
    let with = |class: &str| {
        vec![(format!("starts now with the WorkloadPriorityClass {class}"), vec!["a/first".to_owned()])]
    };
    // The next higher one preempts nothing.
    assert_eq!(offered(&[]), with("urgent"));
    // Of many the lowest that is high enough; of two of one value the first by name.
    let many = [("h", 51), ("g", 51), ("a", 20), ("b", 30), ("c", 40), ("d", 60), ("e", 70), ("f", 80)];
    assert_eq!(offered(&many), with("g"));
}

#[test]
fn the_end_of_another_job_is_a_remedy() {
    let first = job("first", 1, "sluice.dev/run-seconds: \"70\"").replace("cpu: 1", "cpu: 10");
    let second =
        job("second", 1, "").replace("labels: {", "labels: {kueue.x-k8s.io/priority-class: urgent, ");
    let third = job("third", 1, "");
    // The one of the higher priority runs first, then the two others fit together or one after the other.
    let explained = explain(&format!("{first}{}{third}", second.replace("cpu: 1", "cpu: 10")), "third");
    assert!(texts(&explained).iter().any(|t| t.starts_with("starts when a/")), "{:?}", texts(&explained));
}

#[test]
fn a_running_job_needs_no_remedy() {
    let explained = explain(&job("only", 1, ""), "only");
    assert_eq!(explained.state, State::Admitted);
    assert!(explained.remedies.is_empty() && explained.forecast.is_none());
}

/// Of the starts in other futures about nine in ten come before the p90.
#[test]
fn the_ninetieth_percentile_covers_nine_of_ten_held_out_starts() {
    let scenario = "---\napiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec:\n  \
                    runTime: {lognormal: {p50: 10m, p90: 40m}}\n";
    let jobs: String = (0..6).map(|n| job(&format!("j{n}"), 5, "")).collect();
    let text = format!("{WORLD}{jobs}{scenario}");
    let manifests = Manifests::read(&[File { name: "world".to_owned(), text, named: true }]).unwrap();
    let names = ["j2", "j3", "j5"];
    let forecast = |seed: u64, name: &'static str| {
        let question =
            question(&manifests, Options { seed, ..Options::new(Options::default_configuration()) }, 1, name);
        (name, question.forecast_only().unwrap().unwrap())
    };
    // One forecast of twenty futures is itself a draw: several are averaged.
    let forecasts: Vec<_> = (0..2).flat_map(|seed| names.map(|name| forecast(seed * 1000, name))).collect();
    assert!(forecasts.iter().all(|(_, f)| f.p50.unwrap() < f.p90.unwrap()), "{forecasts:?}");
    let (mut covered, mut all) = (0, 0);
    for seed in 0..20 {
        let truth = starts(&manifests, 10_000 + seed);
        for (name, forecast) in &forecasts {
            all += 1;
            covered += usize::from(truth[&format!("a/{name}")] <= (forecast.p90.unwrap() + 1) * 1000);
        }
    }
    assert!((85..=95).contains(&(covered * 100 / all)), "{covered} of {all}");
}

const LASTING: &str = "---\napiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec:\n  \
                       runTime: {lognormal: {p50: 10m, p90: 40m}}\n";

/// What forty jobs took that ran before: all that a forecast knows.
fn trace(seed: u64) -> Vec<Observed> {
    let jobs: String = (0..40).map(|n| job(&format!("t{n}"), 5, "")).collect();
    let manifests = read(&format!("{WORLD}{jobs}{LASTING}"));
    let options = Options { seed, ..Options::new(Options::default_configuration()) };
    let mut simulation = sluice_sim::prepare(&manifests, &BTreeMap::new(), options).unwrap();
    simulation.run(|_| {}).unwrap();
    let took = |j: &JobRecord| SignedDuration::from_millis(j.finished.unwrap() - j.admitted.unwrap());
    let observed = |j| Observed { namespace: "a".to_owned(), queue: "main".to_owned(), took: took(j) };
    simulation.record().jobs.iter().map(observed).collect()
}

/// No annotation says how long the jobs take: forecasts rest on what earlier ones of the queue took, and hold for days not seen.
#[test]
fn forecasts_from_observed_run_times_cover_nine_of_ten_held_out_starts() {
    let jobs: String = (0..6).map(|n| job(&format!("j{n}"), 5, "")).collect();
    let names = ["j2", "j3", "j5"];
    let mut forecasts = Vec::new();
    for seed in 0..6 {
        let mut manifests = read(&format!("{WORLD}{jobs}"));
        manifests.observed = trace(seed);
        for name in names {
            let question = question(
                &manifests,
                Options { seed: 500 + seed, ..Options::new(Options::default_configuration()) },
                1,
                name,
            );
            let forecast = question.forecast_only().unwrap().unwrap();
            assert!(forecast.basis.contains("6 by what jobs of their queue took"), "{}", forecast.basis);
            forecasts.push((name, forecast.p90.unwrap()));
        }
    }
    let truth = read(&format!("{WORLD}{jobs}{LASTING}"));
    let (mut covered, mut all) = (0, 0);
    for seed in 0..40 {
        let starts = starts(&truth, 20_000 + seed);
        for (name, p90) in &forecasts {
            all += 1;
            covered += usize::from(starts[&format!("a/{name}")] <= (p90 + 1) * 1000);
        }
    }
    assert!((85..=95).contains(&(covered * 100 / all)), "{covered} of {all}");
}

fn starts(manifests: &Manifests, seed: u64) -> BTreeMap<String, i64> {
    let options = Options { seed, ..Options::new(Options::default_configuration()) };
    let mut simulation = sluice_sim::prepare(manifests, &BTreeMap::new(), options).unwrap();
    simulation.run(|_| {}).unwrap();
    simulation.record().jobs.iter().map(|j| (j.key(), j.admitted.unwrap())).collect()
}
