//! Objects that run on the quota of the job that controls them stay below that job. Otherwise nothing would hold quota for them or stop them.
//!
//! Users can change owner references, and the labels by which a controller finds its pods: a controller no longer manages a pod that it does not
//! find. Neither may change on what a managed job has made until that has ended. Its deletion is not an end: the user sets how long it takes, and the
//! controller replaces a pod that is being deleted.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_api::labels;
use sluice_jobs::MadePod;
use sluice_jobs::webhook::owner_kind;

use super::facts::FactStore;
use super::owners::{ControllerName, Part, Rules, name_of};
use super::review::Request;
use super::users::UserInfo;

/// Why a change of a job or a pod is refused, if it takes that from below the job on whose quota it runs. The facts are not locked while large objects
/// are looked at.
pub(super) fn refusal(
    kind: JobKind,
    request: &Request,
    facts: &FactStore,
    rules: Rules<'_>,
) -> Option<String> {
    let (old, new) = (&request.old_object, &request.object);
    let above = owner_kind(old, rules.external)?;
    let before = ControllerName::of(old)?;
    let of_pods = kind.integration().of_pods;
    if may_detach(kind, &request.user_info) {
        return None;
    }
    let controller = (above, before.name, before.uid);
    let stays = ControllerName::of(new).is_some_and(|after| after.uid == before.uid);
    let is_released = || {
        let may_be = |pod: &Value| {
            let labels: BTreeMap<_, _> =
                BTreeMap::deserialize(&pod["metadata"]["labels"]).unwrap_or_default();
            let made = MadePod { name: name_of(pod), labels: &labels };
            facts.now().may_have_made(&request.namespace, made, controller)
        };
        of_pods && may_be(old) == Some(true) && may_be(new) == Some(false)
    };
    if stays && !is_released() {
        return None;
    }
    if waits_itself(kind, old, new, rules) || has_ended(kind, old) {
        return None;
    }
    let part = Part::of(kind, old, (above, before.name));
    let facts = facts.now();
    let managed = match facts.owners.get(&(above, request.namespace.clone(), before.name.to_owned())) {
        Some(owner) if *owner.uid == *before.uid => {
            !facts.managed_above(rules, &request.namespace, part, controller).is_empty()
        }
        // It may have been deleted a moment ago.
        _ => is_known(above, of_pods, rules),
    };
    managed.then(|| {
        let what = if stays { "the labels by which it is found" } else { "the reference to that" };
        format!(
            "metadata.{}: Forbidden: it runs on the quota of its controller, the {} {:?}: {what} cannot be changed before it has ended",
            if stays { "labels" } else { "ownerReferences" },
            before.kind,
            before.name
        )
    })
}

/// Whether detaching objects of a kind from others is this user's job.
pub(super) fn may_detach(kind: JobKind, user: &UserInfo) -> bool {
    user.collects() || kind.integration().of_pods && user.is_of_kubernetes()
}

/// Whether owners of a kind are known, if they exist.
fn is_known(kind: JobKind, of_pods: bool, rules: Rules<'_>) -> bool {
    if rules.external.contains(&kind) {
        return true;
    }
    let integration = kind.integration();
    // Pods of other kinds are identified by marks of their own.
    let makes_pods = !(integration.suspends_pods || integration.of_pods || kind.has_groups());
    let makes = if of_pods { makes_pods } else { kind.makes_jobs() || kind.is_declared() };
    makes && rules.kinds.contains(&kind)
}

/// Whether an object waits for admission whatever controls it. What runs is stopped once it is queued by itself, but its pods may take as long as they
/// like to end, while its former controller has made others.
fn waits_itself(kind: JobKind, old: &Value, new: &Value, rules: Rules<'_>) -> bool {
    if kind.integration().of_pods {
        let mut gates = new["spec"]["schedulingGates"].as_array().into_iter().flatten();
        let is_managed = new["metadata"]["labels"][labels::MANAGED] == "true";
        return is_managed && gates.any(|gate| gate["name"] == labels::ADMISSION_SCHEDULING_GATE);
    }
    let [before, view] = [old, new].map(|object| sluice_jobs::observe(kind, object));
    let is_queued = !view.skipped && (view.queue_name.is_some() || rules.all);
    is_queued && before.suspended && !before.active && before.terminating == 0
}

fn has_ended(kind: JobKind, object: &Value) -> bool {
    if kind.integration().of_pods {
        return matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    }
    sluice_jobs::observe(kind, object).finished.is_some()
}
