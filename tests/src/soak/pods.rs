//! Fake nodes forget a pod whose next step they could not write while the API server was away. A kubelet does not.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::world::NAMESPACES;

/// Longer than any pod runs.
const EVERY: Duration = Duration::from_secs(15);

/// Touches each pod that is in the same phase as so long ago, so that its fake node looks at it again.
pub(super) async fn keep_moving(client: Client) -> Infallible {
    let mut before = BTreeMap::new();
    for round in 0_u64.. {
        tokio::time::sleep(EVERY).await;
        let mut now = BTreeMap::new();
        for namespace in NAMESPACES {
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            // The API server may be away.
            let Ok(all) = pods.list(&ListParams::default()).await else { continue };
            for pod in all.items {
                let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
                let over = phase == "Succeeded" || phase == "Failed";
                let state = (phase, pod.metadata.deletion_timestamp.is_some());
                let uid = pod.uid().unwrap_or_default();
                if before.get(&uid) == Some(&state) && (!over || state.1) {
                    let touch =
                        json!({"metadata": {"annotations": {"example.com/looked-at": round.to_string()}}});
                    let (name, params) = (pod.name_any(), PatchParams::default());
                    // Gone meanwhile, or tried again in the next round.
                    drop(pods.patch(&name, &params, &Patch::Merge(touch)).await);
                }
                now.insert(uid, state);
            }
        }
        before = now;
    }
    unreachable!("rounds do not end")
}
