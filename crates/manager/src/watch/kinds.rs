//! The watched kinds, and how each is converted to an object of the engine.

use serde::Deserialize;
use serde_json::Value;
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_api::{slim, v1beta2};
use sluice_engine::input::{Kind, Object};
use sluice_jobs::pods::Member;

use super::document::{self, Documented};
use super::known::Known;
use super::pump::Watched;
use super::source::Seen;
use super::versions::OLDER;

/// Implements [`Watched`] for types that the engine takes unchanged.
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

impl Watched for slim::Workload {
    fn decode(self, _kind: Kind) -> Object {
        Object::Workload(Box::new(self))
    }

    fn read(seen: &Seen, known: &Known) -> serde_json::Result<Documented<Self>> {
        if document::kept() {
            return seen.read();
        }
        let meta = &seen.meta;
        if let Some(answer) = known.take(&meta.uid, &meta.resource_version) {
            return Ok(answer.into());
        }
        if let Some(spec) = known.spec(&meta.uid, meta.generation) {
            return Ok(seen.read::<slim::WorkloadRest>()?.with(spec).into());
        }
        let read: Documented<Self> = seen.read()?;
        known.seen(&read.object);
        Ok(read)
    }
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

/// What the engine receives of an object of a job kind. If the gate `WorkloadIdentifierAnnotations` is off the engine itself ignores the annotations.
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

    /// A Workload of a version and a generation, with a spec of this number of containers.
    fn workload(version: &str, generation: i64, containers: usize) -> Value {
        let container =
            |at: usize| json!({"name": format!("c{at}"), "resources": {"requests": {"cpu": at.to_string()}}});
        let template = json!({"spec": {"containers": (1..=containers).map(container).collect::<Vec<_>>()}});
        json!({
            "kind": "Workload",
            "metadata": {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": version, "generation": generation},
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
            "status": {"clusterName": version},
        })
    }

    fn read(object: &Value, known: &Known) -> (slim::Workload, u64) {
        let seen = crate::watch::source::tests::seen(object);
        let mut read = None;
        let cost = allocation_counter::measure(|| read = Some(slim::Workload::read(&seen, known).unwrap()));
        (read.unwrap().object, cost.count_total)
    }

    #[test]
    fn a_spec_is_decoded_once_for_each_generation() {
        let known = Known::default();
        let (first, whole) = read(&workload("1", 1, 20), &known);
        let (second, rest) = read(&workload("2", 1, 20), &known);
        assert!(std::sync::Arc::ptr_eq(&first.spec, &second.spec));
        assert_eq!(second.status.cluster_name.as_deref(), Some("2"));
        assert!(rest * 4 < whole, "{rest} of {whole}");
        let (third, _) = read(&workload("3", 2, 21), &known);
        assert_eq!(third.spec.pod_sets[0].template.containers.len(), 21);
    }

    #[test]
    fn what_the_answer_of_a_write_had_is_not_decoded_again() {
        let known = Known::default();
        let body = workload("7", 1, 1);
        let answer = crate::writer::request::answer(Kind::Workload, body.to_string().as_bytes());
        let answer = answer.unwrap().unwrap();
        known.answered(&answer);
        let (echo, cost) = read(&body, &known);
        assert_eq!(Object::Workload(Box::new(echo)), answer);
        assert!(cost <= 4, "{cost}: it is the one that was kept");
        let (again, _) = read(&body, &known);
        assert_eq!(Object::Workload(Box::new(again)), answer);
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
