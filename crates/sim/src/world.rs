//! The objects of the virtual cluster, and the effects of writes on them, as in an API server.

mod made;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::gates::Gates;
use sluice_api::job::{JobKind, TemplateRef};
use sluice_api::labels::NAMESPACE_NAME_LABEL;
use sluice_api::slim::{self, WorkloadSpec};
use sluice_engine::{Kind, Object, ObjectRef};

use crate::agenda::after;
use crate::json::text;
use crate::object::{self, FieldError, decode};
use crate::schema;

/// The grace period of pods that name none, in seconds: the API server's default.
const GRACE_SECONDS: i64 = 30;
/// The finalizers of the garbage collector, whose work takes no time here.
const OF_COLLECTOR: [&str; 2] = ["foregroundDeletion", "orphan"];

/// Something that a watch delivers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// An object is new or different.
    Applied(ObjectRef),
    /// An object is gone.
    Deleted(ObjectRef, Arc<str>),
}

/// The objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// The time that new objects get.
    pub now: Timestamp,
    /// Documents are shared between a world and its copies until one of them writes.
    objects: BTreeMap<ObjectRef, Arc<Value>>,
    /// The decoded spec of each Workload, and the generation that it is of.
    specs: BTreeMap<ObjectRef, (i64, Arc<WorkloadSpec>)>,
    /// Workloads by the UID of their owner.
    owned: BTreeMap<Arc<str>, BTreeSet<ObjectRef>>,
    /// The UIDs of what was there.
    gone: BTreeSet<Arc<str>>,
    /// For each Workload that was read while it was being deleted: until when its pods may run.
    leaving: BTreeMap<ObjectRef, Timestamp>,
    changes: Vec<Change>,
    /// The last answer to a write that removed an object.
    last_removed: Option<(ObjectRef, Value)>,
    /// Whether watches also deliver the engine's own writes, as those of a real API server do.
    echoes: bool,
    revision: u64,
    uids: u64,
}

/// An owner that was read of a file may have no uid: then nothing is known of it.
fn owner_uids(value: &Value) -> Vec<Arc<str>> {
    let owners = value["metadata"]["ownerReferences"].as_array();
    let uids = owners.into_iter().flatten().map(|owner| text(&owner["uid"]));
    uids.filter(|uid| !uid.is_empty()).map(Arc::from).collect()
}

impl World {
    /// An empty world, at a time.
    pub fn new(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    /// From now on watches also deliver the engine's own writes.
    #[cfg(feature = "faults")]
    pub fn echo(&mut self) {
        self.echoes = true;
    }

    /// The version of the newest change.
    #[cfg(feature = "faults")]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The document of an object.
    pub fn get(&self, reference: &ObjectRef) -> Option<&Value> {
        self.objects.get(reference).map(|value| &**value)
    }

    /// The document of an object, or what it was when the last write removed it.
    pub fn get_or_removed(&self, reference: &ObjectRef) -> Option<&Value> {
        let removed = self.last_removed.as_ref().filter(|removed| removed.0 == *reference);
        self.get(reference).or(removed.map(|removed| &removed.1))
    }

    /// Every object.
    pub fn all(&self) -> impl Iterator<Item = (&ObjectRef, &Value)> {
        self.objects.iter().map(|(reference, value)| (reference, &**value))
    }

    /// Every object of a kind, by name.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&ObjectRef, &Value)> {
        self.all().filter(move |(reference, _)| reference.kind == kind)
    }

    /// The objects that an object owns: for a job, its Workloads.
    pub fn owned(&self, uid: &str) -> Vec<ObjectRef> {
        self.owned.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Whether a job that owns an object exists or existed. Objects of kinds that are not simulated may own it, too.
    pub fn had_owner_of(&self, reference: &ObjectRef, value: &Value) -> bool {
        let mut owners = value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.any(|owner| {
            let kind = JobKind::from_owner(text(&owner["apiVersion"]), text(&owner["kind"]));
            let job = kind.map(|kind| {
                ObjectRef::namespaced(Kind::Job(kind), Arc::clone(&reference.namespace), text(&owner["name"]))
            });
            let there = job.and_then(|job| self.get(&job));
            there.is_some_and(|job| job["metadata"]["uid"] == owner["uid"])
                || self.gone.contains(text(&owner["uid"]))
        })
    }

    /// The object as the engine gets it.
    pub fn object(&mut self, reference: &ObjectRef) -> Option<Object> {
        let value = self.get(reference)?;
        if reference.kind != Kind::Workload {
            return decode(reference.kind, value).ok();
        }
        let generation = value["metadata"]["generation"].as_i64().unwrap_or(0);
        if let Some((_, spec)) = self.specs.get(reference).filter(|known| known.0 == generation) {
            let workload = slim::Workload::with_spec(value, Arc::clone(spec)).ok()?;
            return Some(Object::Workload(Box::new(workload)));
        }
        let object = decode(reference.kind, value).ok()?;
        if let Object::Workload(workload) = &object {
            self.specs.insert(reference.clone(), (generation, Arc::clone(&workload.spec)));
        }
        Some(object)
    }

    /// The changes since the last call that the writer does not know from its answers.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Creates or replaces an object, as `kubectl apply` would; what an object has by now beyond the document is kept.
    pub fn put(&mut self, kind: Kind, mut value: Value, gates: Gates) -> Result<ObjectRef, FieldError> {
        let probe = object::reference(kind, &value);
        let namespace =
            if kind.namespaced() && probe.namespace.is_empty() { "default".into() } else { probe.namespace };
        let reference = ObjectRef { kind, namespace, name: probe.name };
        let Some(old) = self.get(&reference).cloned() else {
            object::admit(kind, &mut value, None, gates)?;
            self.insert_new(&reference, value);
            return Ok(reference);
        };
        object::admit(kind, &mut value, Some(&old), gates)?;
        let mut merged = old.clone();
        for key in ["labels", "annotations"] {
            if let Some(map) = value["metadata"].get(key) {
                json_patch::merge(&mut merged["metadata"][key], map);
            }
        }
        for (key, part) in value.as_object().into_iter().flatten() {
            if !["metadata", "status"].contains(&key.as_str()) {
                merged[key.as_str()] = part.clone();
            }
        }
        if kind == Kind::Node && value.get("status").is_some() {
            merged["status"] = value["status"].clone();
        }
        let changed = old["spec"] != merged["spec"];
        self.store(&reference, merged, changed);
        self.changes.push(Change::Applied(reference.clone()));
        Ok(reference)
    }

    /// Creates an object; an object that was read from a cluster keeps its UID, its age and its status.
    fn insert_new(&mut self, reference: &ObjectRef, mut value: Value) {
        self.uids += 1;
        let metadata = &mut value["metadata"];
        if text(&metadata["uid"]).is_empty() {
            metadata["uid"] = json!(format!("00000000-0000-4000-8000-{:012x}", self.uids));
        }
        if metadata["creationTimestamp"].as_str().and_then(|t| t.parse::<Timestamp>().ok()).is_none() {
            metadata["creationTimestamp"] = json!(seconds(self.now));
        }
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("managedFields");
        }
        let generation = metadata["generation"].as_i64().is_none();
        // The code that plays the machines ends pods.
        let collected = reference.kind != Kind::Pod;
        let owners = owner_uids(&value);
        for uid in owners.iter().filter(|_| collected) {
            self.owned.entry(Arc::clone(uid)).or_default().insert(reference.clone());
        }
        if reference.kind == Kind::Workload
            && let Some(until) = pods_end(&value)
        {
            self.leaving.insert(reference.clone(), until);
        }
        self.store(reference, value, generation);
        self.changes.push(Change::Applied(reference.clone()));
        // The garbage collector takes what was made too late for its owner.
        if collected && !owners.is_empty() && owners.iter().all(|uid| self.gone.contains(uid)) {
            self.delete(reference);
        }
    }

    fn store(&mut self, reference: &ObjectRef, mut value: Value, new_generation: bool) {
        self.revision += 1;
        let metadata = &mut value["metadata"];
        metadata["resourceVersion"] = json!(self.revision.to_string());
        if new_generation {
            metadata["generation"] = json!(metadata["generation"].as_i64().unwrap_or(0) + 1);
        }
        if reference.kind == Kind::Namespace {
            // Whatever a write says of it.
            metadata["labels"][NAMESPACE_NAME_LABEL] = json!(&*reference.name);
        }
        if let Some(template) = reference.template() {
            self.objects.insert(reference.clone(), Arc::new(value));
            self.refill(&template);
        } else {
            let value = self.filled(reference, value);
            self.objects.insert(reference.clone(), Arc::new(value));
        }
    }

    /// A job with what its template object says, for the functions that ask what pods it has.
    fn filled(&self, reference: &ObjectRef, value: Value) -> Value {
        let Kind::Job(kind) = reference.kind else { return value };
        let named = sluice_jobs::template_of(kind, &value).map(|template| ObjectRef::of_template(&template));
        match named.and_then(|template| self.get(&template)) {
            Some(template) => sluice_jobs::with_template(kind, &value, template),
            None => value,
        }
    }

    /// The jobs of a template that came or changed.
    fn refill(&mut self, template: &TemplateRef) {
        let names = |(reference, value): &(&ObjectRef, &Value)| {
            let Kind::Job(kind) = reference.kind else { return false };
            kind.templates().contains(&template.kind)
                && sluice_jobs::template_of(kind, value).as_ref() == Some(template)
        };
        let users: Vec<_> =
            self.all().filter(names).map(|(user, value)| (user.clone(), value.clone())).collect();
        for (user, value) in users {
            let value = self.filled(&user, value);
            self.objects.insert(user, Arc::new(value));
        }
    }

    /// Changes an object as its user would: by a merge patch. A terminating object is removed with its last finalizer.
    pub fn patch(&mut self, reference: &ObjectRef, patch: &Value, gates: Gates) -> Result<(), FieldError> {
        let missing = || FieldError::new("", format!("there is no {reference}"));
        let old = self.get(reference).ok_or_else(missing)?.clone();
        let mut new = old.clone();
        json_patch::merge(&mut new, patch);
        // Errors that existed before the patch are not reported.
        let before = schema::check(reference.kind, &old);
        if let Some(wrong) = schema::check(reference.kind, &new).into_iter().find(|w| !before.contains(w)) {
            return Err(wrong);
        }
        object::admit(reference.kind, &mut new, Some(&old), gates)?;
        if !new["metadata"]["deletionTimestamp"].is_null() && !has_finalizers(&new) {
            self.remove(reference);
            return Ok(());
        }
        let changed = old["spec"] != new["spec"];
        self.store(reference, new, changed);
        self.changes.push(Change::Applied(reference.clone()));
        Ok(())
    }

    /// Creates an object as its controller would; the API server accepts it without checks.
    pub fn create(&mut self, reference: &ObjectRef, value: Value) {
        self.insert_new(reference, value);
    }

    /// Changes an object as its controller would; the API server accepts it without checks.
    pub fn edit(&mut self, reference: &ObjectRef, change: impl FnOnce(&mut Value)) {
        let Some(old) = self.get(reference) else { return };
        let mut new = old.clone();
        change(&mut new);
        if *old != new {
            let changed = old["spec"] != new["spec"];
            self.store(reference, new, changed);
            self.changes.push(Change::Applied(reference.clone()));
        }
    }

    /// Changes the status of an object, as its controller would.
    pub fn set_status(&mut self, reference: &ObjectRef, change: impl FnOnce(&mut Value)) {
        if self.change_status(reference, change) {
            self.changes.push(Change::Applied(reference.clone()));
        }
    }

    /// Changes the status of an object where it is: the rest, mostly templates, is not touched. Whether it is another now.
    fn change_status(&mut self, reference: &ObjectRef, change: impl FnOnce(&mut Value)) -> bool {
        let Some(stored) = self.objects.get_mut(reference) else { return false };
        let old = &stored["status"];
        let mut status = old.clone();
        change(&mut status);
        if status == *old {
            return false;
        }
        self.revision += 1;
        let value = Arc::make_mut(stored);
        value["status"] = status;
        value["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        true
    }

    /// The controller of a Job without pods says that the Job is suspended, if that was taken back.
    pub fn answer_stop(&mut self, job: &ObjectRef, now: Timestamp) {
        let answers = |status: &mut Value| {
            let conditions = status["conditions"].as_array_mut().into_iter().flatten();
            for asked in conditions.filter(|c| c["type"] == "Suspended" && c["status"] == "False") {
                asked["status"] = json!("True");
                asked["reason"] = json!("JobSuspended");
                asked["message"] = json!("Job suspended");
                asked["lastTransitionTime"] = json!(seconds(now));
            }
        };
        if self.change_status(job, answers) {
            self.changes.push(Change::Applied(job.clone()));
        }
    }

    /// Deletes an object: at once, or when its finalizers are gone.
    pub fn delete(&mut self, reference: &ObjectRef) -> bool {
        let Some(value) = self.get(reference) else { return false };
        if has_finalizers(value) {
            if value["metadata"]["deletionTimestamp"].is_null() {
                let mut value = value.clone();
                value["metadata"]["deletionTimestamp"] = json!(seconds(self.now));
                self.store(reference, value, true);
                self.changes.push(Change::Applied(reference.clone()));
            }
            return true;
        }
        self.remove(reference);
        true
    }

    /// Removes an object, and what it owns.
    fn remove(&mut self, reference: &ObjectRef) {
        let Some(value) = self.objects.remove(reference) else { return };
        self.specs.remove(reference);
        self.leaving.remove(reference);
        self.disown(reference, &value);
        let uid: Arc<str> = text(&value["metadata"]["uid"]).into();
        self.changes.push(Change::Deleted(reference.clone(), Arc::clone(&uid)));
        self.gone.insert(Arc::clone(&uid));
        for owned in self.owned(&uid) {
            let owners = self.get(&owned).map(owner_uids).unwrap_or_default();
            if owners.iter().all(|owner| self.gone.contains(owner)) {
                self.delete(&owned);
            }
        }
    }

    /// Removes an object from the owned objects of the owners in its document.
    fn disown(&mut self, reference: &ObjectRef, value: &Value) {
        for uid in owner_uids(value) {
            if let Some(set) = self.owned.get_mut(&uid) {
                set.remove(reference);
                if set.is_empty() {
                    self.owned.remove(&uid);
                }
            }
        }
    }
}

/// A time as the API writes it.
pub(crate) fn seconds(at: Timestamp) -> String {
    sluice_api::conditions::whole_seconds(at).to_string()
}

fn has_finalizers(value: &Value) -> bool {
    let mut finalizers = value["metadata"]["finalizers"].as_array().into_iter().flatten();
    finalizers.any(|finalizer| !OF_COLLECTOR.contains(&text(finalizer)))
}

/// When the last pod of an admitted Workload that is being deleted ends: its pods were deleted with it.
fn pods_end(workload: &Value) -> Option<Timestamp> {
    let deleted: Timestamp = text(&workload["metadata"]["deletionTimestamp"]).parse().ok()?;
    let mut conditions = workload["status"]["conditions"].as_array()?.iter();
    conditions.find(|c| c["type"] == "Admitted" && c["status"] == "True")?;
    let grace = |set: &Value| {
        let seconds = &set["template"]["spec"]["terminationGracePeriodSeconds"];
        seconds.as_i64().unwrap_or(GRACE_SECONDS)
    };
    let longest = workload["spec"]["podSets"].as_array()?.iter().map(grace).max()?;
    Some(after(deleted, SignedDuration::from_secs(longest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_with_a_finalizer_stays_until_it_is_dropped() {
        let mut world = World::default();
        let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "a"}, "spec": {}});
        let reference = world.put(Kind::ResourceFlavor, queue, Gates::default()).unwrap();
        world.take_changes();
        assert!(world.delete(&reference));
        assert!(world.get(&reference).is_some());
        assert_eq!(world.take_changes(), [Change::Applied(reference)]);
    }

    #[test]
    fn a_namespace_keeps_the_label_of_its_name() {
        let mut world = World::default();
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
        let reference = world.put(Kind::Namespace, object, Gates::default()).unwrap();
        for value in [json!("b"), Value::Null] {
            let labels = json!({"metadata": {"labels": {NAMESPACE_NAME_LABEL: value, "team": "blue"}}});
            world.patch(&reference, &labels, Gates::default()).unwrap();
            let kept = json!({NAMESPACE_NAME_LABEL: "a", "team": "blue"});
            assert_eq!(world.get(&reference).unwrap()["metadata"]["labels"], kept);
        }
    }

    #[test]
    fn what_is_made_when_its_owner_is_gone_is_collected() {
        let mut world = World::default();
        let owner = ObjectRef::namespaced(Kind::Workload, "ns", "w");
        world.insert_new(&owner, json!({"metadata": {"uid": "u"}}));
        let template = |uid: &str| json!({"metadata": {"ownerReferences": [{"uid": uid}]}});
        let [early, late, foreign] =
            ["early", "late", "foreign"].map(|name| ObjectRef::namespaced(Kind::PodTemplate, "ns", name));
        world.insert_new(&early, template("u"));
        assert!(world.get(&early).is_some());
        world.delete(&owner);
        world.insert_new(&late, template("u"));
        world.insert_new(&foreign, template("never seen"));
        assert!(world.get(&early).is_none() && world.get(&late).is_none());
        assert!(world.get(&foreign).is_some(), "its owner may be of a kind that is not played");
    }
}
