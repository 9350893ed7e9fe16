//! New jobs that claim to belong to a job on whose quota they cannot run.

use super::pods::{Bed, of_job, owners, template};
use super::*;

/// Manages all jobs, and no pods.
fn managing_all(frameworks: &str) -> Bed {
    Bed::of(&format!(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true\n\
         integrations: {{frameworks: [{frameworks}]}}\n"
    ))
}

/// A Job of so many pods, each with this much processor.
fn claiming(owner: (JobKind, &str), name: &str, pods: i32, cpu: &str) -> Value {
    let mut template = template();
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu, "memory": "256Mi"}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": pods, "template": template},
        "metadata": {"name": name, "namespace": "ns", "ownerReferences": owners(owner.0, owner.1)}})
}

/// Whether it may run at once, as a part of its controller.
fn is_believed(bed: &Bed, job: &Value) -> bool {
    post(&bed.reviewers, "/mutate-batch-v1-job", job)["response"].get("patch").is_none()
}

/// An object that is being deleted, as its finalizer keeps it.
fn leaving(spec: &Value) -> Value {
    json!({"spec": spec, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
}

const CLUSTER: (JobKind, &str) = (JobKind::RAY_CLUSTER, "own");

#[test]
fn below_a_job_that_is_being_deleted_only_the_small_job_that_cleans_up_runs() {
    let cluster = json!({"headGroupSpec": {"template": template()}});
    let all = || managing_all("batch/job, ray.io/raycluster");
    for (bed, what) in [(Bed::new(), "a default queue"), (all(), "all jobs are managed")] {
        let cleanup = claiming(CLUSTER, "own-redis-cleanup", 1, "200m");
        bed.see(CLUSTER.0, CLUSTER.1, "q", None, &json!({"spec": cluster}));
        assert!(!is_believed(&bed, &cleanup), "{what}: the cluster is not being deleted");
        bed.see(CLUSTER.0, CLUSTER.1, "q", None, &leaving(&cluster));
        assert!(is_believed(&bed, &cleanup), "{what}: without it the cluster would never go");
        let (job, torch) = ((JobKind::JOB, "job"), (JobKind::PYTORCH_JOB, "torch"));
        for (kind, name) in [job, torch] {
            bed.see(kind, name, "q", None, &leaving(&json!({"template": template()})));
        }
        for other in [
            claiming(CLUSTER, "c-1", 1, "200m"),
            claiming(CLUSTER, "own-redis-cleanup", 100, "200m"),
            claiming(CLUSTER, "own-redis-cleanup", 1, "8"),
            claiming(job, "c-1", 1, "200m"),
            claiming(job, "job-redis-cleanup", 1, "200m"),
            claiming(torch, "torch-redis-cleanup", 1, "200m"),
        ] {
            assert!(!is_believed(&bed, &other), "{what}: {other}");
        }
    }
}

#[test]
fn pods_of_jobs_that_only_claim_to_clean_up_wait() {
    for (owner, name, pods) in [
        ((JobKind::JOB, "own"), "own-redis-cleanup", 1),
        ((JobKind::JOB, "own"), "c-1", 1),
        (CLUSTER, "c-1", 1),
        (CLUSTER, "own-redis-cleanup", 100),
    ] {
        let bed = Bed::new();
        let spec = json!({"headGroupSpec": {"template": template()}, "template": template()});
        bed.see(owner.0, owner.1, "q", None, &leaving(&spec));
        let job = claiming(owner, name, pods, "200m");
        bed.see(JobKind::JOB, name, "", Some(owner), &json!({"spec": job["spec"]}));
        let metadata = json!({"name": "any", "namespace": "ns", "labels": of_job(name),
            "ownerReferences": owners(JobKind::JOB, name)});
        let pod = json!({"metadata": metadata, "spec": template()["spec"]});
        let answer = post(&bed.reviewers, "/mutate--v1-pod", &pod);
        assert!(answer["response"]["patch"].is_string(), "{owner:?} {name} {pods}: {answer}");
    }
}

/// Such a RayJob has no pods of its own, so no quota.
#[test]
fn a_job_below_a_rayjob_that_selects_a_cluster_waits_although_all_jobs_are_managed() {
    let bed = managing_all("batch/job, ray.io/rayjob");
    let owner = (JobKind::RAY_JOB, "own");
    let submitter = claiming(owner, "own", 1, "200m");
    let with = |spec: Value| bed.see(owner.0, owner.1, "", None, &json!({"spec": spec}));
    with(json!({"rayClusterSpec": {"headGroupSpec": {"template": template()}}}));
    assert!(is_believed(&bed, &submitter));
    with(json!({"clusterSelector": {"ray.io/cluster": "shared"}}));
    assert!(!is_believed(&bed, &submitter));
}
