//! The owners above a reviewed object, as far as watches have shown them: by kind, name and UID, in the object's namespace. An owner reference to an
//! object that does not exist does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use sluice_api::conditions::{WorkloadCondition, is_true};
use sluice_api::job::{JobKind, PartNames, Wrapped};
use sluice_api::slim;
use sluice_jobs::{MadePod, Maker as PodMaker, may_be_pod_of};

use super::facts::{Facts, Owner};

/// How many owners are looked at.
const MAX_NESTING: usize = 10;

/// Which jobs are managed.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The queued job kinds.
    pub kinds: &'a [JobKind],
    /// Kinds that others manage.
    pub external: &'a BTreeSet<JobKind>,
    /// Whether jobs without a queue name are managed, too, in this namespace.
    pub all: bool,
}

/// The reference to an object's controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerName<'a> {
    /// `group/version`.
    pub api_version: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
}

impl<'a> ControllerName<'a> {
    /// The controller of an object.
    pub fn of(object: &'a Value) -> Option<Self> {
        let owners = object["metadata"]["ownerReferences"].as_array()?;
        let owner = owners.iter().find(|owner| owner["controller"] == true)?;
        Some(Self {
            api_version: owner["apiVersion"].as_str()?,
            kind: owner["kind"].as_str()?,
            name: owner["name"].as_str()?,
            uid: owner["uid"].as_str()?,
        })
    }

    fn is_pod(&self) -> bool {
        (self.api_version, self.kind) == ("v1", "Pod")
    }
}

/// The name of an object, or the requested prefix of a new object's name.
pub fn name_of(object: &Value) -> &str {
    let mut names = ["name", "generateName"].iter().filter_map(|key| object["metadata"][key].as_str());
    names.find(|name| !name.is_empty()).unwrap_or_default()
}

/// A pod that makes others of its job: a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker {
    /// Its UID.
    pub uid: String,
    /// Kind and UID of the job that controls it.
    pub job: Option<(JobKind, String)>,
}

impl Maker {
    /// The owner of a pod, given as metadata.
    pub fn of(pod: &Value) -> Self {
        let job = ControllerName::of(pod).and_then(|owner| {
            let kind = JobKind::from_owner(owner.api_version, owner.kind)?;
            Some((kind, owner.uid.to_owned()))
        });
        Self { uid: pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), job }
    }
}

/// The jobs whose Workloads are admitted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// The UID of the job by namespace and name of its Workload.
    by_workload: BTreeMap<(String, String), Arc<str>>,
    /// UID of the job, namespace and name of its Workload.
    by_job: BTreeSet<(Arc<str>, String, String)>,
}

impl Admitted {
    /// Takes in a Workload; whether anything changed.
    pub fn note(&mut self, workload: &slim::Workload) -> bool {
        let metadata = &workload.metadata;
        let key = (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
        let conditions = &workload.status.conditions;
        let is = |type_: WorkloadCondition| is_true(conditions, type_.as_str());
        let admitted = is(WorkloadCondition::Admitted) && !is(WorkloadCondition::Finished);
        let mut owners = metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true)).filter(|_| admitted);
        if owner.map(|owner| owner.uid.as_str()) == self.by_workload.get(&key).map(|uid| &**uid) {
            return false;
        }
        self.remove(&key);
        if let Some(owner) = owner {
            let (uid, (namespace, name)) = (Arc::<str>::from(owner.uid.as_str()), key.clone());
            self.by_workload.insert(key, Arc::clone(&uid));
            self.by_job.insert((uid, namespace, name));
        }
        true
    }

    /// Takes in that a Workload is gone; whether it was admitted.
    pub fn remove(&mut self, key: &(String, String)) -> bool {
        let Some(uid) = self.by_workload.remove(key) else { return false };
        self.by_job.remove(&(uid, key.0.clone(), key.1.clone()))
    }

    /// Namespace and name of the Workloads.
    pub fn workloads(&self) -> impl Iterator<Item = &(String, String)> {
        self.by_workload.keys()
    }

    /// Whether a Workload of a job is admitted. Jobs in other namespaces only claim to own it.
    fn has(&self, namespace: &str, uid: &Arc<str>) -> bool {
        let from = (Arc::clone(uid), namespace.to_owned(), String::new());
        let next = self.by_job.range(from..).next();
        next.is_some_and(|(of, within, _)| of == uid && within == namespace)
    }
}

/// An object below a job.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its kind.
    pub kind: JobKind,
    /// Its name, or the beginning of it that was asked for.
    pub name: &'a str,
    /// Whether it may be one that cleans up after the job above it, by its own name and its pods.
    pub may_clean_up: bool,
}

impl<'a> Part<'a> {
    /// An object that names the job `above` as its controller. Its pods are read only if that matters.
    pub fn of(kind: JobKind, object: &'a Value, (above, its_name): (JobKind, &str)) -> Self {
        let name = name_of(object);
        let called = above.is_cleaned_up_by(its_name, (kind, name));
        Self { kind, name, may_clean_up: called && sluice_jobs::observe(kind, object).may_clean_up }
    }
}

/// Whether the controller of a kind makes pods, and not only jobs that do.
fn makes_pods(kind: JobKind) -> bool {
    let integration = kind.integration();
    // A part that is named after a pod set runs only that one.
    let plays_all = |names: &PartNames| !matches!(names, PartNames::PodSet | PartNames::Job(_));
    let by_parts = integration.parts.iter().any(|parts| plays_all(&parts.names));
    !integration.of_pods && !integration.wraps_objects && !by_parts
}

/// Whether a job of this kind may have made a pod, or another object. If it did not, nothing keeps a pod, or an object that suspends its pods, from
/// running; what an object that suspends its pods makes is identified by marks. A job that its owner's controller does not make is a job like any
/// other. What the controllers of declared kinds make is not known: where `all` jobs are managed, it is managed by itself.
fn may_make(kind: JobKind, owner: &Owner, below: Part<'_>, above: &str, all: bool) -> bool {
    let Part { kind: part, name, may_clean_up } = below;
    let of_pods = part.integration().of_pods;
    let is_it = |object: &Arc<Wrapped>| {
        let named =
            if object.generates_name { name.starts_with(&object.name) } else { *name == *object.name };
        named && part.is_named_by(&object.api_version, &object.kind)
    };
    let integration = kind.integration();
    let is_part = || {
        kind.parts_of(part).is_some_and(|parts| {
            // Of a job that cannot be read its parts are not known.
            if owner.parts.is_empty() {
                let rest = name.strip_prefix(above);
                match parts.names {
                    PartNames::PodSet | PartNames::Numbered => {
                        return rest.is_some_and(|rest| rest.starts_with('-'));
                    }
                    PartNames::Job(_) => return rest == Some(""),
                    PartNames::Same | PartNames::Generated => {}
                }
            }
            let of = |(set, parts): &(String, i32), name: &str| (set == name).then_some(*parts);
            parts.names.played(above, (&owner.parts[..], of), &owner.part_names, name).is_some()
        })
    };
    if !of_pods && !part.integration().suspends_pods {
        let not_known = integration.declared && !all;
        let cleans_up = || owner.cleaned_up && may_clean_up && kind.is_cleaned_up_by(above, (part, name));
        return not_known || cleans_up() || is_part() || owner.wraps.iter().any(is_it);
    }
    let makes = integration.declared || of_pods && makes_pods(kind) || is_part();
    makes && !integration.suspends_pods || owner.wraps.iter().any(is_it)
}

impl Owner {
    /// Whether the job is managed by itself.
    fn is_managed(&self, rules: Rules<'_>) -> bool {
        self.queued || rules.all && !self.skipped
    }

    /// Whether the job, of this kind and name, may have made a pod, by name and labels.
    pub fn may_have_made(&self, pod: MadePod<'_>, (kind, name): (JobKind, &str)) -> bool {
        may_be_pod_of(&PodMaker { kind, name, uid: &self.uid, marks: &self.pods }, &pod)
    }
}

impl Facts {
    /// The managed jobs above the object `part`, the nearest first, from its controller on.
    pub fn managed_above(
        &self,
        rules: Rules<'_>,
        namespace: &str,
        part: Part<'_>,
        controller: (JobKind, &str, &str),
    ) -> Vec<&Owner> {
        let mut found = Vec::new();
        let (mut kind, mut name, mut uid) = controller;
        let mut part = part;
        for _ in 0..MAX_NESTING {
            // Only kinds that make jobs are known.
            let owner = self.owners.get(&(kind, namespace.to_owned(), name.to_owned()));
            let external = rules.external.contains(&kind);
            let counts = external || rules.kinds.contains(&kind);
            let Some(owner) = owner.filter(|owner| counts && *owner.uid == *uid) else { break };
            // What it makes is identified by the marks of its pod templates.
            if kind.has_groups() {
                break;
            }
            // It is not known what other controllers make.
            if !external && !may_make(kind, owner, part, name, rules.all) {
                break;
            }
            if owner.is_managed(rules) {
                found.push(owner);
            }
            part = Part { kind, name, may_clean_up: owner.may_clean_up };
            let Some((above, its_name, its_uid)) = &owner.above else { break };
            (kind, name, uid) = (*above, its_name.as_str(), its_uid.as_str());
        }
        found
    }

    /// Whether a new pod was probably made by its controller, and runs on quota: that of the controller, or of a job above it. A waiting job has no
    /// reason to have pods. If the engine later learns more about a pod, it releases it.
    pub fn vouches_for(
        &self,
        rules: Rules<'_>,
        namespace: &str,
        (kind, pod): (JobKind, MadePod<'_>),
        controller: (JobKind, &str, &str),
    ) -> bool {
        if self.may_have_made(namespace, pod, controller) != Some(true) {
            return false;
        }
        let uid = controller.2;
        let part = Part { kind, name: pod.name, may_clean_up: false };
        let above = self.managed_above(rules, namespace, part, controller);
        // A job of such a kind has nothing below it but its own pods and what cleans up after it.
        above
            .into_iter()
            .any(|owner| self.admitted.has(namespace, &owner.uid) || owner.cleaned_up && *owner.uid != *uid)
    }

    /// Whether a job that a pod names as its controller may have made it, by name and labels; none if the job was not seen.
    pub fn may_have_made(
        &self,
        namespace: &str,
        pod: MadePod<'_>,
        (kind, name, uid): (JobKind, &str, &str),
    ) -> Option<bool> {
        let owner = self.owners.get(&(kind, namespace.to_owned(), name.to_owned()));
        let owner = owner.filter(|owner| *owner.uid == *uid)?;
        Some(owner.may_have_made(pod, (kind, name)))
    }

    /// Whether a new pod belongs to a managed and admitted job, of a kind whose pods are identified by labels: the job that its label names, if
    /// nothing else controls it, or if a pod of the job made it. A waiting job has no reason to have pods.
    pub fn knows_pod(&self, rules: Rules<'_>, namespace: &str, pod: &Value) -> bool {
        let metadata = &pod["metadata"];
        let by_label = rules.kinds.iter().filter(|kind| kind.integration().pods_are_labelled);
        by_label.copied().any(|kind| {
            let label = kind.integration().pod_label.unwrap_or_default();
            let Some(job) = metadata["labels"][label].as_str() else { return false };
            let Some(owner) = self.owners.get(&(kind, namespace.to_owned(), job.to_owned())) else {
                return false;
            };
            let is_named = |name: &str| owner.part_names.iter().any(|named| named == name);
            let own_name = || metadata["name"].as_str().is_some_and(is_named);
            let belongs = match ControllerName::of(pod) {
                None => own_name(),
                Some(maker) if maker.is_pod() => {
                    let known = self.makers.get(&(namespace.to_owned(), maker.name.to_owned()));
                    let of_job = |known: &Maker| {
                        let job = known.job.as_ref();
                        *known.uid == *maker.uid
                            && job.is_some_and(|(of, uid)| *of == kind && **uid == *owner.uid)
                    };
                    is_named(maker.name) && known.is_some_and(of_job)
                }
                Some(controller) => {
                    let is_job = kind.is_named_by(controller.api_version, controller.kind);
                    is_job && controller.name == job && *controller.uid == *owner.uid && own_name()
                }
            };
            belongs && self.is_admitted(rules, namespace, (kind, job), owner)
        })
    }

    /// Whether a job is managed, by itself or by a job above it, and that is admitted.
    fn is_admitted(&self, rules: Rules<'_>, namespace: &str, job: (JobKind, &str), owner: &Owner) -> bool {
        let mut managers = self.managers(rules, namespace, job, owner);
        managers.any(|owner| self.admitted.has(namespace, &owner.uid))
    }

    /// Whether a job is managed, by itself or by what stands above it.
    pub fn is_managed(&self, rules: Rules<'_>, namespace: &str, job: (JobKind, &str), owner: &Owner) -> bool {
        self.managers(rules, namespace, job, owner).next().is_some()
    }

    /// A job, if it is managed by itself, and what stands above it and is managed.
    fn managers<'a>(
        &'a self,
        rules: Rules<'_>,
        namespace: &str,
        (kind, name): (JobKind, &str),
        owner: &'a Owner,
    ) -> impl Iterator<Item = &'a Owner> + use<'a> {
        let itself = owner.is_managed(rules).then_some(owner);
        let job = Part { kind, name, may_clean_up: owner.may_clean_up };
        let above = owner.above.as_ref();
        let above = above.map(|(kind, name, uid)| (*kind, name.as_str(), uid.as_str()));
        let above = above.map(|above| self.managed_above(rules, namespace, job, above)).unwrap_or_default();
        itself.into_iter().chain(above)
    }
}

#[cfg(test)]
mod tests;
