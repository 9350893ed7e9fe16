//! Plays one scenario of an `expected.yaml`: the format is described in `examples/README.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_engine::{Kind, ObjectRef};
use sluice_sim::{File, Manifests, Options, Record, Simulation, Source, prepare};

/// The label that makes pools.
const POOL: &str = "cloud.google.com/gke-nodepool";

#[derive(Deserialize)]
struct Expected {
    scenarios: Vec<Scenario>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    name: String,
    #[serde(rename = "about")]
    _about: String,
    steps: Vec<Step>,
    #[serde(default)]
    order: Vec<String>,
    #[serde(default)]
    orders: Vec<Vec<String>>,
    #[serde(default)]
    counts: BTreeMap<String, usize>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    #[serde(default)]
    apply: Vec<String>,
    #[serde(default)]
    patch: Option<Value>,
    departs: Option<String>,
    #[serde(default)]
    returns: bool,
    #[serde(default)]
    until: Vec<State>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct State {
    job: String,
    is: String,
    cluster_queue: Option<String>,
    priority: Option<i32>,
    #[serde(default)]
    flavors: BTreeMap<String, String>,
    reason: Option<String>,
    message: Option<String>,
    ready: Option<bool>,
    check: Option<String>,
}

/// One scenario and where its files are.
pub struct Story {
    folder: PathBuf,
    scenario: Scenario,
}

impl Story {
    pub fn read(folder: &str, name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(folder);
        let text = fs::read_to_string(folder.join("expected.yaml")).unwrap();
        let expected: Expected = serde_saphyr::from_str(&text).unwrap();
        let scenario = expected.scenarios.into_iter().find(|s| s.name == name).unwrap();
        Self { folder, scenario }
    }

    fn manifests(&self, names: &[String]) -> Manifests {
        let file = |name: &String| File {
            name: name.clone(),
            text: fs::read_to_string(self.folder.join(name)).unwrap(),
            named: true,
        };
        Manifests::read(&names.iter().map(file).collect::<Vec<_>>()).unwrap()
    }

    /// Plays the steps in one simulation, each as soon as the one before is over, and checks what is expected.
    pub fn check(&self) {
        let steps = &self.scenario.steps;
        let mut options = Options::new(Options::default_configuration());
        options.audit = true;
        // As on the fake nodes of the demo.
        let scenario = json!({"spec": {"runTime": "5s"}});
        let mut first = self.manifests(&steps[0].apply);
        first.scenarios.push((Source::default(), serde_json::from_value(scenario).unwrap()));
        let mut simulation = prepare(&first, &BTreeMap::new(), options).unwrap();
        for (index, step) in steps.iter().enumerate() {
            if index > 0 {
                simulation.advance(SignedDuration::from_secs(1)).unwrap();
                for manifest in &self.manifests(&step.apply).objects {
                    simulation.apply(manifest).unwrap();
                }
            }
            if let Some(patch) = &step.patch {
                let text = |key: &str| patch[key].as_str().unwrap_or_default().to_owned();
                simulation
                    .patch(&text("kind"), patch["namespace"].as_str(), &text("name"), &patch["merge"])
                    .unwrap();
            }
            if let Some(job) = &step.departs {
                let pool = first_pool(&simulation, job);
                departs(&mut simulation, Some(&pool));
            }
            if step.returns {
                departs(&mut simulation, None);
            }
            let reached = simulation.run_until(|s| step.until.iter().all(|state| state.holds(s))).unwrap();
            let shown = timeline(simulation.record()).join("\n");
            assert!(reached, "step {} of {} is never over:\n{shown}", index + 1, self.scenario.name);
        }
        self.check_events(simulation.record());
    }

    fn check_events(&self, record: &Record) {
        let happened = timeline(record);
        let in_order = |order: &[String]| {
            let mut rest = happened.iter();
            order.iter().all(|wanted| rest.any(|event| event == wanted))
        };
        for order in [&self.scenario.order].into_iter().chain(&self.scenario.orders) {
            assert!(in_order(order), "expected {order:#?}, happened {happened:#?}");
        }
        for (event, count) in &self.scenario.counts {
            let seen = happened.iter().filter(|e| e.split(' ').next() == Some(event)).count();
            assert_eq!(seen, *count, "{event}: {happened:#?}");
        }
    }
}

/// A list in the status of a job's Workload.
fn in_status(simulation: &Simulation, job: &str, list: &str) -> Vec<Value> {
    let workloads = simulation.objects(Kind::Workload);
    let mut own = workloads.filter(|(_, w)| w["metadata"]["ownerReferences"][0]["name"] == job);
    own.next().and_then(|(_, w)| w["status"][list].as_array().cloned()).unwrap_or_default()
}

/// Whether the message of an admission check has this part.
fn check_says(simulation: &Simulation, job: &str, part: &str) -> bool {
    let checks = in_status(simulation, job, "admissionChecks");
    checks.iter().any(|check| check["message"].as_str().unwrap_or_default().contains(part))
}

/// Whether the condition PodsReady of a job's Workload is true.
fn pods_ready(simulation: &Simulation, job: &str) -> bool {
    let all = in_status(simulation, job, "conditions");
    all.iter().any(|c| c["type"] == "PodsReady" && c["status"] == "True")
}

/// The first pool, by name, that the pods of a JobSet are on.
fn first_pool(simulation: &Simulation, jobset: &str) -> String {
    let name = jobset.split_once('/').unwrap().1;
    let pods = simulation.objects(Kind::Pod);
    let own = pods.filter(|(_, pod)| pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == name);
    let nodes = own.map(|(_, pod)| ObjectRef::cluster(Kind::Node, pod["spec"]["nodeName"].as_str().unwrap()));
    let pools = nodes.map(|node| simulation.object(&node).unwrap()["metadata"]["labels"][POOL].clone());
    pools.map(|pool| pool.as_str().unwrap().to_owned()).min().unwrap()
}

/// Puts label and taint of nodes that are about to go on a pool, or takes them off all nodes.
fn departs(simulation: &mut Simulation, pool: Option<&str>) {
    let nodes: Vec<_> = simulation
        .objects(Kind::Node)
        .filter(|(_, node)| pool.is_none_or(|pool| node["metadata"]["labels"][POOL] == pool))
        .map(|(node, _)| node.name.to_string())
        .collect();
    let label = pool.map(|_| "true");
    let taints =
        pool.map(|_| json!([{"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}]));
    for node in nodes {
        let merge = json!({
            "metadata": {"labels": {"cloud.google.com/active-node-maintenance": label}}, "spec": {"taints": taints},
        });
        simulation.patch("node", None, &node, &merge).unwrap();
    }
}

/// The events that the format knows.
fn timeline(record: &Record) -> Vec<String> {
    let known = ["admitted", "preempted", "evicted", "finished"];
    let entries = record.entries.iter().filter(|e| known.contains(&e.what.word()));
    entries.filter_map(|e| Some(format!("{} {}", e.what.word(), record.jobs[e.job?].key()))).collect()
}

impl State {
    fn holds(&self, simulation: &Simulation) -> bool {
        let record = simulation.record();
        let Some(job) = record.job_named(&self.job) else { return false };
        let held = job.holds.last().filter(|h| h.to.is_none() && h.admitted.is_some());
        let finished = job.finished.is_some();
        let state = match self.is.as_str() {
            "waiting" => job.managed && job.holds.last().is_none_or(|h| h.to.is_some()) && !finished,
            "admitted" => held.is_some() && !finished,
            "reserved" => job.holds.last().is_some_and(|h| h.to.is_none() && h.admitted.is_none()),
            "finished" => job.managed && finished,
            "unmanaged" => !job.managed,
            "completed" => finished && job.success,
            other => panic!("unknown state {other}"),
        };
        let last = job.holds.last();
        let flavor = |resource: &str| {
            last.and_then(|h| h.holdings.iter().find(|x| *x.resource == *resource))
                .map(|x| x.flavor.to_string())
        };
        let why = job.waits_for.as_ref();
        let ready = || pods_ready(simulation, job.name.as_ref());
        state
            && self.cluster_queue.as_deref().is_none_or(|q| last.is_some_and(|h| *h.queue == *q))
            && self.priority.is_none_or(|p| job.priority == p)
            && self.flavors.iter().all(|(resource, wanted)| flavor(resource).as_ref() == Some(wanted))
            && self.ready.is_none_or(|wanted| ready() == wanted)
            && self.check.as_deref().is_none_or(|part| check_says(simulation, job.name.as_ref(), part))
            && self.reason.as_deref().is_none_or(|r| why.is_some_and(|(reason, _)| **reason == *r))
            && self.message.as_deref().is_none_or(|m| why.is_some_and(|(_, message)| message.contains(m)))
    }
}
