//! Jobs and JobSets that were partly finished, forged, lost or moved, on a real control plane with the real controllers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_testkit::kubectl::apply;
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{Complete, ControlPlane, Limits, Manager, Setup, chart, crds, nodes};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, create, job, patch, reported};

mod paused_controller;

/// The pods of a Job that have not ended.
async fn pods(place: &Place<'_>, job: &str) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(place.client.clone(), &place.name);
    let all = api.list(&ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"))).await?;
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    Ok(all.items.into_iter().filter(|pod| !matches!(phase(pod).as_str(), "Succeeded" | "Failed")).collect())
}

/// Lets one pod of a Job end well.
async fn succeed_one(place: &Place<'_>, job: &str) -> Result<()> {
    end_one(place, job, "Succeeded").await
}

/// Lets one pod of a Job end so.
async fn end_one(place: &Place<'_>, job: &str, phase: &str) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(place.client.clone(), &place.name);
    let name = pods(place, job).await?[0].metadata.name.clone().unwrap();
    let ended = json!({"status": {"phase": phase}});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(ended)).await?;
    Ok(())
}

async fn wait_for(place: &Place<'_>, name: &str, what: &str, holds: impl Fn(&Value) -> bool) {
    eventually(&format!("{}/{name} {what}", place.name), DEADLINE, || async {
        let job = serde_json::to_value(place.jobs().get(name).await?)?;
        Ok(progress(holds(&job), format!("{} {}", job["spec"]["suspend"], job["status"])))
    })
    .await
    .unwrap();
}

fn is_complete(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Complete" && c["status"] == "True"))
}

async fn set_active(place: &Place<'_>, job: &str, active: bool) {
    let workload = place.workload(job).await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    patch(&place.workloads(), name, json!({"spec": {"active": active}})).await.unwrap();
}

/// Two pods run; one ends well; the Job is stopped and started again; the other ends, too.
async fn partly_done(place: &Place<'_>, name: &str, mode: &str) {
    let mut two = job(name, "lq", 1, 2, 3_600);
    two["spec"]["completionMode"] = json!(mode);
    place.make_job(&two).await.unwrap();
    wait_for(place, name, "to run", |job| job["status"]["ready"] == 2).await;
    succeed_one(place, name).await.unwrap();
    wait_for(place, name, "to be half done", |job| job["status"]["succeeded"] == 1).await;
    set_active(place, name, false).await;
    wait_for(place, name, "to be stopped", |job| {
        job["spec"]["suspend"] == true && job["metadata"]["annotations"]["kueue.x-k8s.io/stopping"].is_null()
    })
    .await;
    place.wait_for_condition(name, "QuotaReserved", "False").await.unwrap();
    set_active(place, name, true).await;
    wait_for(place, name, "to run the rest", |job| job["status"]["ready"] == 1).await;
    let workload = place.workload(name).await.unwrap();
    assert_eq!(workload["status"]["admission"]["podSetAssignments"][0]["count"], 1);
    succeed_one(place, name).await.unwrap();
    wait_for(place, name, "to complete", is_complete).await;
    place.wait_for_condition(name, "Finished", "True/Succeeded").await.unwrap();
}

/// A Job has lost its start time when its last pod is found to have ended well: the API server refuses to complete it so.
async fn over_without_start_time(place: &Place<'_>, name: &str) {
    place.job(name, "lq", 1).await.unwrap();
    wait_for(place, name, "to run", |job| job["status"]["ready"] == 1).await;
    set_active(place, name, false).await;
    wait_until_suspended_again(place, name).await;
    wait_for(place, name, "to have lost its start time", |job| job["status"]["startTime"].is_null()).await;
    let over = Patch::Merge(json!({"status": {"succeeded": 1}}));
    place.jobs().patch_status(name, &PatchParams::default(), &over).await.unwrap();
    wait_for(place, name, "to complete", is_complete).await;
    place.wait_for_condition(name, "Finished", "True/Succeeded").await.unwrap();
}

/// A user lets a job run that names the Workload of another, and one that claims an owner.
async fn forged(place: &Place<'_>) {
    place.job("rightful", "lq", 3).await.unwrap();
    place.wait_until("rightful", true).await.unwrap();
    let others = place.workload("rightful").await.unwrap()["metadata"]["name"].clone();
    let mut stolen = job("stolen", "lq", 1, 1, 3_600);
    stolen["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = others;
    let mut owned = job("owned", "lq", 1, 1, 3_600);
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "jobset.x-k8s.io/v9", "kind": "JobSet",
        "name": "made-up", "uid": "4b1f1c1e-0000-4000-8000-000000000000", "controller": true}]);
    for (name, object) in [("stolen", stolen), ("owned", owned)] {
        place.make_job(&object).await.unwrap();
        assert!(place.suspended(name).await.unwrap(), "{name}");
        place.patch_job(name, json!({"spec": {"suspend": false}})).await.unwrap();
        wait_until_suspended_again(place, name).await;
    }
    place.wait_for_event("Job/stolen", "Stopped", "belongs to another job").await.unwrap();
    assert!(!place.suspended("rightful").await.unwrap());
    for name in ["stolen", "owned", "rightful"] {
        place.delete_job(name).await.unwrap();
    }
}

async fn wait_until_suspended_again(place: &Place<'_>, name: &str) {
    wait_for(place, name, "to be suspended again", |job| {
        let marked = &job["metadata"]["annotations"]["kueue.x-k8s.io/stopping"];
        let active = job["status"]["active"].as_i64().unwrap_or(0);
        job["spec"]["suspend"] == true && marked.is_null() && active == 0
    })
    .await;
}

/// An administrator takes the owner off a Workload.
async fn lost_owner(place: &Place<'_>, name: &str) {
    place.job(name, "lq", 1).await.unwrap();
    place.wait_until(name, true).await.unwrap();
    let workload = place.workload(name).await.unwrap();
    let (own, uid) = (workload["metadata"]["name"].as_str().unwrap(), &workload["metadata"]["uid"]);
    patch(&place.workloads(), own, json!({"metadata": {"ownerReferences": null}})).await.unwrap();
    let found = eventually("the Workload to have its owner again", DEADLINE, || async {
        let found = place.workloads().get(own).await?;
        let found = serde_json::to_value(found)?;
        let owners = &found["metadata"]["ownerReferences"];
        let back = owners[0]["kind"] == "Job" && owners[0]["name"] == name && owners[0]["controller"] == true;
        Ok(if back { Progress::Done(found) } else { Progress::NotYet(owners.to_string()) })
    })
    .await
    .unwrap();
    assert_eq!((&found["metadata"]["uid"], reported(&found, "Finished")), (uid, "nothing".to_owned()));
    assert!(!place.suspended(name).await.unwrap());
    place.delete_job(name).await.unwrap();
}

/// More than can be counted is not admitted, and nothing is tried again without end.
async fn uncountable(place: &Place<'_>, name: &str) {
    let mut huge = job(name, "lq", 1, 3, 3_600);
    let requests = &mut huge["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"];
    *requests = json!({"cpu": "1", "memory": "9223372036854775807"});
    place.make_job(&huge).await.unwrap();
    let why = "False/Misconfigured: resources validation failed: spec.podSets[0].template.spec: Invalid value: memory";
    place.wait_for_condition(name, "QuotaReserved", why).await.unwrap();
    place.delete_job(name).await.unwrap();
}

/// A JobSet is stopped, and starts again on another flavor.
async fn moved(place: &Place<'_>, name: &str) {
    const POOL: &str = "cloud.google.com/gke-nodepool";
    let groups = |old: u32, new: u32| {
        let flavor =
            |name: &str, cpu: u32| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]});
        json!([{"coveredResources": ["cpu"], "flavors": [flavor("ends-old", old), flavor("ends-new", new)]}])
    };
    for flavor in ["ends-old", "ends-new"] {
        let flavors = place.global("ResourceFlavor", "resourceflavors");
        let spec = json!({"nodeLabels": {POOL: flavor}});
        create(&flavors, json!({"metadata": {"name": flavor}, "spec": spec})).await.unwrap();
    }
    place.cluster_queue(name, 0, &json!({"resourceGroups": groups(2, 0)})).await.unwrap();
    place.local_queue(name, name).await.unwrap();
    let jobset = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "namespace": place.name, "labels": {QUEUE_NAME: name}},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"template": {
            "metadata": {"annotations": {"sluice.dev/run-seconds": "3600"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        }}}}]},
    });
    apply(place.plane, &jobset.to_string()).await.unwrap();
    let runs_on = |pool: &'static str| async move {
        eventually(&format!("{name} to run on {pool}"), DEADLINE, || async {
            let own = ListParams::default().labels(&format!("jobset.sigs.k8s.io/jobset-name={name}"));
            let jobs = place.jobs().list(&own).await?.items;
            let seen: Vec<_> = jobs
                .iter()
                .map(|job| {
                    let spec = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
                    let selector = spec.and_then(|spec| spec.node_selector.clone()).unwrap_or_default();
                    (job.status.as_ref().and_then(|status| status.ready).unwrap_or(0), selector)
                })
                .collect();
            let selector = [(POOL.to_owned(), pool.to_owned())].into();
            Ok(progress(seen == [(1, Clone::clone(&selector)), (1, selector)], format!("{seen:?}")))
        })
        .await
        .unwrap();
    };
    runs_on("ends-old").await;
    set_active(place, name, false).await;
    place.wait_for_condition(name, "QuotaReserved", "False").await.unwrap();
    patch(&place.cluster_queues(), name, json!({"spec": {"resourceGroups": groups(0, 2)}})).await.unwrap();
    set_active(place, name, true).await;
    runs_on("ends-new").await;
}

/// Waits until the Workloads of these jobs are as they should be.
async fn wait_for_all(place: &Place<'_>, jobs: &[&str], what: &str, holds: impl Fn(&Value) -> bool) {
    eventually(what, DEADLINE, || async {
        for job in jobs {
            let workload = place.workload(job).await?;
            if !holds(&workload) {
                return Ok(progress(false, format!("{job}: {}", workload["status"])));
            }
        }
        Ok(progress(true, ""))
    })
    .await
    .unwrap();
}

/// A JobSet of two Jobs of one pod each, of which the first ends after `seconds` seconds, and the second later.
fn set_of_two(name: &str, queue: &str, seconds: &str) -> Value {
    let group = |name: &str, seconds: &str| {
        let pods = json!({
            "metadata": {"annotations": {"sluice.dev/run-seconds": seconds}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        });
        json!({"name": name, "replicas": 1, "template": {"spec": {"template": pods}}})
    };
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "labels": {QUEUE_NAME: queue}},
        "spec": {"replicatedJobs": [group("first", seconds), group("second", "3600")]},
    })
}

/// Partly done jobs of each kind are preempted and start again, and the manager is killed in between, at each step.
async fn killed_in_between(control: &ControlPlane, mut manager: Manager) -> Manager {
    let place = Place::bare(control, "kills").await.unwrap();
    place.flavor("kills").await.unwrap();
    let preemption = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    place.cluster_queue("kills", 6, &preemption).await.unwrap();
    place.local_queue("lq", "kills").await.unwrap();
    let classes = place.global("WorkloadPriorityClass", "workloadpriorityclasses");
    create(&classes, json!({"metadata": {"name": "kills"}, "value": 1_000})).await.unwrap();
    let mut set = set_of_two("set", "lq", "0.2");
    set["metadata"]["namespace"] = json!(place.name);
    apply(control, &set.to_string()).await.unwrap();
    for (name, mode) in [("plain", "NonIndexed"), ("indexed", "Indexed")] {
        let mut two = job(name, "lq", 1, 2, 3_600);
        two["spec"]["completionMode"] = json!(mode);
        place.make_job(&two).await.unwrap();
    }
    for name in ["plain", "indexed"] {
        wait_for(&place, name, "to run", |job| job["status"]["ready"] == 2).await;
        succeed_one(&place, name).await.unwrap();
    }
    wait_for(&place, "set-first-0", "to complete", is_complete).await;
    let victims = ["plain", "indexed", "set"];
    let one_done = |workload: &Value| {
        let sets = workload["status"]["reclaimablePods"].as_array();
        sets.is_some_and(|sets| sets.iter().any(|set| set["count"] == 1))
    };
    wait_for_all(&place, &victims, "one pod of each to be done", one_done).await;

    let mut urgent = job("urgent", "lq", 6, 1, 3_600);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("kills");
    place.make_job(&urgent).await.unwrap();
    let is = |workload: &Value, kind: &str, begins: &str| reported(workload, kind).starts_with(begins);
    wait_for_all(&place, &victims, "all to be preempted", |w| is(w, "Evicted", "True/Preempted")).await;
    manager = manager.restart(control).await.unwrap();
    wait_for(&place, "urgent", "to run", |job| job["status"]["ready"] == 1).await;
    wait_for_all(&place, &victims, "all to wait", |w| is(w, "QuotaReserved", "False")).await;
    place.delete_job("urgent").await.unwrap();
    wait_for_all(&place, &["plain"], "to be admitted", |w| is(w, "Admitted", "True")).await;
    manager = manager.restart(control).await.unwrap();

    let rest = |workload: &Value| {
        let sets = workload["status"]["admission"]["podSetAssignments"].as_array();
        sets.is_some_and(|sets| sets.iter().filter_map(|set| set["count"].as_i64()).sum::<i64>() == 1)
    };
    wait_for_all(&place, &victims, "the rest of each to be admitted", rest).await;
    for name in ["plain", "indexed", "set-second-0"] {
        wait_for(&place, name, "to run the rest", |job| job["status"]["ready"] == 1).await;
    }
    manager = manager.restart(control).await.unwrap();
    for name in ["plain", "indexed", "set-second-0"] {
        succeed_one(&place, name).await.unwrap();
        wait_for(&place, name, "to complete", is_complete).await;
    }
    wait_for_all(&place, &victims, "all to be over", |w| is(w, "Finished", "True/Succeeded")).await;
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    manager
}

#[tokio::test]
async fn jobs_end_and_nothing_runs_unadmitted() {
    // Its own: the manager is killed.
    let plane = Complete::start().await.unwrap();
    let plane = &*plane;
    let client = plane.client().await.unwrap();
    for pool in ["ends", "ends-old", "ends-new"] {
        nodes::pool(pool, 1).make(&client).await.unwrap();
    }
    let frameworks = json!({"integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]}});
    let setup = Setup::new(plane).unwrap().alone().with(&frameworks).limited(Limits::CHART);
    let setup = chart::install(plane, setup, &json!({})).await.unwrap();
    let manager = Manager::start(plane, setup).await.unwrap();
    manager.must_be_limited();
    crds::wait_until_converting(&client).await.unwrap();
    let here = Place::new(plane, "ends", 3).await.unwrap();
    tokio::join!(
        partly_done(&here, "some", "NonIndexed"),
        over_without_start_time(&here, "last"),
        uncountable(&here, "huge"),
    );
    partly_done(&here, "indexed", "Indexed").await;
    lost_owner(&here, "orphan").await;
    tokio::join!(forged(&here), moved(&here, "moved"));
    let manager = killed_in_between(plane, manager).await;
    let manager = paused_controller::over_meanwhile(plane, manager, false).await;
    let _manager = paused_controller::over_meanwhile(plane, manager, true).await;
}
