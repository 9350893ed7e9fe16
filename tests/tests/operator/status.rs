//! The status of queues on a real API server: exact conditions, correct figures, written only when they change; and the reason that blocks the
//! deletion of an object.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::{Duration, Instant};

use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::wait::{consistently, eventually, progress};
use sluice_testkit::{ControlPlane, FaultProxy, Manager, Setup, chart, lasting};
use sluice_tests::place::{DEADLINE, Place, patch};
use tokio::sync::OnceCell;

static SHARED: OnceCell<(ControlPlane, FaultProxy, Manager)> = OnceCell::const_new();

/// A plane shared by tests that configure nothing, each with a namespace and names of its own: so each counts its own writes alone.
pub async fn shared() -> (&'static ControlPlane, &'static FaultProxy) {
    let start = || async { lasting().spawn(async { start_with(&json!({})).await }).await.unwrap() };
    let (plane, proxy, _) = SHARED.get_or_init(start).await;
    (plane, proxy)
}

/// A plane with the chart, and its manager behind a proxy that counts its writes.
pub async fn start_with(configuration: &Value) -> (ControlPlane, FaultProxy, Manager) {
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let proxy = FaultProxy::start(&plane).await.unwrap();
    let setup = Setup::new(&plane).unwrap().lasting_leases().with(configuration);
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    chart::wait_long_for_webhooks(&plane).await.unwrap();
    let through =
        plane.kubeconfig_through(&proxy.url(), chart::NAMESPACE, chart::SERVICE_ACCOUNT).await.unwrap();
    let manager = Manager::start(&plane, setup.acting_as(through)).await.unwrap();
    sluice_testkit::crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    (plane, proxy, manager)
}

/// How often the status of an object was written.
fn writes(proxy: &FaultProxy, path: &str) -> usize {
    let path = format!("{path}/status");
    proxy.writes().iter().filter(|write| write.path.ends_with(&path) && write.status < 300).count()
}

#[tokio::test]
async fn figures_are_true_and_written_no_more_often_than_they_change() {
    let (plane, proxy) = shared().await;
    let begun = Instant::now();
    let here = Place::new(plane, "figures", 4).await.unwrap();
    for n in 0..12 {
        here.job(&format!("j{n}"), "lq", 1).await.unwrap();
    }
    here.wait_for_counts([8, 4, 4]).await.unwrap();
    let queue = here.cluster_queues().get("figures").await.unwrap();
    let usage = json!([{"name": "figures", "resources": [{"name": "cpu", "total": "4", "borrowed": "0"}]}]);
    let status = &queue.data["status"];
    assert_eq!((&status["flavorsReservation"], &status["flavorsUsage"]), (&usage, &usage), "{status:#}");
    assert!(status.get("fairSharing").is_none(), "fair sharing is off: {status:#}");
    let usage = json!([{"name": "figures", "resources": [{"name": "cpu", "total": "4"}]}]);
    let expected = json!({"pendingWorkloads": 8, "reservingWorkloads": 4, "admittedWorkloads": 4,
                          "flavorsReservation": usage, "flavorsUsage": usage});
    eventually("the LocalQueue to have the same figures", DEADLINE, || async {
        let mut status = here.local_queues().get("lq").await?.data["status"].take();
        status.as_object_mut().map(|status| status.remove("conditions"));
        Ok(progress(status == expected, status))
    })
    .await
    .unwrap();

    // Twelve Workloads came, four were admitted: far more changes than writes, at most one a second.
    let paths = ["/clusterqueues/figures", "/namespaces/figures/localqueues/lq"];
    // The proxy notes a write once it is answered, a moment after its effect can be seen.
    eventually("the last write to be noted", DEADLINE, || async {
        let under_way = proxy.writes_under_way();
        let ours = |of: &String| paths.iter().any(|path| of.ends_with(&format!("{path}/status")));
        Ok(progress(!under_way.iter().any(ours), format!("{under_way:?}")))
    })
    .await
    .unwrap();
    let before = paths.map(|path| writes(proxy, path));
    assert!(!before.contains(&0), "{before:?} of {paths:?}");
    let most = usize::try_from(begun.elapsed().as_secs()).unwrap().max(9) + 3;
    assert!(before.iter().all(|count| *count <= most), "{before:?} of {paths:?} in {:?}", begun.elapsed());
    // What does not change the status does not write it, and a status that is right is left alone.
    let note = json!({"metadata": {"annotations": {"note": "a"}}});
    patch(&here.cluster_queues(), "figures", note.clone()).await.unwrap();
    patch(&here.local_queues(), "lq", note).await.unwrap();
    consistently("no more writes", Duration::from_secs(4), || async {
        let now = paths.map(|path| writes(proxy, path));
        Ok(progress(now == before, format!("{now:?} after {before:?}")))
    })
    .await
    .unwrap();
    // A status that another client spoilt is put right again.
    let wrong = json!({"status": {"pendingWorkloads": 99}}).to_string();
    let args = ["patch", "clusterqueue", "figures", "--subresource=status", "--type=merge", "-p", &wrong];
    kubectl(plane, &args).await.unwrap();
    here.wait_for_counts([8, 4, 4]).await.unwrap();
}

async fn active(api: &Api<DynamicObject>, name: &str, expected: &str) {
    eventually(&format!("{name} to be {expected}"), DEADLINE, || async {
        let object = api.get(name).await?;
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let reported = |c: &Value| {
            let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
            format!("{}/{}: {}", text("status"), text("reason"), text("message"))
        };
        let seen = conditions.iter().find(|c| c["type"] == "Active").map(reported).unwrap_or_default();
        Ok(progress(seen == expected, seen))
    })
    .await
    .unwrap();
}

/// The notes of the events about an object.
async fn wait_for_note(plane: &ControlPlane, name: &str, expected: &str) {
    let filter = format!("involvedObject.name={name},reason=InUse");
    let args = [
        "get",
        "events",
        "-A",
        "--field-selector",
        &filter,
        "-o",
        "jsonpath={range .items[*]}{.message}{'\\n'}{end}",
    ];
    eventually(&format!("an event about {name}"), DEADLINE, || async {
        let seen = kubectl(plane, &args).await?;
        Ok(progress(seen.lines().any(|line| line == expected), seen))
    })
    .await
    .unwrap();
}

const CHECK: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: mine}
spec: {controllerName: example.com/mine}
";

const COHORT: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: team}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: reasons, resources: [{name: cpu, nominalQuota: 1}]}
";

#[tokio::test]
async fn conditions_name_every_reason_and_what_is_held_says_by_what() {
    let (plane, _) = shared().await;
    let here = Place::bare(plane, "reasons").await.unwrap();
    let (queues, locals) = (here.cluster_queues(), here.local_queues());
    here.local_queue("lq", "reasons").await.unwrap();
    active(&locals, "lq", "False/ClusterQueueDoesNotExist: Can't submit new workloads to clusterQueue").await;

    let checks =
        json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "mine"}]}, "stopPolicy": "Hold"});
    here.cluster_queue("reasons", 1, &checks).await.unwrap();
    active(
        &queues,
        "reasons",
        "False/Stopped: Can't admit new workloads: is stopped, references missing ResourceFlavor(s): reasons, references \
         missing AdmissionCheck(s): mine.",
    )
    .await;
    active(&locals, "lq", "False/ClusterQueueIsInactive: Can't submit new workloads to clusterQueue").await;
    patch(&queues, "reasons", json!({"spec": {"stopPolicy": "None"}})).await.unwrap();
    active(
        &queues,
        "reasons",
        "False/FlavorNotFound: Can't admit new workloads: references missing ResourceFlavor(s): reasons, references missing \
         AdmissionCheck(s): mine.",
    )
    .await;
    here.flavor("reasons").await.unwrap();
    active(
        &queues,
        "reasons",
        "False/AdmissionCheckNotFound: Can't admit new workloads: references missing AdmissionCheck(s): mine.",
    )
    .await;
    apply(plane, CHECK).await.unwrap();
    active(
        &queues,
        "reasons",
        "False/AdmissionCheckInactive: Can't admit new workloads: references inactive AdmissionCheck(s): mine.",
    )
    .await;
    let condition = json!({"status": {"conditions": [{
        "type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
    }]}})
    .to_string();
    let args = ["patch", "admissioncheck", "mine", "--subresource=status", "--type=merge", "-p", &condition];
    kubectl(plane, &args).await.unwrap();
    active(&queues, "reasons", "True/Ready: Can admit new workloads").await;
    active(&locals, "lq", "True/Ready: Can submit new workloads to localQueue").await;
    patch(&locals, "lq", json!({"spec": {"stopPolicy": "Hold"}})).await.unwrap();
    active(&locals, "lq", "False/Stopped: LocalQueue is stopped").await;

    // An event says what uses an object that is to be deleted; it goes when it is free.
    apply(plane, COHORT).await.unwrap();
    let (flavors, checks) =
        (here.global("ResourceFlavor", "resourceflavors"), here.global("AdmissionCheck", "admissionchecks"));
    checks.delete("mine", &DeleteParams::default()).await.unwrap();
    flavors.delete("reasons", &DeleteParams::default()).await.unwrap();
    wait_for_note(plane, "mine", "Kept until it is no longer used by: ClusterQueue reasons").await;
    wait_for_note(plane, "reasons", "Kept until it is no longer used by: ClusterQueue reasons").await;
    patch(&queues, "reasons", json!({"spec": {"admissionChecksStrategy": null}})).await.unwrap();
    gone(&checks, "mine").await;
    patch(&queues, "reasons", json!({"spec": {"resourceGroups": null}})).await.unwrap();
    // The Cohort still names it, and does not hold it.
    gone(&flavors, "reasons").await;
    here.global("Cohort", "cohorts").delete("team", &DeleteParams::default()).await.unwrap();
    queues.delete("reasons", &DeleteParams::default()).await.unwrap();
    gone(&queues, "reasons").await;
}

async fn gone(api: &Api<DynamicObject>, name: &str) {
    eventually(&format!("{name} to go"), DEADLINE, || async {
        let left = api.get_opt(name).await?;
        Ok(progress(left.is_none(), format!("{left:?}")))
    })
    .await
    .unwrap();
}

const COHORTS: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: all}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: team}
spec: {parentName: all, fairSharing: {weight: 500m}}
";

/// Waits until a field of a status, by its JSON pointer, is as expected.
async fn status_is(api: &Api<DynamicObject>, name: &str, pointer: &str, expected: Value) {
    eventually(&format!("{pointer} of {name} to be {expected}"), DEADLINE, || async {
        let status = api.get(name).await?.data["status"].take();
        Ok(progress(status.pointer(pointer) == Some(&expected), status))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn shares_are_reported_and_so_is_what_makes_checks_and_flavors_unusable() {
    let fair = json!({
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
        "admissionFairSharing": {"usageHalfLifeTime": "1s", "usageSamplingInterval": "1s"},
    });
    let (plane, _proxy, manager) = start_with(&fair).await;
    let here = Place::bare(&plane, "shares").await.unwrap();
    let (queues, cohorts) = (here.cluster_queues(), here.global("Cohort", "cohorts"));
    apply(&plane, COHORTS).await.unwrap();
    here.flavor("shares").await.unwrap();
    let usage_based = json!({
        "cohortName": "team", "fairSharing": {"weight": 2},
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
    });
    here.cluster_queue("a", 2, &usage_based).await.unwrap();
    here.cluster_queue("b", 2, &json!({"cohortName": "team"})).await.unwrap();
    here.cluster_queue("c", 4, &json!({"cohortName": "all"})).await.unwrap();
    here.local_queue("lq", "a").await.unwrap();
    here.job("j", "lq", 5).await.unwrap();
    here.wait_until("j", true).await.unwrap();
    // Of 8 that the whole tree can lend, a borrows 3 at weight 2, the cohort above it 1 at weight 1/2 (docs/reference/06-algorithm.md 6.8).
    status_is(&queues, "a", "/fairSharing/weightedShare", json!(188)).await;
    status_is(&queues, "a", "/flavorsReservation/0/resources/0/borrowed", json!("3")).await;
    status_is(&queues, "b", "/fairSharing/weightedShare", json!(0)).await;
    status_is(&cohorts, "team", "/fairSharing/weightedShare", json!(250)).await;
    status_is(&cohorts, "all", "/fairSharing/weightedShare", json!(0)).await;
    eventually("the LocalQueue's past usage", DEADLINE, || async {
        let status = here.local_queues().get("lq").await?.data["status"]["fairSharing"].take();
        let past = &status["admissionFairSharingStatus"];
        let reported = past["consumedResources"]["cpu"].is_string() && past["lastUpdate"].is_string();
        Ok(progress(reported && status["weightedShare"].as_i64() > Some(0), status))
    })
    .await
    .unwrap();
    patch(&queues, "a", json!({"spec": {"fairSharing": {"weight": 0}}})).await.unwrap();
    status_is(&queues, "a", "/fairSharing/weightedShare", json!(i64::MAX)).await;
    here.delete_job("j").await.unwrap();
    status_is(&queues, "a", "/fairSharing/weightedShare", json!(0)).await;
    status_is(&cohorts, "team", "/fairSharing/weightedShare", json!(0)).await;

    unusable_checks(&plane, &here).await;
    missing_topology(&plane, &here).await;
    manager.stop().await.unwrap();
    plane.stop();
}

async fn unusable_checks(plane: &ControlPlane, here: &Place<'_>) {
    let (queues, checks) = (here.cluster_queues(), here.global("AdmissionCheck", "admissionchecks"));
    for (name, controller) in [
        ("far", "kueue.x-k8s.io/multikueue"),
        ("farther", "kueue.x-k8s.io/multikueue"),
        ("nodes", "kueue.x-k8s.io/provisioning-request"),
    ] {
        sluice_tests::place::create(
            &checks,
            json!({"metadata": {"name": name}, "spec": {"controllerName": controller}}),
        )
        .await
        .unwrap();
    }
    // This one is answered here, the others belong to other controllers.
    active(&checks, "nodes", "False/BadParametersRef: missing parameters reference").await;
    let condition = json!({"status": {"conditions": [{
        "type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
    }]}})
    .to_string();
    for name in ["far", "farther", "nodes"] {
        let args =
            ["patch", "admissioncheck", name, "--subresource=status", "--type=merge", "-p", &condition];
        kubectl(plane, &args).await.unwrap();
    }
    for (rules, expected) in [
        (
            json!([{"name": "farther"}, {"name": "far"}]),
            "False/MultipleMultiKueueAdmissionChecks: Can't admit new workloads: Cannot use multiple MultiKueue \
             AdmissionChecks on the same ClusterQueue, found: far,farther.",
        ),
        (
            json!([{"name": "far", "onFlavors": ["shares"]}]),
            "False/MultiKueueAdmissionCheckAppliedPerFlavor: Can't admit new workloads: Cannot specify MultiKueue \
             AdmissionCheck per flavor, found: far.",
        ),
    ] {
        let spec = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}});
        patch(&queues, "b", spec).await.unwrap();
        active(&queues, "b", expected).await;
    }
    let both = json!({"admissionChecks": [{"name": "far"}, {"name": "nodes"}]});
    patch(&queues, "b", json!({"spec": {"admissionChecksStrategy": both}})).await.unwrap();
    eventually("the two kinds of checks to exclude each other", DEADLINE, || async {
        let status = queues.get("b").await?.data["status"]["conditions"].to_string();
        let reported =
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: far, nodes";
        Ok(progress(status.contains(reported), status))
    })
    .await
    .unwrap();
    patch(&queues, "b", json!({"spec": {"admissionChecksStrategy": null}})).await.unwrap();
    active(&queues, "b", "True/Ready: Can admit new workloads").await;
}

const TOPOLOGY: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: dc}
spec: {levels: [{nodeLabel: rack}]}
";

async fn missing_topology(plane: &ControlPlane, here: &Place<'_>) {
    let (queues, flavors) = (here.cluster_queues(), here.global("ResourceFlavor", "resourceflavors"));
    patch(&flavors, "shares", json!({"spec": {"nodeLabels": {"pool": "a"}, "topologyName": "dc"}}))
        .await
        .unwrap();
    active(
        &queues,
        "c",
        "False/TopologyNotFound: Can't admit new workloads: there is no Topology \"dc\" for TAS flavor \"shares\".",
    )
    .await;
    apply(plane, TOPOLOGY).await.unwrap();
    active(&queues, "c", "True/Ready: Can admit new workloads").await;
    // With the chart's own rights the manager keeps it while it is in use, and says why.
    let topologies = here.global("Topology", "topologies");
    eventually("the finalizer", DEADLINE, || async {
        let finalizers = topologies.get("dc").await?.metadata.finalizers;
        Ok(progress(finalizers.is_some(), format!("{finalizers:?}")))
    })
    .await
    .unwrap();
    topologies.delete("dc", &DeleteParams::default()).await.unwrap();
    wait_for_note(plane, "dc", "Kept until it is no longer used by: ResourceFlavor shares").await;
    for queue in ["a", "b", "c"] {
        patch(&queues, queue, json!({"spec": {"resourceGroups": null}})).await.unwrap();
    }
    flavors.delete("shares", &DeleteParams::default()).await.unwrap();
    gone(&topologies, "dc").await;
}
