//! The engine's writes as requests to the API server, and their answers as objects of the engine.

use std::borrow::Cow;

use axum::http::Method;
use serde::Deserializer as _;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView};
use sluice_api::slim::{self, Raw};
use sluice_client::error_chain::Chain;
use sluice_engine::TemplateSource;
use sluice_engine::effect::{EndPods, PodStep, PodsOf, Write};
use sluice_engine::input::{Kind, Object, ObjectRef, WriteError};
use sluice_jobs::{Patch, StartError, Step, applied_by};

use crate::api_call::{Call, CallError, Content};
use crate::watch::kinds::job;
use crate::watch::known::Known;
use crate::watch::source::Meta;

/// The requests of one write, in order. The answer of the last one is the write's answer.
#[derive(Debug)]
pub enum Plan {
    /// One request.
    One(Call),
    /// The steps of starting or stopping a job: each after the first is pinned to the version in the answer to the one before.
    Steps(JobKind, Vec<Step>),
    /// Requests on a pod, which may be gone after each of them.
    Pod(Vec<Call>),
    /// Creates a PodTemplate from a Workload.
    Template(Box<TemplateSource>),
    /// Whose pods are looked for, and what to do about them.
    EndPods(PodsOf, EndPods),
}

/// Makes the requests of a write, in the served version of the kind.
///
/// # Errors
///
/// If a job cannot be started, or a Workload cannot be written as JSON.
pub fn plan(object: &ObjectRef, version: &str, write: &Write) -> Result<Plan, WriteError> {
    let one = |method, subresource, query, content, body: &Value| {
        let uri = format!("{}{query}", uri(object, version, subresource));
        Ok(Plan::One(Call::with_body(method, uri, content, body)))
    };
    let unwritable =
        |error: serde_json::Error| WriteError::Refused(format!("the Workload cannot be serialized: {error}"));
    match write {
        Write::CreateWorkload(workload) => {
            let call = Call::written(Method::POST, collection(object, version), Content::Json, workload);
            call.map(Plan::One).map_err(unwritable)
        }
        Write::UpdateWorkload(update) => {
            let uri = uri(object, version, None);
            Call::written(Method::PATCH, uri, Content::MergePatch, update).map(Plan::One).map_err(unwritable)
        }
        Write::Create(body) => {
            let mut body = (**body).clone();
            let group = object.kind.group();
            let api_version =
                if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            body["apiVersion"] = json!(api_version);
            body["kind"] = json!(object.kind.as_str());
            let call = Call::with_body(Method::POST, collection(object, version), Content::Json, &body);
            Ok(Plan::One(call))
        }
        Write::CreatePodTemplate(source) => Ok(Plan::Template(source.clone())),
        Write::MergePatch { subresource, body } => {
            one(Method::PATCH, *subresource, String::new(), Content::MergePatch, body)
        }
        Write::Apply { subresource, field_manager, body } => {
            let uri = uri(object, version, *subresource) + &applied_by(field_manager);
            Ok(Plan::One(Call::of_text(Method::PATCH, uri, Content::ApplyPatch, body.as_str())))
        }
        Write::Delete { uid, grace_period_seconds, foreground } => {
            let policy = if *foreground { "Foreground" } else { "Background" };
            let mut options = json!({"propagationPolicy": policy});
            if let Some(seconds) = grace_period_seconds {
                options["gracePeriodSeconds"] = json!(seconds);
            }
            if let Some(uid) = uid {
                options["preconditions"] = json!({"uid": uid});
            }
            one(Method::DELETE, None, String::new(), Content::Json, &options)
        }
        Write::StartJob { view, infos } => {
            let unstartable = |error: StartError| WriteError::Unstartable(Chain(&error).to_string());
            let first = sluice_jobs::prepare(view, infos).map_err(unstartable)?;
            let last =
                Step { subresource: None, patch: sluice_jobs::start(view, infos).map_err(unstartable)? };
            Ok(match first {
                None => Plan::One(step_call(object, &last)),
                Some(first) => Plan::Steps(view.job.kind, vec![first, last]),
            })
        }
        Write::StopJob { view, infos } => Ok(Plan::Steps(view.job.kind, sluice_jobs::stop(view, infos))),
        Write::SuspendJob { view } => Ok(Plan::One(step_call(object, &sluice_jobs::suspend(view)))),
        Write::AskController { view, at } => {
            Ok(Plan::One(step_call(object, &sluice_jobs::ask_controller(view, *at))))
        }
        Write::EndPods { of, then } => Ok(Plan::EndPods(of.clone(), then.clone())),
        Write::Patch(patch) => {
            Ok(Plan::One(step_call(object, &Step { subresource: None, patch: patch.clone() })))
        }
        Write::Pod(steps) => Ok(Plan::Pod(steps.iter().map(|step| pod_call(object, step)).collect())),
        Write::Read => Ok(Plan::One(Call::get(uri(object, version, None)))),
    }
}

/// The request of one step on a job.
pub fn step_call(object: &ObjectRef, step: &Step) -> Call {
    let content = match step.patch {
        Patch::Merge(_) => Content::MergePatch,
        Patch::Json(_) => Content::JsonPatch,
        Patch::Strategic(_) => Content::StrategicPatch,
        Patch::Apply(..) => Content::ApplyPatch,
    };
    let uri = uri(object, object.kind.version(), step.subresource) + &step.patch.query();
    Call::with_body(Method::PATCH, uri, content, &step.patch.body())
}

/// The request of one step on a pod.
fn pod_call(object: &ObjectRef, step: &PodStep) -> Call {
    let version = object.kind.version();
    match step {
        PodStep::Patch(patch) => step_call(object, &Step { subresource: None, patch: patch.clone() }),
        PodStep::ApplyStatus { field_manager, body } => {
            let uri = format!("{}{}", uri(object, version, Some("status")), applied_by(field_manager));
            Call::with_body(Method::PATCH, uri, Content::ApplyPatch, body)
        }
        PodStep::Delete { uid } => {
            let options = json!({"propagationPolicy": "Background", "preconditions": {"uid": uid}});
            Call::with_body(Method::DELETE, uri(object, version, None), Content::Json, &options)
        }
    }
}

/// Where objects of the kind are, in a version.
pub fn collection(object: &ObjectRef, version: &str) -> String {
    object.kind.collection(version, Some(&object.namespace))
}

/// Where an object is, in a version.
pub fn uri(object: &ObjectRef, version: &str, subresource: Option<&str>) -> String {
    let base = format!("{}/{}", collection(object, version), object.name);
    subresource.map_or_else(|| base.clone(), |sub| format!("{base}/{sub}"))
}

/// Reads an answer, but for what of it is `known`. An immediate deletion is answered with a Status, not with an object.
///
/// # Errors
///
/// If the answer is not JSON, or is not an object of the kind that it names.
pub fn answer(kind: Kind, body: &[u8], known: &Known) -> Result<Option<Object>, WriteError> {
    if kind_of(body)? != kind.as_str() {
        return Ok(None);
    }
    let object = match kind {
        Kind::ResourceFlavor => Object::ResourceFlavor(decode(body)?),
        Kind::ClusterQueue => Object::ClusterQueue(decode(body)?),
        Kind::LocalQueue => Object::LocalQueue(decode(body)?),
        Kind::Cohort => Object::Cohort(decode(body)?),
        Kind::AdmissionCheck => Object::AdmissionCheck(decode(body)?),
        Kind::Topology => Object::Topology(decode(body)?),
        Kind::Workload => Object::Workload(workload(body, known)?.into()),
        Kind::WorkloadPriorityClass => Object::WorkloadPriorityClass(decode(body)?),
        Kind::PriorityClass => Object::PriorityClass(decode(body)?),
        Kind::Namespace => Object::Namespace(decode(body)?),
        Kind::Node => Object::Node(decode(body)?),
        Kind::Pod => Object::Pod(decode(body)?),
        Kind::JobPod => Object::JobPod(decode(body)?),
        Kind::LimitRange => Object::LimitRange(decode(body)?),
        Kind::RuntimeClass => Object::RuntimeClass(decode(body)?),
        Kind::ProvisioningRequestConfig => Object::ProvisioningRequestConfig(decode(body)?),
        Kind::ProvisioningRequest => Object::ProvisioningRequest(decode(body)?),
        Kind::PodTemplate => return Ok(None),
        Kind::Template(kind) => {
            Object::Template(Box::new(sluice_jobs::template(kind, &decode::<Raw>(body)?.0)))
        }
        Kind::Job(kind) => job(kind, &decode::<Raw>(body)?.0),
    };
    Ok(Some(object))
}

/// Reads a Workload: our own writes mostly leave its spec as it was.
fn workload(body: &[u8], known: &Known) -> Result<slim::Workload, WriteError> {
    let spec = Meta::of(body).ok().and_then(|meta| known.spec(&meta.uid, meta.generation));
    match spec {
        Some(spec) => Ok(decode::<slim::WorkloadRest>(body)?.with(spec)),
        None => decode(body),
    }
}

/// The kind that an answer names; nothing after it is read: the API server writes it before everything that is long.
fn kind_of(body: &[u8]) -> Result<String, WriteError> {
    struct First<'a>(&'a mut Option<String>);
    impl<'de> Visitor<'de> for First<'_> {
        type Value = ();

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                if key == "kind" {
                    *self.0 = Some(map.next_value()?);
                    return Ok(());
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }
    let mut found = None;
    let read = serde_json::Deserializer::from_slice(body).deserialize_map(First(&mut found));
    // Where it was found, the rest is still to come, which counts as a failure here.
    match (found, read) {
        (Some(kind), _) => Ok(kind),
        (None, Ok(())) => Ok(String::new()),
        (None, Err(error)) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &serde_json::Error) -> WriteError {
    WriteError::Transient(format!("the answer cannot be read: {error}"))
}

/// Reads a job.
///
/// # Errors
///
/// If the answer is not JSON.
pub fn view(kind: JobKind, body: &[u8]) -> Result<JobView, WriteError> {
    let Raw(value) = decode(body)?;
    Ok(sluice_jobs::observe(kind, &value))
}

/// Reads an answer as a type.
///
/// # Errors
///
/// If the answer is not JSON of this type.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, WriteError> {
    serde_json::from_slice(body).map_err(|error| unreadable(&error))
}

/// What a failure means for the engine.
pub fn failure(error: &CallError) -> WriteError {
    let text = Chain(error).to_string();
    let CallError::Status { code, reason, retry_after, .. } = error else {
        return WriteError::Transient(text);
    };
    match code {
        409 if reason == "AlreadyExists" => WriteError::AlreadyExists(text),
        409 => WriteError::Conflict(text),
        404 if error.is_not_found() => WriteError::NotFound(text),
        // The answer of a gateway, or of an API server that does not serve the kind: that passes, or the watch of the kind ends.
        404 => WriteError::Transient(text),
        // The API server passes etcd's answer, and that of its client of etcd, on as a failure of its own.
        500 if text.contains("request is too large") || text.contains("larger than max") => {
            WriteError::Refused(text)
        }
        429 | 500.. => match retry_after {
            Some(after) => WriteError::Later { why: text, seconds: after.as_secs() },
            None => WriteError::Transient(text),
        },
        _ => WriteError::Refused(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use axum::http::StatusCode;
    use sluice_engine::effect::{SeenVersion, UpdatedSpec, WorkloadUpdate};

    fn workload() -> ObjectRef {
        ObjectRef::namespaced(Kind::Workload, "ns", "job-a-12345")
    }

    #[test]
    fn a_permanent_refusal_is_distinguished_from_a_temporary_one() {
        let of = |code: u16, reason: &str| {
            let body = json!({"kind": "Status", "reason": reason, "message": "why"}).to_string();
            failure(&Call::get("/x").refused(StatusCode::from_u16(code).unwrap(), None, body.as_bytes()))
        };
        for code in [400, 401, 403, 405, 413, 415, 422] {
            assert!(matches!(of(code, "Any"), WriteError::Refused(_)), "{code}");
        }
        for code in [429, 500, 502, 503, 504] {
            assert!(matches!(of(code, "Any"), WriteError::Transient(_)), "{code}");
        }
        assert!(matches!(of(404, "NotFound"), WriteError::NotFound(_)));
        let gateway = Call::get("/x").refused(StatusCode::NOT_FOUND, None, b"404 page not found");
        assert!(matches!(failure(&gateway), WriteError::Transient(_)), "nothing is forgotten for it");
        assert!(matches!(of(409, "Conflict"), WriteError::Conflict(_)));
        assert!(matches!(of(409, "AlreadyExists"), WriteError::AlreadyExists(_)));
        let entity =
            Call::get("/x").refused(StatusCode::PAYLOAD_TOO_LARGE, None, b"request entity too large");
        assert!(matches!(failure(&entity), WriteError::Refused(_)), "{entity}");
        for why in [
            "etcdserver: request is too large",
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2100128 vs. 2097152)",
        ] {
            let body = json!({"kind": "Status", "reason": "", "message": why}).to_string();
            let answer = Call::get("/x").refused(StatusCode::INTERNAL_SERVER_ERROR, None, body.as_bytes());
            assert!(matches!(failure(&answer), WriteError::Refused(_)), "{answer}");
        }
        let timeout = CallError::Timeout {
            method: Method::GET,
            uri: "/x".to_owned(),
            timeout: std::time::Duration::ZERO,
        };
        assert!(matches!(failure(&timeout), WriteError::Transient(_)));
    }

    #[test]
    fn want_of_rights_is_distinguished_from_what_admission_refuses() {
        let of = |code: u16, reason: &str, message: &str| {
            let body = json!({"kind": "Status", "reason": reason, "message": message}).to_string();
            failure(&Call::get("/x").refused(StatusCode::from_u16(code).unwrap(), None, body.as_bytes()))
        };
        let right = "podtemplates is forbidden: User \"system:serviceaccount:a:b\" cannot create resource \"podtemplates\" in API \
                     group \"\" in the namespace \"ns\"";
        for (code, reason, message) in [
            (401, "Unauthorized", "Unauthorized"),
            (403, "Forbidden", right),
            (
                403,
                "Forbidden",
                &format!("{right}: RBAC: clusterrole.rbac.authorization.k8s.io \"c\" not found"),
            ),
        ] {
            assert!(of(code, reason, message).is_of_rights(), "{message}");
        }
        for (code, reason, message) in [
            (403, "Forbidden", "podtemplates \"t\" is forbidden: exceeded quota: q, requested: count=1"),
            (
                403,
                "Forbidden",
                "podtemplates \"t\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            ),
            (
                422,
                "Invalid",
                "podtemplates \"t\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            ),
            (403, "Forbidden", "admission webhook \"w\" denied the request: User \"u\" cannot do that"),
            (403, "Forbidden", &format!("admission webhook \"w\" denied the request: {right}")),
            (403, "Forbidden", "namespaces \"ns\" is forbidden: it is being terminated"),
            (422, "Invalid", right),
            (404, "NotFound", right),
        ] {
            assert!(!of(code, reason, message).is_of_rights(), "{message}");
        }
    }

    fn only(plan: Plan) -> Call {
        match plan {
            Plan::One(call) => call,
            Plan::Steps(..) | Plan::Pod(_) | Plan::Template(_) | Plan::EndPods(..) => {
                unreachable!("a single request")
            }
        }
    }

    #[test]
    fn a_status_apply_is_forced_and_names_its_manager() {
        let write = Write::Apply {
            subresource: Some("status"),
            field_manager: "kueue-admission",
            body: json!({"status": {}}).into(),
        };
        let call = only(plan(&workload(), "v1beta2", &write).unwrap());
        assert_eq!(&call.body[..], b"{\"status\":{}}");
        assert_eq!(
            call.uri,
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/job-a-12345/status?fieldManager=kueue-admission&force=true"
        );
        assert_eq!((call.method, call.content), (Method::PATCH, Content::ApplyPatch));
    }

    #[test]
    fn a_deletion_names_the_uid_and_what_was_made_of_it_goes_after_it_or_before() {
        for (foreground, policy) in [(false, "Background"), (true, "Foreground")] {
            let write = Write::Delete { uid: Some(Arc::from("u1")), grace_period_seconds: None, foreground };
            let call = only(plan(&workload(), "v1beta2", &write).unwrap());
            let body: Value = serde_json::from_slice(&call.body).unwrap();
            assert_eq!(body, json!({"propagationPolicy": policy, "preconditions": {"uid": "u1"}}));
        }
    }

    #[test]
    fn a_pod_gets_the_reason_before_it_is_deleted() {
        let pod = ObjectRef::namespaced(Kind::Job(JobKind::POD), "ns", "a");
        let body = json!({"status": {"conditions": []}});
        let steps = vec![
            PodStep::ApplyStatus { field_manager: "kueue", body },
            PodStep::Delete { uid: Arc::from("u1") },
        ];
        let Plan::Pod(calls) = plan(&pod, "v1", &Write::Pod(steps)).unwrap() else {
            unreachable!("of a pod")
        };
        let uris: Vec<_> = calls.iter().map(|call| (call.method.clone(), &*call.uri)).collect();
        let status = "/api/v1/namespaces/ns/pods/a/status?fieldManager=kueue&force=true";
        assert_eq!(uris, [(Method::PATCH, status), (Method::DELETE, "/api/v1/namespaces/ns/pods/a")]);
        let body: Value = serde_json::from_slice(&calls[1].body).unwrap();
        assert_eq!(body["preconditions"]["uid"], "u1");
    }

    #[test]
    fn cluster_scoped_and_core_kinds_have_their_own_paths() {
        assert_eq!(
            uri(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), "v1beta2", Some("status")),
            "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq/status"
        );
        assert_eq!(uri(&ObjectRef::cluster(Kind::Node, "n"), "v1", None), "/api/v1/nodes/n");
    }

    #[test]
    fn a_creation_goes_to_the_collection() {
        let call = only(plan(&workload(), "v1beta2", &Write::CreateWorkload(Box::default())).unwrap());
        assert_eq!(call.uri, "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads");
        assert_eq!(call.method, Method::POST);
    }

    #[test]
    fn an_update_of_a_workload_names_the_version_that_was_seen() {
        let update = WorkloadUpdate {
            metadata: SeenVersion { uid: Some("u".to_owned()), resource_version: Some("7".to_owned()) },
            spec: UpdatedSpec { pod_sets: Vec::new(), maximum_execution_time_seconds: None },
        };
        let call = only(plan(&workload(), "v1beta2", &Write::UpdateWorkload(Box::new(update))).unwrap());
        let body: Value = serde_json::from_slice(&call.body).unwrap();
        let spec = json!({"podSets": [], "maximumExecutionTimeSeconds": null});
        assert_eq!(body, json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": spec}));
        assert_eq!(call.method, Method::PATCH);
    }

    #[test]
    fn what_is_created_names_the_version_that_is_served() {
        let request = ObjectRef::namespaced(Kind::ProvisioningRequest, "ns", "w-prov-1");
        let write = Write::Create(Box::new(json!({"metadata": {"name": "w-prov-1"}})));
        let call = only(plan(&request, "v1beta1", &write).unwrap());
        assert_eq!(call.uri, "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/ns/provisioningrequests");
        let body: Value = serde_json::from_slice(&call.body).unwrap();
        assert_eq!(
            body,
            json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "ProvisioningRequest",
                "metadata": {"name": "w-prov-1"}})
        );
    }

    #[test]
    fn an_answer_is_an_object_and_a_status_is_none() {
        let job =
            json!({"kind": "Job", "metadata": {"name": "a", "namespace": "ns"}, "spec": {}}).to_string();
        let answer = |kind, body: &[u8]| answer(kind, body, &Known::default());
        let object = answer(Kind::Job(JobKind::JOB), job.as_bytes()).unwrap().unwrap();
        assert_eq!(object.object_ref().to_string(), "Job ns/a");
        let status = br#"{"kind": "Status", "status": "Success"}"#;
        assert_eq!(answer(Kind::Workload, status), Ok(None));
        assert!(matches!(answer(Kind::Workload, b"not JSON"), Err(WriteError::Transient(_))));
        assert!(matches!(answer(Kind::Workload, br#"{"kind": "Workload","#), Err(WriteError::Transient(_))));
        assert_eq!(answer(Kind::Workload, b"{}"), Ok(None));
    }

    #[test]
    fn failures_are_distinguished() {
        let refused = |code, reason: &str| {
            failure(&CallError::Status {
                method: Method::PATCH,
                uri: "/x".to_owned(),
                code,
                reason: reason.to_owned(),
                message: "m".to_owned(),
                retry_after: None,
            })
        };
        assert!(matches!(refused(409, "AlreadyExists"), WriteError::AlreadyExists(_)));
        assert!(matches!(refused(409, "Conflict"), WriteError::Conflict(_)));
        assert!(matches!(refused(404, "NotFound"), WriteError::NotFound(_)));
        assert!(matches!(refused(422, "Invalid"), WriteError::Refused(_)));
        assert!(matches!(refused(403, "Forbidden"), WriteError::Refused(_)));
        assert!(matches!(refused(503, "ServiceUnavailable"), WriteError::Transient(_)));
        assert!(matches!(refused(429, "TooManyRequests"), WriteError::Transient(_)));
    }
}
