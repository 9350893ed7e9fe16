//! The API server's cost of a status write of a Workload, by the form of the write: the same admission, written in each form to equal Workloads.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, Request, header};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::plan::{CLASSES, NAMESPACE, Work};
use super::{cbor, figures, objects};
use crate::{ControlPlane, crds, patient_client_of};

/// Workloads of each form.
const EACH: usize = 500;
const AT_ONCE: usize = 4;
const PATH: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces";
const APPLY: &str = "application/apply-patch+yaml";
const APPLY_CBOR: &str = "application/apply-patch+cbor";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A way to write a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Server-side apply, as Sluice does it: the fields have an owner.
    Apply,
    /// The same with the `resourceVersion` of the object as a precondition.
    ApplyPinned,
    /// The same with an answer that has only the metadata.
    ApplyForMetadata,
    /// The same on an object whose `metadata.managedFields` were cleared: the API server has no fields to merge with, and gives every field an owner.
    ApplyUnmanaged,
    /// The same in CBOR.
    ApplyCbor,
    MergePatch,
    /// A JSON patch that tests the `resourceVersion`.
    JsonPatch,
    Put,
    /// The same in CBOR.
    PutCbor,
}

const FORMS: [Form; 9] = [
    Form::Apply,
    Form::ApplyPinned,
    Form::ApplyForMetadata,
    Form::ApplyUnmanaged,
    Form::ApplyCbor,
    Form::MergePatch,
    Form::JsonPatch,
    Form::Put,
    Form::PutCbor,
];

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Self::Apply => "server-side apply",
            Self::ApplyPinned => "server-side apply, resourceVersion given",
            Self::ApplyForMetadata => "server-side apply, answered with metadata only",
            Self::ApplyUnmanaged => "server-side apply, managed fields cleared before",
            Self::ApplyCbor => "server-side apply in CBOR",
            Self::MergePatch => "merge patch",
            Self::JsonPatch => "JSON patch that tests the resourceVersion",
            Self::Put => "PUT",
            Self::PutCbor => "PUT in CBOR",
        }
    }

    fn request(self, made: &DynamicObject) -> Result<Request<Vec<u8>>> {
        let name = made.metadata.name.as_deref().unwrap_or_default();
        let version = made.metadata.resource_version.as_deref().unwrap_or_default();
        let status = status();
        let apply = |metadata: Value| {
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata,
                "status": status,
            })
        };
        let (method, content, body) = match self {
            Self::Apply | Self::ApplyForMetadata | Self::ApplyUnmanaged => {
                (Method::PATCH, APPLY, apply(json!({"name": name})))
            }
            Self::ApplyCbor => (Method::PATCH, APPLY_CBOR, apply(json!({"name": name}))),
            Self::ApplyPinned => {
                (Method::PATCH, APPLY, apply(json!({"name": name, "resourceVersion": version})))
            }
            Self::MergePatch => (Method::PATCH, "application/merge-patch+json", json!({"status": status})),
            Self::JsonPatch => (
                Method::PATCH,
                "application/json-patch+json",
                json!([
                    {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                    {"op": "add", "path": "/status", "value": status},
                ]),
            ),
            Self::Put | Self::PutCbor => {
                let mut whole = serde_json::to_value(made)?;
                whole["status"] = status;
                let content = if self == Self::PutCbor { "application/cbor" } else { "application/json" };
                (Method::PUT, content, whole)
            }
        };
        // Only an apply may be forced.
        let force = if [APPLY, APPLY_CBOR].contains(&content) { "&force=true" } else { "" };
        let body = match self {
            Self::ApplyCbor => cbor::encode(&body),
            Self::PutCbor => cbor::document(&body),
            _ => serde_json::to_vec(&body)?,
        };
        let accept = if self == Self::ApplyForMetadata { METADATA } else { "application/json" };
        Request::builder()
            .method(method)
            .uri(format!("{PATH}/{NAMESPACE}/workloads/{name}/status?fieldManager=forms{force}"))
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, accept)
            .body(body)
            .context("making a request")
    }
}

/// An admission, as Sluice writes it.
fn status() -> Value {
    let condition = |type_: &str, message: &str| {
        json!({
            "type": type_, "status": "True", "reason": type_, "message": message, "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let assignment = json!({
        "name": "main", "count": 1, "flavors": {"cpu": "rf"}, "resourceUsage": {"cpu": "1"},
    });
    json!({
        "admission": {"clusterQueue": "cohort-0-queue-0", "podSetAssignments": [assignment]},
        "conditions": [
            condition("QuotaReserved", "Quota reserved in ClusterQueue cohort-0-queue-0"),
            condition("Admitted", "The workload is admitted"),
        ],
    })
}

/// The cost of a form per write.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    api_server: Duration,
    etcd: Duration,
    wall: Duration,
}

/// The costs of all forms; none of those that the API server does not take (415).
#[derive(Clone, Debug)]
pub struct Forms(Vec<(&'static str, Option<Cost>)>);

impl fmt::Display for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{EACH} status writes of each form, {AT_ONCE} at a time; CPU per write")?;
        for (name, cost) in &self.0 {
            let Some(Cost { api_server, etcd, wall }) = cost else {
                writeln!(f, "{name:<48} the API server does not take it (415)")?;
                continue;
            };
            let [api_server, etcd, wall] = [api_server, etcd, wall].map(|time| time.as_secs_f64() * 1e3);
            writeln!(
                f,
                "{name:<48} API server {api_server:>5.2} ms, etcd {etcd:>5.2} ms; {wall:>5.2} ms apart"
            )?;
        }
        Ok(())
    }
}

/// Measures all forms on a plane of its own, each twice, the second time in the opposite order.
///
/// # Errors
///
/// If the plane does not start, the definitions are not served in time, or a Workload or a status write is refused.
pub async fn run() -> Result<Forms> {
    let plane = ControlPlane::builder().start().await?;
    let client = patient_client_of(&plane.kubeconfig_path()).await?;
    crds::install(&client, None).await?;
    let programs: BTreeMap<String, u32> =
        plane.program_ids().into_iter().map(|id| (figures::name_of(id), id)).collect();
    let mut costs: BTreeMap<usize, Vec<Cost>> = BTreeMap::new();
    let forms = 0..FORMS.len();
    for (round, at) in forms.clone().map(|at| (0, at)).chain(forms.rev().map(|at| (1, at))) {
        let made = make(&client, FORMS[at], &format!("round-{round}-form-{at}")).await?;
        let cost = measure(&client, &programs, FORMS[at], &made).await?;
        costs.entry(at).or_default().extend(cost);
    }
    plane.stop();
    Ok(Forms(costs.into_iter().map(|(at, costs)| (FORMS[at].name(), mean(&costs))).collect()))
}

/// The mean of what was measured, if anything was.
fn mean(costs: &[Cost]) -> Option<Cost> {
    let count = u32::try_from(costs.len()).ok().filter(|count| *count > 0)?;
    let of = |part: fn(&Cost) -> Duration| costs.iter().map(part).sum::<Duration>() / count;
    Some(Cost {
        api_server: of(|cost| cost.api_server),
        etcd: of(|cost| cost.etcd),
        wall: of(|cost| cost.wall),
    })
}

/// Makes Workloads for a form, as it needs them.
async fn make(client: &Client, form: Form, prefix: &str) -> Result<Vec<DynamicObject>> {
    let api: Api<DynamicObject> = objects::api(Work::Workloads, client);
    let each = |number: usize| {
        let (api, name) = (api.clone(), format!("{prefix}-{number}"));
        async move {
            let object = objects::of(Work::Workloads, &name, "cohort-0-queue-0", &CLASSES[0]);
            let made = api.create(&PostParams::default(), &serde_json::from_value(object)?).await;
            let made = made.context("making a Workload")?;
            if form != Form::ApplyUnmanaged {
                return Ok(made);
            }
            // One entry that is empty means none.
            let clear = Patch::Merge(json!({"metadata": {"managedFields": [{}]}}));
            let cleared = api.patch(&name, &PatchParams::default(), &clear).await;
            cleared.context("clearing the managed fields of a Workload")
        }
    };
    futures::stream::iter(0..EACH).map(each).buffer_unordered(AT_ONCE).try_collect().await
}

/// What a form costs; nothing if the API server does not take it.
async fn measure(
    client: &Client,
    programs: &BTreeMap<String, u32>,
    form: Form,
    made: &[DynamicObject],
) -> Result<Option<Cost>> {
    let (before, began) = (figures::cpu_of(programs), Instant::now());
    let requests = made.iter().map(|made| form.request(made)).collect::<Result<Vec<_>>>()?;
    let send = |request| {
        let client = client.clone();
        async move { client.request_text(request).await.map(drop) }
    };
    let answers =
        futures::stream::iter(requests).map(send).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>();
    match answers.await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 415 => return Ok(None),
        Err(error) => return Err(error).with_context(|| form.name()),
    }
    let wall = began.elapsed();
    let used = figures::usage_of(programs, &before);
    let count = u32::try_from(made.len().max(1)).unwrap_or(u32::MAX);
    let cpu = |name: &str| {
        let all = used.iter().filter(|usage| usage.name.starts_with(name));
        all.map(|usage| usage.cpu).sum::<Duration>() / count
    };
    let (api_server, etcd) = (cpu("kube-apiserver"), cpu("etcd"));
    Ok(Some(Cost { api_server, etcd, wall: wall / count }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_a_request_on_the_status() {
        let made: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "w", "resourceVersion": "7"}, "spec": {"queueName": "lq"},
        }))
        .unwrap();
        for form in FORMS {
            let request = form.request(&made).unwrap();
            let uri = request.uri().to_string();
            assert!(uri.contains("/workloads/w/status?fieldManager=forms"), "{uri}");
            let content = request.headers()[header::CONTENT_TYPE].to_str().unwrap();
            assert_eq!(uri.ends_with("&force=true"), content.contains("apply"), "{content}");
            assert_eq!(
                serde_json::from_slice::<Value>(request.body()).is_err(),
                content.ends_with("cbor"),
                "{content}"
            );
        }
    }

    #[test]
    fn a_form_that_is_not_taken_is_a_result() {
        let cost = |ms| Cost { api_server: Duration::from_millis(ms), ..Cost::default() };
        assert!(mean(&[]).is_none());
        let forms = Forms(vec![("taken", mean(&[cost(3), cost(5)])), ("not taken", None)]);
        let text = forms.to_string();
        assert!(text.contains("API server  4.00 ms") && text.ends_with("does not take it (415)\n"), "{text}");
    }
}
