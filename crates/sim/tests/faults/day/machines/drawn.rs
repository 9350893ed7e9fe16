//! A random world of node pools, queues with Hotswap and JobSets of slices, as manifests, and events for it.

use serde_json::{Value, json};
use sluice_sim::{File, ManifestError, Manifests};

use super::super::oracle::random::Random;
use super::WITH_TOPOLOGY;

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
/// The label that makes pools.
pub const POOL: &str = "cloud.google.com/gke-nodepool";
/// The resource that all jobs ask for.
pub const TPU: &str = "google.com/tpu";
/// What a node has of it, and a pod takes.
const CHIPS: usize = 4;
const HOSTNAME: &str = "kubernetes.io/hostname";
/// By then all machines are back, in seconds.
const LAST: usize = 540;

/// A world and its day.
pub struct Drawn {
    documents: Vec<Value>,
    /// How often machines fail, depart, are drained or go.
    pub failures: usize,
}

/// How the machines are.
struct Machines {
    pools: usize,
    nodes: usize,
}

fn nodes(machines: &Machines) -> Vec<Value> {
    let node = |pool: usize, index: usize| {
        let name = format!("p{pool}-{index}");
        let labels = json!({"accelerator": "v6e", POOL: format!("p{pool}"), HOSTNAME: name});
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": [{"key": TPU, "value": "present", "effect": "NoSchedule"}]},
            "status": {"allocatable": {TPU: CHIPS.to_string(), "pods": "110"}},
        })
    };
    (0..machines.pools).flat_map(|pool| (0..machines.nodes).map(move |index| node(pool, index))).collect()
}

fn queue(random: &mut Random, name: &str, nominal: usize) -> Vec<Value> {
    let within = *random.pick(&["Never", "LowerPriority"]);
    let reclaim = *random.pick(&["Never", "Any", "LowerPriority"]);
    let mut spec = json!({
        "namespaceSelector": {},
        "preemption": {
            "withinClusterQueue": within, "reclaimWithinCohort": reclaim,
            "reclaimOutOfCohort": {"enable": random.chance(85), "reclaimMoreThanNominalQuota": random.chance(40)},
        },
        "queueingStrategy": random.pick(&["StrictFIFO", "BestEffortFIFO"]),
        "resourceGroups": [{"coveredResources": [TPU], "flavors": [
            {"name": "tpu", "resources": [{"name": TPU, "nominalQuota": nominal.to_string()}]}]}],
    });
    if random.chance(50) {
        spec["cohortName"] = json!("all");
    }
    let local = json!({"clusterQueue": name});
    vec![
        json!({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}),
        json!({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": name, "namespace": "ns"}, "spec": local}),
    ]
}

/// A JobSet of one or two slices, or a Job of one pod.
fn job(random: &mut Random, number: usize, queues: usize, nodes: usize) -> Value {
    let seconds = if random.chance(20) { 1_500 } else { 30 + random.below(400) };
    let mut metadata = json!({
        "name": format!("j{number}"), "namespace": "ns",
        "labels": {
            "kueue.x-k8s.io/queue-name": format!("q{}", random.below(queues)),
            "kueue.x-k8s.io/priority-class": format!("p{}", random.below(3)),
        },
        "annotations": {
            "sluice.dev/run-seconds": seconds.to_string(),
            "sluice.dev/submit-after-seconds": (1 + random.below(240)).to_string(),
        },
    });
    let resources = json!({"requests": {TPU: CHIPS.to_string()}, "limits": {TPU: CHIPS.to_string()}});
    let spec = |pods: usize| {
        let container = json!({"name": "c", "image": "i", "resources": resources});
        json!({"parallelism": pods, "completions": pods, "template": {"spec": {
            "restartPolicy": "Never", "containers": [container]}}})
    };
    if random.chance(25) {
        return json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec(1)});
    }
    metadata["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"] = json!(POOL);
    let slices = json!([{"name": "s", "replicas": 1 + random.below(2), "template": {"spec": spec(nodes)}}]);
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata,
        "spec": {"replicatedJobs": slices},
    })
}

/// What the pods of a job ask of the topology, as its annotations: one pool, slices of a pool each, or no more than to be close.
fn wishes(random: &mut Random, nodes: usize) -> Value {
    match random.below(4) {
        0 => json!({"kueue.x-k8s.io/podset-preferred-topology": POOL}),
        1 => json!({
            "kueue.x-k8s.io/podset-slice-required-topology": POOL,
            "kueue.x-k8s.io/podset-slice-size": nodes.to_string(),
        }),
        _ => json!({"kueue.x-k8s.io/podset-required-topology": POOL}),
    }
}

/// A job that asks the topology for what another one takes by exclusive placement. Of some slices pods are missing.
fn placed(random: &mut Random, mut job: Value, nodes: usize) -> Value {
    let wishes = wishes(random, nodes);
    let Some(sets) = job["spec"]["replicatedJobs"].as_array_mut() else {
        job["spec"]["template"]["metadata"]["annotations"] = wishes;
        return job;
    };
    for set in sets {
        let spec = &mut set["template"]["spec"];
        let fewer = usize::from(nodes > 1 && random.chance(30));
        for field in ["parallelism", "completions"] {
            spec[field] = json!(nodes - fewer);
        }
        spec["template"]["metadata"]["annotations"] = wishes.clone();
        if wishes["kueue.x-k8s.io/podset-required-topology"] == POOL {
            set["replicas"] = json!(1);
        }
    }
    if let Some(annotations) = job["metadata"]["annotations"].as_object_mut() {
        annotations.remove("alpha.jobset.sigs.k8s.io/exclusive-topology");
    }
    job
}

/// Machines that fail in one way or another, and come back.
fn failure(random: &mut Random, machines: &Machines) -> [Value; 2] {
    let pool = random.below(machines.pools);
    let whole = random.chance(60);
    let set = if whole {
        json!({"selector": {POOL: format!("p{pool}")}})
    } else {
        json!({"names": [format!("p{pool}-{}", random.below(machines.nodes))]})
    };
    let from = 20 + random.below(400);
    // Some flap.
    let most = if random.chance(25) { 25 } else { LAST - from };
    let to = from + 1 + random.below(most);
    let how = *random.pick(&[
        "failNodes",
        "failNodes",
        "departNodes",
        "deleteNodes",
        "drainNodes",
        "announceMaintenance",
    ]);
    let what = match how {
        "announceMaintenance" => json!({"nodes": set, "in": "10m"}),
        _ => set.clone(),
    };
    [json!({"at": format!("{from}s"), how: what}), json!({"at": format!("{to}s"), "recoverNodes": set})]
}

impl Drawn {
    /// The world of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x6d61_6368_696e_6573);
        let machines = Machines { pools: 3 + random.below(4), nodes: 1 + random.below(3) };
        let pool = machines.nodes * CHIPS;
        let queues = 1 + random.below(3);
        let with_topology = seed >= WITH_TOPOLOGY;
        let mut flavor = json!({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "tpu"},
                "spec": {"nodeLabels": {"accelerator": "v6e"}}});
        let mut documents =
            vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})];
        if with_topology {
            flavor["spec"]["topologyName"] = json!("dc");
            flavor["spec"]["tolerations"] = json!([{"key": TPU, "operator": "Exists"}]);
            documents.push(json!({"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "dc"},
                "spec": {"levels": [{"nodeLabel": POOL}, {"nodeLabel": HOSTNAME}]}}));
        }
        documents.push(flavor);
        for class in 0..3 {
            documents.push(json!({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass",
                "metadata": {"name": format!("p{class}")}, "value": class}));
        }
        documents.extend(nodes(&machines));
        for number in 0..queues {
            // Enough for two slices, and sometimes more than there is.
            let nominal = pool * (2 + random.below(machines.pools));
            documents.extend(queue(&mut random, &format!("q{number}"), nominal));
        }
        for number in 0..3 + random.below(7) {
            let job = job(&mut random, number, queues, machines.nodes);
            documents.push(if with_topology { placed(&mut random, job, machines.nodes) } else { job });
        }
        let mut events = Vec::new();
        let failures = 1 + random.below(5);
        for _ in 0..failures {
            events.extend(failure(&mut random, &machines));
        }
        // Whatever overlapped: in the end all are well.
        let all = json!({"selector": {"accelerator": "v6e"}});
        events.push(json!({"at": format!("{}s", LAST + 5), "recoverNodes": all}));
        documents.push(
            json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Scenario", "spec": {"events": events}}),
        );
        Self { documents, failures }
    }

    /// The world as manifests.
    pub fn manifests(&self) -> Result<Manifests, Vec<ManifestError>> {
        let texts: Vec<_> = self.documents.iter().map(ToString::to_string).collect();
        Manifests::read(&[File { name: "day".to_owned(), text: texts.join("\n---\n"), named: true }])
    }
}
