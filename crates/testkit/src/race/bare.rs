//! The same writes without a manager, several lives at a time: each Workload is created, admitted and finished, with one write each; each Job is
//! created, gets an admitted Workload, is started, and ends with it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::objects;
use super::plan::{Race, Work};

/// Enough for a steady figure.
const SAMPLE: usize = 1_500;
/// On two processors more at a time only wait for each other.
const AT_ONCE: usize = 8;

/// Makes the writes of the first Workloads or Jobs of a race; returns the time per life when several run at the same time.
pub(super) async fn play(client: &Client, race: &Race) -> Result<Duration> {
    let count = race.total().min(SAMPLE);
    let (_, queue) = race.queues().next().context("a race needs a queue")?;
    let class = race.classes.first().context("a race needs a class")?;
    let workloads = objects::api(Work::Workloads, client);
    let jobs = (race.work == Work::Jobs).then(|| objects::api(Work::Jobs, client));
    let began = Instant::now();
    let each = |number: usize| {
        let (workloads, jobs, name) = (workloads.clone(), jobs.clone(), format!("bare-{number}"));
        let made = |work| objects::of(work, &name, &queue, class);
        let (workload, job) = (made(Work::Workloads), made(Work::Jobs));
        async move {
            let Some(jobs) = jobs else { return live(&workloads, &name, workload).await };
            make(&jobs, job).await?;
            admit(&workloads, &name, workload).await?;
            let start = Patch::Merge(json!({"spec": {"suspend": false}}));
            jobs.patch(&name, &PatchParams::default(), &start).await.context("starting a Job")?;
            end(&jobs, Work::Jobs, &name).await?;
            end(&workloads, Work::Workloads, &name).await
        }
    };
    futures::stream::iter(0..count).map(each).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(began.elapsed() / u32::try_from(count.max(1)).unwrap_or(u32::MAX))
}

async fn make(api: &Api<DynamicObject>, made: Value) -> Result<()> {
    api.create(&PostParams::default(), &serde_json::from_value(made)?).await.context("making one")?;
    Ok(())
}

/// The three writes of a Workload's life, of the size of the manager's.
async fn live(api: &Api<DynamicObject>, name: &str, made: Value) -> Result<()> {
    admit(api, name, made).await?;
    end(api, Work::Workloads, name).await
}

/// Marks a Workload or Job as ended.
async fn end(api: &Api<DynamicObject>, work: Work, name: &str) -> Result<()> {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    write(api, name, "race", objects::end(work, name, &now)).await
}

async fn write(api: &Api<DynamicObject>, name: &str, by: &str, status: Value) -> Result<()> {
    let by = PatchParams::apply(by).force();
    api.patch_status(name, &by, &Patch::Apply(status)).await.context("writing a status")?;
    Ok(())
}

/// Makes a Workload, and admits it.
async fn admit(api: &Api<DynamicObject>, name: &str, made: Value) -> Result<()> {
    make(api, made).await?;
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
    write(api, name, "bare", admission).await
}
