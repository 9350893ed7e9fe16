//! Where pods run: enough of a scheduler to know which jobs a failing node hits, and which find no room.
//!
//! Kueue itself looks at quota, not at nodes; a world without nodes has room for everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::ObjectRef;
use sluice_quantity::{Quantity, amount_of};

use crate::json::text;

/// What a node has, in amounts by resource.
type Amounts = BTreeMap<String, i64>;

#[derive(Clone, Debug, Default)]
struct Node {
    labels: BTreeMap<String, String>,
    taints: Vec<Value>,
    free: Amounts,
    capacity: Amounts,
    up: bool,
}

/// The pods of one template.
struct PodGroup<'a> {
    count: i64,
    requests: Amounts,
    spec: &'a Value,
}

/// The nodes, and which pods are where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    by_name: BTreeMap<Arc<str>, Node>,
    placed: BTreeMap<ObjectRef, Vec<(Arc<str>, Amounts)>>,
    waiting: BTreeSet<ObjectRef>,
}

fn amount(resource: &str, value: &Value) -> i64 {
    let quantity = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Quantity::parse(&quantity).map_or(0, |q| amount_of(resource, &q).get())
}

fn amounts(value: &Value) -> Amounts {
    value.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), amount(k, v))).collect()
}

/// What one pod of a template asks for: the sum of its containers, limits standing in for requests, and the pod itself.
fn requests(spec: &Value) -> Amounts {
    let mut sum = Amounts::new();
    for container in spec["containers"].as_array().into_iter().flatten() {
        let resources = &container["resources"];
        let mut own = amounts(&resources["limits"]);
        own.extend(amounts(&resources["requests"]));
        for (resource, amount) in own {
            *sum.entry(resource).or_default() += amount;
        }
    }
    sum.insert("pods".to_owned(), 1);
    sum
}

fn groups(kind: JobKind, value: &Value) -> Vec<PodGroup<'_>> {
    let of = |spec: &'_ Value| {
        let parallel = spec["parallelism"].as_i64().unwrap_or(1);
        spec["completions"].as_i64().map_or(parallel, |c| parallel.min(c)).max(0)
    };
    match kind {
        JobKind::Job => {
            let spec = &value["spec"]["template"]["spec"];
            vec![PodGroup { count: of(&value["spec"]), requests: requests(spec), spec }]
        }
        JobKind::JobSet => value["spec"]["replicatedJobs"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|job| {
                let spec = &job["template"]["spec"]["template"]["spec"];
                let replicas = job["replicas"].as_i64().unwrap_or(1).max(0);
                let count = replicas.saturating_mul(of(&job["template"]["spec"]));
                PodGroup { count, requests: requests(spec), spec }
            })
            .collect(),
    }
}

impl Node {
    fn takes(&self, pod: &PodGroup<'_>) -> bool {
        let selector = pod.spec["nodeSelector"].as_object();
        self.up
            && selector.into_iter().flatten().all(|(k, v)| self.labels.get(k).is_some_and(|l| l == text(v)))
            && self.taints.iter().all(|taint| tolerated(pod.spec, taint))
            && pod.requests.iter().all(|(r, n)| match self.free.get(r) {
                Some(free) => free >= n,
                // A node that does not say how many pods it takes does not limit them.
                None => r == "pods" || *n == 0,
            })
    }
}

fn tolerated(pod: &Value, taint: &Value) -> bool {
    if taint["effect"] == "PreferNoSchedule" {
        return true;
    }
    pod["tolerations"].as_array().into_iter().flatten().any(|t| {
        let key = text(&t["key"]);
        let effect = text(&t["effect"]);
        let exists = t["operator"] == "Exists";
        (key == text(&taint["key"]) || (key.is_empty() && exists))
            && (effect.is_empty() || effect == text(&taint["effect"]))
            && (exists || text(&t["value"]) == text(&taint["value"]))
    })
}

impl Nodes {
    /// A node is new or different.
    pub fn set(&mut self, name: &str, value: &Value) {
        let capacity = amounts(&value["status"]["allocatable"]);
        let labels = value["metadata"]["labels"].as_object().into_iter().flatten();
        let ready = value["status"]["conditions"].as_array().into_iter().flatten();
        let failed = ready.into_iter().any(|c| c["type"] == "Ready" && c["status"] != "True");
        let old = self.by_name.remove(name);
        let mut free = capacity.clone();
        if let Some(old) = &old {
            for (resource, amount) in &mut free {
                let used = |map: &Amounts| map.get(resource).copied().unwrap_or(0);
                *amount -= used(&old.capacity) - used(&old.free);
            }
        }
        let node = Node {
            labels: labels.map(|(k, v)| (k.clone(), text(v).to_owned())).collect(),
            taints: value["spec"]["taints"].as_array().cloned().unwrap_or_default(),
            free,
            capacity,
            up: old.is_none_or(|o| o.up) && !failed && value["spec"]["unschedulable"] != true,
        };
        self.by_name.insert(name.into(), node);
    }

    /// A node fails or comes back.
    pub fn set_up(&mut self, name: &str, up: bool) {
        if let Some(node) = self.by_name.get_mut(name) {
            node.up = up;
        }
    }

    /// The jobs with pods on a node.
    pub fn jobs_on(&self, name: &str) -> Vec<ObjectRef> {
        let on = |pods: &Vec<(Arc<str>, Amounts)>| pods.iter().any(|(node, _)| **node == *name);
        self.placed.iter().filter(|(_, pods)| on(pods)).map(|(job, _)| job.clone()).collect()
    }

    /// Finds room for all pods of a job or for none, first fit by name.
    pub fn place(&mut self, job: &ObjectRef, kind: JobKind, value: &Value) -> bool {
        if self.by_name.is_empty() || self.placed.contains_key(job) {
            return true;
        }
        let mut placed = Vec::new();
        for group in groups(kind, value) {
            let mut left = group.count;
            for (name, node) in &mut self.by_name {
                while left > 0 && node.takes(&group) {
                    for (resource, amount) in &group.requests {
                        if let Some(free) = node.free.get_mut(resource) {
                            *free -= amount;
                        }
                    }
                    placed.push((Arc::clone(name), group.requests.clone()));
                    left -= 1;
                }
            }
            if left > 0 {
                self.give_back(&placed);
                self.waiting.insert(job.clone());
                return false;
            }
        }
        self.waiting.remove(job);
        self.placed.insert(job.clone(), placed);
        true
    }

    fn give_back(&mut self, pods: &[(Arc<str>, Amounts)]) {
        for (name, requests) in pods {
            let Some(node) = self.by_name.get_mut(name) else { continue };
            for (resource, amount) in requests {
                if let Some(free) = node.free.get_mut(resource) {
                    *free += amount;
                }
            }
        }
    }

    /// A job has no pods any more.
    pub fn release(&mut self, job: &ObjectRef) {
        self.waiting.remove(job);
        if let Some(pods) = self.placed.remove(job) {
            self.give_back(&pods);
        }
    }

    /// Started jobs whose pods found no room; they are tried again.
    pub fn take_waiting(&mut self) -> BTreeSet<ObjectRef> {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_engine::Kind;

    fn job(name: &str, pods: i64, cpu: &str) -> (ObjectRef, Value) {
        let container = json!({"resources": {"requests": {"cpu": cpu}}});
        let value = json!({"spec": {"parallelism": pods, "template": {"spec": {
            "nodeSelector": {"pool": "a"}, "containers": [container]}}}});
        (ObjectRef::namespaced(Kind::Job(JobKind::Job), "ns", name), value)
    }

    fn nodes() -> Nodes {
        let mut nodes = Nodes::default();
        for name in ["n1", "n2"] {
            let node =
                json!({"metadata": {"labels": {"pool": "a"}}, "status": {"allocatable": {"cpu": "4"}}});
            nodes.set(name, &node);
        }
        nodes
    }

    #[test]
    fn all_pods_of_a_job_are_placed_or_none() {
        let mut nodes = nodes();
        let (a, value) = job("a", 3, "2");
        assert!(nodes.place(&a, JobKind::Job, &value));
        let (b, value) = job("b", 2, "2");
        assert!(!nodes.place(&b, JobKind::Job, &value), "one of two fits");
        nodes.release(&a);
        assert_eq!(nodes.take_waiting(), BTreeSet::from([b.clone()]));
        assert!(nodes.place(&b, JobKind::Job, &value));
        assert_eq!(nodes.jobs_on("n1"), [b]);
    }

    #[test]
    fn a_node_that_is_down_takes_nothing() {
        let mut nodes = nodes();
        nodes.set_up("n1", false);
        let (a, value) = job("a", 3, "2");
        assert!(!nodes.place(&a, JobKind::Job, &value));
        nodes.set_up("n1", true);
        assert!(nodes.place(&a, JobKind::Job, &value));
    }

    #[test]
    fn taints_need_tolerations() {
        let taint = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
        assert!(!tolerated(&json!({}), &taint));
        assert!(tolerated(&json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]}), &taint));
        assert!(tolerated(&json!({"tolerations": [{"key": "gpu", "value": "yes"}]}), &taint));
        assert!(!tolerated(&json!({"tolerations": [{"key": "gpu", "value": "no"}]}), &taint));
    }
}
