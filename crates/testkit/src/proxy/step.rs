//! The step of a protocol that a write is: its operation and object, without parts that differ from run to run (UIDs, times, messages).
//!
//! Writes of a Workload's pending reason or of queues' statuses are not steps: they are written when there is time. Nor are the finalizers that
//! keep queues and what these use: they belong to the preparation, and one may come after its end.

use http::Method;
use serde_json::Value;

/// Field managers of writes that depend on timing: pods that are ready for a moment, pods that end one by one.
const BY_CHANCE: [&str; 2] = ["kueue-job-controller-PodsReady", "kueue-reclaimable-pods"];
/// Objects that are prepared for what is played, and of which only the status is written during that: it sums up, or says that they are usable.
const PREPARED: [&str; 5] =
    ["/clusterqueues/", "/localqueues/", "/cohorts/", "/resourceflavors/", "/admissionchecks/"];
/// Patches that differ only in fields deeper than this count as the same.
const DEPTH: usize = 2;

/// A step, as both runs of the same protocol have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The operation and its object.
    pub what: String,
    /// The how-manieth of these it is, from 1.
    pub nth: usize,
    /// Whether a run may do without it.
    pub by_chance: bool,
}

/// A write that may be a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// The object and the field manager.
    pub object: String,
    pub what: String,
    pub by_chance: bool,
    /// Whether nothing is decided about the object.
    pub undecided: bool,
}

/// Reads a write of a scope.
pub(super) fn of(scope: &str, method: &Method, path: &str, query: &str, body: &[u8]) -> Option<Seen> {
    if PREPARED.iter().any(|part| path.contains(part)) || is_housekeeping(path) {
        return None;
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let made = if *method == Method::POST { body["metadata"]["name"].as_str() } else { None };
    let uid = body["preconditions"]["uid"].as_str().unwrap_or_default();
    let manager = query.split('&').find_map(|part| part.strip_prefix("fieldManager=")).unwrap_or_default();
    let object = format!("{path} {} {uid} {manager}", made.unwrap_or_default());
    let of_admission = path.contains("/workloads/") && path.ends_with("/status");
    let by_chance = BY_CHANCE.contains(&manager);
    let does = match method.as_str() {
        "PATCH" | "PUT" if by_chance => observed(&body["status"]),
        "PATCH" | "PUT" if of_admission => decided(&body["status"]),
        "PATCH" | "PUT" => fields(&body),
        _ => Vec::new(),
    };
    let undecided = of_admission && !by_chance && does.is_empty();
    let name = made.map_or_else(|| short(path, scope), |made| format!("{}/{}", short(path, scope), made));
    let what = format!("{method} {}: {}", stable(&name, scope), does.join(", "));
    Some(Seen { object, what, by_chance, undecided })
}

/// Whether a path is that of leases, events, or reviews, which store nothing.
pub(super) fn is_housekeeping(path: &str) -> bool {
    let has = |part: &str| path.split('/').any(|one| one == part);
    [
        "leases",
        "events",
        "tokenreviews",
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectreviews",
    ]
    .iter()
    .any(|part| has(part))
}

/// The path from the resource on.
fn short(path: &str, scope: &str) -> String {
    let own = format!("/namespaces/{scope}/");
    path.split_once(&own).map_or_else(|| path.to_owned(), |(_, rest)| rest.to_owned())
}

/// A name without the name of its scope and without hashes.
fn stable(name: &str, scope: &str) -> String {
    let is_hash = |part: &str| part.len() == 5 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let part = |part: &str| part.split('-').filter(|one| !is_hash(one)).collect::<Vec<_>>().join("-");
    name.replace(scope, "PLACE").split('/').map(part).collect::<Vec<_>>().join("/")
}

/// The decisions in a Workload's status: true conditions, the admission, answered checks.
fn decided(status: &Value) -> Vec<String> {
    let list = |field: &str| status[field].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let holds = |c: &&Value| c["status"] == "True" && c["type"] != "PodsReady";
    let mut all: Vec<_> = list("conditions").iter().filter(holds).map(|c| text(&c["type"])).collect();
    for check in list("admissionChecks") {
        let retries = check["retryCount"].as_u64().unwrap_or_default();
        if check["state"] != "Pending" || retries > 0 {
            all.push(format!("check {} after {retries}", text(&check["state"])));
        }
    }
    if let Some(count) = status["requeueState"]["count"].as_u64() {
        all.push(format!("requeued {count}"));
    }
    if !status["admission"].is_null() {
        all.push("admission".to_owned());
    }
    let unhealthy = list("unhealthyNodes").len();
    if unhealthy > 0 {
        all.push(format!("{unhealthy} unhealthy nodes"));
    }
    all.sort();
    all
}

/// The observations of pods in a Workload's status.
fn observed(status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> =
        conditions.map(|c| format!("{}={}", text(&c["type"]), text(&c["status"]))).collect();
    if !status["reclaimablePods"].is_null() {
        all.push("reclaimablePods".to_owned());
    }
    all
}

/// Which fields a patch changes; whether they are switched on or off, or removed.
fn fields(body: &Value) -> Vec<String> {
    let mut all = Vec::new();
    match body {
        Value::Array(operations) => {
            for one in operations.iter().filter(|one| !pins(one)) {
                let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
                all.push(format!("{} {}{}", text("op"), text("path"), switched(&one["value"])));
            }
        }
        _ => gather(body, "", 0, &mut all),
    }
    all.sort();
    all
}

/// Whether an operation only says which version of the object is meant.
fn pins(operation: &Value) -> bool {
    operation["op"] == "test" || operation["path"] == "/metadata/resourceVersion"
}

fn gather(value: &Value, at: &str, depth: usize, all: &mut Vec<String>) {
    match value {
        Value::Object(fields) if depth < DEPTH => {
            for (name, value) in fields {
                if !["apiVersion", "kind", "resourceVersion", "uid", "name", "namespace"].contains(&&**name) {
                    gather(value, &format!("{at}/{name}"), depth + 1, all);
                }
            }
        }
        _ => all.push(format!("{at}{}", switched(value))),
    }
}

fn switched(value: &Value) -> String {
    match value {
        Value::Bool(_) | Value::Null => format!("={value}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STATUS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/the-play/workloads/job-x-1a2b3/status";

    fn patch(path: &str, query: &str, body: &Value) -> Option<Seen> {
        of("the-play", &Method::PATCH, path, query, body.to_string().as_bytes())
    }

    fn status(status: &Value) -> Seen {
        patch(STATUS, "fieldManager=kueue-admission&force=true", &json!({ "status": status })).unwrap()
    }

    #[test]
    fn a_status_is_known_by_what_is_decided() {
        let waits = json!([{"type": "QuotaReserved", "status": "False", "reason": "Pending"}]);
        let checks = json!([{"name": "a", "state": "Pending"}]);
        assert!(status(&json!({"conditions": waits, "admissionChecks": checks})).undecided);
        let held =
            json!([{"type": "QuotaReserved", "status": "True"}, {"type": "PodsReady", "status": "True"}]);
        let seen = status(&json!({"conditions": held, "admission": {}}));
        assert_eq!(seen.what, "PATCH workloads/job-x/status: QuotaReserved, admission");
        assert!(!seen.undecided && !seen.by_chance);
    }

    #[test]
    fn a_patch_is_known_by_its_fields() {
        let job = "/apis/batch/v1/namespaces/the-play/jobs/x";
        let stop = json!({"metadata": {"resourceVersion": "1"}, "spec": {"suspend": true, "template": {"spec": {}}}});
        assert_eq!(patch(job, "", &stop).unwrap().what, "PATCH jobs/x: /spec/suspend=true, /spec/template");
        let gates = json!([{"op": "test", "path": "/x"}, {"op": "remove", "path": "/spec/schedulingGates"}]);
        assert_eq!(patch(job, "", &gates).unwrap().what, "PATCH jobs/x: remove /spec/schedulingGates=null");
    }

    #[test]
    fn what_is_made_has_a_name_and_what_sums_up_is_no_step() {
        let workload = json!({"metadata": {"name": "job-x-abcde"}}).to_string();
        let path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/the-play/workloads";
        let made = of("the-play", &Method::POST, path, "", workload.as_bytes()).unwrap();
        assert_eq!(made.what, "POST workloads/job-x: ");
        assert_eq!(patch("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/the-play/status", "", &json!({})), None);
        let finalizers = json!({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}});
        let flavor = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors/the-play";
        assert_eq!(patch(flavor, "", &finalizers), None);
        let workload = STATUS.strip_suffix("/status").unwrap();
        assert!(patch(workload, "", &finalizers).is_some(), "what is played is put away at its end");
        assert_eq!(patch("/apis/events.k8s.io/v1/namespaces/the-play/events", "", &json!({})), None);
    }

    #[test]
    fn ready_pods_are_seen_by_chance() {
        let query = "fieldManager=kueue-job-controller-PodsReady&force=true";
        let ready = json!([{"type": "PodsReady", "status": "True"}]);
        let seen = patch(STATUS, query, &json!({"status": {"conditions": ready}})).unwrap();
        assert_eq!(seen.what, "PATCH workloads/job-x/status: PodsReady=True");
        assert!(seen.by_chance && !seen.undecided);
    }
}
