//! Every kind's adapter.

use sluice_api::job::{JobKind, JobView};

use crate::adapter::Adapter;
use crate::patch::{Patch, Step, nested};
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

/// The write that suspends a job of which nothing has to be restored.
pub(crate) fn suspend(view: &JobView) -> Step {
    let adapter = of(view.job.kind);
    let body = nested(adapter.suspend_path(), adapter.suspended_value());
    Step { subresource: None, patch: Patch::Merge(body).pinned(&view.resource_version) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use sluice_api::job::{JobPodSet, PodScheduling, PodSetInfo};

    use super::*;
    use crate::adapter::State;
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

    /// What a pod set says of nodes, and what a start adds to it.
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

    #[test]
    fn the_place_of_a_template_reads_as_in_messages() {
        let jobset = json!({"spec": {"replicatedJobs": [{"name": "x"}]}});
        let groups = of(JobKind::JOB_SET).pod_groups(&jobset);
        assert_eq!(groups[0].path(), "spec.replicatedJobs[0].template.spec.template");
        let job = json!({});
        assert_eq!(of(JobKind::JOB).pod_groups(&job)[0].path(), "spec.template");
    }
}
