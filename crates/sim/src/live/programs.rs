//! Removes the containers' programs from pods: admission never looks at them, and they are most of a pod template.

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::Kind;

use super::text;

/// Fields of a container that say what it asks for.
const KEPT: [&str; 4] = ["name", "image", "resources", "restartPolicy"];
/// Fields of a pod that say what its containers find.
const LEFT_OUT: [&str; 5] = ["volumes", "imagePullSecrets", "securityContext", "dnsConfig", "hostAliases"];

/// A job or Workload without the programs of its pods. Kinds that make their own templates are not changed: a Workload must still match its job.
pub(super) fn without_programs(kind: Kind, mut object: Value) -> Value {
    let templates: Vec<String> = match kind {
        Kind::Workload if is_of_plain(&object) => {
            let sets = object["spec"]["podSets"].as_array().map_or(0, Vec::len);
            (0..sets).map(|set| format!("/spec/podSets/{set}/template")).collect()
        }
        Kind::Job(job) if sluice_jobs::copies_templates(job) => {
            sluice_jobs::pod_groups(job, &object).into_iter().map(|group| group.pointer).collect()
        }
        _ => Vec::new(),
    };
    for template in templates {
        cut(object.pointer_mut(&format!("{template}/spec")));
    }
    object
}

/// Whether the templates of a Workload are unchanged copies of its job's, or its own.
fn is_of_plain(workload: &Value) -> bool {
    let mut owners = workload["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.all(|owner| {
        let kind = JobKind::from_owner(&text(&owner["apiVersion"]), &text(&owner["kind"]));
        kind.is_some_and(sluice_jobs::copies_templates)
    })
}

fn cut(pod: Option<&mut Value>) {
    let Some(pod) = pod.and_then(Value::as_object_mut) else { return };
    pod.retain(|field, _| !LEFT_OUT.contains(&field.as_str()));
    for list in ["initContainers", "containers"] {
        let containers = pod.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.retain(|field, _| KEPT.contains(&field.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use jiff::SignedDuration;
    use serde_json::json;

    use super::super::tests::ready;
    use super::super::{Extent, Keep, read};
    use super::*;
    use crate::{File, Manifests, Options, object, prepare};

    fn pod() -> Value {
        json!({
            "restartPolicy": "Never", "nodeSelector": {"a": "b"}, "volumes": [{"name": "v"}],
            "initContainers": [{"name": "i", "restartPolicy": "Always", "args": ["x"]}],
            "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}], "resources": {"requests": {"cpu": "1"}}}],
        })
    }

    fn cut_pod() -> Value {
        json!({
            "restartPolicy": "Never", "nodeSelector": {"a": "b"}, "initContainers": [{"name": "i", "restartPolicy": "Always"}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        })
    }

    #[test]
    fn plain_jobs_and_their_workloads_are_cut_alike_and_others_are_left() {
        let job = |pod: Value| json!({"spec": {"suspend": true, "template": {"metadata": {}, "spec": pod}}});
        assert_eq!(without_programs(Kind::Job(JobKind::JOB), job(pod())), job(cut_pod()));
        let set = |pod: Value| json!({"spec": {"replicatedJobs": [{"name": "r", "template": {"spec": {"template": {"spec": pod}}}}]}});
        assert_eq!(without_programs(Kind::Job(JobKind::JOB_SET), set(pod())), set(cut_pod()));
        let workload = |owner: (&str, &str), pod: Value| {
            let owner = json!({"controller": true, "apiVersion": owner.0, "kind": owner.1, "name": "j"});
            json!({"metadata": {"ownerReferences": [owner]}, "spec": {"podSets": [{"name": "main", "template": {"spec": pod}}]}})
        };
        let (plain, ray) = (("batch/v1", "Job"), ("ray.io/v1", "RayCluster"));
        assert_eq!(without_programs(Kind::Workload, workload(plain, pod())), workload(plain, cut_pod()));
        assert_eq!(without_programs(Kind::Workload, workload(ray, pod())), workload(ray, pod()));
        let ray_job = Kind::Job(JobKind::from_owner("ray.io/v1", "RayCluster").unwrap());
        assert_eq!(without_programs(ray_job, job(pod())), job(pod()));
    }

    const WORLD: &str = "
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: f}, spec: {}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: cq}, spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 2}]}]}]}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: lq, namespace: a}, spec: {clusterQueue: cq}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: a, uid: u, labels: {kueue.x-k8s.io/queue-name: lq}}
spec: {suspend: true, template: {spec: {restartPolicy: Never, volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: i, args: [x], env: [{name: A, value: b}], volumeMounts: [{name: v, mountPath: /v}], resources: {requests: {cpu: 1}}}]}}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: s, namespace: a, uid: v, labels: {kueue.x-k8s.io/queue-name: lq}}
spec: {suspend: true, replicatedJobs: [{name: r, replicas: 1, template: {spec: {parallelism: 1, completions: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, command: [run], resources: {requests: {cpu: 1}}}]}}}}}]}
";

    /// If a Workload and its job were cut differently, the job would be stopped as one that was changed.
    #[test]
    fn jobs_that_run_still_run_after_they_were_cut() {
        let file = File { name: "world".to_owned(), text: WORLD.to_owned(), named: true };
        let manifests = Manifests::read(&[file]).unwrap();
        let options = || Options::new(Options::default_configuration());
        let mut cluster = prepare(&manifests, &BTreeMap::new(), options()).unwrap();
        cluster.advance(SignedDuration::from_secs(60)).unwrap();
        let listed = |place: String, _query: &'static str, keep: Keep| {
            let kind = object::kinds().find(|kind| place.ends_with(&format!("/{}", kind.plural())));
            let found =
                kind.into_iter().flat_map(|kind| cluster.objects(kind).map(|(_, value)| value.clone()));
            std::future::ready(Ok::<_, Infallible>(
                found.filter_map(|object| keep(object)).collect::<Vec<_>>().into(),
            ))
        };
        let live = ready(read(Extent::All, &[JobKind::JOB, JobKind::JOB_SET], listed)).unwrap();
        let cut: Vec<_> =
            live.objects.iter().filter(|m| matches!(m.kind, Kind::Job(_) | Kind::Workload)).collect();
        let text: String = cut.iter().map(|manifest| manifest.object.to_string()).collect();
        assert_eq!(cut.len(), 4, "{text}");
        for gone in ["\"env\"", "\"args\"", "\"command\"", "\"volumes\"", "\"volumeMounts\""] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        let manifests = Manifests { objects: live.objects, ..Manifests::default() };
        let start = cluster.now();
        let mut played = prepare(&manifests, &BTreeMap::new(), Options { start, ..options() }).unwrap();
        played.advance(SignedDuration::from_secs(60)).unwrap();
        let jobs = &played.record().jobs;
        assert_eq!(jobs.len(), 2);
        for job in jobs {
            let [hold] = &job.holds[..] else { unreachable!("{job:?}") };
            assert!(hold.admitted.is_some() && hold.to.is_none() && job.finished.is_none(), "{job:?}");
        }
    }

    #[test]
    fn odd_documents_stay_as_they_are() {
        for odd in [
            json!({}),
            json!({"spec": []}),
            json!({"spec": {"podSets": 1, "replicatedJobs": "x", "template": 3}}),
        ] {
            for kind in [Kind::Workload, Kind::Job(JobKind::JOB), Kind::Job(JobKind::JOB_SET)] {
                assert_eq!(without_programs(kind, odd.clone()), odd, "{kind:?}");
            }
        }
    }
}
