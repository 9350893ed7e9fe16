//! Routes reviews: conversion, the kinds of kueue.x-k8s.io, and jobs. The rules are elsewhere (`api`, `jobs`); this module gives them the facts from
//! memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;
use serde_json::Value;
use sluice_api::config::{Configuration, PodOptions, selector_matches};
use sluice_api::conversion::{ConversionReview, MAX_ANSWER, answer_review};
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_api::labels;
use sluice_api::webhooks::{AdmissionReview, WEBHOOKS, review};
use sluice_jobs::pods::Parent;
use sluice_jobs::webhook::{
    Context, Denied, Gatherer, Operation, PodSelectors, is_marked, mutate, mutate_plain_pod, mutate_pod,
    owner_kind, suspend, suspending_parent, validate, validate_plain_pod,
};
use sluice_jobs::{MadePod, Patch};
use tracing::info;

use super::bounds::Refusal;
use super::detached;
use super::facts::{FactStore, Facts, Owner};
use super::forged;
use super::owners::{ControllerName, Part, Rules};
use super::review::{Request, Review, Verdict, answer};
use super::server::Reviewer;

mod unread;

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
    /// Kinds that others manage.
    external: BTreeSet<JobKind>,
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
            external: configuration.external_kinds(),
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
        let verdict = self.verdict(hook, &request);
        if let Verdict::Denied(why) = &verdict {
            let name = request.object["metadata"]["name"].as_str().unwrap_or_default();
            info!(kind = kind.kind(), namespace = %request.namespace, name, %why, "refused");
        }
        answer(&request.uid, verdict)
    }

    /// The verdict about a write of a job of a queued kind. The facts are not locked while a large object is looked at: what changes them would wait,
    /// and all other reviews behind that.
    fn verdict(&self, hook: JobHook, request: &Request) -> Verdict {
        let (JobHook::Mutate(kind) | JobHook::Validate(kind)) = hook;
        let of_pods = kind.integration().of_pods;
        let below = Below::of(kind, &request.object, &self.external);
        let facts = self.facts.now();
        let rules = self.rules(&request.namespace, &facts);
        let namespace_labels = facts.namespaces.get(&request.namespace).cloned().unwrap_or_default();
        let gathered = gathered(kind, request, &facts);
        let context = Context {
            manage_jobs_without_queue_name: self.manage_jobs_without_queue_name,
            managed_jobs_namespace_selector: &self.namespaces,
            namespace_labels: &namespace_labels,
            default_local_queue: facts.default_queues.contains(&request.namespace),
            default_priority_class: facts.default_priority_class,
            managed_owner: self.has_managed_owner(kind, request, below, &facts),
            gatherer: gathered.as_ref().map(Gathered::by),
            gates: self.gates,
        };
        let leaves = context.managed_owner && self.controller_leaves(request, &facts);
        let forged = if of_pods { forged::refusal(request, &facts, rules) } else { None };
        drop(facts);
        let detached = match hook {
            JobHook::Validate(_) => detached::refusal(kind, request, &self.facts, rules),
            JobHook::Mutate(_) => None,
        };
        // Where pods are not queued, it gains nothing by that.
        let forged = || forged.filter(|_| self.queues_pods(request, &context));
        if let Some(why) = detached.or_else(forged) {
            return Verdict::Denied(why);
        }
        match hook {
            JobHook::Mutate(_) if of_pods => self.mutated_pod(request, &context),
            JobHook::Validate(_) if of_pods && !self.looks_after(request) => Verdict::Allowed,
            JobHook::Validate(_) if of_pods => {
                let old = (!request.old_object.is_null()).then_some(&request.old_object);
                judged(validate_plain_pod(&request.object, old, &context))
            }
            JobHook::Mutate(_) => {
                let operation =
                    if request.operation == "CREATE" { Operation::Create } else { Operation::Update };
                if leaves && operation == Operation::Create {
                    patched(suspend(kind, &request.object))
                } else {
                    patched(mutate(kind, operation, &request.object, &context))
                }
            }
            JobHook::Validate(kind) => {
                let old = (!request.old_object.is_null()).then_some(&request.old_object);
                judged(validate(kind, &request.object, old, &context))
            }
        }
    }

    /// Whether a pod is queued, if it is no other job's.
    fn queues_pods(&self, request: &Request, context: &Context<'_>) -> bool {
        let is_marked = request.object["metadata"]["labels"][labels::MANAGED] == "true";
        let context = Context { managed_owner: false, ..*context };
        let queued = || mutate_plain_pod(&request.object, &context, &self.pod_selectors());
        is_marked || matches!(queued(), Patch::Json(operations) if !operations.is_empty())
    }

    /// Which pods are managed.
    fn pod_selectors(&self) -> PodSelectors<'_> {
        let PodOptions { namespace_selector, pod_selector } = &self.pod_options;
        PodSelectors {
            namespaces: namespace_selector.as_ref(),
            pods: pod_selector.as_ref(),
            implied: self.implied_pods,
        }
    }

    /// A new pod: gated if it is to be queued, and kept off the nodes that its JobSet avoids.
    fn mutated_pod(&self, request: &Request, context: &Context<'_>) -> Verdict {
        let queued = if request.operation == "CREATE" {
            mutate_plain_pod(&request.object, context, &self.pod_selectors())
        } else {
            Patch::Json(Vec::new())
        };
        let operations =
            |patch: Patch| if let Patch::Json(operations) = patch { operations } else { Vec::new() };
        Verdict::Patched([queued, mutate_pod(&request.object)].map(operations).concat())
    }

    /// Whether a pod is one of those that are queued: all, or those that another object suspends, or did.
    fn looks_after(&self, request: &Request) -> bool {
        !self.implied_pods
            || [&request.object, &request.old_object].iter().any(|pod| suspending_parent(pod).is_some())
    }

    /// Which jobs of a namespace are managed.
    fn rules(&self, namespace: &str, facts: &Facts) -> Rules<'_> {
        let labels = facts.namespaces.get(namespace);
        let all = self.manage_jobs_without_queue_name
            && labels.is_some_and(|labels| selector_matches(&self.namespaces, labels));
        Rules { kinds: &self.kinds, external: &self.external, all }
    }

    /// Whether the job belongs to a managed job, and so is not managed twice. An owner that was not seen may be made up: until it is seen, the job is
    /// a job like any other, and its real owner resumes it, or makes it again.
    fn has_managed_owner(
        &self,
        kind: JobKind,
        request: &Request,
        below: Option<Below<'_>>,
        facts: &Facts,
    ) -> bool {
        let rules = self.rules(&request.namespace, facts);
        let of_pods = kind.integration().of_pods;
        if of_pods && facts.knows_pod(rules, &request.namespace, &request.object) {
            return true;
        }
        // Existing marks stay, whatever an update changes about owners.
        if is_marked(kind, &request.old_object) {
            return false;
        }
        let Some(Below { part, above, owner }) = below else { return false };
        if of_pods && above.integration().pods_are_labelled {
            // Then it does not belong to its pods.
            return false;
        }
        let controller = (above, owner.name, owner.uid);
        if of_pods {
            let labels = BTreeMap::deserialize(&request.object["metadata"]["labels"]).unwrap_or_default();
            let pod = MadePod { name: part.name, labels: &labels };
            return facts.vouches_for(rules, &request.namespace, (kind, pod), controller);
        }
        !facts.managed_above(rules, &request.namespace, part, controller).is_empty()
    }

    /// Whether the job that controls a new one is being deleted, and its controller does not know that yet. The new job is not refused: it will be
    /// deleted with the other, and the controller would only retry.
    fn controller_leaves(&self, request: &Request, facts: &Facts) -> bool {
        let controller = ControllerName::of(&request.object).zip(owner_kind(&request.object, &self.external));
        controller.is_some_and(|(owner, kind)| {
            let known = facts.owners.get(&(kind, request.namespace.clone(), owner.name.to_owned()));
            known.is_some_and(|known| *known.uid == *owner.uid && known.leaves)
        })
    }
}

/// An object with a controller of a known kind.
#[derive(Clone, Copy)]
struct Below<'a> {
    part: Part<'a>,
    above: JobKind,
    owner: ControllerName<'a>,
}

impl<'a> Below<'a> {
    fn of(kind: JobKind, object: &'a Value, external: &BTreeSet<JobKind>) -> Option<Self> {
        let (owner, above) = ControllerName::of(object).zip(owner_kind(object, external))?;
        Some(Self { part: Part::of(kind, object, (above, owner.name)), above, owner })
    }
}

/// What is known of the object that a new pod claims to belong to.
struct Gathered {
    uid: Arc<str>,
    queue_name: Option<String>,
    priority_class: Option<String>,
}

impl Gathered {
    fn by(&self) -> Gatherer<'_> {
        Gatherer {
            uid: &self.uid,
            queue_name: self.queue_name.as_deref(),
            priority_class: self.priority_class.as_deref(),
        }
    }
}

/// The object that a new pod claims to belong to, if it was seen.
fn gathered(kind: JobKind, request: &Request, facts: &Facts) -> Option<Gathered> {
    let parent = Parent::of(&request.object["metadata"]).filter(|_| kind.integration().of_pods)?;
    let key = (parent.kind, request.namespace.clone(), parent.name.to_string());
    let Owner { uid, queue_name, priority_class, .. } = facts.owners.get(&key)?;
    Some(Gathered {
        uid: Arc::clone(uid),
        queue_name: queue_name.clone(),
        priority_class: priority_class.clone(),
    })
}

/// The verdict of a check.
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
        Patch::Merge(_) | Patch::Strategic(_) | Patch::Apply(..) => Verdict::Allowed,
    }
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

    fn max_answer(&self, path: &str) -> usize {
        if path == CONVERT { MAX_ANSWER } else { 0 }
    }

    fn reads_heads(&self, path: &str) -> bool {
        self.job_hooks.contains_key(path)
    }

    fn turned_away(&self, path: &str, head: &[u8], why: Refusal) -> Option<Vec<u8>> {
        unread::turned_away(self, *self.job_hooks.get(path)?, head, why)
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
mod tests;
