//! A plane for managers that are configured, started and stopped: an API server with Sluice's definitions, without webhooks and without controllers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use serde_json::json;
use sluice_testkit::{ControlPlane, crds};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The namespace of the managers.
pub const NAMESPACE: &str = "kueue-system";
/// The lease of a manager that is given none of its own.
pub const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
/// Managers that act on what they see: one test at a time has some.
static ACTING: Mutex<()> = Mutex::const_new(());

/// The plane, for managers that only have to start. Every manager here has ports of its own, and none is the one that the API server would ask.
pub async fn plane() -> &'static ControlPlane {
    let make = || async {
        let plane = ControlPlane::builder().start().await.unwrap();
        plane.make_namespace(NAMESPACE).await.unwrap();
        crds::install(&plane.client().await.unwrap(), None).await.unwrap();
        plane
    };
    PLANE.get_or_init(make).await
}

/// Lets a test have managers that act, without those of others and without what others left. A test drops its turn after its managers.
pub async fn turn() -> MutexGuard<'static, ()> {
    let turn = ACTING.lock().await;
    clean(&plane().await.client().await.unwrap()).await;
    turn
}

/// Removes what other tests left, and gives the lease of a killed manager back. Nothing here collects garbage or removes finalizers.
async fn clean(client: &Client) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    if leases.get_opt(LEASE).await.unwrap().is_some() {
        leases.delete(LEASE, &DeleteParams::default()).await.unwrap();
    }
    let of_kueue = |kind: &str| GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind);
    let kinds = [
        GroupVersionKind::gvk("batch", "v1", "Job"),
        GroupVersionKind::gvk("", "v1", "Pod"),
        GroupVersionKind::gvk("", "v1", "Node"),
        of_kueue("Workload"),
        of_kueue("LocalQueue"),
        of_kueue("ClusterQueue"),
        of_kueue("ResourceFlavor"),
        of_kueue("AdmissionCheck"),
        of_kueue("WorkloadPriorityClass"),
    ];
    for kind in kinds {
        remove_all(client, &ApiResource::from_gvk(&kind)).await;
    }
}

async fn remove_all(client: &Client, kind: &ApiResource) {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    for object in all.list_metadata(&ListParams::default()).await.unwrap() {
        let (name, namespace) = (object.metadata.name.unwrap(), object.metadata.namespace);
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, kind),
            None => all.clone(),
        };
        // No kubelet ends a pod.
        gone(api.delete(&name, &DeleteParams::background().grace_period(0)).await);
        if object.metadata.finalizers.is_some() {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            gone(api.patch(&name, &PatchParams::default(), &free).await);
        }
    }
}

/// A last request of a manager that was killed may have been carried out before.
fn gone<T: std::fmt::Debug>(answer: kube::Result<T>) {
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => drop(other.unwrap()),
    }
}
