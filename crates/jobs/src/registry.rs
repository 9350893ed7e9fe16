//! Every kind's adapter.

use serde_json::Value;
use sluice_api::job::{JobKind, JobView};
use sluice_api::labels;

use crate::adapter::Adapter;
use crate::patch::{Patch, Step, nested, set};
use crate::{declared, external};

/// Every kind's adapter, in the order of the kinds.
static ADAPTERS: [&dyn Adapter; JobKind::ALL.len()] = sluice_api::job_adapters!(crate);

/// The adapter of a kind.
pub(crate) fn of(kind: JobKind) -> &'static dyn Adapter {
    if kind.is_external() {
        return external::of(kind);
    }
    if kind.is_declared() {
        return declared::of(kind).expect("a kind is made known after its adapter");
    }
    let found = ADAPTERS.iter().find(|adapter| adapter.kind() == kind);
    *found.expect("a test finds an adapter for every kind")
}

/// The write that suspends a job without restoring anything. It ends a stop in several steps that was begun.
pub(crate) fn suspend(view: &JobView) -> Step {
    let adapter = of(view.job.kind);
    if let Some(step) = adapter.end_stop(view).filter(|_| view.stopping) {
        return step.pinned(&view.resource_version);
    }
    let mut body = nested(adapter.suspend_path(), adapter.suspended_value());
    if view.stopping {
        set(&mut body, &["metadata", "annotations", labels::STOPPING], Value::Null);
    }
    if let Some(value) = declared::remembered(view) {
        set(&mut body, &["metadata", "annotations", labels::RUNNING_VALUE], value);
    }
    Step { subresource: None, patch: Patch::Merge(body).pinned(&view.resource_version) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use sluice_api::job::{CountAt, JobPodSet, PodScheduling, PodSetInfo};

    use super::*;
    use crate::adapter::State;
    use crate::described;
    use crate::pod_group::PodGroup;
    use crate::pods::Composite;
    use crate::testing::apply;

    /// The job in the folder of a kind's adapter.
    #[expect(clippy::disallowed_methods, reason = "a test reads its files")]
    fn example(kind: JobKind) -> Value {
        let name = format!("{}.yaml", kind.integration().controller);
        let folders = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
        let mut files = folders.map(|folder| folder.unwrap().path().join(&name));
        let text = files.find_map(|file| std::fs::read_to_string(file).ok());
        serde_saphyr::from_str(&text.expect("a job of the kind is beside its adapter")).unwrap()
    }

    #[test]
    fn every_kind_has_its_adapter() {
        for kind in JobKind::ALL {
            assert_eq!(of(kind).kind(), kind);
        }
    }

    #[test]
    fn a_kind_whose_pods_wait_has_members_and_no_other_has() {
        for kind in JobKind::ALL {
            let facts = kind.integration();
            let composite = of(kind).composite();
            assert_eq!(composite.is_some(), facts.of_pods || kind.gathers_pods(), "{kind:?}");
            assert_eq!(composite.is_some_and(Composite::is_of_members_alone), facts.of_pods, "{kind:?}");
        }
    }

    #[test]
    fn a_kind_reads_the_states_that_it_writes() {
        let runtime = json!({"spec": {"template": {"spec": example(JobKind::JOB_SET)["spec"]}}});
        for kind in JobKind::ALL {
            let value = example(kind);
            let value = of(kind).with_template(&value, &runtime);
            let now = Timestamp::UNIX_EPOCH;
            let view = |state: State| {
                let mut value = value.clone();
                value["status"] = of(kind).status(&value, state);
                assert_eq!(of(kind).finished(&value), of(kind).observe(&value).finished);
                of(kind).observe(&value)
            };
            let running = view(State::Running { since: now, ready: true });
            assert!(running.active && running.pods_ready && running.finished.is_none());
            let idle = view(State::Idle);
            assert!(!idle.active && !idle.pods_ready && idle.invalid.is_none(), "{:?}", idle.invalid);
            if !kind.integration().ends {
                continue;
            }
            for success in [true, false] {
                let ended = view(State::Ended { at: now, success });
                assert!(!ended.active);
                assert_eq!(ended.finished.unwrap().success, success);
            }
        }
    }

    /// Whether a status has this condition, and it is true.
    fn is_true(status: &Value, type_: &str) -> bool {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == type_ && one["status"] == "True")
    }

    #[test]
    fn the_conditions_that_a_descriptor_names_say_that_pods_run_and_are_ready() {
        let mut named = 0;
        for kind in JobKind::ALL {
            let (value, now) = (example(kind), Timestamp::UNIX_EPOCH);
            let seen = |ready: bool| {
                let mut value = value.clone();
                value["status"] = of(kind).status(&value, State::Running { since: now, ready });
                (of(kind).observe(&value), value["status"].clone())
            };
            for (view, status) in [seen(true), seen(false)] {
                let facts = kind.integration();
                for (condition, said) in [(facts.active, view.active), (facts.ready, view.pods_ready)] {
                    if !condition.is_empty() {
                        assert_eq!(is_true(&status, condition), said, "{kind:?}: {condition}: {status}");
                        named += 1;
                    }
                }
            }
        }
        assert_eq!(named, 2 * (6 + 2 + 2), "six kinds of Kubeflow, RayService, AppWrapper");
    }

    #[test]
    fn the_field_that_a_descriptor_names_suspends() {
        let has_one = |kind: &JobKind| !kind.integration().suspends_pods && !kind.integration().of_pods;
        for kind in JobKind::ALL.into_iter().filter(has_one) {
            let mut object = example(kind);
            object["metadata"]["resourceVersion"] = json!("1");
            let suspended = |value: bool| {
                let patch = Patch::Merge(nested(kind.integration().suspend, json!(value)));
                of(kind).is_suspended(&apply(&object, &patch).unwrap())
            };
            assert!(suspended(true) && !suspended(false), "{kind:?}");
        }
    }

    /// The original scheduling of a pod set, and the additions of a start.
    fn original(set: &JobPodSet) -> PodSetInfo {
        PodSetInfo { name: set.name.clone(), count: set.count, scheduling: set.scheduling.clone() }
    }

    fn on_pool(set: &JobPodSet) -> PodSetInfo {
        let node_selector = [("pool".to_owned(), "a".to_owned())].into();
        PodSetInfo {
            scheduling: PodScheduling { node_selector, ..PodScheduling::default() },
            ..original(set)
        }
    }

    #[test]
    fn the_example_of_every_kind_is_started_on_its_nodes_and_stopped_as_it_was() {
        let runtime = json!({"spec": {"template": {"spec": example(JobKind::JOB_SET)["spec"]}}});
        for kind in JobKind::ALL.into_iter().filter(|kind| !kind.integration().of_pods) {
            let whole = |object: &Value| of(kind).with_template(object, &runtime);
            let mut object = example(kind);
            object["metadata"]["resourceVersion"] = json!("1");
            if !kind.integration().suspends_pods {
                let suspended = nested(of(kind).suspend_path(), of(kind).suspended_value());
                object = apply(&object, &Patch::Merge(suspended)).unwrap();
            }
            let object = whole(&object);
            let view = of(kind).observe(&object);
            assert!(
                view.invalid.is_none() && view.suspended && !view.pod_sets.is_empty(),
                "{kind:?}: {view:?}"
            );
            let (adds, before): (Vec<_>, Vec<_>) =
                view.pod_sets.iter().map(|set| (on_pool(set), original(set))).unzip();
            let mut started = object.clone();
            if let Some(step) = of(kind).prepare(&view, &adds).unwrap() {
                started = whole(&apply(&started, &step.patch).unwrap());
            }
            let patch = of(kind).start(&of(kind).observe(&started), &adds).unwrap();
            started = whole(&apply(&started, &patch).unwrap());
            if kind.integration().suspends_pods {
                assert_eq!(started, object, "{kind:?}: its pods are started");
                continue;
            }
            assert!(!of(kind).is_suspended(&started), "{kind:?}");
            // Where a template object says what pods there are, what was added is beside its name.
            let added = json!({"pool": "a"});
            assert!(started["spec"].to_string().contains(&added.to_string()), "{kind:?}: {started}");
            for group in of(kind).pod_groups(&started).into_iter().filter(|_| kind.templates().is_empty()) {
                assert_eq!(group.template["spec"]["nodeSelector"], added, "{kind:?}");
            }
            for _ in 0..2 {
                for step in of(kind).stop(&of(kind).observe(&started), &before) {
                    let version = started["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                    started = whole(&apply(&started, &step.pinned(&version).patch).unwrap());
                }
            }
            let stopped = of(kind).observe(&started);
            assert!(of(kind).is_suspended(&started), "{kind:?}");
            assert_eq!(stopped.pod_sets, view.pod_sets, "{kind:?}");
        }
    }

    /// The example of every kind, with a template object for kinds whose jobs name one.
    fn examples() -> impl Iterator<Item = (JobKind, Value)> {
        let runtime = json!({"spec": {"template": {"spec": example(JobKind::JOB_SET)["spec"]}}});
        JobKind::ALL.into_iter().map(move |kind| (kind, of(kind).with_template(&example(kind), &runtime)))
    }

    #[test]
    fn a_descriptor_says_where_pod_templates_are() {
        for (kind, object) in examples() {
            let described = described::groups(kind, &object);
            // A template that need not be there is for the adapter to leave out.
            let whole = kind.integration().pods_by_adapter.is_none();
            assert!(!whole || !described.is_empty(), "{kind:?}");
            for (group, pods) in described {
                let template = object.pointer(&group.pointer).filter(|template| !template.is_null());
                let is_one = |template: &Value| template["spec"]["containers"].is_array();
                assert!(template.map_or(!whole, is_one), "{kind:?}: {}", group.pointer);
                assert!(group.pointer.ends_with(pods.template), "{kind:?}: {}", group.pointer);
            }
        }
    }

    #[test]
    fn the_pods_of_an_object_are_those_of_its_pod_sets() {
        for (kind, object) in examples() {
            let groups = of(kind).pod_groups(&object);
            let groups: Vec<_> =
                groups.iter().map(|group| (group.name.to_lowercase(), group.count())).collect();
            let view = of(kind).observe(&object);
            let sets: Vec<_> = view.pod_sets.iter().map(|set| (set.name.clone(), set.count)).collect();
            assert_eq!(groups, sets, "{kind:?}");
        }
    }

    #[test]
    fn the_pods_of_these_kinds_alone_are_said_by_their_adapters() {
        let mut by_adapter = Vec::new();
        for (kind, object) in examples() {
            let facts = kind.integration();
            let counted = facts.pods.iter().all(|pods| pods.count != CountAt::ByAdapter);
            assert!(
                counted || facts.pods_by_adapter.is_some(),
                "{kind:?}: says nothing of how many there are"
            );
            if let Some(why) = facts.pods_by_adapter {
                assert!(!why.is_empty(), "{kind:?}");
                by_adapter.push((kind, facts.pods.len()));
                continue;
            }
            let groups = of(kind).pod_groups(&object);
            let described = described::groups(kind, &object);
            assert_eq!(groups.len(), described.len(), "{kind:?}");
            for (group, (same, _)) in groups.iter().zip(&described) {
                assert_eq!((&group.pointer, group.count()), (&same.pointer, same.count()), "{kind:?}");
            }
        }
        let places = [
            (JobKind::LEADER_WORKER_SET, 2),
            (JobKind::RAY_CLUSTER, 2),
            (JobKind::RAY_JOB, 3),
            (JobKind::RAY_SERVICE, 2),
            (JobKind::SPARK_APPLICATION, 0),
            (JobKind::TRAIN_JOB, 0),
            (JobKind::APP_WRAPPER, 0),
        ];
        assert_eq!(by_adapter, places);
    }

    #[test]
    fn the_pods_that_an_adapter_says_are_where_its_descriptor_says() {
        for (kind, object) in examples().filter(|(kind, _)| !kind.integration().pods.is_empty()) {
            let described = described::groups(kind, &object);
            for group in of(kind).pod_groups(&object) {
                let same = |(described, _): &(PodGroup<'_>, _)| described.pointer == group.pointer;
                assert!(described.iter().any(same), "{kind:?}: {}", group.pointer);
            }
        }
    }

    #[test]
    fn a_class_for_all_pods_goes_before_those_of_the_templates() {
        let mut named = 0;
        for (kind, mut object) in examples() {
            let path = kind.integration().priority_class;
            let pointers: Vec<_> =
                of(kind).pod_groups(&object).into_iter().map(|group| group.pointer).collect();
            for template in pointers {
                if let Some(template) = object.pointer_mut(&template).filter(|template| template.is_object())
                {
                    template["spec"]["priorityClassName"] = json!("of-template");
                }
            }
            if path.is_empty() {
                continue;
            }
            named += 1;
            let class = |object: &Value| of(kind).observe(object).pod_priority_class;
            assert_eq!(class(&object).as_deref(), Some("of-template"), "{kind:?}");
            set(&mut object, path, json!("of-all"));
            assert_eq!(class(&object).as_deref(), Some("of-all"), "{kind:?}");
            set(&mut object, path, json!(""));
            assert_eq!(class(&object).as_deref(), Some("of-template"), "{kind:?}");
        }
        assert_eq!(named, 6, "the kinds of Kubeflow's training operator, and MPIJob");
    }

    #[test]
    fn the_place_of_a_template_reads_as_in_messages() {
        let jobset = json!({"spec": {"replicatedJobs": [{"name": "x"}]}});
        let groups = of(JobKind::JOB_SET).pod_groups(&jobset);
        assert_eq!(groups[0].path(), "spec.replicatedJobs[0].template.spec.template");
        let job = json!({});
        assert_eq!(of(JobKind::JOB).pod_groups(&job)[0].path(), "spec.template");
    }
}
