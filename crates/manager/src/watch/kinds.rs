//! The watched kinds, and how each becomes an object of the engine.

use std::borrow::Cow;
use std::fmt::Debug;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_api::{slim, v1beta2};
use sluice_engine::input::{Kind, Object};

use super::pump::Watched;
use super::versions::OLDER;

/// Implements [`Watched`] for types that the engine takes as they are.
macro_rules! watched {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(impl Watched for $type {
            fn decode(self) -> Object {
                Object::$variant(Box::new(self))
            }
        })*
    };
}

watched! {
    v1beta2::ResourceFlavor => ResourceFlavor,
    v1beta2::ClusterQueue => ClusterQueue,
    v1beta2::LocalQueue => LocalQueue,
    v1beta2::Cohort => Cohort,
    v1beta2::AdmissionCheck => AdmissionCheck,
    v1beta2::Topology => Topology,
    v1beta2::WorkloadPriorityClass => WorkloadPriorityClass,
    slim::Workload => Workload,
    slim::PriorityClass => PriorityClass,
    slim::Namespace => Namespace,
    slim::Node => Node,
    slim::Pod => Pod,
    slim::LimitRange => LimitRange,
    slim::RuntimeClass => RuntimeClass,
    v1beta2::ProvisioningRequestConfig => ProvisioningRequestConfig,
    slim::ProvisioningRequest => ProvisioningRequest,
}

/// A ProvisioningRequest where only the older version is served.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct OlderProvisioningRequest(slim::ProvisioningRequest);

impl Resource for OlderProvisioningRequest {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Kind::ProvisioningRequest.as_str().into()
    }

    fn group((): &()) -> Cow<'_, str> {
        Kind::ProvisioningRequest.group().into()
    }

    fn version((): &()) -> Cow<'_, str> {
        OLDER.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        Kind::ProvisioningRequest.plural().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

impl Watched for OlderProvisioningRequest {
    fn decode(self) -> Object {
        self.0.decode()
    }
}

/// The kinds of our own group; without any of them nothing works.
pub const OWN: [Kind; 8] = [
    Kind::ResourceFlavor,
    Kind::ClusterQueue,
    Kind::LocalQueue,
    Kind::Cohort,
    Kind::AdmissionCheck,
    Kind::Topology,
    Kind::Workload,
    Kind::WorkloadPriorityClass,
];

/// The kinds of the controller of provisioning checks.
pub const PROVISIONING: [Kind; 2] = [Kind::ProvisioningRequestConfig, Kind::ProvisioningRequest];

/// The kinds of the cluster that are always there.
pub const CLUSTER: [Kind; 5] =
    [Kind::PriorityClass, Kind::Namespace, Kind::Node, Kind::LimitRange, Kind::RuntimeClass];

/// A job kind as a type.
pub trait JobMarker: Clone + Debug + Send + Sync + 'static {
    /// The kind.
    const KIND: JobKind;
}

/// batch/v1 Job.
#[derive(Clone, Debug)]
pub struct JobMark;

impl JobMarker for JobMark {
    const KIND: JobKind = JobKind::Job;
}

/// jobset.x-k8s.io/v1alpha2 JobSet.
#[derive(Clone, Debug)]
pub struct JobSetMark;

impl JobMarker for JobSetMark {
    const KIND: JobKind = JobKind::JobSet;
}

/// A job as JSON: its adapter reads it. Decodes whatever the object looks like, since parts of it are user-written.
#[derive(Clone, Debug)]
pub struct RawJob<M> {
    metadata: ObjectMeta,
    value: Value,
    marker: PhantomData<M>,
}

impl<'de, M: JobMarker> Deserialize<'de> for RawJob<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let text = |key: &str| value["metadata"][key].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        Ok(Self { metadata, value, marker: PhantomData })
    }
}

impl<M: JobMarker> Resource for RawJob<M> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        M::KIND.kind().into()
    }

    fn group((): &()) -> Cow<'_, str> {
        M::KIND.group().into()
    }

    fn version((): &()) -> Cow<'_, str> {
        M::KIND.version().into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        M::KIND.plural().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<M: JobMarker> Watched for RawJob<M> {
    fn decode(self) -> Object {
        Object::Job(Box::new(sluice_jobs::observe(M::KIND, &self.value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_of_any_shape_decodes_and_keeps_its_name() {
        let job: RawJob<JobSetMark> = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "managedFields": [{}]},
            "spec": {"replicatedJobs": "not a list"},
        }))
        .unwrap();
        assert_eq!(job.meta().resource_version.as_deref(), Some("7"));
        assert!(job.value["metadata"].get("managedFields").is_none());
        assert_eq!(job.decode().object_ref().to_string(), "JobSet ns/a");
    }
}
