//! Workloads and jobs of which a part is known before a watch shows them: the answer of our own write was decoded, and a Workload's spec stays the
//! same within its generation. Decoding is most of what an object costs.
//!
//! The watch shows each of our own writes once more. If the engine has that version from the answer, and nothing else follows such objects, the
//! event is not decoded, and does not wake the engine.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sluice_api::conditions::{WorkloadCondition, is_true};
use sluice_api::job::{JobPodSet, JobView};
use sluice_api::slim::{Workload, WorkloadSpec};
use sluice_engine::input::Object;

/// How many answers of each kind are kept until their watch event, except those of large objects.
const ANSWERS: usize = 128;
/// How many versions that the engine has are remembered until their watch event.
const VERSIONS: usize = 512;
/// The highest number of owners, and of bytes of labels and annotations, of an object that is not large.
const OWNERS: usize = 8;
const TEXT: usize = 4 << 10;
/// The highest number of its tolerations and scheduling gates.
const LISTED: usize = 32;
/// How many specs are kept. One that nothing has any more still takes some hundred bytes: those of ended Workloads are forgotten at once.
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

    fn put(&mut self, uid: Box<str>, value: V) {
        if self.young.len() >= self.most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(uid, value);
    }

    fn get(&self, uid: &str) -> Option<&V> {
        self.young.get(uid).or_else(|| self.old.get(uid))
    }

    fn get_mut(&mut self, uid: &str) -> Option<&mut V> {
        self.young.get_mut(uid).or_else(|| self.old.get_mut(uid))
    }

    fn take(&mut self, uid: &str) -> Option<V> {
        let old = self.old.remove(uid);
        self.young.remove(uid).or(old)
    }
}

/// A version of an object that an answer had.
#[derive(Debug)]
struct Answered {
    version: Box<str>,
    /// Whether the engine has it.
    taken: bool,
}

#[derive(Debug)]
struct Tables {
    answers: Recent<Workload>,
    jobs: Recent<Box<JobView>>,
    specs: Recent<(i64, Weak<WorkloadSpec>)>,
    versions: Recent<Answered>,
}

/// Whether anything but the engine follows the events of such an object.
type Followed = Box<dyn Fn(&Object) -> bool + Send + Sync>;

/// The known objects, shared by the watch, the answers of writes, and the engine's thread.
pub struct Known {
    tables: Mutex<Tables>,
    followed: Followed,
}

/// All events are followed.
impl Default for Known {
    fn default() -> Self {
        Self::with(|_| true)
    }
}

impl Known {
    /// Without objects. `followed` returns whether anything but the engine follows the events of such an object.
    pub fn with(followed: impl Fn(&Object) -> bool + Send + Sync + 'static) -> Self {
        let (answers, jobs) = (Recent::of(ANSWERS), Recent::of(ANSWERS));
        let tables = Tables { answers, jobs, specs: Recent::of(SPECS), versions: Recent::of(VERSIONS) };
        Self { tables: Mutex::new(tables), followed: Box::new(followed) }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer that was decoded is about to be given to the engine. Returns what is kept of it, for [`Known::answered`], if others follow such
    /// objects; nothing of a large object, or one of another kind. Of a job it has no templates: its event has nothing new for an engine that has the
    /// answer, and is not taken for more than that.
    pub fn copy_of(&self, answer: &Object) -> Option<Object> {
        if let Object::Workload(workload) = answer {
            self.seen(workload);
        }
        if !(self.followed)(answer) {
            self.remember_version(answer);
            return None;
        }
        match answer {
            Object::Workload(workload) => is_small(workload).then(|| answer.clone()),
            Object::Job(view) => is_small_job(view).then(|| Object::Job(Box::new(without_templates(view)))),
            _ => None,
        }
    }

    /// Remembers the version of an answer, so that its watch event can be dropped once the engine has it: nothing else follows the object.
    fn remember_version(&self, answer: &Object) {
        let (uid, version) = match answer {
            Object::Workload(workload) => {
                let metadata = &workload.metadata;
                (metadata.uid.as_deref(), metadata.resource_version.as_deref())
            }
            Object::Job(view) if is_one_object(view) && view.template.is_none() => {
                (Some(&*view.job.uid), Some(&*view.resource_version))
            }
            _ => return,
        };
        let (Some(uid), Some(version)) = (uid, version) else { return };
        if !uid.is_empty() && !version.is_empty() {
            let answered = Answered { version: version.into(), taken: false };
            self.tables().versions.put(uid.into(), answered);
        }
    }

    /// The engine has this version of an object. If that is the one that an answer had, the watch has nothing to add.
    pub fn taken(&self, uid: &str, version: &str) {
        let versions = &mut self.tables().versions;
        if let Some(answered) = versions.get_mut(uid)
            && *answered.version == *version
        {
            answered.taken = true;
        }
    }

    /// Whether the watch shows a version that the engine has, and nothing else follows. It says so once.
    pub fn is_echo(&self, uid: &str, version: &str) -> bool {
        let versions = &mut self.tables().versions;
        let same = |answered: &Answered| answered.taken && *answered.version == *version;
        versions.get(uid).is_some_and(same) && versions.take(uid).is_some()
    }

    /// The engine was rebuilt, and has nothing yet: whatever the watches show is new to it.
    pub fn rebuilt(&self) {
        self.tables().versions = Recent::of(VERSIONS);
    }

    /// The engine was given an answer: the watch will show the same version.
    pub fn answered(&self, copy: Object) {
        match copy {
            Object::Workload(workload) => {
                if let Some(uid) = workload.metadata.uid.as_deref().map(Box::<str>::from) {
                    self.tables().answers.put(uid, *workload);
                }
            }
            Object::Job(view) => self.tables().jobs.put((&*view.job.uid).into(), view),
            _ => {}
        }
    }

    /// A Workload was decoded.
    pub fn seen(&self, workload: &Workload) {
        let metadata = &workload.metadata;
        // Without generations, specs cannot be distinguished.
        if let (Some(uid), Some(generation @ 1..)) = (metadata.uid.as_deref(), metadata.generation) {
            let specs = &mut self.tables().specs;
            if is_over(workload) {
                specs.take(uid);
            } else if specs.get(uid).is_none_or(|(_, known)| known.as_ptr() != Arc::as_ptr(&workload.spec)) {
                specs.put(uid.into(), (generation, Arc::downgrade(&workload.spec)));
            }
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

    /// The same of a job.
    pub fn take_job(&self, uid: &str, version: &str) -> Option<Box<JobView>> {
        let jobs = &mut self.tables().jobs;
        if version.is_empty() || jobs.get(uid).is_none_or(|known| known.resource_version != version) {
            return None;
        }
        jobs.take(uid)
    }

    /// The spec of a Workload as of this generation, while anything has it.
    pub fn spec(&self, uid: &str, generation: i64) -> Option<Arc<WorkloadSpec>> {
        let tables = self.tables();
        let (_, spec) = tables.specs.get(uid).filter(|(of, _)| *of == generation)?;
        spec.upgrade()
    }
}

/// Whether nothing more is expected of a Workload.
fn is_over(workload: &Workload) -> bool {
    is_true(&workload.status.conditions, WorkloadCondition::Finished.as_str())
        && workload.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
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

/// A job as an answer had it, but for its templates.
fn without_templates(view: &JobView) -> JobView {
    let mut copy = view.clone();
    for set in &mut copy.pod_sets {
        set.template = None;
    }
    copy
}

/// Whether a job is no more than its object: otherwise it is put together again each time.
fn is_one_object(view: &JobView) -> bool {
    let kind = view.job.kind;
    !kind.integration().of_pods && !kind.has_groups() && !kind.gathers_pods()
}

/// Whether a copy of a job is worth its room.
fn is_small_job(view: &JobView) -> bool {
    let length = |texts: &BTreeMap<String, String>| {
        texts.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    };
    let is_small_set = |set: &JobPodSet| {
        let scheduling = &set.scheduling;
        let listed = scheduling.tolerations.len() + scheduling.scheduling_gates.len();
        let texts = [&scheduling.labels, &scheduling.annotations, &scheduling.node_selector];
        texts.map(length).iter().sum::<usize>() <= TEXT
            && listed <= LISTED
            && scheduling.affinity.is_none()
            && set.unwritten.is_none()
            && set.wrapped.is_none()
    };
    is_one_object(view)
        && length(&view.labels) + length(&view.annotations) <= TEXT
        && view.part_names.len() <= OWNERS
        && view.pod_selector.is_none()
        && view.invalid.is_none()
        && view.template.is_none()
        && view.pod_sets.len() <= OWNERS
        && view.pod_sets.iter().all(is_small_set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use sluice_api::job::JobKind;

    fn answer(known: &Known, object: &Object) {
        if let Some(copy) = known.copy_of(object) {
            known.answered(copy);
        }
    }

    /// A job of a version, as it is read.
    fn job(uid: &str, version: &str, labels: &Value, pod: &Value) -> Object {
        let object = json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": uid, "resourceVersion": version, "labels": labels},
            "spec": {"suspend": true, "template": {"spec": pod}},
        });
        Object::Job(Box::new(sluice_jobs::observe(JobKind::JOB, &object)))
    }

    #[test]
    fn of_an_answer_about_a_small_job_all_is_kept_but_its_templates() {
        let pod = json!({"containers": [{"name": "c", "image": "i"}]});
        let known = Known::default();
        let written = job("u", "7", &json!({"kueue.x-k8s.io/queue-name": "lq"}), &pod);
        answer(&known, &written);
        assert!(known.take_job("u", "8").is_none() && known.take_job("v", "7").is_none());
        let Object::Job(view) = written else { unreachable!("it is one") };
        assert!(view.pod_sets[0].template.is_some());
        assert_eq!(known.take_job("u", "7"), Some(Box::new(without_templates(&view))));
        assert!(known.take_job("u", "7").is_none());
        answer(&known, &job("noted", "1", &json!({"a": "x".repeat(5000)}), &pod));
        let tolerant = json!({"tolerations": vec![json!({"key": "k"}); 40], "containers": pod["containers"]});
        answer(&known, &job("tolerant", "1", &json!({}), &tolerant));
        assert!(known.take_job("noted", "1").is_none() && known.take_job("tolerant", "1").is_none());
    }

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
        answer(&known, &workload("u", "7", &json!({})));
        assert!(known.take("u", "8").is_none() && known.take("v", "7").is_none());
        let found = known.take("u", "7").unwrap();
        assert_eq!(found.spec.queue_name, "q");
        assert!(known.take("u", "7").is_none());
        let unversioned = workload("w", "", &json!({}));
        answer(&known, &unversioned);
        assert!(known.take("w", "").is_none());
    }

    #[test]
    fn large_answers_are_not_kept_and_the_others_are_few() {
        let known = Known::default();
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"});
        answer(&known, &workload("owned", "1", &json!({"ownerReferences": vec![owner; 9]})));
        answer(&known, &workload("noted", "1", &json!({"annotations": {"a": "x".repeat(5000)}})));
        assert!(known.take("owned", "1").is_none() && known.take("noted", "1").is_none());
        for number in 0..1000 {
            answer(&known, &workload(&format!("u{number}"), "1", &json!({})));
        }
        let left = (0..1000).filter(|number| known.take(&format!("u{number}"), "1").is_some()).count();
        assert!((ANSWERS..=2 * ANSWERS).contains(&left), "{left}");
    }

    #[test]
    fn an_event_is_an_echo_once_the_engine_has_the_version_that_an_answer_had() {
        let known = Known::with(|_| false);
        let pod = json!({"containers": [{"name": "c", "image": "i"}]});
        for (written, later) in [
            (workload("u", "7", &json!({})), workload("u", "8", &json!({}))),
            (job("u", "7", &json!({}), &pod), job("u", "8", &json!({}), &pod)),
        ] {
            known.taken("u", "7");
            assert!(!known.is_echo("u", "7"), "no answer had it");
            assert_eq!(known.copy_of(&written), None, "nothing else follows it");
            assert!(!known.is_echo("u", "7"), "the engine may not take it");
            known.taken("u", "6");
            assert!(!known.is_echo("u", "7"), "the engine has another version");
            known.taken("u", "7");
            assert!(!known.is_echo("u", "8") && !known.is_echo("v", "7"));
            let cost = allocation_counter::measure(|| assert!(known.is_echo("u", "7")));
            assert_eq!(cost.count_total, 0, "it is dropped for nothing");
            assert!(!known.is_echo("u", "7"), "it is one event");
            known.copy_of(&written);
            known.taken("u", "7");
            known.copy_of(&later);
            assert!(!known.is_echo("u", "7"), "a later answer is expected");
            known.taken("u", "8");
            known.rebuilt();
            assert!(!known.is_echo("u", "8"), "the new engine has not seen it");
        }
    }

    #[test]
    fn the_events_of_what_others_follow_are_no_echoes() {
        let known = Known::with(|object| matches!(object, Object::Workload(_)));
        let written = workload("u", "7", &json!({}));
        assert_eq!(known.copy_of(&written), Some(written));
        known.taken("u", "7");
        assert!(!known.is_echo("u", "7"));
        let unversioned = job("j", "", &json!({}), &json!({}));
        assert_eq!(known.copy_of(&unversioned), None);
        known.taken("j", "");
        assert!(!known.is_echo("j", ""));
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

    #[test]
    fn nothing_is_kept_of_the_spec_of_an_ended_workload() {
        let known = Known::default();
        let seen = |more: &Value, finished: bool| {
            let Object::Workload(mut seen) = workload("u", "7", more) else { unreachable!("it is one") };
            if finished {
                let condition = json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"});
                seen.status.conditions.push(serde_json::from_value(condition).unwrap());
            }
            known.seen(&seen);
            let specs = &known.tables().specs;
            specs.get("u").map(|(_, spec)| Weak::ptr_eq(spec, &Arc::downgrade(&seen.spec)))
        };
        assert_eq!(seen(&json!({}), false), Some(true));
        let held = json!({"finalizers": ["kueue.x-k8s.io/resource-in-use"]});
        assert_eq!(seen(&held, true), Some(true), "it is released first");
        assert_eq!(seen(&json!({}), true), None);
    }
}
