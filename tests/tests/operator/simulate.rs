//! `simulate`, `explain` and `replay` from the command line, as people use them: no control plane is needed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use sluice_testkit::{binary, plugin};

/// Two ClusterQueues that lend to one another, and what may change in them.
const QUEUES: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: a}
spec:
  cohort: all
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: b}
spec:
  cohortName: all
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: spot, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: team-a}
spec: {clusterQueue: a}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: team-b}
spec: {clusterQueue: b}
";

/// Two nodes, with room for all that the quota allows.
const NODES: &str = "
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {pool: one}}
status: {allocatable: {cpu: 6, pods: 110}}
---
apiVersion: v1
kind: Node
metadata: {name: n2, labels: {pool: two}}
status: {allocatable: {cpu: 6, pods: 110}}
";

fn job(team: &str, name: &str, pods: u32, seconds: u32, after: u32) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  namespace: {team}\n  labels: {{kueue.x-k8s.io/queue-name: main}}\n  \
         annotations: {{sluice.dev/run-seconds: '{seconds}', sluice.dev/submit-after-seconds: '{after}'}}\nspec:\n  parallelism: {pods}\n  \
         completions: {pods}\n  template:\n    spec:\n      restartPolicy: Never\n      \
         containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]\n"
    )
}

/// A folder with the world in files.
struct World(tempfile::TempDir);

impl World {
    /// `team-b` borrows two of `team-a`, whose jobs wait for them.
    fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        world.write("queues.yaml", QUEUES);
        let jobs = [
            job("team-b", "borrows", 6, 600, 0),
            job("team-a", "own", 4, 300, 10),
            job("team-a", "last", 3, 60, 20),
        ];
        world.write("jobs.yaml", &jobs.concat());
        world
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Runs the plugin or the manager's binary in the folder.
    fn run(&self, program: &Path, line: &str) -> Output {
        let mut command = Command::new(program);
        command
            .current_dir(self.0.path())
            .env_remove("KUBECONFIG")
            .args(line.split_whitespace())
            .output()
            .unwrap()
    }

    /// What `sluice` says on standard output.
    fn sluice(&self, line: &str) -> String {
        said(&self.run(&binary().unwrap(), line))
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.sluice(line)).unwrap()
    }
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_output_says_the_same_and_both_programs_do() {
    let world = World::new();
    let json = world.json("simulate queues.yaml jobs.yaml --quiet -o json");
    assert_eq!(
        (&json["totals"]["finished"], &json["totals"]["preemptions"]),
        (&3.into(), &0.into()),
        "{json}"
    );
    let events: Vec<String> = json["timeline"].as_array().unwrap().iter().map(ToString::to_string).collect();
    assert!(
        events.iter().any(|e| e.contains("waiting") && e.contains("insufficient unused quota")),
        "{events:#?}"
    );
    let yaml: Value =
        serde_saphyr::from_str(&world.sluice("simulate queues.yaml jobs.yaml --quiet -o yaml")).unwrap();
    assert_eq!(yaml["totals"], json["totals"]);
    assert_eq!(yaml["queues"], json["queues"]);
    let table = world.sluice("simulate queues.yaml jobs.yaml --quiet");
    for wanted in ["admitted   team-a/own", "by b: cpu=spot (6)", "3 finished", "WAIT P50"] {
        assert!(table.contains(wanted), "{wanted} is not in\n{table}");
    }
    let page = world.sluice("simulate queues.yaml jobs.yaml --quiet -o html");
    assert!(page.starts_with("<!doctype html>") && page.contains("team-a/own"));
    let by_plugin = said(&world.run(&plugin().unwrap(), "simulate . --quiet -o json"));
    let by_plugin: Value = serde_json::from_str(&by_plugin).unwrap();
    assert_eq!(by_plugin["timeline"], json["timeline"], "a folder is read as its files are");
}

#[test]
fn what_is_watched_is_what_happens_and_until_ends_it() {
    let world = World::new();
    let lines = |text: &str| text.lines().take_while(|l| !l.is_empty() && !l.starts_with('(')).count();
    let table = world.sluice("simulate queues.yaml jobs.yaml --quiet");
    let watched = world.sluice("simulate queues.yaml jobs.yaml --quiet --watch 1000000");
    assert_eq!(lines(&watched), lines(&table), "{watched}");
    assert!(table.starts_with(&watched[..watched.find("\n(").unwrap()]), "{watched}");
    // Documents stay documents.
    let output =
        world.run(&binary().unwrap(), "simulate queues.yaml jobs.yaml --quiet --watch 1000000 -o json");
    let json: Value = serde_json::from_str(&said(&output)).unwrap();
    assert_eq!(json["totals"]["finished"], 3);
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), lines(&table));

    let cut = world.json("simulate queues.yaml jobs.yaml --quiet -o json --until 5m");
    let totals = &cut["totals"];
    let counts = [&totals["finished"], &totals["running"], &totals["waiting"]];
    assert_eq!(counts, [0, 1, 2], "{cut}");
    assert_eq!(world.json("simulate queues.yaml jobs.yaml --quiet -o json --until 5h")["seconds"], 18_000.0);
    // What is watched ends when nothing is left to happen: it does not sleep for the rest of the time.
    world.sluice("simulate queues.yaml jobs.yaml --quiet --watch 1000000 --until 1000d");
}

#[test]
fn watching_ends_when_its_reader_has_gone() {
    let world = World::new();
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    // A second takes a second: to continue would take minutes.
    let command = || {
        let mut command = Command::new(plugin().unwrap());
        command.current_dir(world.0.path()).args(["simulate", "queues.yaml", "jobs.yaml", "--watch", "1"]);
        command
    };
    let status = command().stdout(closed()).stderr(closed()).status().unwrap();
    assert!(status.success(), "{status}");
    // What goes to standard output is made though no one reads beside it.
    let output = command().args(["-o", "json"]).stderr(closed()).output().unwrap();
    let report: Value = serde_json::from_str(&said(&output)).unwrap();
    assert_eq!(report["totals"]["finished"], 3);
}

#[test]
fn the_seed_decides_what_is_drawn() {
    let world = World::new();
    let plain = job("team-a", "drawn", 1, 1, 0).replace("sluice.dev/run-seconds: '1', ", "");
    world.write("drawn.yaml", &plain);
    world.write(
        "scenario.yaml",
        "apiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec: {seed: 7, runTime: {uniform: {min: 1m, max: 9h}}}\n",
    );
    let run = |seed: &str| {
        world.sluice(&format!("simulate queues.yaml drawn.yaml scenario.yaml --quiet -o json{seed}"))
    };
    assert_eq!(run(""), run(" --seed 7"));
    assert_eq!(run(" --seed 8"), run(" --seed 8"));
    assert_ne!(run(" --seed 7"), run(" --seed 8"));
}

/// Each kind of change, with what it brings.
#[test]
fn what_if_shows_sooner_later_preempted_starved_and_new() {
    let world = World::new();
    world.write("nodes.yaml", NODES);
    let queue = |name: &str| {
        QUEUES
            .split("---\n")
            .find(|d| d.contains(&format!("ClusterQueue\nmetadata: {{name: {name}}}")))
            .unwrap()
    };
    world.write("job.yaml", &job("team-a", "extra", 2, 30, 15));
    world.write("quota.yaml", &queue("a").replace("nominalQuota: 4", "nominalQuota: 8"));
    world.write(
        "policy.yaml",
        &queue("a").replace("reclaimWithinCohort: LowerPriority", "reclaimWithinCohort: Any"),
    );
    world.write("cohort.yaml", &queue("b").replace("cohortName: all", "cohortName: alone"));
    world.write(
        "drained.yaml",
        "apiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec: {events: [{at: 5s, drainNodes: {selector: {pool: one}}}]}\n",
    );
    let change = |name: &str| {
        world.json(&format!("simulate queues.yaml jobs.yaml nodes.yaml --quiet -o json --change {name}.yaml"))
    };
    let moved = |difference: &Value, job: &str| -> (Option<f64>, Option<f64>) {
        let all = difference["moved"].as_array().unwrap();
        let one = all.iter().find(|m| m["job"] == job).unwrap_or_else(|| unreachable!("{job}: {difference}"));
        (one["before"].as_f64(), one["after"].as_f64())
    };

    let difference = change("job");
    assert_eq!(difference["newJobs"][0]["job"], "team-a/extra", "{difference}");
    assert_eq!(difference["newJobs"][0]["starts"], 15.0, "{difference}");
    let (before, after) = moved(&change("quota"), "team-a/own");
    assert!(after < before, "{before:?} {after:?}");
    let difference = change("policy");
    assert_eq!(difference["newlyPreempted"], serde_json::json!(["team-b/borrows"]));
    assert!(moved(&difference, "team-a/own").1 < moved(&difference, "team-a/own").0, "{difference}");
    let difference = change("cohort");
    assert_eq!(difference["starved"], serde_json::json!(["team-b/borrows"]), "{difference}");
    assert_eq!(moved(&difference, "team-b/borrows").1, None);
    let (before, after) = moved(&change("drained"), "team-a/own");
    assert!(after > before, "{before:?} {after:?}");

    let table = world.sluice("simulate queues.yaml jobs.yaml nodes.yaml --quiet --change policy.yaml");
    for wanted in ["sooner", "newly preempted: team-b/borrows", "preemptions: 0 -> 1", "WAIT P50", "USED"] {
        assert!(table.contains(wanted), "{wanted} is not in\n{table}");
    }
    let yaml = world.sluice("simulate queues.yaml jobs.yaml nodes.yaml --quiet -o yaml --change policy.yaml");
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(yaml["newlyPreempted"][0], "team-b/borrows");
}

#[test]
fn a_broken_file_is_reported_with_file_document_field_and_expectation() {
    let world = World::new();
    world.write("typo.yaml", &QUEUES.replace("nominalQuota: 4", "nominalQuotas: 4"));
    world.write("type.yaml", &job("team-a", "x", 1, 1, 1).replace("parallelism: 1", "parallelism: many"));
    world.write("yaml.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a\nspec: 3\n");
    world.write(
        "scenario.yaml",
        "apiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec: {events: [{at: soon}]}\n",
    );
    world.write("missing.yaml", "apiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec: {events: [{at: 1s, apply: [nowhere.yaml]}]}\n");
    for (file, wanted) in [
        (
            "typo.yaml",
            "typo.yaml, document 2: ClusterQueue a: spec.resourceGroups[0].flavors[0].resources[0].nominalQuotas: unknown field, expected one of",
        ),
        (
            "type.yaml",
            "type.yaml, document 1: Job x: spec.parallelism: invalid type: string \"many\", expected i32",
        ),
        ("yaml.yaml", "yaml.yaml, document 1: not valid YAML: "),
        (
            "scenario.yaml",
            "scenario.yaml, document 1: Scenario: spec.events[0].at: expected a duration like 90s, 1h30m or 2d, found \"soon\"",
        ),
        ("missing.yaml", "nowhere.yaml"),
        ("absent.yaml", "absent.yaml"),
    ] {
        let output = world.run(&binary().unwrap(), &format!("simulate {file}"));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{file}: {error}");
        assert!(error.contains(wanted) && output.stdout.is_empty(), "{file}: {error}");
    }
    // What is not simulated is listed, and the rest is.
    world.write(
        "more.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\napiVersion: example.com/v1\nkind: Thing\n",
    );
    let json = world.json("simulate queues.yaml jobs.yaml more.yaml --quiet -o json");
    let skipped: Vec<_> =
        json["skipped"].as_array().unwrap().iter().map(|s| s["what"].as_str().unwrap()).collect();
    assert_eq!(
        (skipped, &json["totals"]["finished"]),
        (vec!["v1 Service", "example.com/v1 Thing"], &3.into())
    );
}

#[test]
fn a_recording_replays_and_another_behaviour_is_reported_by_decision() {
    let world = World::new();
    world.sluice("simulate queues.yaml jobs.yaml --quiet --record log.jsonl");
    let replayed = world.sluice("replay log.jsonl");
    assert!(replayed.contains("every cycle came out as it was recorded"), "{replayed}");
    // As if another version had taken the quota for more: `own` would not have waited.
    let log = fs::read_to_string(world.0.path().join("log.jsonl")).unwrap();
    world.write("other.jsonl", &log.replace("\"nominalQuota\":4", "\"nominalQuota\":9"));
    let output = world.run(&binary().unwrap(), "replay other.jsonl --diff");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let line = |sign: &str, words: [&str; 2]| {
        text.lines().any(|l| l.starts_with(sign) && words.iter().all(|w| l.contains(w)))
    };
    assert!(
        line("- event Warning WaitingForQuota", ["Workload team-a/job-own-", "insufficient unused quota"]),
        "{text}"
    );
    assert!(line("+ write Workload team-a/job-own-", ["ReserveQuota", "\"clusterQueue\":\"a\""]), "{text}");
    let first = world.run(&binary().unwrap(), "replay other.jsonl");
    assert!(first.stdout.len() < output.stdout.len());
    world.write("broken.jsonl", "{\"nothing\": 1}\n");
    let output = world.run(&binary().unwrap(), "replay broken.jsonl");
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1: not a line of a decision log"));
}

#[test]
fn explain_answers_from_files_and_keeps_other_namespaces_to_itself() {
    let world = World::new();
    let text = world.sluice("explain job/own -n team-a queues.yaml jobs.yaml --at 30s");
    for wanted in [
        "place 0 in ClusterQueue a",
        "needs 4, can have 2",
        "held by a job of another namespace (6 by b)",
        "starts now with parallelism 2",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    assert!(!text.contains("borrows"), "{text}");
    let json = world.json("explain job own -n team-a queues.yaml jobs.yaml --at 30s -A -o json");
    assert_eq!(json["flavors"][0]["heldBy"][0], "team-b/borrows (6 by b)", "{json}");
    assert_eq!(json["forecast"]["p50"], 570, "{json}");
    let output = world.run(&binary().unwrap(), "explain job/missing -n team-a queues.yaml jobs.yaml");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no job or Workload team-a/missing"));
}
