//! The watched kinds, and how each becomes an object of the engine.

use serde::Deserialize;
use serde_json::Value;
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_api::{slim, v1beta2};
use sluice_engine::input::{Kind, Object};
use sluice_jobs::pods::Member;

use super::pump::Watched;
use super::versions::OLDER;

/// Implements [`Watched`] for types that the engine takes as they are.
macro_rules! watched {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(impl Watched for $type {
            fn decode(self, _kind: Kind) -> Object {
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
    slim::JobPod => JobPod,
    slim::LimitRange => LimitRange,
    slim::RuntimeClass => RuntimeClass,
    v1beta2::ProvisioningRequestConfig => ProvisioningRequestConfig,
    slim::ProvisioningRequest => ProvisioningRequest,
}

/// A ProvisioningRequest where only the older version is served.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct OlderProvisioningRequest(slim::ProvisioningRequest);

impl Watched for OlderProvisioningRequest {
    fn decode(self, kind: Kind) -> Object {
        self.0.decode(kind)
    }

    fn version(_kind: Kind) -> &'static str {
        OLDER
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

/// A job as JSON: its adapter reads it. Decodes whatever the object looks like, since parts of it are user-written.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct RawJob(Value);

impl Watched for RawJob {
    fn decode(self, kind: Kind) -> Object {
        let Kind::Job(kind) = kind else { unreachable!("jobs are watched as jobs") };
        job(kind, &self.0)
    }
}

/// A template object as JSON: the adapter of its jobs reads it.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct RawTemplate(Value);

impl Watched for RawTemplate {
    fn decode(self, kind: Kind) -> Object {
        let Kind::Template(kind) = kind else { unreachable!("templates are watched as templates") };
        Object::Template(Box::new(sluice_jobs::template(kind, &self.0)))
    }
}

/// What the engine receives of an object of a job kind. With the gate `WorkloadIdentifierAnnotations` off the engine looks away from annotations
/// itself.
pub fn job(kind: JobKind, value: &Value) -> Object {
    if kind.integration().of_pods {
        Object::QueuedPod(Box::new(Member::observe(value, &Gates::default())))
    } else {
        Object::Job(Box::new(sluice_jobs::observe(kind, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_of_any_shape_decodes_and_keeps_its_name() {
        let job: RawJob = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "managedFields": [{}]},
            "spec": {"replicatedJobs": "not a list"},
        }))
        .unwrap();
        let object = job.decode(Kind::Job(JobKind::JOB_SET));
        assert_eq!(object.object_ref().to_string(), "JobSet ns/a");
    }

    #[test]
    fn a_queued_pod_is_no_job_of_its_own() {
        let pod: RawJob = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "ns", "labels": {"kueue.x-k8s.io/pod-group-name": "g"}},
            "spec": "odd",
        }))
        .unwrap();
        let object = pod.decode(Kind::Job(JobKind::POD));
        assert_eq!(object.object_ref().to_string(), "Pod ns/a");
        let Object::QueuedPod(member) = object else { panic!("{object:?}") };
        assert_eq!(member.group.as_deref(), Some("g"));
    }
}
