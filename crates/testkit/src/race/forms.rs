//! The API server's cost of a status write of a Workload, by the form of the write: the same admission, written in each form to equal Workloads.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, Request, header};
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};

use super::plan::{CLASSES, NAMESPACE, Work};
use super::{figures, objects};
use crate::{ControlPlane, crds, patient_client_of};

/// Workloads of each form.
const EACH: usize = 500;
const AT_ONCE: usize = 4;
const PATH: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces";
const APPLY: &str = "application/apply-patch+yaml";
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
    MergePatch,
    /// A JSON patch that tests the `resourceVersion`.
    JsonPatch,
    Put,
}

const FORMS: [Form; 6] =
    [Form::Apply, Form::ApplyPinned, Form::ApplyForMetadata, Form::MergePatch, Form::JsonPatch, Form::Put];

impl Form {
    const fn name(self) -> &'static str {
        match self {
            Self::Apply => "server-side apply",
            Self::ApplyPinned => "server-side apply, resourceVersion given",
            Self::ApplyForMetadata => "server-side apply, answered with metadata only",
            Self::MergePatch => "merge patch",
            Self::JsonPatch => "JSON patch that tests the resourceVersion",
            Self::Put => "PUT",
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
            Self::Apply | Self::ApplyForMetadata => (Method::PATCH, APPLY, apply(json!({"name": name}))),
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
            Self::Put => {
                let mut whole = serde_json::to_value(made)?;
                whole["status"] = status;
                (Method::PUT, "application/json", whole)
            }
        };
        // Only an apply may be forced.
        let force = if content == APPLY { "&force=true" } else { "" };
        let accept = if self == Self::ApplyForMetadata { METADATA } else { "application/json" };
        Request::builder()
            .method(method)
            .uri(format!("{PATH}/{NAMESPACE}/workloads/{name}/status?fieldManager=forms{force}"))
            .header(header::CONTENT_TYPE, content)
            .header(header::ACCEPT, accept)
            .body(serde_json::to_vec(&body)?)
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
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    name: &'static str,
    api_server: Duration,
    etcd: Duration,
    wall: Duration,
}

/// The costs of all forms.
#[derive(Clone, Debug)]
pub struct Forms(Vec<Cost>);

impl fmt::Display for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{EACH} status writes of each form, {AT_ONCE} at a time; CPU per write")?;
        for Cost { name, api_server, etcd, wall } in &self.0 {
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
    for (round, order) in [(0, [0, 1, 2, 3, 4, 5]), (1, [5, 4, 3, 2, 1, 0])] {
        for form in order {
            let made = make(&client, &format!("round-{round}-form-{form}")).await?;
            costs.entry(form).or_default().push(measure(&client, &programs, FORMS[form], &made).await?);
        }
    }
    plane.stop();
    let mean = |costs: Vec<Cost>| {
        let count = u32::try_from(costs.len().max(1)).unwrap_or(u32::MAX);
        let of = |part: fn(&Cost) -> Duration| costs.iter().map(part).sum::<Duration>() / count;
        costs.first().map(|first| Cost {
            name: first.name,
            api_server: of(|cost| cost.api_server),
            etcd: of(|cost| cost.etcd),
            wall: of(|cost| cost.wall),
        })
    };
    Ok(Forms(costs.into_values().filter_map(mean).collect()))
}

async fn make(client: &Client, prefix: &str) -> Result<Vec<DynamicObject>> {
    let api: Api<DynamicObject> = objects::api(Work::Workloads, client);
    let each = |number: usize| {
        let (api, name) = (api.clone(), format!("{prefix}-{number}"));
        async move {
            let object = objects::of(Work::Workloads, &name, "cohort-0-queue-0", &CLASSES[0]);
            let made = api.create(&PostParams::default(), &serde_json::from_value(object)?).await;
            made.context("making a Workload")
        }
    };
    futures::stream::iter(0..EACH).map(each).buffer_unordered(AT_ONCE).try_collect().await
}

async fn measure(
    client: &Client,
    programs: &BTreeMap<String, u32>,
    form: Form,
    made: &[DynamicObject],
) -> Result<Cost> {
    let (before, began) = (figures::cpu_of(programs), Instant::now());
    let requests = made.iter().map(|made| form.request(made)).collect::<Result<Vec<_>>>()?;
    let send = |request| {
        let client = client.clone();
        async move { client.request_text(request).await.map(drop).with_context(|| form.name()) }
    };
    futures::stream::iter(requests).map(send).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let wall = began.elapsed();
    let used = figures::usage_of(programs, &before);
    let count = u32::try_from(made.len().max(1)).unwrap_or(u32::MAX);
    let cpu = |name: &str| {
        let all = used.iter().filter(|usage| usage.name.starts_with(name));
        all.map(|usage| usage.cpu).sum::<Duration>() / count
    };
    let (api_server, etcd) = (cpu("kube-apiserver"), cpu("etcd"));
    Ok(Cost { name: form.name(), api_server, etcd, wall: wall / count })
}
