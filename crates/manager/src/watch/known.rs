//! Workloads of which a part is known before a watch shows them: the answer of our own write was decoded, and a spec stays the same within its
//! generation. Decoding is most of what a Workload costs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sluice_api::slim::{Workload, WorkloadSpec};
use sluice_engine::input::Object;

/// How many answers are kept until their watch event, except those of large Workloads.
const ANSWERS: usize = 128;
/// The highest number of owners, and of bytes of labels and annotations, of a Workload that is not large.
const OWNERS: usize = 8;
const TEXT: usize = 4 << 10;
/// How many specs are kept. Specs that the engine has dropped take no memory.
const SPECS: usize = 2048;

/// The latest values by UID: between `most` and twice as many.
#[derive(Debug)]
struct Recent<V> {
    young: HashMap<Box<str>, V>,
    old: HashMap<Box<str>, V>,
    most: usize,
}

impl<V> Recent<V> {
    fn of(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), most }
    }

    fn put(&mut self, uid: &str, value: V) {
        if self.young.len() >= self.most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(uid.into(), value);
    }

    fn get(&self, uid: &str) -> Option<&V> {
        self.young.get(uid).or_else(|| self.old.get(uid))
    }

    fn take(&mut self, uid: &str) -> Option<V> {
        let old = self.old.remove(uid);
        self.young.remove(uid).or(old)
    }
}

#[derive(Debug)]
struct Tables {
    answers: Recent<Workload>,
    specs: Recent<(i64, Weak<WorkloadSpec>)>,
}

/// The known objects, shared by the watch and the answers of writes.
#[derive(Debug)]
pub struct Known(Mutex<Tables>);

impl Default for Known {
    fn default() -> Self {
        Self(Mutex::new(Tables { answers: Recent::of(ANSWERS), specs: Recent::of(SPECS) }))
    }
}

impl Known {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer was decoded: the watch will show the same version.
    pub fn answered(&self, object: &Object) {
        let Object::Workload(workload) = object else { return };
        self.seen(workload);
        if let Some(uid) = workload.metadata.uid.as_deref()
            && is_small(workload)
        {
            self.tables().answers.put(uid, (**workload).clone());
        }
    }

    /// A Workload was decoded as a whole.
    pub fn seen(&self, workload: &Workload) {
        let metadata = &workload.metadata;
        // Without generations, specs cannot be distinguished.
        if let (Some(uid), Some(generation @ 1..)) = (metadata.uid.as_deref(), metadata.generation) {
            self.tables().specs.put(uid, (generation, Arc::downgrade(&workload.spec)));
        }
    }

    /// The Workload of this version, if an answer had it. It is given out once.
    pub fn take(&self, uid: &str, version: &str) -> Option<Workload> {
        let answers = &mut self.tables().answers;
        let same = |answer: &Workload| answer.metadata.resource_version.as_deref() == Some(version);
        if version.is_empty() || !answers.get(uid).is_some_and(same) {
            return None;
        }
        answers.take(uid)
    }

    /// The spec of a Workload as of this generation, while anything has it.
    pub fn spec(&self, uid: &str, generation: i64) -> Option<Arc<WorkloadSpec>> {
        let tables = self.tables();
        let (_, spec) = tables.specs.get(uid).filter(|(of, _)| *of == generation)?;
        spec.upgrade()
    }
}

/// Whether a copy of a Workload is worth its room.
fn is_small(workload: &Workload) -> bool {
    let metadata = &workload.metadata;
    let texts = metadata.labels.iter().chain(&metadata.annotations).flatten();
    let assigned = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    metadata.owner_references.as_ref().is_none_or(|owners| owners.len() <= OWNERS)
        && texts.map(|(key, value)| key.len() + value.len()).sum::<usize>() <= TEXT
        && assigned.into_iter().all(|set| set.topology_assignment.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn workload(uid: &str, version: &str, more: &Value) -> Object {
        let mut metadata = json!({"uid": uid, "resourceVersion": version, "generation": 2});
        for (key, value) in more.as_object().unwrap() {
            metadata[key] = value.clone();
        }
        let object = json!({"metadata": metadata, "spec": {"queueName": "q"}});
        Object::Workload(Box::new(serde_json::from_value(object).unwrap()))
    }

    #[test]
    fn an_answer_is_found_by_its_version_and_once() {
        let known = Known::default();
        known.answered(&workload("u", "7", &json!({})));
        assert!(known.take("u", "8").is_none() && known.take("v", "7").is_none());
        let found = known.take("u", "7").unwrap();
        assert_eq!(found.spec.queue_name, "q");
        assert!(known.take("u", "7").is_none());
        let unversioned = workload("w", "", &json!({}));
        known.answered(&unversioned);
        assert!(known.take("w", "").is_none());
    }

    #[test]
    fn large_answers_are_not_kept_and_the_others_are_few() {
        let known = Known::default();
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"});
        known.answered(&workload("owned", "1", &json!({"ownerReferences": vec![owner; 9]})));
        known.answered(&workload("noted", "1", &json!({"annotations": {"a": "x".repeat(5000)}})));
        assert!(known.take("owned", "1").is_none() && known.take("noted", "1").is_none());
        for number in 0..1000 {
            known.answered(&workload(&format!("u{number}"), "1", &json!({})));
        }
        let left = (0..1000).filter(|number| known.take(&format!("u{number}"), "1").is_some()).count();
        assert!((ANSWERS..=2 * ANSWERS).contains(&left), "{left}");
    }

    #[test]
    fn a_spec_is_found_by_its_generation_while_something_has_it() {
        let known = Known::default();
        let Object::Workload(kept) = workload("u", "7", &json!({})) else { unreachable!("it is one") };
        known.seen(&kept);
        assert!(Arc::ptr_eq(&known.spec("u", 2).unwrap(), &kept.spec));
        assert!(known.spec("u", 3).is_none() && known.spec("v", 2).is_none());
        drop(kept);
        assert!(known.spec("u", 2).is_none());
    }
}
