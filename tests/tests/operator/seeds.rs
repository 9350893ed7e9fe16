//! The manifests that must apply as they are, with kubectl's strict field validation: v1beta1, through the conversion and admission webhooks
//! of a running manager. And what kubectl shows of such jobs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, assets, chart, crds, jobset, kubectl};
use sluice_tests::place::DEADLINE;

fn seed(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/seeds");
    folder.join(format!("{name}.yaml")).to_str().unwrap().to_owned()
}

async fn get(plane: &ControlPlane, resource: &str, name: &str) -> Value {
    let printed = kubectl::kubectl(plane, &["get", resource, name, "-o", "json"]).await.unwrap();
    serde_json::from_str(&printed).unwrap()
}

#[tokio::test]
async fn the_seeds_apply_verbatim_and_what_waits_and_runs_looks_to_kubectl_as_the_readme_shows_it() {
    // Its own: the seeds name cluster-wide objects. Without a scheduler: what is admitted stays so.
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let _jobset = jobset::Controller::start(&plane).await.unwrap();
    let setup = chart::install(&plane, Setup::new(&plane).unwrap(), &json!({})).await.unwrap();
    // The jobs themselves are not the subject: nothing is to be admitted.
    let idle = setup.clone().arg("--controllers=*,-scheduler");
    let mut manager = Manager::start(&plane, idle).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    // Pages that use the same names come one after the other.
    let pages: [&[&str]; 5] = [
        &["dws-queues", "dws-job"],
        &["hotswap-priority-classes", "hotswap-queues", "hotswap-jobsets"],
        // The same JobSet without a queue.
        &["hotswap-jobset-unqueued"],
        &["multislice-queues", "multislice-jobsets"],
        &[
            "multislice-priority-class",
            "multislice-preemption-queues",
            "multislice-jobsets-standard",
            "multislice-low-priority-jobset",
        ],
    ];
    for page in pages {
        for name in page {
            let path = seed(name);
            // `create` where the manifests only have generated names.
            let verb = if *name == "dws-job" { "create" } else { "apply" };
            let args = [verb, "--validate=strict", "-f", &path];
            let done = kubectl::try_kubectl(&plane.kubeconfig_path(), &args, None).await.unwrap();
            assert!(done.success, "{name}: {}", done.stderr);
            // The page's queue without a selector takes no workloads, which its author should know.
            let warned = done.stderr.contains("Warning: spec.namespaceSelector is not set");
            assert_eq!(warned, *name == "hotswap-queues", "{name}: {}", done.stderr);
        }
        kubectl::kubectl(&plane, &["delete", "jobs,jobsets", "--all", "--wait=false"]).await.unwrap();
    }
    // What users wrote in v1beta1 is there in both versions.
    let stored = get(&plane, "clusterqueues.v1beta2.kueue.x-k8s.io", "tpu-training-cq").await;
    let group = &stored["spec"]["resourceGroups"][0];
    assert_eq!(group["coveredResources"], json!(["google.com/tpu"]), "filled in from the flavors' resources");
    let addition = json!({"enable": true, "reclaimMoreThanNominalQuota": false});
    assert_eq!(stored["spec"]["preemption"]["reclaimOutOfCohort"], addition);
    assert_eq!(stored["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));
    let stored = get(&plane, "clusterqueues.v1beta2.kueue.x-k8s.io", "dws-cluster-queue").await;
    let strategy = json!({"admissionChecks": [{"name": "dws-prov"}]});
    assert_eq!(stored["spec"]["admissionChecksStrategy"], strategy);
    let old = get(&plane, "clusterqueues.v1beta1.kueue.x-k8s.io", "dws-cluster-queue").await;
    assert_eq!(old["apiVersion"], "kueue.x-k8s.io/v1beta1");
    assert_eq!(old["spec"]["admissionChecksStrategy"], strategy);
    assert_eq!(manager.ended(), None);
    manager.stop().await.unwrap();
    let _manager = Manager::start(&plane, setup).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    the_readme_shows_what_waits_and_what_runs(&plane).await;
}

/// The cells of a table that kubectl prints, but for the ages and the hashes at the end of the names.
fn cells(table: &str) -> Vec<Vec<String>> {
    let header = table.lines().next().unwrap();
    let starts: Vec<usize> = (0..header.len())
        .filter(|at| !header[*at..].starts_with(' ') && (*at == 0 || header[..*at].ends_with("  ")))
        .collect();
    let rows = table.lines().map(|line| {
        let cell = |(index, start): (usize, &usize)| {
            let end = starts.get(index + 1).copied().unwrap_or(line.len());
            line.get(*start..end.min(line.len())).unwrap_or_default().trim().to_owned()
        };
        let mut row: Vec<_> = starts.iter().enumerate().map(cell).collect();
        row.pop();
        row[0] = row[0].rsplit_once('-').map_or(row[0].clone(), |(name, _)| name.to_owned());
        row
    });
    rows.collect()
}

/// The queues of the example are those of a page, and its jobs have the names of the page's.
async fn the_readme_shows_what_waits_and_what_runs(plane: &ControlPlane) {
    eventually("the pages' jobs to be gone", DEADLINE, || async {
        let left = kubectl::kubectl(plane, &["get", "jobs,jobsets,workloads", "-o", "name"]).await?;
        Ok(progress(left.is_empty(), left))
    })
    .await
    .unwrap();
    let example = assets::workspace().join("examples/tpu-multislice");
    let apply = async |file: &str| {
        let path = example.join(file).display().to_string();
        kubectl::kubectl(plane, &["apply", "-f", &path]).await.unwrap();
    };
    apply("queues.yaml").await;
    apply("page-order/1-three-slices.yaml").await;
    let workloads = async || kubectl::kubectl(plane, &["get", "workloads"]).await;
    eventually("the three slices to be admitted", DEADLINE, || async {
        let table = workloads().await?;
        Ok(progress(table.contains("True"), table))
    })
    .await
    .unwrap();
    apply("page-order/2-one-and-two-slices.yaml").await;

    let readme = std::fs::read_to_string(example.join("README.md")).unwrap();
    let shown = readme.split("```\n").find(|block| block.starts_with("NAME ")).unwrap();
    eventually("the table of the README", DEADLINE, || async {
        let table = workloads().await?;
        Ok(progress(cells(&table) == cells(shown), table))
    })
    .await
    .unwrap();
}
