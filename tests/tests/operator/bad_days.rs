//! Unexpected actions of users and administrators, on a real control plane: each time the user concerned gets a message, all others continue, and no
//! quota leaks. Each test has its own namespace and queues.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};
use sluice_testkit::kubectl::try_kubectl;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::workloads;
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, create, job, patch, quota, reported};

use crate::bed::bed;

/// A namespace with queues of this many processors.
async fn place(name: &str, cpu: u32) -> Place<'static> {
    Place::new(bed().await.plane, name, cpu).await.unwrap()
}

async fn bare(name: &str) -> Place<'static> {
    Place::bare(bed().await.plane, name).await.unwrap()
}

/// The incremental state of the manager equals what the objects say.
async fn nothing_leaks() {
    let manager = &bed().await.manager;
    eventually("the audit to find nothing", DEADLINE, || async {
        let (status, text) = manager.health("/debug/audit?pause=true").await?;
        Ok(progress(status == 200 && text == "no differences\n", text))
    })
    .await
    .unwrap();
}

/// Deletes these Jobs; then nothing holds quota here any more.
async fn end(place: &Place<'_>, jobs: &[&str]) {
    for name in jobs {
        place.delete_job(name).await.unwrap();
    }
    place.wait_until_empty().await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    place.wait_for_reserved_cpu("0").await.unwrap();
    nothing_leaks().await;
}

/// What kubectl says when it refuses these manifests.
async fn refusal(manifests: &str) -> String {
    let kubeconfig = bed().await.plane.kubeconfig_path();
    let args = ["apply", "--validate=strict", "-f", "-"];
    let output = try_kubectl(&kubeconfig, &args, Some(manifests)).await.unwrap();
    assert!(!output.success, "it was taken: {}", output.stdout);
    output.stderr
}

async fn uid(place: &Place<'_>, job: &str) -> String {
    let workload = place.workload(job).await.unwrap();
    workload["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Waits until the Job has another Workload than this one.
async fn wait_for_another(place: &Place<'_>, job: &str, old: &str) {
    eventually("another Workload", DEADLINE, || async {
        let workload = workloads::of_job(&place.client, &place.name, job).await?.unwrap_or_default();
        let uid = workload["metadata"]["uid"].as_str().unwrap_or_default();
        Ok(progress(!uid.is_empty() && uid != old, reported(&workload, "QuotaReserved")))
    })
    .await
    .unwrap();
}

async fn is_gone(api: &Api<DynamicObject>, name: &str) {
    eventually(&format!("{name} to be gone"), DEADLINE, || async {
        let found = api.get_opt(name).await?;
        Ok(progress(found.is_none(), found.map(|found| format!("{:?}", found.metadata)).unwrap_or_default()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn unknown_queues_are_named_and_the_others_continue() {
    let place = place("unknown-queue", 2).await;
    place.job("lost", "nowhere", 1).await.unwrap();
    place.job("fine", "lq", 1).await.unwrap();
    place.wait_until("fine", true).await.unwrap();
    let missing = "False/Misconfigured: LocalQueue nowhere doesn't exist";
    place.wait_for_condition("lost", "QuotaReserved", missing).await.unwrap();
    let lost = place.about_workload("lost").await.unwrap();
    place.wait_for_event(&lost, "Misconfigured", "LocalQueue nowhere doesn't exist").await.unwrap();
    place.local_queue("nowhere", "unknown-queue-later").await.unwrap();
    let missing = "False/Misconfigured: ClusterQueue unknown-queue-later doesn't exist";
    place.wait_for_condition("lost", "QuotaReserved", missing).await.unwrap();
    let inactive = "False/ClusterQueueDoesNotExist: Can't submit new workloads to clusterQueue";
    place.wait_for_queue(&place.local_queues(), "nowhere", inactive).await.unwrap();
    place.cluster_queue("unknown-queue-later", 1, &json!({})).await.unwrap();
    place.wait_until("lost", true).await.unwrap();
    end(&place, &["lost", "fine"]).await;
}

#[tokio::test]
async fn a_missing_flavor_makes_the_queue_inactive_until_it_is_there() {
    let place = bare("missing-flavor").await;
    place.cluster_queue("missing-flavor", 2, &json!({})).await.unwrap();
    place.local_queue("lq", "missing-flavor").await.unwrap();
    place.job("waits", "lq", 1).await.unwrap();
    let inactive = "False/FlavorNotFound: Can't admit new workloads: references missing ResourceFlavor(s): missing-flavor.";
    place.wait_for_queue(&place.cluster_queues(), "missing-flavor", inactive).await.unwrap();
    let waits = "False/Suspended: ClusterQueue missing-flavor is inactive";
    place.wait_for_condition("waits", "QuotaReserved", waits).await.unwrap();
    place.flavor("missing-flavor").await.unwrap();
    place.wait_until("waits", true).await.unwrap();
    place.wait_for_queue(&place.cluster_queues(), "missing-flavor", "True/Ready").await.unwrap();
    end(&place, &["waits"]).await;
}

#[tokio::test]
async fn a_request_above_every_quota_gets_the_reason_and_does_not_block_the_others() {
    let place = place("too-much", 2).await;
    place.job("huge", "lq", 5).await.unwrap();
    place.job("small", "lq", 2).await.unwrap();
    place.wait_until("small", true).await.unwrap();
    let text = "False/ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor \
                too-much, previously considered podsets requests (0) + current podset request (5) > maximum capacity (2)";
    place.wait_for_condition("huge", "QuotaReserved", text).await.unwrap();
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    patch(&place.cluster_queues(), "too-much", json!({"spec": {"resourceGroups": [quota("too-much", 7)]}}))
        .await
        .unwrap();
    place.wait_until("huge", true).await.unwrap();
    end(&place, &["huge", "small"]).await;
}

#[tokio::test]
async fn a_namespace_that_is_not_selected_gets_a_remedy() {
    let place = bare("not-selected").await;
    place.flavor("not-selected").await.unwrap();
    place.cluster_queue("not-selected", 2, &json!({"namespaceSelector": null})).await.unwrap();
    place.local_queue("lq", "not-selected").await.unwrap();
    place.job("waits", "lq", 1).await.unwrap();
    let text = "False/Misconfigured: workload namespace doesn't match ClusterQueue selector; the ClusterQueue has no \
                namespaceSelector and therefore selects no namespace: set `namespaceSelector: {}`";
    place.wait_for_condition("waits", "QuotaReserved", text).await.unwrap();
    let waits = place.about_workload("waits").await.unwrap();
    place.wait_for_event(&waits, "Misconfigured", "namespaceSelector: {}").await.unwrap();
    let selector = json!({"matchLabels": {"team": "a"}});
    patch(&place.cluster_queues(), "not-selected", json!({"spec": {"namespaceSelector": selector}}))
        .await
        .unwrap();
    let text = "False/Misconfigured: workload namespace doesn't match ClusterQueue selector";
    place.wait_for_condition("waits", "QuotaReserved", text).await.unwrap();
    let args = ["label", "namespace", "not-selected", "team=a"];
    assert!(try_kubectl(&place.plane.kubeconfig_path(), &args, None).await.unwrap().success);
    place.wait_until("waits", true).await.unwrap();
    end(&place, &["waits"]).await;
}

#[tokio::test]
async fn invalid_manifests_are_refused_with_the_field_and_the_reason() {
    let queue = |spec: &str| {
        format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: invalid}}\nspec:\n  \
             namespaceSelector: {{}}\n  {spec}\n"
        )
    };
    let group = |quota: &str| {
        queue(&format!(
            "resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: f, resources: [{{name: cpu, {quota}}}]}}]}}]"
        ))
    };
    let cases = [
        (group("nominalQuota: -1"), "nominalQuota"),
        (group("nominalQuota: 1, borrowingLimit: 1"), "borrowingLimit"),
        (group("nominalQuota: much"), "nominalQuota"),
        (queue("queueingStrategy: FirstComeFirstServed"), "queueingStrategy"),
        (queue("queuingStrategy: StrictFIFO"), "queuingStrategy"),
    ];
    for (manifest, named) in cases {
        let why = refusal(&manifest).await;
        assert!(why.contains(named), "{named} is not named in: {why}");
    }
    let bad = job("invalid", "Not_A_Queue", 1, 1, 1).to_string();
    let why = refusal(&bad).await;
    assert!(why.contains("kueue.x-k8s.io/queue-name") && why.contains("Not_A_Queue"), "{why}");
    nothing_leaks().await;
}

#[tokio::test]
async fn a_waiting_job_that_its_user_starts_is_suspended_again() {
    let place = place("user-starts", 0).await;
    place.job("eager", "lq", 1).await.unwrap();
    place.workload("eager").await.unwrap();
    place.patch_job("eager", json!({"spec": {"suspend": false}})).await.unwrap();
    place.wait_for_event("Job/eager", "Stopped", "Not admitted by cluster queue").await.unwrap();
    place.wait_until("eager", false).await.unwrap();
    eventually("its pods to be gone", DEADLINE, || async {
        let status = place.jobs().get("eager").await?.status.unwrap_or_default();
        Ok(progress(status.active.unwrap_or_default() == 0, format!("{status:?}")))
    })
    .await
    .unwrap();
    place.wait_for_counts([1, 0, 0]).await.unwrap();
    end(&place, &["eager"]).await;
}

#[tokio::test]
async fn a_workload_that_is_deleted_comes_back_and_its_job_runs_again() {
    let place = place("deleted-workload", 1).await;
    place.job("runs", "lq", 1).await.unwrap();
    place.wait_until("runs", true).await.unwrap();
    let old = place.workload("runs").await.unwrap();
    let (name, old) = (old["metadata"]["name"].as_str().unwrap(), old["metadata"]["uid"].as_str().unwrap());
    place.workloads().delete(name, &DeleteParams::default()).await.unwrap();
    wait_for_another(&place, "runs", old).await;
    place.wait_for_event("Job/runs", "Stopped", "Workload is deleted").await.unwrap();
    place.wait_until("runs", true).await.unwrap();
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    // The same while it waits.
    place.job("waits", "lq", 1).await.unwrap();
    let waiting = place.workload("waits").await.unwrap();
    let name = waiting["metadata"]["name"].as_str().unwrap();
    place.workloads().delete(name, &DeleteParams::default()).await.unwrap();
    wait_for_another(&place, "waits", waiting["metadata"]["uid"].as_str().unwrap()).await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    end(&place, &["runs", "waits"]).await;
}

#[tokio::test]
async fn an_edited_job_that_waits_has_its_workload_updated_in_place() {
    let place = place("edited-waiting", 2).await;
    place.make_job(&job("grows", "lq", 1, 3, 3_600)).await.unwrap();
    let old = uid(&place, "grows").await;
    place.wait_for_condition("grows", "QuotaReserved", "False/ExceedsMaxQuota").await.unwrap();
    place.patch_job("grows", json!({"spec": {"parallelism": 2}})).await.unwrap();
    place.wait_until("grows", true).await.unwrap();
    let workload = place.workload("grows").await.unwrap();
    assert_eq!(workload["metadata"]["uid"], old.as_str());
    assert_eq!(workload["spec"]["podSets"][0]["count"], 2);
    place
        .wait_for_event("Job/grows", "UpdatedWorkload", "Updated not matching Workload for suspended job")
        .await
        .unwrap();
    end(&place, &["grows"]).await;
}

#[tokio::test]
async fn an_edited_job_that_holds_quota_is_stopped_and_queued_again() {
    let place = place("edited-reserved", 4).await;
    place.make_job(&job("shrinks", "lq", 1, 4, 3_600)).await.unwrap();
    place.wait_until("shrinks", true).await.unwrap();
    let old = uid(&place, "shrinks").await;
    place.patch_job("shrinks", json!({"spec": {"parallelism": 1}})).await.unwrap();
    wait_for_another(&place, "shrinks", &old).await;
    place.wait_until("shrinks", true).await.unwrap();
    let workload = place.workload("shrinks").await.unwrap();
    assert_eq!(workload["spec"]["podSets"][0]["count"], 1);
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    // The counts are those of before, too: only the quota shows that the status is the new one.
    eventually("the quota of one pod in the status", DEADLINE, || async {
        let cpu = place.reserved_cpu().await?;
        Ok(progress(cpu == "1", cpu))
    })
    .await
    .unwrap();
    end(&place, &["shrinks"]).await;
}

#[tokio::test]
async fn an_edited_job_between_reservation_and_admission_is_queued_again() {
    let place = bare("edited-checked").await;
    place.flavor("edited-checked").await.unwrap();
    let checks: Api<DynamicObject> = place.global("AdmissionCheck", "admissionchecks");
    let check = json!({
        "metadata": {"name": "edited-checked"},
        "spec": {"controllerName": "example.com/no-controller"}
    });
    create(&checks, check).await.unwrap();
    let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = kube::api::Patch::Merge(json!({"status": {"conditions": [active]}}));
    checks.patch_status("edited-checked", &kube::api::PatchParams::default(), &status).await.unwrap();
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "edited-checked"}]}});
    place.cluster_queue("edited-checked", 4, &strategy).await.unwrap();
    place.local_queue("lq", "edited-checked").await.unwrap();
    place.make_job(&job("checked", "lq", 1, 4, 3_600)).await.unwrap();
    place.wait_for_condition("checked", "QuotaReserved", "True/QuotaReserved").await.unwrap();
    let old = uid(&place, "checked").await;
    place.patch_job("checked", json!({"spec": {"parallelism": 2}})).await.unwrap();
    wait_for_another(&place, "checked", &old).await;
    place.wait_for_condition("checked", "QuotaReserved", "True/QuotaReserved").await.unwrap();
    place.wait_for_counts([0, 1, 0]).await.unwrap();
    place.wait_for_reserved_cpu("2").await.unwrap();
    assert!(place.suspended("checked").await.unwrap());
    end(&place, &["checked"]).await;
}

#[tokio::test]
async fn a_dropped_queue_label_takes_a_waiting_job_out_of_the_queue() {
    let place = place("dropped-label", 1).await;
    place.job("runs", "lq", 1).await.unwrap();
    place.wait_until("runs", true).await.unwrap();
    place.job("waits", "lq", 1).await.unwrap();
    place.wait_for_condition("waits", "QuotaReserved", "False/WaitingForQuota").await.unwrap();
    let dropped = || json!({"metadata": {"labels": {QUEUE_NAME: null}}});
    place.patch_job("waits", dropped()).await.unwrap();
    eventually("its Workload to be gone", DEADLINE, || async {
        let found = workloads::of_job(&place.client, &place.name, "waits").await?;
        Ok(progress(found.is_none(), "still there"))
    })
    .await
    .unwrap();
    assert!(place.suspended("waits").await.unwrap(), "it is not started");
    // While it runs, the name is fixed.
    let refused = place.patch_job("runs", dropped()).await.unwrap_err();
    assert!(refused.to_string().contains("field is immutable"), "{refused}");
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    end(&place, &["runs", "waits"]).await;
}

#[tokio::test]
async fn a_changed_queue_label_moves_a_waiting_job() {
    let place = place("changed-label", 0).await;
    place.cluster_queue("changed-label-other", 1, &json!({})).await.unwrap();
    place.local_queue("other", "changed-label-other").await.unwrap();
    place.job("moves", "lq", 1).await.unwrap();
    place.wait_for_counts([1, 0, 0]).await.unwrap();
    let moved = |queue: &str| json!({"metadata": {"labels": {QUEUE_NAME: queue}}});
    place.patch_job("moves", moved("other")).await.unwrap();
    place.wait_until("moves", true).await.unwrap();
    let admitted = "True/QuotaReserved: Quota reserved in ClusterQueue changed-label-other";
    place.wait_for_condition("moves", "QuotaReserved", admitted).await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    let refused = place.patch_job("moves", moved("lq")).await.unwrap_err();
    assert!(refused.to_string().contains("field is immutable"), "{refused}");
    end(&place, &["moves"]).await;
}

#[tokio::test]
async fn a_namespace_that_is_deleted_while_in_use_goes_and_gives_its_quota_back() {
    let place = place("going-namespace", 1).await;
    place.job("runs", "lq", 1).await.unwrap();
    place.job("waits", "lq", 1).await.unwrap();
    place.wait_until("runs", true).await.unwrap();
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(place.client.clone());
    namespaces.delete(&place.name, &DeleteParams::default()).await.unwrap();
    eventually("the namespace to be gone", DEADLINE, || async {
        let found = namespaces.get_opt(&place.name).await?;
        Ok(progress(found.is_none(), format!("{:?}", found.and_then(|found| found.status))))
    })
    .await
    .unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    nothing_leaks().await;
}

#[tokio::test]
async fn a_deleted_local_queue_leaves_what_runs_and_names_itself_to_what_waits() {
    let place = place("going-local-queue", 1).await;
    place.job("runs", "lq", 1).await.unwrap();
    place.wait_until("runs", true).await.unwrap();
    place.job("waits", "lq", 1).await.unwrap();
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    place.local_queues().delete("lq", &DeleteParams::default()).await.unwrap();
    is_gone(&place.local_queues(), "lq").await;
    let missing = "False/Misconfigured: LocalQueue lq doesn't exist";
    place.wait_for_condition("waits", "QuotaReserved", missing).await.unwrap();
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    assert!(!place.suspended("runs").await.unwrap());
    // The quota comes free although the queue is gone, and the new queue of the same name continues.
    place.delete_job("runs").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    place.local_queue("lq", "going-local-queue").await.unwrap();
    place.wait_until("waits", true).await.unwrap();
    end(&place, &["waits"]).await;
}

#[tokio::test]
async fn a_deleted_cluster_queue_stays_until_nothing_holds_its_quota() {
    let place = place("going-cluster-queue", 1).await;
    place.job("runs", "lq", 1).await.unwrap();
    place.wait_until("runs", true).await.unwrap();
    place.cluster_queues().delete(&place.name, &DeleteParams::default()).await.unwrap();
    let terminating = "False/Terminating: Can't admit new workloads; clusterQueue is terminating";
    place.wait_for_queue(&place.cluster_queues(), &place.name, terminating).await.unwrap();
    place.job("waits", "lq", 1).await.unwrap();
    let inactive = "False/Suspended: ClusterQueue going-cluster-queue is inactive";
    place.wait_for_condition("waits", "QuotaReserved", inactive).await.unwrap();
    assert!(!place.suspended("runs").await.unwrap());
    place.delete_job("runs").await.unwrap();
    is_gone(&place.cluster_queues(), &place.name).await;
    let missing = "False/Misconfigured: ClusterQueue going-cluster-queue doesn't exist";
    place.wait_for_condition("waits", "QuotaReserved", missing).await.unwrap();
    place.cluster_queue(&place.name, 1, &json!({})).await.unwrap();
    place.wait_until("waits", true).await.unwrap();
    end(&place, &["waits"]).await;
}

#[tokio::test]
async fn a_deleted_flavor_stays_while_a_queue_names_it() {
    let place = place("going-flavor", 1).await;
    let flavors = place.global("ResourceFlavor", "resourceflavors");
    place.job("runs", "lq", 1).await.unwrap();
    place.wait_until("runs", true).await.unwrap();
    flavors.delete(&place.name, &DeleteParams::default()).await.unwrap();
    let flavor = flavors.get(&place.name).await.unwrap();
    assert_eq!(flavor.metadata.finalizers.unwrap(), ["kueue.x-k8s.io/resource-in-use"]);
    end(&place, &["runs"]).await;
    place.cluster_queues().delete(&place.name, &DeleteParams::default()).await.unwrap();
    is_gone(&place.cluster_queues(), &place.name).await;
    is_gone(&flavors, &place.name).await;
}

#[tokio::test]
async fn quota_cut_below_usage_leaves_what_runs_and_admits_nothing_more() {
    let place = place("cut-quota", 3).await;
    let names = ["a", "b", "c"];
    for name in names {
        place.job(name, "lq", 1).await.unwrap();
        place.wait_until(name, true).await.unwrap();
    }
    let cut = |cpu: u32| json!({"spec": {"resourceGroups": [quota("cut-quota", cpu)]}});
    patch(&place.cluster_queues(), &place.name, cut(1)).await.unwrap();
    place.job("later", "lq", 1).await.unwrap();
    let waits = "False/WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in \
                 flavor cut-quota, 1 more needed";
    place.wait_for_condition("later", "QuotaReserved", waits).await.unwrap();
    place.wait_for_counts([1, 3, 3]).await.unwrap();
    place.wait_for_reserved_cpu("3").await.unwrap();
    for name in names {
        assert!(!place.suspended(name).await.unwrap(), "{name} runs on");
    }
    // Still nothing is free when usage has come down to the new quota.
    place.delete_job("a").await.unwrap();
    place.delete_job("b").await.unwrap();
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    assert!(place.suspended("later").await.unwrap());
    place.delete_job("c").await.unwrap();
    place.wait_until("later", true).await.unwrap();
    end(&place, &["later"]).await;
}

#[tokio::test]
async fn a_job_with_a_queue_is_suspended_by_the_webhook_and_one_without_is_left_alone() {
    let place = place("webhooks", 0).await;
    place.job("queued", "lq", 1).await.unwrap();
    assert!(place.suspended("queued").await.unwrap(), "before any controller saw it");
    let mut plain = job("plain", "lq", 1, 1, 1);
    plain["metadata"]["labels"] = json!({});
    place.make_job(&plain).await.unwrap();
    assert!(!place.suspended("plain").await.unwrap());
    let set = |name: &str, labels: Value| {
        json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"name": name, "namespace": place.name, "labels": labels},
            "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}]},
        })
    };
    let kubeconfig = place.plane.kubeconfig_path();
    for (name, labels) in [("queued", json!({QUEUE_NAME: "lq"})), ("plain", json!({}))] {
        let args = ["create", "-f", "-", "-o", "jsonpath={.spec.suspend}"];
        let made = try_kubectl(&kubeconfig, &args, Some(&set(name, labels).to_string())).await.unwrap();
        assert!(made.success, "{}", made.stderr);
        assert_eq!(made.stdout == "true", name == "queued", "{name}: {}", made.stdout);
    }
    let why = refusal(&set("bad", json!({QUEUE_NAME: "Not_A_Queue"})).to_string()).await;
    assert!(why.contains("kueue.x-k8s.io/queue-name"), "{why}");
    let args = ["delete", "jobsets", "--all", "--namespace", &place.name, "--wait=false"];
    assert!(try_kubectl(&kubeconfig, &args, None).await.unwrap().success);
    end(&place, &["queued", "plain"]).await;
}
