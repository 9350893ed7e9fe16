//! The planes that tests share besides the complete one: for the definitions alone, for managers that only answer webhooks, and for the chart itself.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use serde_json::json;
use sluice_testkit::kubectl::apply;
use sluice_testkit::{ControlPlane, Setup, chart, crds};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// An API server with Sluice's definitions, without a manager and without controllers. Each test has objects with names of its own.
pub async fn definitions() -> &'static ControlPlane {
    PLANE
        .get_or_init(|| async {
            let plane = ControlPlane::builder().start().await.unwrap();
            crds::install(&plane.client().await.unwrap(), None).await.unwrap();
            plane
        })
        .await
}

/// With another holder's lease in force a manager only answers webhooks, and leaves the objects of a test alone.
const ELSEWHERE: &str = "
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: c1f6bfd2.kueue.x-k8s.io, namespace: kueue-system}
spec: {holderIdentity: sluice_elsewhere, leaseDurationSeconds: 36000}
";

static REVIEWED: OnceCell<(ControlPlane, Setup)> = OnceCell::const_new();
/// A cluster has one set of webhooks: one test at a time has a manager that answers them.
static REVIEWING: Mutex<()> = Mutex::const_new(());

/// A plane with the chart, and the setup of managers that only answer its webhooks, for as long as the test keeps its turn. None runs before it and
/// after it.
pub async fn reviewed() -> (MutexGuard<'static, ()>, &'static ControlPlane, Setup) {
    let turn = REVIEWING.lock().await;
    let make = || async {
        let plane = ControlPlane::builder().start().await.unwrap();
        plane.make_namespace(chart::NAMESPACE).await.unwrap();
        apply(&plane, ELSEWHERE).await.unwrap();
        let setup = chart::install(&plane, Setup::new(&plane).unwrap(), &json!({})).await.unwrap();
        (plane, setup)
    };
    let (plane, setup) = REVIEWED.get_or_init(make).await;
    (turn, plane, setup.clone())
}

static UNCHARTED: OnceCell<ControlPlane> = OnceCell::const_new();
/// A cluster has one release of the chart.
static INSTALLING: Mutex<()> = Mutex::const_new(());

/// A plane without the chart, for tests that install it and uninstall it, for as long as the test keeps its turn.
pub async fn uncharted() -> (MutexGuard<'static, ()>, &'static ControlPlane) {
    let turn = INSTALLING.lock().await;
    let make = || async { ControlPlane::builder().start().await.unwrap() };
    (turn, UNCHARTED.get_or_init(make).await)
}
