//! Looking for pods, on a stand-in for the API server.

use std::sync::Mutex;

use axum::body::Bytes;
use axum::http::Uri;
use serde_json::Value;
use sluice_api::job::JobKind;

use super::*;
use crate::fake_api::{self, failed, found};
use crate::lease::deadline::Deadline;
use crate::writer::Server;
use crate::writer::traffic::Traffic;

fn pod(name: &str, controller: &str, leaves: bool) -> Value {
    let owners = json!([{"uid": "other"}, {"uid": controller, "controller": true}]);
    let mut metadata = json!({"name": name, "uid": format!("u-{name}"), "ownerReferences": owners});
    if leaves {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    json!({ "metadata": metadata })
}

/// What comes of a look at these pages, and what was sent.
async fn looked(
    pages: Vec<Vec<Value>>,
    then: EndPods,
) -> (Result<(), WriteError>, Vec<(Method, String, String)>) {
    looked_for(pages, then, false).await
}

/// The same of a job whose pods are `labelled`, too: those of the last page are.
async fn looked_for(
    pages: Vec<Vec<Value>>,
    then: EndPods,
    labelled: bool,
) -> (Result<(), WriteError>, Vec<(Method, String, String)>) {
    let label = labelled.then(|| ("example.com/of", "job".into()));
    looked_by(PodsOf { uids: vec!["a".into(), "b".into()], label, makers: Vec::new() }, pages, then).await
}

/// The same by these marks. A query for a name finds a pod that is in no page: the job's, if the name says so.
async fn looked_by(
    of: PodsOf,
    pages: Vec<Vec<Value>>,
    then: EndPods,
) -> (Result<(), WriteError>, Vec<(Method, String, String)>) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (noted, pages) = (Arc::clone(&sent), Arc::new(pages));
    let client = fake_api::client(move |method: Method, uri: Uri, body: Bytes| {
        let (text, body) = (uri.to_string(), String::from_utf8_lossy(&body).into_owned());
        let answer = match &method {
            &Method::GET => {
                let named = text.split("metadata.name%3D").nth(1).and_then(|rest| rest.split('&').next());
                if let Some(name) = named {
                    let own = pod(name, if name.starts_with("own") { "a" } else { "c" }, false);
                    return std::future::ready(found(&json!({"metadata": {}, "items": [own]})));
                }
                if text.contains("labelSelector=example.com%2Fof%3Djob") {
                    return std::future::ready(found(&json!({"metadata": {}, "items": pages.last()})));
                }
                let at = text.split("continue=p").nth(1).map_or(0, |page| page.parse().unwrap());
                let next = if at + 1 < pages.len() { format!("p{}", at + 1) } else { String::new() };
                // As the API server says it of nothing.
                let items = pages.get(at).filter(|page| !page.is_empty());
                found(&json!({"metadata": {"continue": next}, "items": items}))
            }
            _ if text.ends_with("gone") => failed(404, "NotFound"),
            _ if text.ends_with("namesake") => failed(409, "Conflict"),
            _ if text.ends_with("refused") => failed(403, "Forbidden"),
            _ => found(&json!({})),
        };
        noted.lock().unwrap().push((method, text, body));
        std::future::ready(answer)
    });
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let sending = Sending::alone(server);
    let job = if matches!(then, EndPods::LookForLeft { .. }) {
        ObjectRef::cluster(Kind::Namespace, "ns")
    } else {
        ObjectRef::namespaced(Kind::Job(JobKind::MPI_JOB), "ns", "job")
    };
    let result = end(&sending, &job, "v2beta1", &of, &then).await;
    let sent = sent.lock().unwrap().clone();
    (result, sent)
}

const PODS: &str = "/api/v1/namespaces/ns/pods";

fn touch() -> EndPods {
    EndPods::Touch(json!({"metadata": {"uid": "a"}}))
}

#[tokio::test]
async fn a_job_without_pods_is_left_alone() {
    for then in [touch(), EndPods::Delete] {
        let others = vec![vec![pod("theirs", "c", false), json!({"metadata": {"name": "x", "uid": "a"}})]];
        let (result, sent) = looked(others, then).await;
        assert_eq!((result, sent.len()), (Ok(()), 1));
        assert_eq!(sent[0].1, format!("{PODS}?{LIVE}"));
    }
}

#[tokio::test]
async fn a_job_with_pods_is_touched_and_one_whose_pods_leave_is_not() {
    let (result, sent) = looked(vec![vec![pod("p", "a", false), pod("q", "b", true)]], touch()).await;
    assert_eq!(result, Err(WriteError::PodsLeft { going_on: 1, leaving: 1 }));
    let uri = "/apis/kubeflow.org/v2beta1/namespaces/ns/mpijobs/job";
    assert_eq!(sent[1..], [(Method::PATCH, uri.to_owned(), json!({"metadata": {"uid": "a"}}).to_string())]);
    let (result, sent) = looked(vec![vec![pod("q", "b", true)]], touch()).await;
    assert_eq!(result, Err(WriteError::PodsLeft { going_on: 0, leaving: 1 }));
    assert_eq!(sent.len(), 1);
}

#[tokio::test]
async fn all_pods_are_deleted_and_those_that_they_made_on_whatever_page() {
    let pages = vec![
        vec![pod("executor", "u-driver", false), pod("theirs", "c", false), pod("gone", "a", false)],
        vec![pod("driver", "b", false), pod("leaving", "a", true), pod("namesake", "a", false)],
    ];
    let (result, sent) = looked(pages, EndPods::Delete).await;
    assert_eq!(result, Err(WriteError::PodsLeft { going_on: 4, leaving: 1 }));
    let mut deleted: Vec<_> = sent[2..].iter().map(|(method, uri, _)| (method.as_str(), &**uri)).collect();
    deleted.sort_unstable();
    let names = ["driver", "executor", "gone", "namesake"].map(|name| format!("{PODS}/{name}"));
    assert_eq!(deleted, names.each_ref().map(|uri| ("DELETE", &**uri)));
    let options = sent.iter().find(|(_, uri, _)| uri.ends_with("driver")).map(|(_, _, body)| body.clone());
    assert!(options.unwrap().contains("u-driver"), "no namesake");
}

#[tokio::test]
async fn pods_with_the_label_are_found_also_where_other_objects_control_them() {
    let pages = || {
        vec![
            vec![pod("theirs", "c", false), pod("worker", "u-of-set", false)],
            vec![pod("of-set", "replicas", false)],
        ]
    };
    let (result, sent) = looked_for(pages(), EndPods::Delete, true).await;
    assert_eq!(result, Err(WriteError::PodsLeft { going_on: 2, leaving: 0 }));
    let deleted = sent.iter().filter(|(method, ..)| method == Method::DELETE);
    let names: BTreeSet<_> = deleted.map(|(_, uri, _)| uri.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["of-set", "worker"].into(), "and what they made");
    assert_eq!(looked(pages(), EndPods::Delete).await.0, Ok(()), "without it they are not known");
}

/// A driver that has ended is in no list of those that have not.
#[tokio::test]
async fn what_a_pod_made_is_found_after_that_has_ended_if_it_was_the_jobs_own() {
    for (maker, found) in [("own-driver", 1), ("other-driver", 0)] {
        let pages = vec![vec![pod("executor", &format!("u-{maker}"), false), pod("theirs", "c", false)]];
        let of = PodsOf { uids: vec!["a".into()], label: None, makers: vec![maker.into()] };
        let (result, sent) = looked_by(of, pages, EndPods::Delete).await;
        let left = WriteError::PodsLeft { going_on: 1, leaving: 0 };
        assert_eq!(result, if found > 0 { Err(left) } else { Ok(()) }, "{maker}");
        let deleted: Vec<_> = sent.iter().filter(|(method, ..)| method == Method::DELETE).collect();
        assert_eq!(deleted.len(), found, "{maker}");
        assert!(deleted.iter().all(|(_, uri, _)| uri.ends_with("/executor")));
    }
    let of = PodsOf { uids: vec!["a".into()], label: None, makers: vec!["a&limit=9".into()] };
    let (result, sent) = looked_by(of, Vec::new(), EndPods::Look).await;
    assert_eq!((result, sent.len()), (Ok(()), 1), "no pod has such a name");
}

fn left(workload: &str, of: &[&str]) -> LeftPods {
    let of = of.iter().map(|uid| Arc::from(*uid)).collect();
    LeftPods { workload: workload.into(), of, by_name: true, ends_within: None }
}

fn with(mut pod: Value, key: &str, name: &str, value: &str) -> Value {
    pod["metadata"][key] = json!({ name: value });
    pod
}

#[tokio::test]
async fn what_is_left_of_jobs_that_are_gone_is_found_by_uid_workload_and_label() {
    let look = |lost: &[&str]| EndPods::LookForLeft {
        left: vec![left("w1", &["a", "child"]), left("w2", &["b"]), left("w3", &["x"]), left("w4", &["y"])],
        lost: lost.iter().map(|node| Arc::from(*node)).collect(),
    };
    let orphan = |mut pod: Value| {
        pod["metadata"]["ownerReferences"] = json!([]);
        pod
    };
    let on = |mut pod: Value, node: &str| {
        pod["spec"] = json!({"nodeName": node});
        pod
    };
    let remain = |pods: Vec<Value>, lost: &'static [&'static str]| async move {
        let (result, sent) = looked(vec![Vec::new(), pods], look(lost)).await;
        assert_eq!(sent.len(), 2, "it only looks");
        match result {
            Ok(()) => Vec::new(),
            Err(WriteError::PodsRemain(workloads)) => workloads.iter().map(ToString::to_string).collect(),
            Err(other) => unreachable!("{other}"),
        }
    };
    assert_eq!(remain(vec![pod("theirs", "c", false)], &[]).await, [""; 0]);
    let executor = pod("executor", "u-driver", false);
    assert_eq!(remain(vec![executor, pod("driver", "child", true)], &[]).await, ["w1"]);
    let carries = with(pod("p", "gone", false), "annotations", "kueue.x-k8s.io/workload", "w2");
    assert_eq!(remain(vec![carries, pod("q", "x", true)], &[]).await, ["w2", "w3"]);
    let labelled = with(pod("p", "other", false), "labels", "batch.kubernetes.io/controller-uid", "y");
    assert_eq!(remain(vec![labelled.clone()], &[]).await, [""; 0], "it is another's");
    assert_eq!(remain(vec![orphan(labelled)], &[]).await, ["w4"], "nothing owns it any more");
    let on_lost =
        || vec![on(pod("p", "a", true), "n1"), on(pod("q", "b", true), "n2"), on(pod("r", "x", false), "n1")];
    assert_eq!(remain(on_lost(), &["n1"]).await, ["w2", "w3"], "no pod ends on a lost node");
    assert_eq!(remain(on_lost(), &[]).await, ["w1", "w2", "w3"]);
}

/// The pods of a job that continues carry the name of its Workload, as those of its parts that are gone do.
#[test]
fn pods_that_carry_the_name_of_a_workload_are_left_behind_only_if_its_job_goes() {
    let carries = |pod| with(pod, "annotations", "kueue.x-k8s.io/workload", "w1");
    let pods = [carries(pod("p", "new-part", false)), carries(pod("q", "old-part", true))];
    let items = pods.map(|pod| serde_json::from_value::<Item>(pod).unwrap());
    for by_name in [false, true] {
        let found = whose(&items, &[LeftPods { by_name, ..left("w1", &["old-part"]) }]);
        let found: Vec<_> = found.iter().map(|of| !of.is_empty()).collect();
        assert_eq!(found, [by_name, true]);
    }
}

/// Those of `w1` are to end within 30 s.
fn overdue() -> EndPods {
    let soon = LeftPods { ends_within: Some(30), ..left("w1", &["a"]) };
    EndPods::LookForLeft { left: vec![soon, left("w2", &["b"])], lost: Vec::new() }
}

#[tokio::test]
async fn a_pod_that_cannot_be_deleted_keeps_no_other() {
    let pods = vec![pod("refused", "a", false), pod("runs", "a", false)];
    let deletes_others =
        |sent: &[(Method, String, String)]| sent.iter().any(|(_, uri, _)| uri.ends_with("/runs"));
    let (result, sent) = looked(vec![pods.clone()], overdue()).await;
    assert_eq!(result, Err(WriteError::PodsRemain(vec!["w1".into()])));
    assert!(deletes_others(&sent));
    // When a job is stopped, the refusal is reported.
    let (result, sent) = looked(vec![pods], EndPods::Delete).await;
    assert!(matches!(result, Err(WriteError::Refused(_))), "{result:?}");
    assert!(deletes_others(&sent));
}

#[tokio::test]
async fn pods_that_wait_behind_a_gate_are_neither_waited_for_nor_deleted() {
    for (gate, uses) in [("kueue.x-k8s.io/admission", false), ("example.com/other", true)] {
        let mut waits = with(pod("waits", "a", false), "annotations", "kueue.x-k8s.io/workload", "w1");
        waits["spec"] = json!({"schedulingGates": [{"name": gate}]});
        let (result, sent) = looked(vec![vec![waits]], overdue()).await;
        assert_eq!((result.is_err(), sent.len() > 1), (uses, uses), "{gate}");
    }
}

#[tokio::test]
async fn pods_that_have_had_long_enough_are_given_less_time() {
    let look = overdue();
    let leaves = |name: &str, controller: &str, seconds: i64| {
        let mut pod = pod(name, controller, true);
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
        pod["spec"] = json!({"nodeName": "n1"});
        pod
    };
    let mut no_node = leaves("no-node", "b", 1);
    no_node["spec"] = json!({});
    let pods = vec![
        leaves("long", "a", 31_536_000),
        leaves("short", "a", 30),
        pod("runs", "a", false),
        leaves("of-another", "b", 31_536_000),
    ];
    let (result, _) = looked(vec![vec![no_node]], look.clone()).await;
    assert_eq!(result, Ok(()), "it will not run");
    let (result, sent) = looked(vec![pods], look).await;
    assert_eq!(result, Err(WriteError::PodsRemain(vec!["w1".into(), "w2".into()])));
    let mut deleted: Vec<_> =
        sent[1..].iter().map(|(_, uri, body)| (&**uri, body.contains("\"gracePeriodSeconds\":30"))).collect();
    deleted.sort_unstable();
    assert_eq!(deleted, [(&*format!("{PODS}/long"), true), (&*format!("{PODS}/runs"), true)]);
}

#[tokio::test]
async fn the_number_of_deletions_at_a_time_is_limited() {
    let many = (0..MOST + 50).map(|n| pod(&format!("p{n}"), "a", false)).collect();
    let (result, sent) = looked(vec![many], EndPods::Delete).await;
    assert_eq!(result, Err(WriteError::PodsLeft { going_on: 250, leaving: 0 }));
    assert_eq!(sent.len(), 1 + MOST);
}

#[test]
fn the_annotation_that_is_read_is_the_one_that_names_the_workload() {
    let named = json!({ sluice_api::labels::WORKLOAD: "w", "other": "x" });
    let read: Annotations = serde_json::from_value(named).unwrap();
    assert_eq!(read.workload.as_deref(), Some("w"));
}

#[test]
fn what_users_write_into_their_pods_is_not_kept() {
    const PODS: usize = 20;
    let page = |at: usize, next: &str| {
        let pods: Vec<_> = (0..PODS)
            .map(|n| {
                let mut pod = pod(&format!("p{at}-{n}"), "a", true);
                let owners = pod["metadata"]["ownerReferences"].as_array_mut().unwrap();
                owners.extend((0..100).map(|n| json!({"uid": format!("{n:0>36}")})));
                pod["metadata"]["annotations"] = json!({"x": "y".repeat(250 << 10)});
                pod["metadata"]["labels"] = json!({"x": "y".repeat(63)});
                pod
            })
            .collect();
        Bytes::from(json!({"metadata": {"continue": next}, "items": pods}).to_string())
    };
    let pages = Arc::new([page(0, "p1"), page(1, "p2"), page(2, "")]);
    let largest = pages[0].len();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let client = fake_api::client(move |_: Method, uri: Uri, _: Bytes| {
        let at = uri.to_string().split("continue=p").nth(1).map_or(0, |page| page.parse().unwrap());
        let page: Bytes = Bytes::clone(&pages[at]);
        async move { axum::response::Response::new(page.into()) }
    });
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let mut found = 0;
    let cost = allocation_counter::measure(|| {
        let sending = Sending::alone(server);
        let mut many = sending.many();
        found =
            runtime.block_on(list(&sending, &mut many, &"ns".into(), LIVE)).map_or(0, |items| items.len());
    });
    assert_eq!(found, 3 * PODS);
    let most = u64::try_from(largest).unwrap() + (512 << 10);
    assert!(cost.bytes_max < most, "a page of {largest} bytes at a time: {cost:?}");
}
