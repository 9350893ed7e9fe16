//! Reads the job or Workload of the question.

use std::sync::Arc;

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::Kind;

use super::{Keep, Listed, is_admitted, is_met, is_over, text};
use crate::explain::{MOST_EVENTS, Subject, is_own};

/// Most pods of a job that are read, of the pending ones and of the others.
pub const MOST_PODS: usize = 500;

/// The longest value of a label.
const LONGEST_VALUE: usize = 63;

/// The object of the question as it is in the cluster: its Workload by name, or a job without one; the job of the Workload; its events; its pending
/// pods if it is admitted, and its other pods while these are not ready. `list` lists up to a number of objects of a path, with the selectors of a
/// query; unneeded objects are dropped. What could not be read is noted in the result, except for the object itself.
///
/// # Errors
/// Why the object could not be read.
pub async fn subject<F>(
    namespace: &str,
    workload: Option<&str>,
    job: Option<(JobKind, &str)>,
    list: impl Fn(String, String, usize, Keep) -> F,
) -> Result<Subject, String>
where
    F: Future<Output = Listed>,
{
    let all = || -> Keep { Arc::new(Some) };
    let one = async |kind: Kind, name: &str| {
        let place = kind.collection(kind.version(), Some(namespace));
        let Listed { found, unread, .. } =
            list(place, format!("&fieldSelector=metadata.name%3D{}", encoded(name)), 1, all()).await;
        match (only(kind, found), unread) {
            (None, Some(why)) => Err(why),
            (found, _) => Ok(found),
        }
    };
    let mut subject = Subject::default();
    if let Some(name) = workload {
        subject.workload = one(Kind::Workload, name).await?;
    }
    let owner = subject.workload.as_ref().and_then(controller);
    let job = job.map(|(kind, name)| (kind, name.to_owned())).or(owner);
    // A manager has no right to read objects whose pods are the jobs.
    if let Some((kind, name)) = job.filter(|(kind, _)| !kind.integration().pods_are_jobs) {
        match one(Kind::Job(kind), &name).await {
            Ok(found) => subject.job = found,
            Err(why) if subject.workload.is_some() => subject.misses(Kind::Job(kind).plural(), Some(why)),
            Err(why) => return Err(why),
        }
    }
    let about = subject.workload.as_ref().or(subject.job.as_ref());
    let uid = about.map(|object| text(&object["metadata"]["uid"])).unwrap_or_default();
    if !uid.is_empty() {
        let place = format!("/api/v1/namespaces/{namespace}/events");
        let query = format!("&fieldSelector=involvedObject.uid%3D{}", encoded(&uid));
        let Listed { found, unread, .. } = list(place, query, MOST_EVENTS, all()).await;
        subject.events = found;
        // A role of an older chart does not allow it: the rest of the answer does not depend on them.
        subject.no_events = unread.is_some();
        subject.misses("events", unread);
    }
    let is_deleted = |workload: &Value| workload["metadata"]["deletionTimestamp"].is_string();
    let may_run = |w: &Value| is_admitted(w) && !is_deleted(w) && !is_over(Kind::Workload, w);
    let Some(workload) = subject.workload.clone().filter(may_run) else {
        return Ok(subject);
    };
    let (owner, job) = (workload.clone(), subject.job.clone());
    let own: Keep = Arc::new(move |pod| is_own(&pod, &owner, job.as_ref()).then_some(pod));
    let place = || Kind::Pod.collection(Kind::Pod.version(), Some(namespace));
    let (labels, fields) = selected(&workload);
    let pending = format!("&fieldSelector=status.phase%3DPending{fields}{labels}");
    let pods = list(place(), pending, MOST_PODS, Arc::clone(&own)).await;
    (subject.pods, subject.more_pods) = (pods.found, pods.more || pods.unread.is_some());
    subject.misses("pods", pods.unread);
    if !is_met(&workload, "PodsReady") {
        let others =
            format!("&fieldSelector=status.phase%21%3DPending%2Cstatus.phase%21%3DFailed{fields}{labels}");
        let others = list(place(), others, MOST_PODS, own).await;
        subject.pods.extend(others.found);
        subject.all_pods = !others.more && others.unread.is_none() && !subject.more_pods;
        subject.misses("pods", others.unread);
    }
    Ok(subject)
}

/// A text as a part of a value in a query. Names that a tenant writes into owner references are not checked by the API server.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 15] {
                encoded
                    .extend(char::from_digit(u32::from(digit), 16).map(|digit| digit.to_ascii_uppercase()));
            }
        }
    }
    encoded
}

/// Which pods are read, as a label selector and further field selectors in a URL: the pods with the label that the job's controller sets, if it does,
/// or the single pod that is the job. Other pods of the namespace are not read.
fn selected(workload: &Value) -> (String, String) {
    let Some((kind, name)) = controller(workload) else { return Default::default() };
    if kind.integration().of_pods {
        return (String::new(), format!("%2Cmetadata.name%3D{}", encoded(&name)));
    }
    let Some(label) = kind.label_of_pods().filter(|_| name.len() <= LONGEST_VALUE) else {
        return Default::default();
    };
    (format!("&labelSelector={}%3D{}", label.replace('/', "%2F"), encoded(&name)), String::new())
}

/// The only object that was found, with its kind.
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

    /// What is read of an admitted Workload, and the queries; lists whose path ends with `unread` are refused.
    fn read(conditions: &Value, unread: &[&str]) -> (Result<Subject, String>, Vec<String>) {
        let asked = RefCell::new(Vec::new());
        let owner =
            json!({"controller": true, "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j"});
        let list = |place: String, query: String, _most: usize, keep: Keep| {
            let named = |name: &str| json!({"metadata": {"name": name, "uid": format!("uid-{name}")}});
            let mut workload = named("w");
            workload["metadata"]["ownerReferences"] = json!([owner]);
            workload["status"]["conditions"] = conditions.clone();
            let mut own = named("p");
            own["metadata"]["ownerReferences"] = json!([{"uid": "uid-j"}]);
            let found = match place.rsplit('/').next().unwrap_or_default() {
                "workloads" => vec![workload],
                "jobs" => vec![named("j")],
                "events" => vec![json!({"reason": "Admitted"})],
                _ => vec![own, named("of-another")],
            };
            let refused = unread.iter().any(|what| place.ends_with(what));
            asked.borrow_mut().push(format!("{place}?{query}"));
            std::future::ready(if refused {
                Listed { unread: Some("forbidden".to_owned()), ..Listed::default() }
            } else {
                found.into_iter().filter_map(|object| keep(object)).collect::<Vec<_>>().into()
            })
        };
        let subject = ready(subject("ns", Some("w"), None, list));
        (subject, asked.into_inner())
    }

    fn met(kind: &str) -> Value {
        json!({"type": kind, "status": "True"})
    }

    #[test]
    fn events_are_those_of_the_object_and_pods_those_that_may_not_run() {
        let (subject, asked) = read(&json!([met("Admitted")]), &[]);
        let subject = subject.unwrap();
        assert_eq!((subject.events.len(), subject.no_events), (1, false));
        assert_eq!(
            asked[2..],
            [
                "/api/v1/namespaces/ns/events?&fieldSelector=involvedObject.uid%3Duid-w",
                "/api/v1/namespaces/ns/pods?&fieldSelector=status.phase%3DPending\
                 &labelSelector=batch.kubernetes.io%2Fjob-name%3Dj",
                "/api/v1/namespaces/ns/pods?&fieldSelector=status.phase%21%3DPending%2Cstatus.phase%21%3DFailed\
                 &labelSelector=batch.kubernetes.io%2Fjob-name%3Dj",
            ]
        );
        // Pods of others are not kept.
        assert_eq!((subject.pods.len(), subject.all_pods, subject.more_pods), (2, true, false));
        assert!(subject.unread.is_empty());
        // Once all are ready, none is missing.
        let (subject, asked) = read(&json!([met("Admitted"), met("PodsReady")]), &[]);
        let subject = subject.unwrap();
        assert_eq!((asked.len(), subject.pods.len(), subject.all_pods), (4, 1, false));
        let (subject, asked) = read(&json!([]), &["/events"]);
        let subject = subject.unwrap();
        assert_eq!((asked.len(), subject.no_events, subject.pods.len()), (3, true, 0));
    }

    #[test]
    fn what_cannot_be_read_is_reported_and_the_rest_is_read() {
        let (subject, asked) = read(&json!([met("Admitted")]), &["/pods", "/events", "/jobs"]);
        let subject = subject.unwrap();
        assert!(subject.workload.is_some() && !subject.all_pods && subject.more_pods);
        assert_eq!(asked.len(), 5);
        let what: Vec<_> = subject.unread.iter().map(|unread| (unread.what, &*unread.why)).collect();
        assert_eq!(what, [("jobs", "forbidden"), ("events", "forbidden"), ("pods", "forbidden")]);
        // An explanation needs the Workload itself.
        assert_eq!(read(&json!([]), &["/workloads"]).0, Err("forbidden".to_owned()));
    }

    #[test]
    fn a_name_in_an_owner_reference_selects_nothing_else() {
        let owner = |kind: (&str, &str), name: &str| {
            let owner = json!({"controller": true, "apiVersion": kind.0, "kind": kind.1, "name": name});
            selected(&json!({"metadata": {"ownerReferences": [owner]}}))
        };
        let (job, pod) = (("batch/v1", "Job"), ("v1", "Pod"));
        let evil = "a,metadata.namespace=x&limit=1/../%2e";
        let coded = "a%2Cmetadata.namespace%3Dx%26limit%3D1%2F..%2F%252e";
        assert_eq!(owner(job, evil).0, format!("&labelSelector=batch.kubernetes.io%2Fjob-name%3D{coded}"));
        assert_eq!(owner(pod, evil), (String::new(), format!("%2Cmetadata.name%3D{coded}")));
        assert_eq!(owner(job, &"a".repeat(64)), Default::default());
    }
}
