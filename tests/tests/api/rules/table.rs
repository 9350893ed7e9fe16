//! Cases for one kind: a valid object, and the changes of each case (RFC 7386).

use std::fmt::Write as _;

use json_patch::merge;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::core::Status;
use kube::{Client, Error};
use serde_json::{Value, json};
use sluice_testkit::wait::{Progress, eventually};
use sluice_tests::place::DEADLINE;

pub struct Table<'a> {
    client: &'a Client,
    version: &'static str,
    kind: &'static str,
    base: Value,
    /// How many objects were made.
    made: u32,
    pub report: String,
}

impl<'a> Table<'a> {
    pub fn new(client: &'a Client, kind: &'static str, base: Value) -> Self {
        Self { client, version: "v1beta2", kind, base, made: 0, report: String::new() }
    }

    /// The same in the older version.
    pub fn older(client: &'a Client, kind: &'static str, base: Value) -> Self {
        Self { version: "v1beta1", ..Self::new(client, kind, base) }
    }

    fn api(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("kueue.x-k8s.io", self.version, self.kind);
        let plural = match self.kind {
            "Topology" => "topologies".to_owned(),
            "WorkloadPriorityClass" => "workloadpriorityclasses".to_owned(),
            other => format!("{}s", other.to_lowercase()),
        };
        let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
        if ["Workload", "LocalQueue"].contains(&self.kind) {
            Api::namespaced_with(self.client.clone(), "default", &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    fn object(&self, name: &str, change: &Value) -> DynamicObject {
        let mut object = self.base.clone();
        merge(&mut object, change);
        object["apiVersion"] = format!("kueue.x-k8s.io/{}", self.version).into();
        object["kind"] = self.kind.into();
        object["metadata"]["name"] = name.into();
        serde_json::from_value(object).unwrap()
    }

    /// What comes of creating an object with this change, without keeping it.
    pub async fn created(&self, change: &Value) -> kube::Result<DynamicObject> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        strictly(&self.api(), &params, &self.object("x", change)).await
    }

    /// A rule of creation.
    pub async fn create(&mut self, rule: &str, accepted: Value, refused: Value) {
        if let Err(error) = self.created(&accepted).await {
            panic!("{}: {rule}: should be accepted: {error}", self.kind);
        }
        let answer = self.created(&refused).await;
        self.refused(rule, answer);
    }

    /// A rule of updates of the object, its status apart.
    pub async fn update(&mut self, rule: &str, old: Value, accepted: Value, refused: Value) {
        let name = self.make(&old).await;
        let api = self.api();
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let replace = async |change: &Value| {
            let mut object = self.object(&name, change);
            object.metadata.resource_version = api.get(&name).await?.metadata.resource_version;
            api.replace(&name, &params, &object).await
        };
        if let Err(error) = replace(&accepted).await {
            panic!("{}: {rule}: should be accepted: {error}", self.kind);
        }
        let answer = replace(&refused).await;
        self.refused(rule, answer);
        self.remove(&name).await;
    }

    /// A rule of the status, where the old object may have one too.
    pub async fn status(&mut self, rule: &str, old: Value, accepted: Value, refused: Value) {
        let name = self.make(&old).await;
        let api = self.api();
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = async |status: &Value| {
            let patch = Patch::Merge(json!({"status": status}));
            api.patch_status(&name, &params, &patch).await
        };
        if let Err(error) = patch(&accepted).await {
            panic!("{}: {rule}: should be accepted: {error}", self.kind);
        }
        let answer = patch(&refused).await;
        self.refused(rule, answer);
        self.remove(&name).await;
    }

    /// An object on the API server, with its status.
    async fn make(&mut self, change: &Value) -> String {
        self.made += 1;
        let name = format!("case-{}", self.made);
        let api = self.api();
        let object = self.object(&name, change);
        api.create(&PostParams::default(), &object).await.unwrap();
        if let Some(status) = object.data.get("status") {
            let patch = Patch::Merge(json!({"status": status}));
            api.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
        }
        name
    }

    async fn remove(&self, name: &str) {
        self.api().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Notes the message of a refusal.
    pub fn refused(&mut self, rule: &str, answer: kube::Result<DynamicObject>) {
        match answer {
            Err(Error::Api(status)) => {
                assert!([400, 403, 422].contains(&status.code), "{rule}: {status:?}");
                writeln!(self.report, "{rule}\n    {}", message(&status)).unwrap();
            }
            Err(error) => panic!("{}: {rule}: {error}", self.kind),
            Ok(object) => panic!("{}: {rule}: should be refused: {:#}", self.kind, object.data),
        }
    }
}

/// The message; of several mistakes one per line and sorted, for the API server finds them in the order of a map.
fn message(status: &Status) -> String {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    if causes.len() < 2 {
        return status.message.clone();
    }
    let mut causes: Vec<_> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
    causes.sort();
    causes.join("\n    ")
}

/// Creates with strict field validation, as kubectl does: an unknown field is an error.
async fn strictly(
    api: &Api<DynamicObject>,
    params: &PostParams,
    object: &DynamicObject,
) -> kube::Result<DynamicObject> {
    let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
    let mut request =
        kube::core::Request::new(api.resource_url()).create(params, body).map_err(Error::BuildRequest)?;
    let uri = format!("{}&fieldValidation=Strict", request.uri());
    *request.uri_mut() = uri.parse().unwrap();
    // The API server may still be putting a definition into force.
    eventually("an answer", DEADLINE, || async {
        let mut again = http::Request::builder().method(request.method().clone()).uri(request.uri().clone());
        if let Some(headers) = again.headers_mut() {
            headers.clone_from(request.headers());
        }
        let again = again.body(request.body().clone())?;
        match api.clone().into_client().request::<DynamicObject>(again).await {
            Err(Error::Api(status)) if status.code == 404 => Ok(Progress::NotYet(status.message)),
            answer => Ok(Progress::Done(answer)),
        }
    })
    .await
    .unwrap()
}
