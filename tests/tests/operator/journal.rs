//! The journal on a real control plane: every replica writes it, the API gives it to those who may read it, and `kubectl kueue usage` adds it up.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds, plugin};
use sluice_tests::place::{DEADLINE, Place};

/// May do what researchers may; the journal names all namespaces.
const ALICE: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: alice, namespace: used}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: alice}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kueue-batch-user-role}
subjects: [{kind: ServiceAccount, name: alice, namespace: used}]
";

fn usage(kubeconfig: &Path, args: &[&str]) -> Output {
    let config = format!("--kubeconfig={}", kubeconfig.display());
    Command::new(plugin().unwrap())
        .args(["usage", "--since", "1h", "-o", "json"])
        .args(args)
        .arg(config)
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

/// Hours, hours that were evicted, and hours that are borrowed, or what is wrong.
fn figures(output: &Output) -> Result<[f64; 3], String> {
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sum = |list: &str, key: &str| -> f64 {
        document[list].as_array().unwrap().iter().map(|row| row[key].as_f64().unwrap()).sum()
    };
    Ok([sum("usage", "hours"), sum("usage", "evictedHours"), sum("clusterQueues", "borrowedHours")])
}

async fn wait_for(what: &str, kubeconfig: &Path, args: &[&str], good: impl Fn([f64; 3]) -> bool) -> [f64; 3] {
    let mut last = [0.0; 3];
    eventually(what, DEADLINE, || {
        let found = figures(&usage(kubeconfig, args));
        let is_good = found.as_ref().is_ok_and(|figures| good(*figures));
        if let Ok(figures) = found {
            last = figures;
        }
        async move {
            Ok(match found {
                Ok(figures) => progress(is_good, format!("{figures:?}")),
                Err(why) => Progress::NotYet(why),
            })
        }
    })
    .await
    .unwrap();
    last
}

/// The sizes of the journal's files, in bytes.
fn sizes(folder: &str) -> Vec<u64> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    files.map(|path| path.metadata().unwrap().len()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_teams_used_is_added_up_whoever_wrote_it_down() {
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let setup = Setup::new(&plane).unwrap();
    let values = json!({"visibility": {"apiServices": true}, "journal": {"enabled": true}});
    let setup = chart::install(&plane, setup, &values).await.unwrap();
    let folder = plane.folder().join("journal");
    let setup = setup.with(&json!({"journal": {"directory": folder}}));
    let follower = setup.replica().unwrap();
    let leader = Manager::start(&plane, setup).await.unwrap();
    let follower = Manager::start(&plane, follower).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    let team = Place::bare(&plane, "used").await.unwrap();
    team.flavor("used").await.unwrap();
    let preempts = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    team.cluster_queue("used", 2, &preempts).await.unwrap();
    team.local_queue("lq", "used").await.unwrap();
    apply(&plane, ALICE).await.unwrap();
    let (admin, folder) = (plane.kubeconfig_path(), folder.display().to_string());

    team.job("first", "lq", 2).await.unwrap();
    team.wait_until("first", true).await.unwrap();
    let grows = wait_for("hours of what runs", &admin, &[], |[hours, ..]| hours > 0.0).await[0];
    wait_for("more hours", &admin, &[], |[hours, evicted, _]| hours > grows && evicted == 0.0).await;

    eventually("both replicas to have written", DEADLINE, || async {
        let sizes = sizes(&folder);
        Ok(progress(sizes.iter().all(|size| *size > 0), format!("{sizes:?}")))
    })
    .await
    .unwrap();
    // The leader is killed; what it wrote stays, the other one goes on, and it comes back.
    let leader = leader.restart(&plane).await.unwrap();
    team.make_urgent("urgent", 2).await.unwrap();
    let evicted = |[hours, evicted, borrowed]: [f64; 3]| evicted > 0.0 && hours >= evicted && borrowed == 0.0;
    wait_for("hours that were evicted", &admin, &["-n", "used"], evicted).await;

    // All jobs go: nothing runs, and files and API have the same hours.
    kubectl(&plane, &["delete", "jobs", "--all", "-n", "used"]).await.unwrap();
    team.wait_until_empty().await.unwrap();
    let files = ["--journal", folder.as_str()];
    let as_in_files = |found: [f64; 3]| {
        let files = figures(&usage(&admin, &files)).unwrap();
        (found[0] - files[0]).abs() < 1e-9 && (found[1] - files[1]).abs() < 1e-9
    };
    wait_for("files and API to have the same", &admin, &[], as_in_files).await;

    let alice = plane.kubeconfig_for_service_account("used", "alice").await.unwrap();
    let why = figures(&usage(&alice, &[])).unwrap_err();
    assert!(why.contains("clusterqueues/journal"), "{why}");
    // A file for each process, and something in each.
    let sizes = sizes(&folder);
    assert!(sizes.len() == 3 && sizes.iter().all(|size| *size > 0), "{sizes:?}");
    for manager in [leader, follower] {
        manager.stop().await.unwrap();
    }
}
