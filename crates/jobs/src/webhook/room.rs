//! Room in a job for what the manager writes into it: the API server refuses a write that makes the annotations of an object or a
//! pod template too large, so that a job with as many as there may be could be neither started nor stopped as it should.

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_api::labels;

use crate::registry;
use crate::review::Violations;

/// How many bytes the names and values of an object's annotations have at most, for the API server.
const ALL: usize = 256 << 10;
/// How many of those are the manager's.
const OURS: usize = 4 << 10;

/// Refuses annotations that leave the manager no room. A queued job that has them already may have them, and may not get more.
pub(super) fn check(kind: JobKind, object: &Value, old: Option<&Value>, violations: &mut Violations) {
    let before = old.filter(|old| is_queued(old)).map(|old| sizes(kind, old)).unwrap_or_default();
    for (path, bytes) in sizes(kind, object) {
        let before = before.iter().find(|(known, _)| *known == path).map_or(0, |(_, bytes)| *bytes);
        if bytes > (ALL - OURS).max(before) {
            let most = ALL - OURS;
            violations.add(
                &path,
                format!("Too long: may not be more than {most} bytes, so that the manager can add its own"),
            );
        }
    }
}

fn is_queued(object: &Value) -> bool {
    let metadata = &object["metadata"];
    ["labels", "annotations"].iter().any(|place| metadata[place][labels::QUEUE_NAME].is_string())
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
    use serde_json::json;

    use super::*;

    fn job(own: usize, of_pods: usize, queued: bool) -> Value {
        let mut job = json!({
            "metadata": {"name": "j", "annotations": {"example.com/a": "x".repeat(own - 13)}},
            "spec": {"template": {"metadata": {"annotations": {"example.com/b": "y".repeat(of_pods - 13)}}, "spec": {}}},
        });
        if queued {
            job["metadata"]["labels"] = json!({labels::QUEUE_NAME: "lq"});
        }
        job
    }

    fn told(object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut violations = Violations::default();
        check(JobKind::JOB, object, old, &mut violations);
        violations.0.iter().map(|broken| format!("{}: {}", broken.path, broken.message)).collect()
    }

    #[test]
    fn annotations_leave_room_for_the_mark_of_a_stop_and_what_pods_get() {
        let most = ALL - OURS;
        assert_eq!(told(&job(most, most, true), None), Vec::<String>::new());
        let why = "Too long: may not be more than 258048 bytes, so that the manager can add its own";
        assert_eq!(told(&job(most + 1, 100, true), None), [format!("metadata.annotations: {why}")]);
        let template = format!("spec.template.metadata.annotations: {why}");
        assert_eq!(told(&job(100, ALL, true), None), [template]);
    }

    #[test]
    fn what_was_too_long_before_may_stay_and_not_grow() {
        let (long, longer) = (job(ALL - 10, 100, true), job(ALL, 100, true));
        assert_eq!(told(&long, Some(&long)), Vec::<String>::new());
        assert_eq!(told(&longer, Some(&long)).len(), 1);
        assert_eq!(told(&long, Some(&longer)), Vec::<String>::new());
        let unqueued = job(ALL - 10, 100, false);
        assert_eq!(told(&long, Some(&unqueued)).len(), 1, "it was not queued before");
    }
}
