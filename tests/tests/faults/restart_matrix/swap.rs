//! Displace → swap: two JobSets of two slices each run on four node pools, one of the pools announces its removal, and the JobSet of lower priority
//! is preempted for the other one.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::jobset::{EXCLUSIVE_TOPOLOGY, JobSet};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::workloads::{condition, holds};
use sluice_testkit::{jobset, nodes};
use sluice_tests::history::History;
use sluice_tests::place::{Place, QUEUE_NAME, create};

use super::outcome::Outcome;
use super::protocol::HIGH;
use super::{PATIENCE, protocol};

/// The node pools of a play, of one node each.
const POOLS: u32 = 4;
/// The processors of a node; a pod needs all of them.
const EACH: u32 = 4;
/// The processors of all nodes, which is also the quota: both JobSets fit, as long as nothing is lost.
pub const CPU: u32 = POOLS * EACH;
/// The label and the taint of the nodes of a play; its value is the name of the place.
const OWN: &str = "example.com/matrix";
/// The label of a node pool.
const POOL: &str = "cloud.google.com/gke-nodepool";
/// Both JobSets, which differ by their priority.
const JOBSETS: [&str; 2] = ["high", "low"];

/// Makes the nodes, and the queue that may reclaim.
pub async fn prepare(place: &Place<'_>) -> Result<()> {
    let name = place.name.as_str();
    for number in 0..POOLS {
        let pool = nodes::pool(&format!("{name}-{number}"), 1)
            .label(OWN, name)
            .taint(OWN, name, "NoSchedule")
            .allocatable("cpu", &EACH.to_string());
        pool.make(&place.client).await?;
    }
    let own = ListParams::default().labels(&format!("{OWN}={name}"));
    let all: Api<Node> = Api::all(place.client.clone());
    // Work that starts while a pool is not well keeps off it for good.
    eventually("the nodes to be ready", PATIENCE, || async {
        let nodes = all.list(&own).await.context("listing nodes")?.items;
        let ready = nodes.iter().filter(|node| is_ready(node)).count();
        Ok(progress(ready == nodes.len(), format!("{ready} of {}", nodes.len())))
    })
    .await?;
    let flavors = place.global("ResourceFlavor", "resourceflavors");
    let spec = json!({"nodeLabels": {OWN: name}, "tolerations": [{"key": OWN, "operator": "Exists"}]});
    create(&flavors, json!({"metadata": {"name": name}, "spec": spec})).await?;
    let reclaims = json!({"preemption": {"reclaimOutOfCohort": {"enable": true}}});
    place.cluster_queue(name, CPU, &reclaims).await
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|reported| reported.type_ == "Ready" && reported.status == "True")
}

/// Lets both run, before anything is cut.
pub async fn begin(place: &Place<'_>, seen: &History) -> Result<()> {
    let jobsets: Api<JobSet> = Api::namespaced(place.client.clone(), &place.name);
    for name in JOBSETS {
        let made = serde_json::from_value(jobset_of(name)).context("reading a JobSet")?;
        eventually("a JobSet to be taken", PATIENCE, || async {
            let made = jobsets.create(&PostParams::default(), &made).await;
            Ok(progress(made.is_ok(), format!("{made:?}")))
        })
        .await?;
    }
    for name in JOBSETS {
        runs(seen, name).await?;
    }
    Ok(())
}

fn jobset_of(name: &str) -> Value {
    let priority = if name == "high" { json!({protocol::PRIORITY_CLASS: HIGH}) } else { json!({}) };
    let mut metadata = json!({"name": name, "labels": priority});
    metadata["labels"][QUEUE_NAME] = json!("lq");
    metadata["annotations"] = json!({EXCLUSIVE_TOPOLOGY: POOL});
    let container =
        json!({"name": "main", "image": "none", "resources": {"requests": {"cpu": EACH.to_string()}}});
    let pods = json!({
        "metadata": {"annotations": {"sluice.dev/run-seconds": "3600"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    });
    let job = json!({"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": pods});
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": 2, "template": {"spec": job}}]},
    })
}

/// Waits until a JobSet runs, and its Workload says so.
async fn runs(seen: &History, name: &str) -> Result<()> {
    protocol::workload(seen, name, "running", |w| {
        holds(w, "Admitted") && holds(w, "PodsReady") && !holds(w, "Evicted")
    })
    .await
}

/// One of the nodes of `high` says that it will go, and is closed, as autoscalers do; until `high` runs elsewhere and `low` waits.
pub async fn play(place: &Place<'_>, seen: &History) -> Result<()> {
    let all: Api<Node> = Api::all(place.client.clone());
    let lost = nodes_of(place, "high").await?.pop().context("high has no pod")?;
    let departs = json!({
        "metadata": {"labels": {"cloud.google.com/active-node-maintenance": "true"}},
        "spec": {"unschedulable": true},
    });
    all.patch(&lost, &PatchParams::default(), &Patch::Merge(departs)).await.context("closing a node")?;
    protocol::workload(seen, "low", "with the reason that it waits for nodes", |w| {
        condition(w, "QuotaReserved").is_some_and(|reported| reported["reason"] == "WaitingForCapacity")
    })
    .await?;
    runs(seen, "high").await?;
    eventually("high to leave the lost node", PATIENCE, || async {
        let on = nodes_of(place, "high").await?;
        Ok(progress(on.len() == 2 && !on.contains(&lost), format!("{on:?} without {lost}")))
    })
    .await
}

/// The nodes on which pods of a JobSet run that are not about to go.
async fn nodes_of(place: &Place<'_>, jobset: &str) -> Result<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.name);
    let own = ListParams::default().labels(&format!("{}={jobset}", jobset::JOBSET_NAME));
    let running = pods.list(&own).await.context("listing pods")?.items.into_iter().filter(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    });
    Ok(running.filter_map(|pod| pod.spec?.node_name).collect())
}

/// Notes what the JobSets came to: how they are, and how many of their pods run on which kind of node.
pub async fn read(place: &Place<'_>, outcome: &mut Outcome) -> Result<()> {
    let own = ListParams::default().labels(&format!("{OWN}={}", place.name));
    let all: Api<Node> = Api::all(place.client.clone());
    let nodes = all.list(&own).await.context("listing nodes")?.items;
    let closed =
        nodes.iter().filter(|n| n.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)));
    let closed: Vec<_> = closed.map(kube::ResourceExt::name_any).collect();
    let jobsets: Api<JobSet> = Api::namespaced(place.client.clone(), &place.name);
    for jobset in jobsets.list(&ListParams::default()).await.context("listing JobSets")?.items {
        let name = jobset.name_any();
        let on = nodes_of(place, &name).await?;
        let lost = on.iter().filter(|node| closed.contains(node)).count();
        let status = jobset.status.unwrap_or_default();
        ensure!(jobset.spec.replicated_jobs.len() == 1, "{name} is not as it was made");
        let mut template =
            serde_json::to_value(&jobset.spec.replicated_jobs[0].template).context("writing a JobSet")?;
        // Its name ends with a hash of the JobSet's UID, which is another one in each play.
        let own = "/spec/template/metadata/annotations/kueue.x-k8s.io~1workload";
        if let Some(workload) = template.pointer_mut(own) {
            let named = workload.as_str().is_some_and(|it| it.starts_with(&format!("jobset-{name}-")));
            ensure!(named, "{name} is started for {workload}");
            *workload = json!("ITS WORKLOAD");
        }
        let lost_pools = closed.iter().filter_map(|node| Some(node.rsplit_once('-')?.0));
        let text = lost_pools.fold(template.to_string(), |text, pool| text.replace(pool, "LOST"));
        let template = text.replace(&place.name, "PLACE");
        let value = json!({
            "suspend": jobset.spec.suspend,
            "template": template,
            "restarts": status.restarts,
            "ended": status.terminal_state,
            "pods that run": on.len(),
            "pods on lost nodes": lost,
        });
        outcome.note(format!("jobset {name}"), value);
    }
    Ok(())
}
