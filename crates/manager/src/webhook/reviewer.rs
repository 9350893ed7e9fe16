//! Which review goes where: conversion, the kinds of kueue.x-k8s.io, and jobs. The rules are elsewhere (`api`, `jobs`);
//! here they get what they must know, from memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use sluice_api::config::{Configuration, PodOptions, selector_matches};
use sluice_api::conversion::{ConversionReview, MAX_ANSWER, answer_review};
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_api::webhooks::{AdmissionReview, WEBHOOKS, review};
use sluice_jobs::Patch;
use sluice_jobs::webhook::{
    Context, Denied, Operation, PodSelectors, mutate, mutate_plain_pod, mutate_pod, owner_kind,
    suspending_parent, validate, validate_plain_pod,
};
use tracing::info;

use super::facts::{FactStore, Facts};
use super::review::{Request, Review, Verdict, answer};
use super::server::Reviewer;

/// Where objects are posted to be converted.
const CONVERT: &str = "/convert";

/// A webhook of a job kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobHook {
    Mutate(JobKind),
    Validate(JobKind),
}

/// Answers every review.
pub struct Reviewers {
    facts: Arc<FactStore>,
    gates: Gates,
    manage_jobs_without_queue_name: bool,
    namespaces: LabelSelector,
    pod_options: PodOptions,
    implied_pods: bool,
    kinds: Vec<JobKind>,
    job_hooks: BTreeMap<String, JobHook>,
}

impl Reviewers {
    /// Reviewers under this configuration.
    pub fn new(configuration: &Configuration, facts: Arc<FactStore>) -> Self {
        let kinds = configuration.job_kinds();
        let mut job_hooks = BTreeMap::new();
        for kind in JobKind::all().iter().copied() {
            job_hooks.insert(job_path("mutate", kind), JobHook::Mutate(kind));
            job_hooks.insert(job_path("validate", kind), JobHook::Validate(kind));
        }
        Self {
            facts,
            gates: configuration.gates,
            manage_jobs_without_queue_name: configuration.manage_jobs_without_queue_name,
            namespaces: configuration.managed_jobs_namespace_selector.clone(),
            pod_options: configuration.integrations.pod_options.clone(),
            implied_pods: configuration.integrations.implies_pods(),
            kinds,
            job_hooks,
        }
    }

    fn job(&self, hook: JobHook, body: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
        let Review { request } = serde_json::from_slice(body)?;
        let (JobHook::Mutate(kind) | JobHook::Validate(kind)) = hook;
        // A webhook configuration may name kinds that this manager's configuration does not.
        if !self.kinds.contains(&kind) {
            if matches!(hook, JobHook::Mutate(kind) if kind.integration().of_pods) {
                return answer(&request.uid, patched(mutate_pod(&request.object)));
            }
            return answer(&request.uid, Verdict::Allowed);
        }
        let facts = self.facts.now();
        let none = BTreeMap::new();
        let context = Context {
            manage_jobs_without_queue_name: self.manage_jobs_without_queue_name,
            managed_jobs_namespace_selector: &self.namespaces,
            namespace_labels: facts.namespaces.get(&request.namespace).unwrap_or(&none),
            default_local_queue: facts.default_queues.contains(&request.namespace),
            default_priority_class: facts.default_priority_class,
            managed_owner: self.has_managed_owner(kind, &request, &facts),
            gates: self.gates,
        };
        let of_pods = kind.integration().of_pods;
        let verdict = match hook {
            JobHook::Mutate(_) if of_pods => self.mutated_pod(&request, &context),
            JobHook::Validate(_) if of_pods && !self.looks_after(&request) => Verdict::Allowed,
            JobHook::Validate(_) if of_pods => {
                let old = (!request.old_object.is_null()).then_some(&request.old_object);
                judged(validate_plain_pod(&request.object, old, &context))
            }
            JobHook::Mutate(_) => {
                let operation =
                    if request.operation == "CREATE" { Operation::Create } else { Operation::Update };
                patched(mutate(kind, operation, &request.object, &context))
            }
            JobHook::Validate(kind) => {
                let old = (!request.old_object.is_null()).then_some(&request.old_object);
                judged(validate(kind, &request.object, old, &context))
            }
        };
        if let Verdict::Denied(why) = &verdict {
            let name = request.object["metadata"]["name"].as_str().unwrap_or_default();
            info!(kind = kind.kind(), namespace = %request.namespace, name, %why, "refused");
        }
        answer(&request.uid, verdict)
    }

    /// A new pod: gated if it is to be queued, and kept off the nodes that its JobSet is to avoid.
    fn mutated_pod(&self, request: &Request, context: &Context<'_>) -> Verdict {
        let PodOptions { namespace_selector, pod_selector } = &self.pod_options;
        let selectors = PodSelectors {
            namespaces: namespace_selector.as_ref(),
            pods: pod_selector.as_ref(),
            implied: self.implied_pods,
        };
        let queued = if request.operation == "CREATE" {
            mutate_plain_pod(&request.object, context, &selectors)
        } else {
            Patch::Json(Vec::new())
        };
        let operations =
            |patch: Patch| if let Patch::Json(operations) = patch { operations } else { Vec::new() };
        Verdict::Patched([queued, mutate_pod(&request.object)].map(operations).concat())
    }

    /// Whether a pod is of those that are queued: all, or those that another object suspends, or did.
    fn looks_after(&self, request: &Request) -> bool {
        !self.implied_pods
            || [&request.object, &request.old_object].iter().any(|pod| suspending_parent(pod).is_some())
    }

    /// Whether the job belongs to one that is managed itself, and so is not to be managed twice. An owner that was not seen may be made up:
    /// until it is, the job is one like any other, and its real owner lets it run, or makes it anew.
    fn has_managed_owner(&self, kind: JobKind, request: &Request, facts: &Facts) -> bool {
        let labels = facts.namespaces.get(&request.namespace);
        let all = self.manage_jobs_without_queue_name
            && labels.is_some_and(|labels| selector_matches(&self.namespaces, labels));
        let of_pods = kind.integration().of_pods;
        if of_pods && facts.knows_pod(&self.kinds, &request.namespace, &request.object, all) {
            return true;
        }
        let Some((name, uid)) = controller(&request.object) else { return false };
        let mut above = owner_kind(&request.object).map(|kind| (kind, name, uid));
        let mut part = (kind, request.object["metadata"]["name"].as_str().unwrap_or_default());
        for _ in 0..MAX_NESTING {
            let Some((kind, name, uid)) = above else { return false };
            // Only kinds that make jobs are known.
            let owner = facts.owners.get(&(kind, request.namespace.clone(), name.to_owned()));
            let known = owner.filter(|owner| self.kinds.contains(&kind) && *owner.uid == *uid);
            let Some(owner) = known else { return false };
            if kind.names_parts_of(part.0) && !owner.part_names.iter().any(|name| *name == part.1) {
                return false;
            }
            if owner.queued || all {
                return true;
            }
            part = (kind, name);
            above = owner.above.as_ref().map(|(kind, name, uid)| (*kind, name.as_str(), uid.as_str()));
        }
        false
    }
}

/// What a check says.
fn judged(checked: Result<(), Denied>) -> Verdict {
    match checked {
        Ok(()) => Verdict::Allowed,
        Err(denied) => Verdict::Denied(denied.to_string()),
    }
}

fn patched(patch: Patch) -> Verdict {
    match patch {
        Patch::Json(operations) => Verdict::Patched(operations),
        // The API server takes no other kind of patch from a webhook.
        Patch::Merge(_) | Patch::Strategic(_) => Verdict::Allowed,
    }
}

/// How many owners are looked at.
const MAX_NESTING: usize = 10;

/// Name and UID of an object's controller.
fn controller(object: &Value) -> Option<(&str, &str)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    Some((owner["name"].as_str()?, owner["uid"].as_str()?))
}

/// Upstream's path scheme: `/mutate-<group with dashes>-<version>-<kind>`.
fn job_path(verb: &str, kind: JobKind) -> String {
    let group = kind.group().replace('.', "-");
    format!("/{verb}-{group}-{}-{}", kind.version(), kind.kind().to_lowercase())
}

impl Reviewer for Reviewers {
    fn has(&self, path: &str) -> bool {
        path == CONVERT || self.job_hooks.contains_key(path) || WEBHOOKS.iter().any(|hook| hook.path == path)
    }

    fn most(&self, path: &str) -> usize {
        if path == CONVERT { MAX_ANSWER } else { 0 }
    }

    fn review(&self, path: &str, body: &[u8]) -> Option<Result<Vec<u8>, serde_json::Error>> {
        if path == CONVERT {
            return Some(serde_json::from_slice::<ConversionReview>(body).and_then(answer_review));
        }
        if let Some(hook) = self.job_hooks.get(path) {
            return Some(self.job(*hook, body));
        }
        let hook = WEBHOOKS.iter().find(|hook| hook.path == path)?;
        Some(serde_json::from_slice::<AdmissionReview>(body).and_then(|posted| {
            let answered = review(hook.path, posted, self.gates);
            serde_json::to_vec(&answered)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_api::slim;
    use sluice_api::v1beta2::LocalQueue;
    use sluice_engine::input::{Input, Object};

    fn reviewers() -> (Reviewers, Arc<FactStore>) {
        let facts = Arc::new(FactStore::default());
        let mut namespace = slim::Namespace::default();
        namespace.metadata.name = Some("ns".to_owned());
        namespace.metadata.labels =
            Some([("kubernetes.io/metadata.name".to_owned(), "ns".to_owned())].into());
        facts.note(&Input::Applied(Object::Namespace(Box::new(namespace))));
        let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                    integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset, workload.codeflare.dev/appwrapper]}\n";
        let configuration = Configuration::parse(text).unwrap().0;
        (Reviewers::new(&configuration, Arc::clone(&facts)), facts)
    }

    fn job(labels: &Value, owner: Option<&str>) -> Value {
        let owners = owner.map(|name| {
            json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": name, "uid": "u",
                    "controller": true}])
        });
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "ns", "labels": labels, "ownerReferences": owners},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        })
    }

    fn post(reviewers: &Reviewers, path: &str, object: &Value) -> Value {
        let review = json!({"request": {
            "uid": "u1", "operation": "CREATE", "namespace": "ns", "object": object, "oldObject": null,
        }});
        let answer = reviewers.review(path, review.to_string().as_bytes()).unwrap().unwrap();
        serde_json::from_slice(&answer).unwrap()
    }

    #[test]
    fn a_job_with_a_queue_is_suspended_and_one_without_is_left_alone() {
        let (reviewers, _) = reviewers();
        let path = "/mutate-batch-v1-job";
        let queued = post(&reviewers, path, &job(&json!({"kueue.x-k8s.io/queue-name": "q"}), None));
        assert!(queued["response"]["patch"].is_string(), "{queued}");
        let plain = post(&reviewers, path, &job(&json!({}), None));
        assert!(plain["response"].get("patch").is_none(), "{plain}");
    }

    #[test]
    fn a_default_queue_takes_jobs_in_but_not_the_children_of_a_queued_job_set() {
        let (reviewers, facts) = reviewers();
        let mut queue = LocalQueue::default();
        queue.metadata.namespace = Some("ns".to_owned());
        queue.metadata.name = Some("default".to_owned());
        facts.note(&Input::Applied(Object::LocalQueue(Box::new(queue))));
        let set = |name: &str, labels: Value| {
            let uid = if name == "made-anew" { "other" } else { "u" };
            let metadata = json!({"name": name, "namespace": "ns", "uid": uid, "labels": labels});
            let object = json!({"metadata": metadata, "spec": {}});
            Input::Applied(Object::Job(Box::new(sluice_jobs::observe(JobKind::JOB_SET, &object))))
        };
        facts.note(&set("queued", json!({"kueue.x-k8s.io/queue-name": "q"})));
        facts.note(&set("plain", json!({})));
        facts.note(&set("made-anew", json!({"kueue.x-k8s.io/queue-name": "q"})));
        let patched = |owner| {
            let answer = post(&reviewers, "/mutate-batch-v1-job", &job(&json!({}), owner));
            answer["response"]["patch"].is_string()
        };
        assert!(patched(None));
        assert!(!patched(Some("queued")));
        assert!(patched(Some("plain")));
        // What only claims to have an owner is a job like any other.
        assert!(patched(Some("made-anew")) && patched(Some("made-up")));
    }

    #[test]
    fn a_cluster_that_the_status_of_its_job_does_not_name_is_suspended() {
        let facts = Arc::new(FactStore::default());
        let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                    integrations: {frameworks: [ray.io/raycluster, ray.io/rayjob]}\n";
        let reviewers = Reviewers::new(&Configuration::parse(text).unwrap().0, Arc::clone(&facts));
        let labels = json!({"kueue.x-k8s.io/queue-name": "q"});
        let owner = json!({"metadata": {"name": "train", "namespace": "ns", "uid": "u", "labels": labels},
            "spec": {}, "status": {"rayClusterName": "train-a1b2c"}});
        let owner = sluice_jobs::observe(JobKind::RAY_JOB, &owner);
        facts.note(&Input::Applied(Object::Job(Box::new(owner))));
        let patched = |name: &str| {
            let cluster = json!({
                "apiVersion": "ray.io/v1", "kind": "RayCluster",
                "metadata": {"name": name, "namespace": "ns", "labels": labels, "ownerReferences": [
                    {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "u", "controller": true},
                ]},
                "spec": {"headGroupSpec": {"template": {"spec": {"containers": []}}}},
            });
            post(&reviewers, "/mutate-ray-io-v1-raycluster", &cluster)["response"]["patch"].is_string()
        };
        assert!(!patched("train-a1b2c"));
        assert!(patched("train-d3e4f"));
    }

    #[test]
    fn what_is_in_an_appwrapper_is_not_taken_in_nor_what_is_made_of_that() {
        let (reviewers, facts) = reviewers();
        let mut queue = LocalQueue::default();
        queue.metadata.namespace = Some("ns".to_owned());
        queue.metadata.name = Some("default".to_owned());
        facts.note(&Input::Applied(Object::LocalQueue(Box::new(queue))));
        let owner = json!([{"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "wrapper",
            "uid": "w", "controller": true}]);
        for (kind, name, uid, owners, queue) in [
            (JobKind::APP_WRAPPER, "wrapper", "w", json!(null), "q"),
            (JobKind::JOB_SET, "in-it", "u", owner.clone(), ""),
        ] {
            let metadata = json!({"name": name, "namespace": "ns", "uid": uid, "ownerReferences": owners,
                "labels": {"kueue.x-k8s.io/queue-name": queue}});
            let view = sluice_jobs::observe(kind, &json!({"metadata": metadata, "spec": {}}));
            facts.note(&Input::Applied(Object::Job(Box::new(view))));
        }
        let patched =
            |job: &Value| post(&reviewers, "/mutate-batch-v1-job", job)["response"]["patch"].is_string();
        assert!(!patched(&job(&json!({}), Some("in-it"))), "a Job of its JobSet");
        let mut own = job(&json!({"kueue.x-k8s.io/queue-name": "q"}), Some("wrapper"));
        own["metadata"]["ownerReferences"] = owner;
        assert!(!patched(&own), "its Job");
        own["metadata"]["ownerReferences"][0]["uid"] = json!("another");
        assert!(patched(&own), "what only claims to be its Job");
    }

    #[test]
    fn a_made_up_owner_does_not_keep_a_job_from_being_suspended() {
        let (reviewers, facts) = reviewers();
        let elsewhere = json!({"metadata": {"name": "set", "namespace": "other", "uid": "u",
            "labels": {"kueue.x-k8s.io/queue-name": "q"}}, "spec": {}});
        let elsewhere = sluice_jobs::observe(JobKind::JOB_SET, &elsewhere);
        facts.note(&Input::Applied(Object::Job(Box::new(elsewhere))));
        for api_version in ["jobset.x-k8s.io/v1alpha2", "jobset.x-k8s.io/v9", "batch/v1"] {
            let mut job = job(&json!({"kueue.x-k8s.io/queue-name": "q"}), Some("set"));
            job["metadata"]["ownerReferences"][0]["apiVersion"] = json!(api_version);
            if api_version == "batch/v1" {
                job["metadata"]["ownerReferences"][0]["kind"] = json!("Job");
            }
            let answer = post(&reviewers, "/mutate-batch-v1-job", &job);
            assert!(answer["response"]["patch"].is_string(), "{api_version}: {answer}");
        }
    }

    #[test]
    fn a_pod_that_asks_for_node_affinity_gets_it() {
        let (reviewers, _) = reviewers();
        let pod = |wish: &str| {
            let metadata = json!({"name": "a", "annotations": {"sluice.dev/node-affinity": wish}});
            json!({"metadata": metadata, "spec": {}})
        };
        let wish = json!({"restarts": 0, "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}]}});
        let answer = post(&reviewers, "/mutate--v1-pod", &pod(&wish.to_string()));
        assert!(answer["response"]["patch"].is_string(), "{answer}");
        let answer = post(&reviewers, "/mutate--v1-pod", &pod("nonsense"));
        assert_eq!(answer["response"]["allowed"], true);
        assert!(answer["response"].get("patch").is_none(), "{answer}");
    }

    #[test]
    fn a_bad_queue_name_is_refused() {
        let (reviewers, _) = reviewers();
        let answer = post(
            &reviewers,
            "/validate-batch-v1-job",
            &job(&json!({"kueue.x-k8s.io/queue-name": "A_b"}), None),
        );
        assert_eq!(answer["response"]["allowed"], false, "{answer}");
    }

    #[test]
    fn paths_are_upstreams_and_others_are_unknown() {
        let (reviewers, _) = reviewers();
        let paths: Vec<_> = reviewers.job_hooks.keys().map(String::as_str).collect();
        let kinds = [
            "-v1-pod",
            "apps-v1-deployment",
            "apps-v1-statefulset",
            "batch-v1-job",
            "jobset-x-k8s-io-v1alpha2-jobset",
            "kubeflow-org-v1-jaxjob",
            "kubeflow-org-v1-paddlejob",
            "kubeflow-org-v1-pytorchjob",
            "kubeflow-org-v1-tfjob",
            "kubeflow-org-v1-xgboostjob",
            "kubeflow-org-v2beta1-mpijob",
            "ray-io-v1-raycluster",
            "ray-io-v1-rayjob",
            "ray-io-v1-rayservice",
            "sparkoperator-k8s-io-v1beta2-sparkapplication",
            "trainer-kubeflow-org-v1alpha1-trainjob",
            "workload-codeflare-dev-v1beta2-appwrapper",
        ];
        let both = ["mutate", "validate"].map(|what| kinds.map(|kind| format!("/{what}-{kind}")));
        assert_eq!(paths, both.concat());
        assert!(reviewers.review("/nope", b"{}").is_none());
        assert!(!reviewers.has("/nope"));
        assert!(paths.into_iter().chain([CONVERT]).all(|path| reviewers.has(path)));
    }

    #[test]
    fn a_body_that_is_no_review_is_an_error() {
        let (reviewers, _) = reviewers();
        assert!(reviewers.review("/mutate-batch-v1-job", b"[]").unwrap().is_err());
        assert!(reviewers.review("/convert", b"nonsense").unwrap().is_err());
    }

    #[test]
    fn webhooks_of_the_queue_kinds_are_answered() {
        let (reviewers, _) = reviewers();
        for hook in WEBHOOKS {
            let object = json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "a"}, "spec": {},
            });
            let review = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": {"uid": "u1", "operation": "CREATE", "object": object},
            });
            let answer = reviewers.review(hook.path, review.to_string().as_bytes()).unwrap().unwrap();
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["response"]["uid"], "u1", "{}: {answer}", hook.path);
        }
    }

    #[test]
    fn conversions_are_answered() {
        let (reviewers, _) = reviewers();
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "u1", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [
                {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "a"},
                 "spec": {"cohort": "c"}},
            ]},
        });
        let answer = reviewers.review("/convert", review.to_string().as_bytes()).unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["response"]["convertedObjects"][0]["spec"]["cohortName"], "c");
    }
}
