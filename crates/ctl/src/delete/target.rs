//! What is deleted for a Workload: the objects of its namespace that own it. A user who may write Workloads controls their owner references, so these
//! are checked: the cluster says where objects of a kind are, and the object must have the owner's UID.

use std::collections::BTreeMap;
use std::fmt;

use kube::Client;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_api::names::{dns1123_label_error, dns1123_subdomain_error};
use sluice_sim::Kind;

use crate::cluster::{get, object, refusal};

/// An object of the Workload's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    /// `group/version`, of the core group `version`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The UID: another object of this name is not meant.
    pub uid: String,
}

impl Target {
    fn owner(owner: &Value) -> Self {
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        Self { api_version: text("apiVersion"), kind: text("kind"), name: text("name"), uid: text("uid") }
    }

    /// A Workload itself.
    fn own(workload: &Value) -> Self {
        let text = |field: &str| workload["metadata"][field].as_str().unwrap_or_default().to_owned();
        Self {
            api_version: Kind::Workload.api_version().clone(),
            kind: Kind::Workload.as_str().to_owned(),
            name: text("name"),
            uid: text("uid"),
        }
    }

    /// Whether an owner may be a job. Other objects of Kubernetes' own groups, such as a ResourceQuota or a RoleBinding, and queues are not.
    pub(super) fn may_be_job(&self) -> bool {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        let of_kubernetes = !group.contains('.') || group.ends_with(".k8s.io");
        let is_workload =
            *self.kind == *Kind::Workload.as_str() && *self.api_version == *Kind::Workload.api_version();
        JobKind::from_owner(&self.api_version, &self.kind).is_some()
            || is_workload
            || !of_kubernetes && group != "kueue.x-k8s.io"
    }

    /// The kind as kubectl writes it: `job.batch`.
    pub(super) fn word(&self) -> String {
        let kind = self.kind.to_ascii_lowercase();
        self.api_version.split_once('/').map_or(kind.clone(), |(group, _)| format!("{kind}.{group}"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.word(), self.name)
    }
}

/// The objects to delete for a Workload: its controller, and owners that are not marked as controllers because their pods are queued: the pods of a
/// group, or an object that gathers its pods. Without any of these all owners, and without owners the Workload itself.
pub(crate) fn targets(workload: &Value) -> Vec<Target> {
    let owners: Vec<&Value> =
        workload["metadata"]["ownerReferences"].as_array().into_iter().flatten().collect();
    let controlled = owners.iter().any(|owner| owner["controller"] == true);
    let is_job = |owner: &&&Value| {
        let (version, kind) = (&owner["apiVersion"], &owner["kind"]);
        let is_pod = *version == "v1" && *kind == "Pod";
        let kind = version.as_str().zip(kind.as_str());
        let kind = kind.and_then(|(version, kind)| JobKind::from_owner(version, kind));
        owner["controller"] == true
            || (is_pod && !controlled)
            || kind.is_some_and(|kind| !is_pod && kind.gathers_pods())
    };
    let jobs: Vec<Target> = owners.iter().filter(is_job).map(|owner| Target::owner(owner)).collect();
    match (jobs.is_empty(), owners.is_empty()) {
        (false, _) => jobs,
        (true, false) => owners.into_iter().map(Target::owner).collect(),
        (true, true) => vec![Target::own(workload)],
    }
}

/// The kinds of a cluster, as far as they were asked for: what it lists for each `group/version`.
pub(super) struct Kinds<'a> {
    client: &'a Client,
    namespace: &'a str,
    known: BTreeMap<String, Value>,
}

impl<'a> Kinds<'a> {
    pub(super) fn new(client: &'a Client, namespace: &'a str) -> Self {
        Self { client, namespace, known: BTreeMap::new() }
    }

    /// The path of a job in the namespace; nothing if there can be none: its kind is cluster-scoped, not a job kind or unknown to the cluster, or the
    /// name is invalid.
    ///
    /// # Errors
    /// If the cluster's kinds cannot be discovered.
    pub(super) async fn place(&mut self, target: &Target) -> anyhow::Result<Option<String>> {
        if !target.may_be_job() {
            return Ok(None);
        }
        let Some(root) = root(&target.api_version) else { return Ok(None) };
        if !self.known.contains_key(&root) {
            let list = match get(self.client, &root).await {
                Err(error) if refusal(&error).is_some_and(|status| status.code == 404) => Value::Null,
                list => list?,
            };
            self.known.insert(root.clone(), list);
        }
        let Some(resource) = resource(&self.known[&root], &target.kind) else { return Ok(None) };
        Ok(object(&format!("{root}/namespaces/{}/{resource}", self.namespace), &target.name).ok())
    }
}

/// Where the kinds of a `group/version` are listed; nothing if it is none.
fn root(api_version: &str) -> Option<String> {
    let (group, version) = match api_version.split_once('/') {
        Some((group, version)) => (Some(group), version),
        None => (None, api_version),
    };
    if dns1123_label_error(version).is_some() || group.is_some_and(|g| dns1123_subdomain_error(g).is_some()) {
        return None;
    }
    Some(group.map_or_else(|| format!("/api/{version}"), |group| format!("/apis/{group}/{version}")))
}

/// The resource of exactly this kind whose objects are in namespaces.
fn resource<'a>(list: &'a Value, kind: &str) -> Option<&'a str> {
    let all = list["resources"].as_array().into_iter().flatten();
    let mut own = all.filter(|one| one["kind"] == kind && one["namespaced"] == true);
    // `jobs/status` is a part of `jobs`.
    own.find_map(|one| one["name"].as_str().filter(|name| !name.contains('/')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(owners: &Value) -> Vec<String> {
        let metadata = json!({"name": "w", "uid": "own", "ownerReferences": owners});
        targets(&json!({"metadata": metadata})).iter().map(|t| format!("{t} {}", t.uid)).collect()
    }

    #[test]
    fn the_job_goes_and_a_workload_without_one_goes_itself() {
        let owner = |version: &str, kind: &str, name: &str, controller: Option<bool>| {
            json!({"apiVersion": version, "kind": kind, "name": name,
            "uid": format!("u-{name}"), "controller": controller})
        };
        let job = owner("batch/v1", "Job", "a", Some(true));
        let other = owner("v1", "ConfigMap", "c", None);
        let pod = |name: &str| owner("v1", "Pod", name, None);
        let set = owner("apps/v1", "StatefulSet", "s", None);
        assert_eq!(of(&json!([other, job])), ["job.batch/a u-a"]);
        assert_eq!(of(&json!([pod("p"), other, pod("q")])), ["pod/p u-p", "pod/q u-q"]);
        assert_eq!(of(&json!([set, other])), ["statefulset.apps/s u-s"]);
        // A kind that only the manager's configuration declares, whose pods are queued.
        let declared = owner("shop.example.com/v1", "Errand", "e", None);
        assert_eq!(of(&json!([declared])), ["errand.shop.example.com/e u-e"]);
        assert_eq!(of(&json!([])), ["workload.kueue.x-k8s.io/w own"]);
        assert_eq!(of(&Value::Null), ["workload.kueue.x-k8s.io/w own"]);
    }

    #[test]
    fn only_what_may_be_a_job_is_deleted_for_a_workload() {
        let may = |api_version: &str, kind: &str| {
            let owner = json!({"apiVersion": api_version, "kind": kind, "name": "a", "uid": "u"});
            Target::owner(&owner).may_be_job()
        };
        for (version, kind) in [
            ("batch/v1", "Job"),
            ("v1", "Pod"),
            ("apps/v1", "StatefulSet"),
            ("jobset.x-k8s.io/v1alpha2", "JobSet"),
            ("shop.example.com/v1", "Errand"),
        ] {
            assert!(may(version, kind), "{kind}");
        }
        for (version, kind) in [
            ("v1", "ResourceQuota"),
            ("v1", "Secret"),
            ("rbac.authorization.k8s.io/v1", "RoleBinding"),
            ("networking.k8s.io/v1", "NetworkPolicy"),
            ("policy/v1", "PodDisruptionBudget"),
            ("kueue.x-k8s.io/v1beta2", "LocalQueue"),
        ] {
            assert!(!may(version, kind), "{kind}");
        }
        assert!(Target::own(&json!({"metadata": {"name": "w", "uid": "u"}})).may_be_job());
    }

    #[test]
    fn a_version_of_an_api_is_no_flag_and_no_other_path() {
        assert_eq!(root("v1").as_deref(), Some("/api/v1"));
        assert_eq!(root("batch/v1").as_deref(), Some("/apis/batch/v1"));
        for wrong in
            ["", "/", "--raw=/api/v1/namespaces", "../v1", "v1?x", "a/v1/namespaces/b", "A/v1", "a/", "/v1"]
        {
            assert_eq!(root(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_kind_is_exactly_one_of_the_cluster_in_namespaces() {
        let one = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "kind": kind, "namespaced": namespaced});
        let list = json!({"resources": [one("jobs/status", "Job", true), one("jobs", "Job", true),
            one("namespaces", "Namespace", false), one("pods/eviction", "Eviction", true)]});
        assert_eq!(resource(&list, "Job"), Some("jobs"));
        for none in ["job", "Namespace", "namespace", "Eviction", ""] {
            assert_eq!(resource(&list, none), None, "{none}");
        }
        assert_eq!(resource(&Value::Null, "Job"), None);
    }
}
