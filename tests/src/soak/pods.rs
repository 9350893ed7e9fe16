//! Fake nodes lose a pod whose next step they could not write while the API server was away. A kubelet does not.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::load::{AT_MOST, RUNS};
use super::world::NAMESPACES;

/// How often all are looked at.
const EVERY: Duration = Duration::from_secs(15);

/// For how many rounds a pod may be in the same phase: two more than it runs for. A touch lets a fake node begin its time again.
fn rounds(pod: &Pod) -> u64 {
    let annotations = pod.annotations();
    let runs = annotations.get(AT_MOST).or_else(|| annotations.get(RUNS));
    let runs = runs.and_then(|seconds| seconds.split('.').next()?.parse::<u64>().ok()).unwrap_or_default();
    runs / EVERY.as_secs() + 1
}

/// Touches each pod that has been in the same phase for longer than it may be, so that its fake node looks at it again.
pub(super) async fn keep_moving(client: Client) -> Infallible {
    let mut before: BTreeMap<String, (_, u64)> = BTreeMap::new();
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
                let same = before.get(&uid).filter(|(before, _)| *before == state);
                let mut seen = same.map_or(0, |(_, seen)| seen + 1);
                if seen >= rounds(&pod) && (!over || state.1) {
                    seen = 0;
                    let touch =
                        json!({"metadata": {"annotations": {"example.com/looked-at": round.to_string()}}});
                    let (name, params) = (pod.name_any(), PatchParams::default());
                    // Gone meanwhile, or tried again in the next round.
                    drop(pods.patch(&name, &params, &Patch::Merge(touch)).await);
                }
                now.insert(uid, (state, seen));
            }
        }
        before = now;
    }
    unreachable!("rounds do not end")
}
