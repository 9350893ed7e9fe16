//! Every example, run on a control plane with the installed chart, the manager under the chart's ServiceAccount, the JobSet controller and a stand-in
//! for the cluster autoscaler.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

use sluice_testkit::{ControlPlane, Manager, Setup, assets, autoscaler, chart, crds, jobset};
use sluice_tests::story;
use tokio::sync::Mutex;

/// A plane with everything that an example needs.
struct Bed {
    plane: ControlPlane,
    _manager: Manager,
    _controllers: (autoscaler::StandIn, jobset::Controller),
}

/// The bed, made when the first example plays. The examples share names of cluster-scoped objects, so each has it for itself for as long as it
/// plays. The watchdog stops it with the test process.
static BED: Mutex<Option<Bed>> = Mutex::const_new(None);

async fn new_bed() -> Bed {
    let plane = ControlPlane::builder().complete().start().await.unwrap();
    let jobsets = jobset::Controller::start(&plane).await.unwrap();
    let served = autoscaler::Served::Both;
    let autoscaler = autoscaler::StandIn::start(&plane.kubeconfig_path(), served).await.unwrap();
    let setup = chart::install(&plane, Setup::new(&plane).unwrap(), &serde_json::json!({})).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    Bed { plane, _manager: manager, _controllers: (autoscaler, jobsets) }
}

async fn play(example: &str) {
    let mut bed = BED.lock().await;
    if bed.is_none() {
        *bed = Some(new_bed().await);
    }
    let folder = assets::workspace().join("examples").join(example);
    if let Err(error) = story::play_all(&bed.as_ref().unwrap().plane, &folder).await {
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

#[tokio::test]
async fn topology_keeps_pods_together_and_says_what_is_too_wide() {
    play("topology").await;
}
