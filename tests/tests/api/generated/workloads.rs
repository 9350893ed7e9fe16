//! Workloads by seed: valid ones, and the ways to break one.

use serde_json::{Map, Value, json};

/// Numbers that follow from a seed (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let at = self.below(choices.len() as u64);
        &choices[usize::try_from(at).unwrap()]
    }
}

fn resources(r: &mut Random) -> Value {
    let mut requests = Map::new();
    for (name, amounts) in [
        ("cpu", ["1", "250m", "0"].as_slice()),
        ("memory", &["1Gi", "300M", "1e9"]),
        ("example.com/card", &["1", "8"]),
    ] {
        if r.one_in(2) {
            requests.insert(name.to_owned(), (*r.of(amounts)).into());
        }
    }
    json!({"requests": requests, "limits": {"memory": "64Gi"}})
}

fn template(r: &mut Random) -> Value {
    let containers: Vec<Value> = (0..=r.below(2))
        .map(|n| json!({"name": format!("c{n}"), "image": "registry.example/i:1", "resources": resources(r)}))
        .collect();
    let mut spec = json!({"restartPolicy": "Never", "containers": containers});
    if r.one_in(3) {
        spec["initContainers"] = json!([{"name": "init", "image": "i", "resources": resources(r)}]);
    }
    if r.one_in(3) {
        spec["nodeSelector"] = json!({"cloud.google.com/gke-nodepool": "pool-a"});
    }
    if r.one_in(3) {
        spec["tolerations"] = json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]);
    }
    let mut template = json!({"spec": spec});
    if r.one_in(2) {
        template["metadata"] =
            json!({"labels": {"team": "a", "example.com/x": ""}, "annotations": {"note": "any thing"}});
    }
    template
}

fn topology_request(r: &mut Random) -> Value {
    match r.below(5) {
        0 => json!({"required": "cloud.example/rack"}),
        1 => {
            json!({"preferred": "cloud.example/block", "podIndexLabel": "batch.kubernetes.io/job-completion-index"})
        }
        2 => json!({"unconstrained": true}),
        3 => json!({"podSetSliceRequiredTopology": "cloud.example/rack", "podSetSliceSize": 1 + r.below(4)}),
        _ => json!({"required": "cloud.example/rack", "podSetGroupName": "g", "subGroupCount": r.below(3)}),
    }
}

/// A valid Workload of v1beta2.
pub fn valid(r: &mut Random) -> Value {
    let reducible = r.below(6);
    let pod_sets: Vec<Value> = (0..=r.below(4))
        .map(|n| {
            let count = r.below(20);
            let mut pod_set = json!({"name": format!("set-{n}"), "count": count, "template": template(r)});
            if n == reducible && count > 0 {
                pod_set["minCount"] = (1 + r.below(count)).into();
            }
            if r.one_in(3) {
                pod_set["topologyRequest"] = topology_request(r);
            }
            pod_set
        })
        .collect();
    let mut spec = json!({"podSets": pod_sets});
    if r.one_in(2) {
        spec["queueName"] = (*r.of(&["lq", "team-a.lq", "q-1"])).into();
    }
    match r.below(3) {
        0 => {
            spec["priority"] = 7.into();
            spec["priorityClassRef"] =
                json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"});
        }
        1 => {
            spec["priority"] = (-3).into();
            spec["priorityClassRef"] =
                json!({"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "low"});
        }
        _ => {}
    }
    if r.one_in(3) {
        spec["active"] = r.one_in(2).into();
    }
    if r.one_in(3) {
        spec["maximumExecutionTimeSeconds"] = (1 + r.below(9_000)).into();
    }
    let mut metadata = json!({"name": "generated", "namespace": "default"});
    if r.one_in(3) {
        metadata["annotations"] = json!({"kueue.x-k8s.io/admission-gated-by": "a,b"});
    }
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec})
}

/// A way to break a Workload, and what the refusal must say.
pub struct Breaker {
    pub names: &'static str,
    /// Whether v1beta1 can say it, too.
    pub older: bool,
    pub apply: fn(&mut Value),
}

const fn both(names: &'static str, apply: fn(&mut Value)) -> Breaker {
    Breaker { names, older: true, apply }
}

const fn newer(names: &'static str, apply: fn(&mut Value)) -> Breaker {
    Breaker { names, older: false, apply }
}

fn first(w: &mut Value) -> &mut Value {
    &mut w["spec"]["podSets"][0]
}

fn pod(w: &mut Value) -> &mut Value {
    &mut first(w)["template"]["spec"]
}

fn request(w: &mut Value, change: Value) {
    first(w)["topologyRequest"] = change;
}

fn sets(w: &mut Value) -> &mut Vec<Value> {
    w["spec"]["podSets"].as_array_mut().unwrap()
}

/// Every way, over the schema, its rules and the webhooks.
pub const BREAKERS: &[Breaker] = &[
    both("spec.podSets", |w| w["spec"]["podSets"] = json!([])),
    both("spec.podSets", |w| {
        let twin = first(w).clone();
        sets(w).push(twin);
    }),
    both("spec.podSets", |w| {
        let one = first(w).clone();
        *sets(w) = (0..19)
            .map(|n| {
                let mut pod_set = one.clone();
                pod_set["name"] = format!("n{n}").into();
                pod_set
            })
            .collect();
    }),
    both("spec.podSets[0].name", |w| first(w)["name"] = "A_b".into()),
    both("spec.podSets[0].name", |w| first(w)["name"] = "n".repeat(64).into()),
    both("spec.podSets[0].count", |w| {
        first(w)["count"] = (-1).into();
        first(w).as_object_mut().unwrap().remove("minCount");
    }),
    both("spec.podSets[0].count", |w| first(w)["count"] = "three".into()),
    both("spec.podSets[0].minCount", |w| first(w)["minCount"] = 0.into()),
    both("minCount", |w| {
        first(w)["count"] = 2.into();
        first(w)["minCount"] = 3.into();
    }),
    both("at most one podSet can use minCount", |w| {
        first(w)["count"] = 2.into();
        first(w)["minCount"] = 1.into();
        let mut other = first(w).clone();
        other["name"] = "other".into();
        sets(w).push(other);
    }),
    both("template", |w| {
        first(w).as_object_mut().unwrap().remove("template");
    }),
    both("spec.podSets[0].template.spec.containers", |w| {
        pod(w).as_object_mut().unwrap().remove("containers");
    }),
    both("containers[0].name", |w| {
        pod(w)["containers"][0].as_object_mut().unwrap().remove("name");
    }),
    both("spec.podSets[0].template.spec.containers[0].resources.requests[pods]", |w| {
        pod(w)["containers"][0]["resources"]["requests"]["pods"] = "1".into();
    }),
    both("spec.podSets[0].template.spec.initContainers[0].resources.limits[pods]", |w| {
        pod(w)["initContainers"] = json!([{"name": "i", "resources": {"limits": {"pods": 1}}}]);
    }),
    both("spec.podSets[0].template.spec.resources.requests[pods]", |w| {
        pod(w)["resources"] = json!({"requests": {"pods": "1"}});
    }),
    both("spec.podSets[0].template.spec.containers[0].resources.requests[cpu]", |w| {
        pod(w)["containers"][0]["resources"]["requests"]["cpu"] = "-1".into();
    }),
    both("spec.podSets[0].template.spec.containers[0].resources.requests.memory", |w| {
        pod(w)["containers"][0]["resources"]["requests"]["memory"] = "lots".into();
    }),
    both("spec.podSets[0].template.metadata.labels", |w| {
        first(w)["template"]["metadata"] = json!({"labels": {"a b": "c"}});
    }),
    both("spec.podSets[0].template.metadata.labels", |w| {
        first(w)["template"]["metadata"] = json!({"labels": {"a": "c c"}});
    }),
    both("spec.podSets[0].template.metadata.annotations", |w| {
        first(w)["template"]["metadata"] = json!({"annotations": {"a/b/c": "d"}});
    }),
    both("spec.podSets[0].topologyRequest.podSetSliceRequiredTopology", |w| {
        request(w, json!({"podSetSliceSize": 2}));
    }),
    both("spec.podSets[0].topologyRequest.podSetSliceSize", |w| {
        request(w, json!({"podSetSliceRequiredTopology": "rack"}));
    }),
    both("spec.podSets[0].topologyRequest.podSetSliceSize", |w| {
        request(w, json!({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0}));
    }),
    newer("spec.podSets[0].topologyRequest.required", |w| request(w, json!({"required": "r".repeat(64)}))),
    newer("spec.podSets[0].topologyRequest.subGroupCount", |w| request(w, json!({"subGroupCount": -1}))),
    newer("podsetSliceRequiredTopologyConstraints", |w| {
        let layer = json!({"topology": "rack", "size": 1});
        request(w, json!({"podsetSliceRequiredTopologyConstraints": [layer, layer, layer, layer]}));
    }),
    both("spec.queueName", |w| w["spec"]["queueName"] = "Not A Queue".into()),
    both("spec.maximumExecutionTimeSeconds", |w| w["spec"]["maximumExecutionTimeSeconds"] = 0.into()),
    both("spec.active", |w| w["spec"]["active"] = "yes".into()),
    both("spec.priority", |w| w["spec"]["priority"] = "high".into()),
    newer("priority should not be nil when priorityClassRef is set", |w| {
        w["spec"]["priorityClassRef"] =
            json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"});
        w["spec"].as_object_mut().unwrap().remove("priority");
    }),
    newer("spec.priorityClassRef", |w| {
        w["spec"]["priority"] = 1.into();
        w["spec"]["priorityClassRef"] =
            json!({"group": "kueue.x-k8s.io", "kind": "PriorityClass", "name": "high"});
    }),
    newer("spec.priorityClassRef.name", |w| {
        w["spec"]["priority"] = 1.into();
        w["spec"]["priorityClassRef"] =
            json!({"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": ""});
    }),
    newer("spec.preemptionGates", |w| {
        w["spec"]["preemptionGates"] = (0..9).map(|n| json!({"name": format!("g{n}")})).collect();
    }),
    both("unknown field \"spec.podSets[0].replicas\"", |w| first(w)["replicas"] = 1.into()),
    both("unknown field \"spec.queue\"", |w| w["spec"]["queue"] = "lq".into()),
];
