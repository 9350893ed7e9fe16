//! A race: Workloads of several classes are created directly in many queues, and end after their run time once they are admitted, as in Kueue's own
//! performance harness. The API server counts the writes of the manager under test.
//!
//! [`run`] takes any manager with Kueue's API. Counts can have budgets; times depend on the machine.

mod audit;
mod bare;
mod cbor;
mod figures;
pub mod forms;
mod load;
mod objects;
mod plan;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::api::{DynamicObject, ListParams};
use serde_json::json;

use crate::process::Program;
use crate::wait::{eventually, progress};
use crate::{ControlPlane, Manager, Setup, crds, kubectl, workloads};

pub use figures::{Figures, Requests, Usage};
pub use plan::{CLASSES, Class, FREED, PREEMPTING, Race, STEADY, Work};

use plan::NAMESPACE;

/// How long the queues may take until they are active.
const START: Duration = Duration::from_mins(2);

fn manifests(race: &Race) -> String {
    let version = "kueue.x-k8s.io/v1beta2";
    let mut all = vec![json!({"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "rf"}})];
    all.extend(race.classes.iter().map(objects::priority));
    for (cohort, name) in race.queues() {
        let (quota, borrowing) = (race.quota, 5 * race.quota);
        let quota = json!({"name": "cpu", "nominalQuota": quota, "borrowingLimit": borrowing});
        all.push(json!({
            "apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": name},
            "spec": {
                "cohortName": format!("cohort-{cohort}"), "namespaceSelector": {},
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{
                    "coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [quota]}],
                }],
            },
        }));
        all.push(json!({
            "apiVersion": version, "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"clusterQueue": name},
        }));
    }
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n")
}

/// A manager, Sluice or another one.
enum Runner {
    Sluice(Manager),
    Other(Program),
}

impl Runner {
    async fn start(plane: &ControlPlane, command: Option<&str>) -> Result<Self> {
        // Leases are not the subject.
        let setup = Setup::new(plane)?.alone();
        let Some(command) = command else {
            let setup = setup.arg("--controllers=*,-webhooks,-certificates");
            return Ok(Self::Sluice(Manager::start(plane, setup).await?));
        };
        let config = plane.folder().join("race.yaml");
        std::fs::write(&config, format!("{:#}", setup.configuration)).context("writing the configuration")?;
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("KUBECONFIG", &setup.kubeconfig).env("RACE_CONFIG", &config);
        Ok(Self::Other(plane.spawn("manager", shell)?))
    }

    fn id(&self) -> u32 {
        match self {
            Self::Sluice(manager) => manager.id(),
            Self::Other(program) => program.id(),
        }
    }

    async fn stop(self) -> Result<()> {
        match self {
            Self::Sluice(manager) => manager.stop().await.map(drop),
            Self::Other(mut program) => program.terminate(Duration::from_secs(30)).await.map(drop),
        }
    }
}

/// Runs a race on a plane of its own.
///
/// # Errors
///
/// If the plane or the manager does not start or end in time, the queues are not active within two minutes, a write is refused, not everything has
/// ended within [`Race::limit`], or events still come ten minutes later. Also without any queue or class.
pub async fn run(race: &Race) -> Result<Figures> {
    let audit = (race.work == Work::Jobs).then(audit::Audit::new).transpose()?;
    let flags = audit.iter().flat_map(audit::Audit::flags);
    let plane = flags.fold(ControlPlane::builder(), |plane, flag| plane.api_server_flag(&flag));
    let plane = plane.start().await?;
    let client = plane.client().await?;
    crds::install(&client, None).await?;
    kubectl::apply(&plane, "apiVersion: v1\nkind: Namespace\nmetadata: {name: kueue-system}\n").await?;
    let manager = Runner::start(&plane, race.manager.as_deref()).await?;
    kubectl::apply(&plane, &manifests(race)).await?;
    let local = workloads::namespaced(&client, NAMESPACE, "LocalQueue", "localqueues");
    eventually("all LocalQueues to be active", START, || async {
        let all = local.list(&ListParams::default()).await?.items;
        let active = |queue: &&DynamicObject| queue.data["status"]["conditions"][0]["status"] == "True";
        let count = all.iter().filter(active).count();
        Ok(progress(count == race.queues().count(), count))
    })
    .await?;

    let mut programs = BTreeMap::new();
    for id in plane.program_ids() {
        programs.insert(figures::name_of(id), id);
    }
    programs.insert("manager".to_owned(), manager.id());
    let before = figures::cpu_of(&programs);
    let requests = Requests::read(&client).await?;
    let began = Instant::now();
    let load = load::play(&plane, race).await?;
    let wall = began.elapsed();
    let mut used = figures::usage_of(&programs, &before);
    let after = figures::when_quiet(&client).await?;
    used.sort_by(|a, b| a.name.cmp(&b.name));
    manager.stop().await?;
    // Of Jobs that were stopped and started again it is not known which patch was a start.
    let audit = audit.filter(|_| load.evictions == 0);
    let sent = audit.map(|audit| audit.delays()).transpose()?;
    let bare = bare::play(&client, race).await?;
    plane.stop();
    Ok(Figures::new(race, &load, (wall, bare), sent, used, &after.since(&requests)))
}
