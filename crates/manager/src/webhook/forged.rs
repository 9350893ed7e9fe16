//! Pods that only look like those of a queued Job. The Job controller takes each pod that its selector matches for one of the Job's, whoever made it and
//! whatever it asks for, and makes one less itself: it would run on the quota of the Job. So nobody else makes them.
//!
//! Of operators' kinds it is not known who makes their pods: the operators are installed under any name.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_jobs::MadePod;

use super::facts::{Facts, Owner};
use super::owners::{ControllerName, Rules, name_of};
use super::review::Request;

/// Why a new pod is refused, or a change that makes it one of a Job's.
pub(super) fn refusal(request: &Request, facts: &Facts, rules: Rules<'_>) -> Option<String> {
    if request.user_info.is_controller() {
        return None;
    }
    let job = claimed(&request.object, request, facts, rules)?;
    let before = (!request.old_object.is_null()).then(|| claimed(&request.old_object, request, facts, rules));
    let is_new = before.flatten().is_none_or(|before| before != job);
    is_new.then(|| {
        format!("metadata: Forbidden: only the Job controller makes pods of the Job {job:?}, which run on its quota: a pod of another maker has neither its labels nor a reference to it as its controller")
    })
}

/// The queued Job whose controller takes a pod for one of its own.
fn claimed<'a>(pod: &'a Value, request: &'a Request, facts: &'a Facts, rules: Rules<'_>) -> Option<&'a str> {
    if !rules.kinds.contains(&JobKind::JOB) {
        return None;
    }
    let labels: BTreeMap<_, _> = BTreeMap::deserialize(&pod["metadata"]["labels"]).unwrap_or_default();
    let namespace = request.namespace.as_str();
    let made = MadePod { name: name_of(pod), labels: &labels };
    let takes = |name: &str, owner: &Owner| {
        facts.may_have_made(namespace, made, (JobKind::JOB, name, &owner.uid)) == Some(true)
            && facts.is_managed(rules, namespace, (JobKind::JOB, name), owner)
    };
    if let Some(controller) = ControllerName::of(pod) {
        if JobKind::from_owner(controller.api_version, controller.kind) != Some(JobKind::JOB) {
            return None;
        }
        let owner = facts.owners.get(&(JobKind::JOB, namespace.to_owned(), controller.name.to_owned()));
        let is_it = match owner.filter(|owner| *owner.uid == *controller.uid) {
            Some(owner) => takes(controller.name, owner),
            // It may have been made just now.
            None => labels.values().any(|value| value == controller.uid),
        };
        return is_it.then_some(controller.name);
    }
    // It would be adopted.
    let from = (JobKind::JOB, namespace.to_owned(), String::new());
    let jobs = facts.owners.range(from..);
    let mut jobs = jobs.take_while(|((kind, within, _), _)| *kind == JobKind::JOB && within == namespace);
    jobs.find(|((.., name), owner)| takes(name, owner)).map(|((.., name), _)| name.as_str())
}
