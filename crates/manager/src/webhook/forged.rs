//! Pods that only look like those of a queued Job. The Job controller adopts each pod that its selector matches, also one that a user made, whatever
//! it requests, and makes one less itself: that pod would run on the quota of the Job. So only that controller may create such pods.
//!
//! For operators' kinds it is not known which user makes their pods: operators are installed under any name.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_jobs::MadePod;

use super::facts::{Facts, Owner};
use super::owners::{ControllerName, Rules, name_of};
use super::review::Request;

/// Why a new pod is refused, or a change that turns a pod into one of a Job's.
pub(super) fn refusal(request: &Request, facts: &Facts, rules: Rules<'_>) -> Option<String> {
    if request.user_info.is_controller() {
        return None;
    }
    let (kind, job) = claimed(&request.object, request, facts, rules)?;
    let before = (!request.old_object.is_null()).then(|| claimed(&request.old_object, request, facts, rules));
    let is_new = before.flatten() != Some((kind, job));
    let kind = kind.kind();
    is_new.then(|| {
        format!(
            "metadata: Forbidden: only the {kind} controller makes pods of the {kind} {job:?}, which run on its quota: \
             a pod of another maker has neither its labels nor a reference to it as its controller"
        )
    })
}

/// Whether Kubernetes' own controllers make the pods of a kind, and nothing else keeps these from running.
fn is_made_by_kubernetes(kind: JobKind) -> bool {
    let integration = kind.integration();
    integration.built_into_kubernetes && !integration.of_pods && !integration.suspends_pods
}

/// The queued job whose controller would adopt a pod.
fn claimed<'a>(
    pod: &'a Value,
    request: &'a Request,
    facts: &'a Facts,
    rules: Rules<'_>,
) -> Option<(JobKind, &'a str)> {
    let labels: BTreeMap<_, _> = BTreeMap::deserialize(&pod["metadata"]["labels"]).unwrap_or_default();
    let namespace = request.namespace.as_str();
    let made = MadePod { name: name_of(pod), labels: &labels };
    let takes = |job: (JobKind, &str), owner: &Owner| {
        // A namespace may have very many jobs, and each is asked.
        owner.may_have_made(made, job) && facts.is_managed(rules, namespace, job, owner)
    };
    let mut kinds = rules.kinds.iter().copied().filter(|kind| is_made_by_kubernetes(*kind));
    if let Some(controller) = ControllerName::of(pod) {
        let named = JobKind::from_owner(controller.api_version, controller.kind)?;
        let job = (kinds.find(|kind| *kind == named)?, controller.name);
        let owner = facts.owners.get(&(named, namespace.to_owned(), controller.name.to_owned()));
        let is_it = match owner.filter(|owner| *owner.uid == *controller.uid) {
            Some(owner) => takes(job, owner),
            // It may have been created just now.
            None => labels.values().any(|value| value == controller.uid),
        };
        return is_it.then_some(job);
    }
    // The controller would adopt it.
    kinds.find_map(|kind| {
        let from = (kind, namespace.to_owned(), String::new());
        let jobs = facts.owners.range(from..);
        let mut jobs = jobs.take_while(|((of, within, _), _)| *of == kind && within == namespace);
        jobs.find(|((.., name), owner)| takes((kind, name), owner))
            .map(|((.., name), _)| (kind, name.as_str()))
    })
}
