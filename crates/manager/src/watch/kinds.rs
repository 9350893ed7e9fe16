//! The watched kinds, and how each is converted to an object of the engine.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sluice_api::gates::Gates;
use sluice_api::job::{JobKind, JobView};
use sluice_api::slim::{self, Raw};
use sluice_api::v1beta2;
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
            let object = seen.read::<slim::WorkloadRest>()?.with(spec);
            known.seen(&object);
            return Ok(object.into());
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

/// A job: as JSON, which its adapter reads, or as it was known. Decodes whatever the object looks like, since parts of it are user-written.
#[derive(Clone, Debug)]
pub enum RawJob {
    /// As it was seen.
    Seen(Raw),
    /// As the answer of our write had it.
    Known(Box<JobView>),
}

impl<'de> Deserialize<'de> for RawJob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Raw::deserialize(deserializer).map(Self::Seen)
    }
}

impl Watched for RawJob {
    fn decode(self, kind: Kind) -> Object {
        let Kind::Job(kind) = kind else { unreachable!("jobs are watched as jobs") };
        match self {
            Self::Seen(Raw(value)) => job(kind, &value),
            Self::Known(view) => Object::Job(view),
        }
    }

    fn read(seen: &Seen, known: &Known) -> serde_json::Result<Documented<Self>> {
        let kept =
            if document::kept() { None } else { known.take_job(&seen.meta.uid, &seen.meta.resource_version) };
        kept.map_or_else(|| seen.read(), |view| Ok(Self::Known(view).into()))
    }
}

/// A template object as JSON: the adapter of its jobs reads it.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct RawTemplate(Raw);

impl Watched for RawTemplate {
    fn decode(self, kind: Kind) -> Object {
        let Kind::Template(kind) = kind else { unreachable!("templates are watched as templates") };
        Object::Template(Box::new(sluice_jobs::template(kind, &self.0.0)))
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

    #[test]
    fn a_job_of_any_depth_decodes_and_says_that_it_is_too_deep() {
        let kind = JobKind::SPARK_APPLICATION;
        let metadata =
            json!({"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 3});
        for levels in [200, 10_000] {
            let [begin, end] = [r#"{"a":"#, "}"].map(|part| part.repeat(levels));
            for suspended in [true, false] {
                let spec = format!(r#"{{"driver":{{"template":{begin}1{end}}},"suspend":{suspended}}}"#);
                let text = format!(r#"{{"kind":"SparkApplication","metadata":{metadata},"spec":{spec}}}"#);
                let job: RawJob = serde_json::from_str(&text).unwrap();
                let object = job.decode(Kind::Job(kind));
                let known = Known::default();
                let answer = crate::writer::request::answer(Kind::Job(kind), text.as_bytes(), &known);
                assert_eq!(answer.unwrap().as_ref(), Some(&object));
                let Object::Job(view) = object else { unreachable!("a job") };
                assert_eq!((&*view.job.name, view.generation, view.suspended), ("a", 3, suspended));
                assert!(view.invalid.unwrap().contains("levels deep"));
            }
        }
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
    fn the_spec_of_a_workload_in_an_answer_is_decoded_once_for_each_generation() {
        let known = Known::default();
        let read = |object: &Value| {
            let (text, mut read) = (object.to_string(), None);
            let answer = || crate::writer::request::answer(Kind::Workload, text.as_bytes(), &known);
            let cost = allocations(|| read = answer().unwrap());
            let Some(object @ Object::Workload(_)) = read else { unreachable!("it is one") };
            known.copy_of(&object);
            let Object::Workload(workload) = object else { unreachable!("it is one") };
            (workload, cost)
        };
        let (first, whole) = read(&workload("1", 1, 40));
        let (second, rest) = read(&workload("2", 1, 40));
        assert!(std::sync::Arc::ptr_eq(&first.spec, &second.spec));
        assert_eq!(second.status.cluster_name.as_deref(), Some("2"));
        assert_eq!(second.metadata.resource_version.as_deref(), Some("2"));
        assert!(rest * 4 < whole, "{rest} of {whole}");
        let (third, _) = read(&workload("3", 2, 41));
        assert_eq!(third.spec.pod_sets[0].template.containers.len(), 41);
        let mut broken = workload("4", 2, 41);
        broken["status"] = json!([1]);
        crate::writer::request::answer(Kind::Workload, broken.to_string().as_bytes(), &known).unwrap_err();
    }

    #[test]
    fn what_the_answer_of_a_write_had_is_not_decoded_again() {
        let known = Known::default();
        let body = workload("7", 1, 1);
        let answer = crate::writer::request::answer(Kind::Workload, body.to_string().as_bytes(), &known);
        let answer = answer.unwrap().unwrap();
        known.answered(known.copy_of(&answer).unwrap());
        let (echo, cost) = read(&body, &known);
        assert_eq!(Object::Workload(Box::new(echo)), answer);
        assert!(cost <= 4, "{cost}: it is the one that was kept");
        let (again, _) = read(&body, &known);
        assert_eq!(Object::Workload(Box::new(again)), answer);
    }

    /// A Job of `managed` entries of managed fields, as the API server has it.
    fn batch_job(managed: usize) -> Value {
        let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "batch/v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:suspend": {}}}});
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                "annotations": {"note": "with \"quotes\" and [[brackets]]"},
                "labels": {"kueue.x-k8s.io/queue-name": "lq"}, "managedFields": vec![entry; managed]},
            "spec": {"suspend": true, "template": {"spec": {"containers": [container]}}},
        })
    }

    fn allocations(what: impl FnOnce()) -> u64 {
        allocation_counter::measure(what).count_total
    }

    #[test]
    fn managed_fields_of_jobs_and_their_templates_cost_nothing() {
        let cost = |managed: usize| {
            let (object, known) = (batch_job(managed), Known::default());
            let (seen, text) = (crate::watch::source::tests::seen(&object), object.to_string());
            let answered = crate::writer::request::answer;
            [
                allocations(|| drop(RawJob::read(&seen, &known).unwrap())),
                allocations(|| drop(RawTemplate::read(&seen, &known).unwrap())),
                allocations(|| drop(answered(Kind::Job(JobKind::JOB), text.as_bytes(), &known).unwrap())),
                allocations(|| drop(crate::writer::request::view(JobKind::JOB, text.as_bytes()).unwrap())),
            ]
        };
        assert_eq!(cost(20), cost(0));
    }

    #[test]
    fn the_event_of_our_own_write_on_a_job_is_not_decoded() {
        let (object, known) = (batch_job(2), Known::default());
        let seen = crate::watch::source::tests::seen(&object);
        let kind = Kind::Job(JobKind::JOB);
        let read = |read: &mut Option<Object>| {
            allocations(|| *read = Some(RawJob::read(&seen, &known).unwrap().object.decode(kind)))
        };
        let [mut whole, mut echo, mut again] = [None, None, None];
        assert!(read(&mut whole) > 40);
        let answer =
            crate::writer::request::answer(kind, object.to_string().as_bytes(), &known).unwrap().unwrap();
        known.answered(known.copy_of(&answer).unwrap());
        let cost = read(&mut echo);
        assert!(cost <= 4, "{cost}: it is the one that was kept");
        // All but the templates, which the engine has.
        let (Some(Object::Job(mut whole)), Some(Object::Job(echo))) = (whole, echo) else {
            unreachable!("jobs")
        };
        assert!(whole.pod_sets.iter_mut().all(|set| set.template.take().is_some()));
        assert_eq!(whole, echo);
        read(&mut again);
        assert_eq!(again, Some(answer), "what comes again is read again");
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
