//! How large a job may be, so that the manager can write to it: the API server refuses a write that makes the annotations of an object or a pod
//! template too large, and etcd refuses an object that is too large, so that a job of the largest size could be neither started nor stopped properly.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_api::slim::is_too_deep;

use crate::bulk::{Bulk, STARTED, excess_made};
use crate::object::TOO_DEEP;
use crate::registry;
use crate::review::Violations;

/// How many bytes the names and values of an object's annotations have at most, for the API server.
const ALL: usize = 256 << 10;
/// How many of those are the manager's.
const OURS: usize = 4 << 10;
/// The highest number of bytes of a job that is not suspended, including the manager's writes at its start. Etcd stores 1.5 MiB; built-in kinds are
/// stored in a form that is up to a third longer than JSON if many of their fields are empty, and a stop adds its mark and its field manager.
const WHOLE: usize = 1 << 20;
/// How many of those are the manager's: node selectors, tolerations and affinity for each pod set.
const OURS_OF_WHOLE: usize = 64 << 10;

/// Refuses annotations that leave the manager no room. A job that was managed with them, as `old`, may have them, and may not get more.
pub(super) fn check(kind: JobKind, object: &Value, old: Option<&Value>, violations: &mut Violations) {
    let before = old.map(|old| sizes(kind, old)).unwrap_or_default();
    let before: BTreeMap<String, usize> = before.into_iter().rev().collect();
    for (path, bytes) in sizes(kind, object) {
        let before = before.get(&path).copied().unwrap_or(0);
        if bytes > (ALL - OURS).max(before) {
            let most = ALL - OURS;
            violations.add(
                &path,
                format!("Too long: may not be more than {most} bytes, so that the manager can add its own"),
            );
        }
    }
}

/// Refuses a managed job that could not be stopped; `old` is what it was, if it was managed. Kinds that no field suspends are not: their pods have gates, and are deleted.
pub(super) fn check_whole(kind: JobKind, object: &Value, old: Option<&Value>, violations: &mut Violations) {
    let known = kind.integration();
    if known.of_pods || known.suspends_pods {
        return;
    }
    let runs = |object: &Value| !registry::of(kind).is_suspended(object);
    let most = match old {
        None => WHOLE - OURS_OF_WHOLE,
        // It may be a stopped job: then writes for the stop do no harm.
        Some(_) if !runs(object) => return,
        Some(_) => WHOLE,
    };
    let bytes = length(object);
    // The controller of a running job may write it.
    let grows = old.filter(|old| runs(old)).is_none_or(|old| bytes > length(old));
    if bytes > most && grows {
        let why = format!(
            "a queued job may not have more than {most} bytes, so that it can be started and stopped: it has {bytes}"
        );
        violations.add("metadata", format!("Too long: {why}"));
    }
}

/// Refuses pod templates with more values than the bound, by themselves or in all jobs that are made of them: they would take the memory of all jobs. A
/// started job has the additions of admission, too, and a part of a job those of the API server; a job that was managed with more, as `old`, may keep it.
pub(super) fn check_values(
    kind: JobKind,
    object: &Value,
    old: Option<&Value>,
    is_part: bool,
    violations: &mut Violations,
) {
    let counted = |object: &Value| {
        let groups = registry::of(kind).pod_groups(object).into_iter();
        groups.fold((Bulk::default(), 0_usize), |(all, made), group| {
            let bulk = Bulk::of(&group.template);
            (all.and(bulk), made.saturating_add(bulk.made(group.replicas)))
        })
    };
    let started = is_part || old.is_some() && !registry::of(kind).is_suspended(object);
    let times = if started { STARTED } else { 1 };
    let (now, made) = counted(object);
    let excess = |(before, made_before): (Bulk, usize)| {
        now.excess(times, before).or_else(|| excess_made(made, times, made_before))
    };
    if excess((Bulk::default(), 0)).is_none() {
        return;
    }
    if let Some(why) = excess(old.map(counted).unwrap_or_default()) {
        violations.add("spec", why);
    }
}

/// Refuses a managed job that is nested too deeply to be read. A job that was managed so, as `old`, may stay so.
pub(super) fn check_levels(object: &Value, old: Option<&Value>, violations: &mut Violations) {
    if is_too_deep(object) && !old.is_some_and(is_too_deep) {
        violations.forbidden("spec", TOO_DEEP);
    }
}

/// How long the object is as JSON.
fn length(object: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value is always written, and counting never fails.
    serde_json::to_writer(&mut count, object).map_or(usize::MAX, |()| count.0)
}

/// Where annotations are, and how many bytes they have.
fn sizes(kind: JobKind, object: &Value) -> Vec<(String, usize)> {
    let mut sizes = vec![("metadata.annotations".to_owned(), bytes(object))];
    for group in registry::of(kind).pod_groups(object) {
        let place = group.pointer.trim_start_matches('/').replace('/', ".");
        sizes.push((format!("{place}.metadata.annotations"), bytes(&group.template)));
    }
    sizes
}

fn bytes(annotated: &Value) -> usize {
    let annotations = annotated["metadata"]["annotations"].as_object().into_iter().flatten();
    annotations.map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use serde_json::json;
    use sluice_api::gates::Gates;
    use sluice_api::slim::raw::LEVELS;

    use super::*;
    use crate::review::Context;
    use crate::webhook::validate;

    fn job(own: usize, of_pods: usize) -> Value {
        json!({
            "metadata": {"name": "j", "annotations": {"example.com/a": "x".repeat(own - 13)}},
            "spec": {"template": {"metadata": {"annotations": {"example.com/b": "y".repeat(of_pods - 13)}}, "spec": {}}},
        })
    }

    fn reported(object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut violations = Violations::default();
        check(JobKind::JOB, object, old, &mut violations);
        violations.0.iter().map(|broken| format!("{}: {}", broken.path, broken.message)).collect()
    }

    #[test]
    fn annotations_leave_room_for_the_mark_of_a_stop_and_what_pods_get() {
        let most = ALL - OURS;
        assert_eq!(reported(&job(most, most), None), Vec::<String>::new());
        let why = "Too long: may not be more than 258048 bytes, so that the manager can add its own";
        assert_eq!(reported(&job(most + 1, 100), None), [format!("metadata.annotations: {why}")]);
        let template = format!("spec.template.metadata.annotations: {why}");
        assert_eq!(reported(&job(100, ALL), None), [template]);
    }

    #[test]
    fn what_was_too_long_before_may_stay_and_not_grow() {
        let (long, longer) = (job(ALL - 10, 100), job(ALL, 100));
        assert_eq!(reported(&long, Some(&long)), Vec::<String>::new());
        assert_eq!(reported(&longer, Some(&long)).len(), 1);
        assert_eq!(reported(&long, Some(&longer)), Vec::<String>::new());
        assert_eq!(reported(&long, None).len(), 1, "it was not managed before");
    }

    /// A job of this size.
    fn whole(bytes: usize, suspended: bool) -> Value {
        let mut job = job(100, 100);
        job["spec"]["suspend"] = json!(suspended);
        job["spec"]["template"]["spec"]["containers"] = json!([{"name": "c", "args": [""]}]);
        let rest = bytes - length(&job);
        job["spec"]["template"]["spec"]["containers"][0]["args"][0] = json!("x".repeat(rest));
        job
    }

    fn refusals_of_whole(object: &Value, old: Option<&Value>) -> usize {
        let mut violations = Violations::default();
        check_whole(JobKind::JOB, object, old, &mut violations);
        violations.0.len()
    }

    #[test]
    fn a_job_that_could_not_be_stopped_is_neither_accepted_nor_started() {
        let most = WHOLE - OURS_OF_WHOLE;
        assert_eq!(refusals_of_whole(&whole(most, true), None), 0);
        assert_eq!(refusals_of_whole(&whole(most + 1, true), None), 1);
        // The manager starts a job, and stops it.
        let (waits, runs) = (whole(most, true), whole(WHOLE, false));
        assert_eq!(refusals_of_whole(&runs, Some(&waits)), 0);
        let stopped = whole(WHOLE + 300, true);
        assert_eq!(refusals_of_whole(&stopped, Some(&runs)), 0);
        // It grew while it waited, may not be resumed by hand then, and is restored.
        assert_eq!(refusals_of_whole(&whole(WHOLE + 9_000, true), Some(&stopped)), 0);
        assert_eq!(refusals_of_whole(&whole(WHOLE + 300, false), Some(&stopped)), 1);
        assert_eq!(refusals_of_whole(&whole(WHOLE, false), Some(&stopped)), 0);
        // A running job may not grow, and its status may be written.
        let large = whole(WHOLE + 10, false);
        assert_eq!(refusals_of_whole(&large, Some(&runs)), 1);
        assert_eq!(refusals_of_whole(&large, Some(&large)), 0);
    }

    #[test]
    fn jobs_that_are_not_managed_may_be_as_large_as_the_api_server_takes() {
        let (selector, labels) = (LabelSelector::default(), BTreeMap::new());
        let mut context = Context {
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: &selector,
            namespace_labels: &labels,
            default_local_queue: false,
            default_priority_class: false,
            managed_owner: false,
            gatherer: None,
            gates: Gates::default(),
        };
        let refused = |object: &Value, old: Option<&Value>, context: &Context<'_>| {
            let denied =
                validate(JobKind::JOB, object, old, context).err().map_or_else(Vec::new, |denied| denied.0);
            denied.iter().filter(|broken| broken.message.starts_with("Too long")).count()
        };
        let mut large = whole(WHOLE + 10, false);
        large["metadata"]["annotations"] = json!({"example.com/a": "x".repeat(ALL - 13)});
        assert_eq!(refused(&large, None, &context), 0);
        let mut queued = large.clone();
        queued["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "lq"});
        assert_eq!(refused(&queued, None, &context), 2);
        assert_eq!(refused(&queued, Some(&large), &context), 2, "it was not managed before");
        assert_eq!(refused(&queued, Some(&queued), &context), 0, "nothing grows");
        context.managed_owner = true;
        assert_eq!(refused(&large, None, &context), 2, "it is part of one that is");
    }

    /// A Job whose pods tolerate this number of taints.
    fn tolerant(number: usize, suspended: bool) -> Value {
        let pods = json!({"tolerations": vec![json!({"key": "k"}); number], "containers": [{"name": "c"}]});
        json!({"metadata": {"name": "j"}, "spec": {"suspend": suspended, "template": {"spec": pods}}})
    }

    fn refusals_of_values(kind: JobKind, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut violations = Violations::default();
        check_values(kind, object, old, false, &mut violations);
        violations.0.into_iter().map(|broken| broken.message).collect()
    }

    /// Its controller made it of a template that was judged, and the API server and admission added to it.
    #[test]
    fn a_part_of_a_job_has_what_is_added_to_it() {
        let refusals = |number: usize| {
            let mut violations = Violations::default();
            check_values(JobKind::JOB, &tolerant(number, false), None, true, &mut violations);
            violations.0.len()
        };
        assert_eq!((refusals(2_100), refusals(4_100)), (0, 1));
    }

    #[test]
    fn pod_templates_have_bounded_values_and_those_of_a_started_job_what_admission_adds() {
        let refusals =
            |object: &Value, old: Option<&Value>| refusals_of_values(JobKind::JOB, object, old).len();
        assert_eq!(refusals(&tolerant(1_999, true), None), 0);
        assert_eq!(refusals(&tolerant(2_000, true), None), 1);
        let (most, more) = (tolerant(1_999, true), tolerant(3_900, false));
        assert_eq!(refusals(&more, Some(&most)), 0, "it is started");
        assert_eq!(refusals(&tolerant(4_100, false), Some(&most)), 1);
        let stopping = tolerant(3_900, true);
        assert_eq!(refusals(&stopping, Some(&more)), 0, "nothing grows");
        assert_eq!(refusals(&tolerant(2_000, true), Some(&most)), 1);
        // All templates of a job count together.
        let of = |number: usize| json!({"name": "a", "template": {"spec": tolerant(number, true)["spec"]}});
        let set = |number: usize| json!({"metadata": {}, "spec": {"suspend": true, "replicatedJobs": [of(number), of(number)]}});
        assert_eq!(refusals_of_values(JobKind::JOB_SET, &set(900), None), Vec::<String>::new());
        let why = refusals_of_values(JobKind::JOB_SET, &set(1_100), None);
        assert!(
            why[0].starts_with(
                "Too long: the pod templates of a queued job may not have more than 4000 values that"
            ),
            "{why:?}"
        );
    }

    #[test]
    fn large_templates_of_very_many_jobs_are_refused() {
        let set = |values: usize, jobs: i32| {
            let of =
                json!({"name": "a", "replicas": jobs, "template": {"spec": tolerant(values, true)["spec"]}});
            json!({"metadata": {}, "spec": {"suspend": true, "replicatedJobs": [of]}})
        };
        let refused = |set: &Value, old: Option<&Value>| {
            let why = refusals_of_values(JobKind::JOB_SET, set, old);
            assert!(why.iter().all(|why| why.contains("the jobs that are made of a queued job")), "{why:?}");
            !why.is_empty()
        };
        let many = set(1_900, 5_000);
        assert!(refused(&many, None));
        assert!(!refused(&set(1_900, 100), None));
        assert!(!refused(&set(50, i32::MAX), None), "its template is small");
        assert!(!refused(&many, Some(&many)), "it may keep what it has");
        assert!(refused(&set(1_900, 5_001), Some(&many)));
        let annotated = |jobs: i32| {
            let mut set = set(1, jobs);
            set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] =
                json!({"annotations": {"note": "x".repeat(200 << 10)}});
            set
        };
        assert!(refused(&annotated(5_000), None) && !refused(&annotated(500), None));
    }

    #[test]
    fn what_got_past_the_webhook_cannot_be_read() {
        let view = crate::observe(JobKind::JOB, &tolerant(3_900, false));
        assert_eq!((view.invalid, view.pod_sets.len()), (None, 1));
        let view = crate::observe(JobKind::JOB, &tolerant(100_000, false));
        assert!(view.invalid.unwrap().starts_with("spec.template: Too long: "));
        assert!(view.pod_sets.is_empty());
    }

    #[test]
    fn a_job_that_is_nested_too_deeply_is_refused_and_cannot_be_read() {
        let deep = |levels: usize, labels: Value| {
            let mut job = whole(2_000, true);
            job["metadata"]["labels"] = labels;
            // Below the object and its spec.
            job["spec"]["x"] = (2..levels).fold(json!(1), |below, _| json!({"a": below}));
            job
        };
        let (selector, labels) = (LabelSelector::default(), BTreeMap::new());
        let context = Context {
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: &selector,
            namespace_labels: &labels,
            default_local_queue: false,
            default_priority_class: false,
            managed_owner: false,
            gatherer: None,
            gates: Gates::default(),
        };
        let refused = |new: &Value, old: Option<&Value>| {
            let denied = validate(JobKind::JOB, new, old, &context).err();
            let message = format!("more than {LEVELS} levels");
            denied.is_some_and(|denied| denied.to_string().contains(&message))
        };
        let queue = json!({"kueue.x-k8s.io/queue-name": "q"});
        let (most, more) = (deep(LEVELS, queue.clone()), deep(LEVELS + 1, queue));
        assert!(!refused(&most, None));
        assert!(refused(&more, None) && refused(&more, Some(&most)));
        assert!(!refused(&more, Some(&more)), "it was so before");
        assert!(!refused(&deep(LEVELS + 1, json!({})), None), "it is not queued");
        assert_eq!(crate::observe(JobKind::JOB, &most).invalid, None);
        let view = crate::observe(JobKind::JOB, &more);
        assert_eq!((view.invalid.as_deref(), view.pod_sets.len()), (Some(TOO_DEEP), 0));
        assert!(view.suspended && view.queue_name.as_deref() == Some("q"));
    }

    #[test]
    fn kinds_that_no_field_suspends_have_no_such_bound() {
        let object = whole(WHOLE + 10, true);
        for kind in JobKind::ALL {
            let mut violations = Violations::default();
            check_whole(kind, &object, None, &mut violations);
            let gates = kind.integration().of_pods || kind.integration().suspends_pods;
            assert_eq!(violations.0.is_empty(), gates, "{kind:?}");
        }
    }
}
