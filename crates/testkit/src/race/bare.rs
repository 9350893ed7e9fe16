//! The same writes without a manager: each Workload is made, admitted and ended, one write each, several Workloads at a time.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use super::objects;
use super::plan::{Race, Work};

/// Enough for a steady figure.
const SAMPLE: usize = 1_500;
/// More at a time only wait for one another on two processors.
const AT_ONCE: usize = 8;

/// Makes the writes of the first Workloads of a race; gives the time that one took, with those beside it.
pub(super) async fn play(client: &Client, race: &Race) -> Result<Duration> {
    let count = race.total().min(SAMPLE);
    let (_, queue) = race.queues().next().context("a race needs a queue")?;
    let class = race.classes.first().context("a race needs a class")?;
    let api = objects::api(Work::Workloads, client);
    let began = Instant::now();
    let each = |number: usize| {
        let (api, name) = (api.clone(), format!("bare-{number}"));
        let made = objects::of(Work::Workloads, &name, &queue, class);
        async move { live(&api, &name, made).await }
    };
    futures::stream::iter(0..count).map(each).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(began.elapsed() / u32::try_from(count.max(1)).unwrap_or(u32::MAX))
}

/// The three writes of a Workload's life, of the size of the manager's.
async fn live(api: &Api<DynamicObject>, name: &str, made: serde_json::Value) -> Result<()> {
    api.create(&PostParams::default(), &serde_json::from_value(made)?).await.context("making a Workload")?;
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let condition = |type_: &str, reason: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": "Quota reserved in ClusterQueue cohort-0-queue-0",
            "lastTransitionTime": now, "observedGeneration": 1,
        })
    };
    let assignment =
        json!({"name": "main", "count": 1, "flavors": {"cpu": "rf"}, "resourceUsage": {"cpu": "1"}});
    let admission = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": name},
        "status": {
            "admission": {"clusterQueue": "cohort-0-queue-0", "podSetAssignments": [assignment]},
            "conditions": [condition("QuotaReserved", "QuotaReserved"), condition("Admitted", "Admitted")],
        },
    });
    for (by, status) in [("bare", admission), ("race", objects::end(Work::Workloads, name, &now))] {
        let by = PatchParams::apply(by).force();
        api.patch_status(name, &by, &Patch::Apply(status)).await.context("writing a status")?;
    }
    Ok(())
}
