//! Every example, played on a control plane with the installed chart, the manager under the chart's ServiceAccount and the
//! stand-ins for JobSet and the cluster autoscaler.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

use sluice_testkit::{ControlPlane, Manager, Setup, assets, autoscaler, chart};
use sluice_tests::story;
use tokio::sync::{Mutex, OnceCell};

/// The plane and its manager live as long as the test process; the watchdog stops them with it.
struct Bed {
    plane: &'static ControlPlane,
    _manager: Manager,
    _autoscaler: autoscaler::StandIn,
}

static BED: OnceCell<Bed> = OnceCell::const_new();
/// The examples share names of cluster-scoped objects: one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

async fn bed() -> &'static Bed {
    BED.get_or_init(|| async {
        let plane = sluice_testkit::shared().await.unwrap();
        let autoscaler =
            autoscaler::StandIn::start(&plane.kubeconfig_path(), autoscaler::Served::Both).await.unwrap();
        let setup = Setup::new(plane).unwrap();
        let setup = chart::install(plane, setup, &serde_json::json!({})).await.unwrap();
        Bed { plane, _manager: Manager::start(plane, setup).await.unwrap(), _autoscaler: autoscaler }
    })
    .await
}

async fn play(example: &str) {
    let bed = bed().await;
    let _guard = ONE_AT_A_TIME.lock().await;
    let folder = assets::workspace().join("examples").join(example);
    if let Err(error) = story::play_all(bed.plane, &folder).await {
        panic!("{error:#}");
    }
}

#[tokio::test]
async fn tpu_multislice_runs_in_the_order_of_one_file_and_in_the_order_of_the_page() {
    play("tpu-multislice").await;
}

#[tokio::test]
async fn tpu_preemption_evicts_the_low_priority_jobset_which_finishes_afterwards() {
    play("tpu-preemption").await;
}

#[tokio::test]
async fn cohort_borrowing_lends_reclaims_and_keeps_a_part_at_home() {
    play("cohort-borrowing").await;
}

#[tokio::test]
async fn gpu_flavors_are_chosen_by_taints_order_and_borrowing() {
    play("gpu-flavors").await;
}

#[tokio::test]
async fn hotswap_manifests_apply_verbatim_and_are_found_by_their_annotation() {
    play("hotswap").await;
}

#[tokio::test]
async fn dws_asks_for_nodes_and_starts_when_they_are_there() {
    play("dws").await;
}
