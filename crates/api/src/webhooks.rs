//! The admission webhooks of our own kinds: which there are, and what they answer (docs/reference/01-api.md 1.0).
//!
//! Pure: a review in, a review out; the manager only does HTTP. All speak v1beta2; the API server converts what comes in as v1beta1
//! (match policy Equivalent).

mod review;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::defaults::{self, PatchOperation};
use crate::gates::Gates;
use crate::v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload};
use crate::validation::{
    FieldError, aggregate, validate_cluster_queue, validate_cohort, validate_resource_flavor,
    validate_workload,
};
pub use review::{AdmissionRequest, AdmissionResponse, AdmissionReview, AdmissionStatus};

/// A webhook, as its registration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its unique name.
    pub name: &'static str,
    /// Its path.
    pub path: &'static str,
    /// Whether it changes objects.
    pub mutating: bool,
    /// When it is called: `CREATE`, `UPDATE`.
    pub operations: &'static [&'static str],
    /// The resources, subresources included.
    pub resources: &'static [&'static str],
    handler: Handler,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handler {
    MutateClusterQueue,
    MutateCohort,
    MutateResourceFlavor,
    MutateWorkload,
    ValidateClusterQueue,
    ValidateCohort,
    ValidateResourceFlavor,
    ValidateWorkload,
}

/// All of them: API group `kueue.x-k8s.io`, version `v1beta2`, failure policy Fail, no side effects.
///
/// `coveredResources` may be left out, also of an update, so ClusterQueues and Cohorts are mutated then too; Kueue does it for
/// ClusterQueues on creation only, and has no mutating webhook for Cohorts.
pub const WEBHOOKS: &[Webhook] = &[
    Webhook {
        name: "mclusterqueue.kb.io",
        path: "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue",
        mutating: true,
        operations: &["CREATE", "UPDATE"],
        resources: &["clusterqueues"],
        handler: Handler::MutateClusterQueue,
    },
    Webhook {
        name: "mcohort.kb.io",
        path: "/mutate-kueue-x-k8s-io-v1beta2-cohort",
        mutating: true,
        operations: &["CREATE", "UPDATE"],
        resources: &["cohorts"],
        handler: Handler::MutateCohort,
    },
    Webhook {
        name: "mresourceflavor.kb.io",
        path: "/mutate-kueue-x-k8s-io-v1beta2-resourceflavor",
        mutating: true,
        operations: &["CREATE"],
        resources: &["resourceflavors"],
        handler: Handler::MutateResourceFlavor,
    },
    Webhook {
        name: "mworkload.kb.io",
        path: "/mutate-kueue-x-k8s-io-v1beta2-workload",
        mutating: true,
        operations: &["CREATE"],
        resources: &["workloads"],
        handler: Handler::MutateWorkload,
    },
    Webhook {
        name: "vclusterqueue.kb.io",
        path: "/validate-kueue-x-k8s-io-v1beta2-clusterqueue",
        mutating: false,
        operations: &["CREATE", "UPDATE"],
        resources: &["clusterqueues"],
        handler: Handler::ValidateClusterQueue,
    },
    Webhook {
        name: "vcohort.kb.io",
        path: "/validate-kueue-x-k8s-io-v1beta2-cohort",
        mutating: false,
        operations: &["CREATE", "UPDATE"],
        resources: &["cohorts"],
        handler: Handler::ValidateCohort,
    },
    Webhook {
        name: "vresourceflavor.kb.io",
        path: "/validate-kueue-x-k8s-io-v1beta2-resourceflavor",
        mutating: false,
        operations: &["CREATE", "UPDATE"],
        resources: &["resourceflavors"],
        handler: Handler::ValidateResourceFlavor,
    },
    Webhook {
        name: "vworkload.kb.io",
        path: "/validate-kueue-x-k8s-io-v1beta2-workload",
        mutating: false,
        operations: &["CREATE", "UPDATE"],
        resources: &["workloads", "workloads/status"],
        handler: Handler::ValidateWorkload,
    },
];

/// Answers a review on one of Sluice's paths; nothing for another path.
pub fn review(path: &str, review: AdmissionReview, gates: Gates) -> Option<AdmissionReview> {
    let webhook = WEBHOOKS.iter().find(|webhook| webhook.path == path)?;
    Some(review.answer(|request| webhook.answer(request, gates)))
}

/// The answer for an accepted object.
#[derive(Debug, Default)]
struct Approval {
    /// The changes of the object.
    patch: Vec<PatchOperation>,
    /// Warnings for its author.
    warnings: Vec<String>,
}

impl From<Vec<PatchOperation>> for Approval {
    fn from(patch: Vec<PatchOperation>) -> Self {
        Self { patch, warnings: Vec::new() }
    }
}

/// An answer: an approval, or a refusal.
type Answer = Result<Approval, AdmissionStatus>;

impl Webhook {
    fn answer(self, request: AdmissionRequest, gates: Gates) -> Answer {
        let creating = request.operation == "CREATE";
        let object = request.object.as_ref().unwrap_or(&Value::Null);
        let with_finalizer = || if creating { defaults::finalizer(object) } else { Vec::new() };
        match self.handler {
            Handler::MutateClusterQueue => {
                Ok([with_finalizer(), defaults::covered_resources(object)].concat().into())
            }
            Handler::MutateCohort => Ok(defaults::covered_resources(object).into()),
            Handler::MutateResourceFlavor => Ok(with_finalizer().into()),
            Handler::MutateWorkload => Ok(defaults::min_count(object, gates).into()),
            Handler::ValidateClusterQueue => {
                let warnings = warnings_of_cluster_queue(object);
                validate(request, |new: &ClusterQueue, old| validate_cluster_queue(new, old, gates))
                    .map(|approval| Approval { warnings, ..approval })
            }
            Handler::ValidateCohort => validate(request, |new: &Cohort, old| validate_cohort(new, old)),
            Handler::ValidateResourceFlavor => {
                validate(request, |new: &ResourceFlavor, old| validate_resource_flavor(new, old))
            }
            Handler::ValidateWorkload => {
                validate(request, |new: &Workload, old| validate_workload(new, old, gates))
            }
        }
    }
}

fn validate<T: DeserializeOwned>(
    request: AdmissionRequest,
    check: impl FnOnce(&T, Option<&T>) -> Vec<FieldError>,
) -> Answer {
    let new = parse(request.object.unwrap_or_default(), "object")?;
    // An old object that cannot be read is no reason to refuse its correction.
    let old = request.old_object.and_then(|old| serde_json::from_value(old).ok());
    let errors = check(&new, old.as_ref());
    if errors.is_empty() {
        Ok(Approval::default())
    } else {
        Err(AdmissionStatus::forbidden(aggregate(&errors)))
    }
}

fn parse<T: DeserializeOwned>(object: Value, what: &str) -> Result<T, AdmissionStatus> {
    serde_json::from_value(object)
        .map_err(|error| AdmissionStatus::bad_request(format!("cannot read the {what}: {error}")))
}

/// Warnings about a valid ClusterQueue that may be a mistake: without a selector it accepts no workload at all.
fn warnings_of_cluster_queue(object: &Value) -> Vec<String> {
    let metadata = &object["metadata"];
    if !object["spec"]["namespaceSelector"].is_null() || !metadata["deletionTimestamp"].is_null() {
        return Vec::new();
    }
    let warning = "spec.namespaceSelector is not set: the ClusterQueue selects no namespace and admits no workload; \
                   set it to {} to select all namespaces";
    vec![warning.to_owned()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn warnings(object: &Value) -> Vec<String> {
        let request = json!({"uid": "u", "operation": "UPDATE", "object": object, "oldObject": object});
        let posted = serde_json::from_value(json!({"request": request})).unwrap();
        let path = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue";
        let response = review(path, posted, Gates::default()).unwrap().response.unwrap();
        assert!(response.allowed);
        let written = serde_json::to_value(&response).unwrap();
        assert_eq!(written.get("warnings").is_some(), !response.warnings.is_empty());
        response.warnings
    }

    #[test]
    fn a_cluster_queue_that_selects_no_namespace_is_let_through_with_a_warning() {
        let mut queue = json!({"metadata": {"name": "q"}, "spec": {}});
        let [warning] = &warnings(&queue)[..] else { panic!("one warning") };
        assert!(warning.contains("selects no namespace") && warning.len() < 256, "{warning}");
        queue["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(warnings(&queue).is_empty(), "it goes");
        for selector in [json!({}), json!({"matchLabels": {"team": "a"}})] {
            assert!(
                warnings(&json!({"metadata": {"name": "q"}, "spec": {"namespaceSelector": selector}}))
                    .is_empty()
            );
        }
    }
}
