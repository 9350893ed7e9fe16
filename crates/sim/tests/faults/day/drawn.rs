//! A random world as manifests: the core's random queues and workloads, and events for them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::config::{Configuration, FairSharing, PreemptionStrategy};
use sluice_sim::{File, ManifestError, Manifests, Options};

use super::oracle::random::{self, Random};
use super::oracle::world::{
    Cohort, FairStrategy, Flavor, Group, Name, PodSet, Policy, Queue, Quota, Strategy, Workload, World,
};
use sluice_quantity::Amount;

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// A world and its day.
pub struct Drawn {
    pub world: World,
    documents: Vec<Value>,
}

/// An amount as a quantity: millicores and single units.
fn quantity(resource: &str, amount: Amount) -> String {
    if resource == "cpu" { format!("{}m", amount.get()) } else { amount.get().to_string() }
}

fn quota(resource: &Name, quota: &Quota) -> Value {
    let mut value = json!({"name": &**resource, "nominalQuota": quantity(resource, quota.nominal)});
    if let Some(limit) = quota.borrowing_limit {
        value["borrowingLimit"] = json!(quantity(resource, limit));
    }
    if let Some(limit) = quota.lending_limit {
        value["lendingLimit"] = json!(quantity(resource, limit));
    }
    value
}

fn groups(groups: &[Group]) -> Vec<Value> {
    let flavor = |group: &Group, name: &Name, quotas: &BTreeMap<Name, Quota>| {
        // In the order of `coveredResources`, as validation wants it.
        let resources: Vec<_> = group.covered.iter().map(|r| quota(r, &quotas[r])).collect();
        json!({"name": &**name, "resources": resources})
    };
    let group = |group: &Group| {
        let flavors: Vec<_> =
            group.flavors.iter().map(|(name, quotas)| flavor(group, name, quotas)).collect();
        let covered: Vec<_> = group.covered.iter().map(ToString::to_string).collect();
        json!({"coveredResources": covered, "flavors": flavors})
    };
    groups.iter().map(group).collect()
}

fn policy(policy: Policy) -> &'static str {
    match policy {
        Policy::Never => "Never",
        Policy::LowerPriority => "LowerPriority",
        Policy::LowerOrNewerEqualPriority => "LowerOrNewerEqualPriority",
        Policy::Any => "Any",
    }
}

fn next(try_next: bool) -> &'static str {
    if try_next { "TryNextFlavor" } else { "MayStopSearch" }
}

fn cluster_queue(name: &Name, queue: &Queue) -> Value {
    let mut preemption = json!({
        "withinClusterQueue": policy(queue.preemption.within_cluster_queue),
        "reclaimWithinCohort": policy(queue.preemption.reclaim_within_cohort),
    });
    if let Some(borrow) = queue.preemption.borrow_within_cohort {
        preemption["borrowWithinCohort"] = json!({"policy": "LowerPriority"});
        if let Some(threshold) = borrow.threshold {
            preemption["borrowWithinCohort"]["maxPriorityThreshold"] = json!(threshold);
        }
    }
    let fungibility = &queue.fungibility;
    let mut spec = json!({
        "namespaceSelector": {},
        "queueingStrategy": match queue.strategy {
            Strategy::StrictFifo => "StrictFIFO",
            Strategy::BestEffortFifo => "BestEffortFIFO",
        },
        "preemption": preemption,
        "flavorFungibility": {
            "whenCanBorrow": next(fungibility.try_next_when_borrowing),
            "whenCanPreempt": next(fungibility.try_next_when_preempting),
        },
        "fairSharing": {"weight": queue.weight.to_string()},
        "resourceGroups": groups(&queue.groups),
    });
    // The API takes a preference only where the search continues for both.
    if fungibility.preemption_over_borrowing
        && fungibility.try_next_when_borrowing
        && fungibility.try_next_when_preempting
    {
        spec["flavorFungibility"]["preference"] = json!("PreemptionOverBorrowing");
    }
    if let Some(cohort) = &queue.cohort {
        spec["cohortName"] = json!(&**cohort);
    }
    json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": &**name}, "spec": spec})
}

fn cohort(name: &Name, cohort: &Cohort) -> Value {
    let mut spec = json!({
        "fairSharing": {"weight": cohort.weight.to_string()},
        "resourceGroups": groups(&cohort.groups),
    });
    if let Some(parent) = &cohort.parent {
        spec["parentName"] = json!(&**parent);
    }
    json!({"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": &**name}, "spec": spec})
}

fn flavor(name: &Name, flavor: &Flavor) -> Value {
    let labels: BTreeMap<_, _> = flavor.labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let taint = |key: &Name| json!({"key": &**key, "value": "true", "effect": "NoSchedule"});
    let taints: Vec<_> = flavor.taints.iter().map(taint).collect();
    json!({
        "apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": &**name},
        "spec": {"nodeLabels": labels, "nodeTaints": taints},
    })
}

fn template(set: &PodSet) -> Value {
    let requests: BTreeMap<_, _> =
        set.requests.iter().map(|(r, amount)| (r.to_string(), quantity(r, *amount))).collect();
    let selector: BTreeMap<_, _> =
        set.node_selector.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let tolerations: Vec<_> =
        set.tolerated.iter().map(|key| json!({"key": &**key, "operator": "Exists"})).collect();
    json!({"spec": {
        "restartPolicy": "Never", "nodeSelector": selector, "tolerations": tolerations,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
    }})
}

/// A Job, or a JobSet if there are several pod sets.
fn job(random: &mut Random, workload: &Workload) -> Value {
    let (namespace, name) = workload.key.split_once('/').unwrap_or_default();
    // One in six runs for hours.
    let seconds = if random.chance(16) { 7_200 } else { 5 + random.below(120) };
    let mut metadata = json!({
        "name": name, "namespace": namespace,
        "labels": {
            "kueue.x-k8s.io/queue-name": "lq",
            "kueue.x-k8s.io/priority-class": format!("p{}", workload.priority + 1),
        },
        "annotations": {
            "sluice.dev/run-seconds": seconds.to_string(),
            "sluice.dev/submit-after-seconds": (1 + random.below(300)).to_string(),
        },
    });
    let spec =
        |set: &PodSet| json!({"parallelism": set.count, "completions": set.count, "template": template(set)});
    if let [set] = &workload.pod_sets[..] {
        if let Some(least) = set.min_count.filter(|least| *least < set.count) {
            metadata["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = json!(least.to_string());
        }
        return json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec(set)});
    }
    let of = |set: &PodSet| json!({"name": &*set.name, "replicas": 1, "template": {"spec": spec(set)}});
    let jobs: Vec<_> = workload.pod_sets.iter().map(of).collect();
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata,
        "spec": {"replicatedJobs": jobs},
    })
}

/// Another quota, within the same bounds as before.
fn requota(random: &mut Random, queue: &mut Queue) {
    for (_, quotas) in queue.groups.iter_mut().flat_map(|group| &mut group.flavors) {
        for quota in quotas.values_mut() {
            quota.nominal = random.amount(6);
            quota.lending_limit = quota.lending_limit.map(|limit| limit.min(quota.nominal));
        }
    }
}

/// What an administrator and the users do on that day, besides submitting jobs.
fn events(random: &mut Random, world: &World, jobs: &[Value]) -> Vec<Value> {
    let mut events = Vec::new();
    let queues: Vec<Name> = world.queues.keys().cloned().collect();
    for _ in 0..random.below(4) {
        let name = random.pick(&queues).clone();
        let at = 20 + random.below(280);
        match random.below(4) {
            0 => {
                let policy = *random.pick(&["Hold", "HoldAndDrain"]);
                events.push(
                    json!({"at": format!("{at}s"), "stop": {"clusterQueue": &*name, "policy": policy}}),
                );
                // Some never resume.
                if random.chance(85) {
                    let later = format!("{}s", at + 40 + random.below(60));
                    events.push(json!({"at": later, "resume": {"clusterQueue": &*name}}));
                }
            }
            1 => {
                let queue = format!("{name}/lq");
                let later = format!("{}s", at + 30 + random.below(60));
                events.push(
                    json!({"at": format!("{at}s"), "stop": {"localQueue": queue, "policy": "HoldAndDrain"}}),
                );
                events.push(json!({"at": later, "resume": {"localQueue": queue}}));
            }
            2 => {
                let mut queue = world.queues[&name].clone();
                requota(random, &mut queue);
                events.push(json!({"at": format!("{at}s"), "objects": [cluster_queue(&name, &queue)]}));
            }
            _ => {
                let job = random.pick(jobs);
                events.push(json!({"at": format!("{at}s"), "delete": {
                    "kind": job["kind"], "namespace": job["metadata"]["namespace"], "name": job["metadata"]["name"],
                }}));
            }
        }
    }
    events
}

impl Drawn {
    /// The world of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let world = random::world(&mut random);
        let mut documents: Vec<Value> = world.flavors.iter().map(|(n, f)| flavor(n, f)).collect();
        documents.extend(world.cohorts.iter().map(|(n, c)| cohort(n, c)));
        // Some queues have a check that takes a while.
        documents.push(json!({
            "apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": "check"},
            "spec": {"controllerName": "example.com/check"},
        }));
        for (name, queue) in &world.queues {
            let mut document = cluster_queue(name, queue);
            if random.chance(20) {
                document["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "check"}]});
            }
            documents.push(document);
            documents.push(json!({
                "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "lq", "namespace": &**name},
                "spec": {"clusterQueue": &**name},
            }));
        }
        for priority in 0..4 {
            documents.push(json!({
                "apiVersion": KUEUE, "kind": "WorkloadPriorityClass",
                "metadata": {"name": format!("p{priority}")}, "value": priority - 1,
            }));
        }
        let count = 5 + random.below(25);
        let jobs: Vec<Value> = (0..count)
            .map(|number| {
                let workload = random::workload(&mut random, &world, number);
                job(&mut random, &workload)
            })
            .collect();
        let events = events(&mut random, &world, &jobs);
        documents.extend(jobs);
        documents.push(json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "Scenario", "spec": {
                "events": events,
                "checkDelay": format!("{}s", random.below(30)),
                "podTermination": format!("{}s", random.below(20)),
                "podStartup": format!("{}s", random.below(10)),
            },
        }));
        Self { world, documents }
    }

    /// The manager's configuration.
    pub fn configuration(&self) -> Configuration {
        let mut configuration = Options::default_configuration();
        let strategy = |strategy: &FairStrategy| match strategy {
            FairStrategy::LessThanOrEqualToFinalShare => PreemptionStrategy::LessThanOrEqualToFinalShare,
            FairStrategy::LessThanInitialShare => PreemptionStrategy::LessThanInitialShare,
        };
        configuration.fair_sharing = self
            .world
            .fair
            .as_ref()
            .map(|list| FairSharing { preemption_strategies: list.iter().map(strategy).collect() });
        configuration
    }

    /// The world and the day as a person would write them.
    pub fn manifests(&self) -> Result<Manifests, Vec<ManifestError>> {
        let texts = self.documents.iter().map(|document| format!("---\n{document}\n"));
        let file = File { name: "day.yaml".to_owned(), text: texts.collect(), named: true };
        Manifests::read(&[file])
    }
}
