//! Kueue's own command line with our manager: objects that it creates are accepted, objects that it stops end and start again, and its lists equal
//! those of our plugin.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use kube::api::{DeleteParams, ListParams};
use sluice_testkit::assets::{self, Tool};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, needs, workloads};
use sluice_tests::place::{DEADLINE, Place};

use super::{a_second_later, printed, run};

/// The namespace, the flavor and the ClusterQueue.
const NAME: &str = "upstream";

/// What a run of it prints.
fn kueuectl(kubeconfig: &Path, line: &str) -> String {
    let mut command = Command::new(assets::path(Tool::Kueuectl).unwrap());
    // A cache of discovery of another plane, which had the same port, would mislead it.
    command.env("HOME", kubeconfig.parent().unwrap()).env("KUBECONFIG", kubeconfig);
    printed(&command.args(line.split(' ')).output().unwrap())
}

/// The rows of a table, each with its cells by heading. A cell begins where its heading does, and may be empty.
fn rows(table: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = table.lines();
    let head = lines.next().unwrap();
    // Headings are two spaces or more apart, and have single spaces in them.
    let mut heads: Vec<(usize, &str)> = Vec::new();
    for heading in head.split("  ").map(str::trim).filter(|heading| !heading.is_empty()) {
        let from = heads.last().map_or(0, |(at, before)| at + before.len());
        heads.push((from + head[from..].find(heading).unwrap(), heading));
    }
    let row = |line: &str| {
        let ends = heads.iter().skip(1).map(|(at, _)| *at).chain([line.len()]);
        let cell = |((at, heading), end): (&(usize, &str), usize)| {
            let cell = line.get(*at..end.min(line.len())).unwrap_or_default();
            ((*heading).to_owned(), cell.trim().to_owned())
        };
        heads.iter().zip(ends).map(cell).collect()
    };
    lines.map(row).collect()
}

/// What both command lines list, without what changes from one second to the next.
fn listed_alike(kubeconfig: &Path, line: &str) -> Vec<BTreeMap<String, String>> {
    let words: Vec<_> = line.split(' ').collect();
    let tables = [kueuectl(kubeconfig, line), printed(&run(kubeconfig, &words))];
    assert!(tables.iter().all(|table| !table.is_empty()), "{line}: {tables:?}");
    let [theirs, ours] = tables.map(|table| {
        let mut rows = rows(&table);
        for row in &mut rows {
            assert!(row.contains_key("AGE"), "{table}");
            row.retain(|heading, _| heading != "AGE" && heading != "EXEC TIME");
        }
        rows
    });
    assert_eq!(theirs, ours, "{line}");
    assert!(!ours.is_empty(), "{line}");
    ours
}

/// Status and place of each job in a list of Workloads.
fn standings(rows: &[BTreeMap<String, String>]) -> Vec<[&str; 3]> {
    let mut all: Vec<_> = rows
        .iter()
        .map(|row| ["JOB NAME", "STATUS", "POSITION IN QUEUE"].map(|heading| row[heading].as_str()))
        .collect();
    all.sort_unstable();
    all
}

/// Waits until no Workload of that job is left.
async fn wait_until_gone(place: &Place<'_>, job: &str) {
    eventually(&format!("the job {job} to be gone"), DEADLINE, || async {
        let workload = workloads::of_job(&place.client, NAME, job).await?;
        let is_there = place.jobs().get_opt(job).await?.is_some();
        Ok(progress(workload.is_none() && !is_there, workload.unwrap_or_default()))
    })
    .await
    .unwrap();
}

/// It deletes a Job without saying what becomes of its pods, and Kubernetes orphans them then: they run on, with the quota that is theirs.
async fn orphans_hold_their_quota(place: &Place<'_>, workload: &str) {
    let pods = place.pods();
    let orphans = pods.list(&ListParams::default().labels("job-name=first")).await.unwrap().items;
    assert_eq!(orphans.len(), 1);
    let metadata = &orphans[0].metadata;
    assert!(metadata.deletion_timestamp.is_none() && metadata.owner_references.is_none(), "{metadata:?}");
    let kept = serde_json::to_value(place.workloads().get(workload).await.unwrap()).unwrap();
    assert!(workloads::holds(&kept, "Admitted"), "{kept}");
    pods.delete(metadata.name.as_deref().unwrap(), &DeleteParams::default()).await.unwrap();
}

/// The story.
pub(super) async fn works_with_kueue_s_own_command_line(plane: &ControlPlane) {
    needs!(Tool::Kueuectl);
    let kubeconfig = plane.kubeconfig_path();
    let kueuectl = |line: &str| kueuectl(&kubeconfig, line);
    let team = Place::bare(plane, NAME).await.unwrap();
    for (line, made) in [
        ("create resourceflavor upstream", "resourceflavor"),
        (
            "create clusterqueue upstream --cohort upstream --nominal-quota upstream:cpu=1 --namespace-selector \
             kubernetes.io/metadata.name=upstream",
            "clusterqueue",
        ),
        ("create localqueue lq -n upstream -c upstream", "localqueue"),
    ] {
        assert!(kueuectl(line).starts_with(&format!("{made}.kueue.x-k8s.io/")), "{line}");
    }
    team.wait_for_queue(&team.local_queues(), "lq", "True/Ready").await.unwrap();
    let mut names = BTreeMap::new();
    for job in ["runs", "first", "second"] {
        team.job(job, "lq", 1).await.unwrap();
        let workload = team.workload(job).await.unwrap();
        names.insert(job, workload["metadata"]["name"].as_str().unwrap().to_owned());
        if job == "runs" {
            team.wait_until(job, true).await.unwrap();
        }
        // Those of one second are in the order of their UIDs.
        a_second_later(plane).await;
    }
    team.wait_for_counts([2, 1, 1]).await.unwrap();
    eventually("the LocalQueue and the pod to be as they are listed", DEADLINE, || async {
        let status = team.local_queues().get("lq").await?.data["status"].take();
        let pods = team.pods_with("batch.kubernetes.io/job-name=runs").await?.len();
        let counted = status["pendingWorkloads"] == 2 && status["admittedWorkloads"] == 1;
        Ok(progress(counted && pods == 1, format!("{status}, {pods} pods")))
    })
    .await
    .unwrap();
    lists_are_those_of_ours(&kubeconfig, &names);

    // What waits is deleted with its job.
    kueuectl(&format!("delete workload {} -n upstream -y", names["second"]));
    wait_until_gone(&team, "second").await;
    // Who is stopped makes room for the next, and comes back in its turn.
    kueuectl(&format!("stop workload {} -n upstream", names["runs"]));
    team.wait_until("runs", false).await.unwrap();
    team.wait_until("first", true).await.unwrap();
    kueuectl(&format!("resume workload {} -n upstream", names["runs"]));
    kueuectl(&format!("delete workload {} -n upstream -y", names["first"]));
    wait_until_gone(&team, "first").await;
    orphans_hold_their_quota(&team, &names["first"]).await;
    team.wait_until("runs", true).await.unwrap();
    for queue in ["clusterqueue upstream", "localqueue lq -n upstream"] {
        kueuectl(&format!("stop {queue}"));
        team.wait_until("runs", false).await.unwrap();
        kueuectl(&format!("resume {queue}"));
        team.wait_until("runs", true).await.unwrap();
    }
    let version = kueuectl("version");
    assert!(version.starts_with("Client Version: v0.17.0"), "{version}");
}

fn lists_are_those_of_ours(kubeconfig: &Path, names: &BTreeMap<&str, String>) {
    let workloads = listed_alike(kubeconfig, "list workload -n upstream");
    let expected = [["first", "PENDING", "0"], ["runs", "ADMITTED", ""], ["second", "PENDING", "1"]];
    assert_eq!(standings(&workloads), expected);
    let of_one = listed_alike(kubeconfig, "list workload -n upstream --for job/second");
    assert_eq!((of_one.len(), &of_one[0]["NAME"]), (1, &names["second"]));
    let waiting = listed_alike(kubeconfig, "list workload -n upstream --status pending -q lq");
    assert_eq!(standings(&waiting), [expected[0], expected[2]]);
    // Of a ClusterQueue it lists what holds quota there; ours also what waits for it.
    let running = listed_alike(kubeconfig, "list workload -n upstream --status admitted -c upstream");
    assert_eq!(standings(&running), [expected[1]]);
    let queues = listed_alike(kubeconfig, "list clusterqueue --active true");
    let own = queues.iter().find(|row| row["NAME"] == NAME).unwrap();
    let cells =
        ["COHORT", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE"].map(|head| own[head].as_str());
    assert_eq!(cells, [NAME, "2", "1", "true"]);
    let queues = listed_alike(kubeconfig, "list localqueue -n upstream");
    let cells = ["NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS"];
    assert_eq!(cells.map(|head| queues[0][head].as_str()), ["lq", NAME, "2", "1"]);
    assert!(listed_alike(kubeconfig, "list resourceflavor").iter().any(|row| row["NAME"] == NAME));
    let pods = listed_alike(kubeconfig, "list pods -n upstream --for job/runs");
    assert!(pods.len() == 1 && pods[0]["NAME"].starts_with("runs-"), "{pods:?}");
}
