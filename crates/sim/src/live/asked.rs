//! What is read of the one that is asked about.

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::Kind;

use super::{is_admitted, is_met, is_over, text};
use crate::explain::{MOST_EVENTS, Subject};

/// Pending pods of a namespace that are read at most.
pub const MOST_PENDING: usize = 500;

/// What is asked about, as it is in the cluster: its Workload by name, or a job that has none; the job of the Workload; the events about it; the pending
/// pods of its namespace, if it is admitted, and all of its own while these are not ready. `list` lists at most so many of a path, with a query's selectors, and says whether there are more.
///
/// # Errors
/// When listing fails.
pub async fn subject<E, F>(
    namespace: &str,
    workload: Option<&str>,
    job: Option<(JobKind, &str)>,
    list: impl Fn(String, String, usize) -> F,
) -> Result<Subject, E>
where
    F: Future<Output = Result<(Vec<Value>, bool), E>>,
{
    let one = |kind: Kind, name: &str| {
        let place = kind.collection(kind.version(), Some(namespace));
        list(place, format!("&fieldSelector=metadata.name%3D{name}"), 1)
    };
    let mut subject = Subject::default();
    if let Some(name) = workload {
        subject.workload = only(Kind::Workload, one(Kind::Workload, name).await?.0);
    }
    let owner = subject.workload.as_ref().and_then(controller);
    let job = job.map(|(kind, name)| (kind, name.to_owned())).or(owner);
    // A manager has no right to read objects whose pods are the jobs.
    if let Some((kind, name)) = job.filter(|(kind, _)| !kind.integration().pods_are_jobs) {
        let kind = Kind::Job(kind);
        subject.job = only(kind, one(kind, &name).await?.0);
    }
    let about = subject.workload.as_ref().or(subject.job.as_ref());
    let uid = about.map(|object| text(&object["metadata"]["uid"])).unwrap_or_default();
    if !uid.is_empty() {
        let place = format!("/api/v1/namespaces/{namespace}/events");
        match list(place, format!("&fieldSelector=involvedObject.uid%3D{uid}"), MOST_EVENTS).await {
            Ok((events, _)) => subject.events = events,
            // A role of an older chart does not allow it: the rest of the answer does not depend on them.
            Err(_) => subject.no_events = true,
        }
    }
    let Some(workload) = subject.workload.as_ref().filter(|w| is_admitted(w) && !is_over(Kind::Workload, w))
    else {
        return Ok(subject);
    };
    let place = || Kind::Pod.collection(Kind::Pod.version(), Some(namespace));
    let pending = "&fieldSelector=status.phase%3DPending".to_owned();
    let ready = is_met(workload, "PodsReady");
    let label = subject.job.as_ref().and_then(pods_label);
    (subject.pods, subject.more_pods) = list(place(), pending, MOST_PENDING).await?;
    if !ready {
        let label = label.map(|label| format!("&labelSelector={label}")).unwrap_or_default();
        let others = format!("&fieldSelector=status.phase%21%3DPending%2Cstatus.phase%21%3DFailed{label}");
        let (others, more) = list(place(), others, MOST_PENDING).await?;
        subject.pods.extend(others);
        subject.all_pods = !more && !subject.more_pods;
    }
    Ok(subject)
}

/// The label by which the controller of a job marks all of its pods, as a selector in a URL.
fn pods_label(job: &Value) -> Option<String> {
    let kind = JobKind::from_owner(&text(&job["apiVersion"]), &text(&job["kind"]))?;
    let label = kind.label_of_pods()?.replace('/', "%2F");
    Some(format!("{label}%3D{}", text(&job["metadata"]["name"])))
}

/// The one that was found, with its kind.
fn only(kind: Kind, found: Vec<Value>) -> Option<Value> {
    let mut object = found.into_iter().next()?;
    object["kind"] = Value::from(kind.as_str());
    object["apiVersion"] = Value::from(kind.api_version());
    Some(object)
}

/// Kind and name of the job that controls a Workload.
fn controller(workload: &Value) -> Option<(JobKind, String)> {
    let mut owners = workload["metadata"]["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|owner| owner["controller"] == true)?;
    Some((JobKind::from_owner(&text(&owner["apiVersion"]), &text(&owner["kind"]))?, text(&owner["name"])))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::json;

    use super::super::tests::ready;
    use super::*;

    /// What is read of an admitted Workload, and the queries.
    fn read(conditions: &Value, events: &Result<Vec<Value>, ()>) -> (Subject, Vec<String>) {
        let asked = RefCell::new(Vec::new());
        let owner = json!({"controller": true, "apiVersion": "batch/v1", "kind": "Job", "name": "j"});
        let list = |place: String, query: String, _most: usize| {
            let named = |name: &str| json!({"metadata": {"name": name, "uid": format!("uid-{name}")}});
            let mut workload = named("w");
            workload["metadata"]["ownerReferences"] = json!([owner]);
            workload["status"]["conditions"] = conditions.clone();
            let found = match place.rsplit('/').next().unwrap_or_default() {
                "workloads" => Ok(vec![workload]),
                "jobs" => Ok(vec![named("j")]),
                "events" => events.clone(),
                _ => Ok(vec![named("p")]),
            };
            asked.borrow_mut().push(format!("{place}?{query}"));
            std::future::ready(found.map(|found| (found, false)))
        };
        let subject = ready(subject("ns", Some("w"), None, list)).unwrap();
        (subject, asked.into_inner())
    }

    #[test]
    fn events_are_those_of_the_object_and_pods_those_that_may_not_run() {
        let met = |kind: &str| json!({"type": kind, "status": "True"});
        let (subject, asked) = read(&json!([met("Admitted")]), &Ok(vec![json!({"reason": "Admitted"})]));
        assert_eq!((subject.events.len(), subject.no_events), (1, false));
        assert_eq!(
            asked[2..],
            [
                "/api/v1/namespaces/ns/events?&fieldSelector=involvedObject.uid%3Duid-w",
                "/api/v1/namespaces/ns/pods?&fieldSelector=status.phase%3DPending",
                "/api/v1/namespaces/ns/pods?&fieldSelector=status.phase%21%3DPending%2Cstatus.phase%21%3DFailed\
                 &labelSelector=batch.kubernetes.io%2Fjob-name%3Dj",
            ]
        );
        assert_eq!((subject.pods.len(), subject.all_pods), (2, true));
        // Once all are ready, none is missing.
        let (subject, asked) = read(&json!([met("Admitted"), met("PodsReady")]), &Ok(Vec::new()));
        assert_eq!((asked.len(), subject.pods.len(), subject.all_pods), (4, 1, false));
        let (subject, asked) = read(&json!([]), &Err(()));
        assert_eq!((asked.len(), subject.no_events, subject.pods.len()), (3, true, 0));
    }
}
