//! The additions of a runtime's policies: the number of nodes, and the variables by which they find one another.
//!
//! Left out are parts that neither quota nor a scheduler needs: the command of torchtune, the volumes of MPI, and the token of the trainer's gate
//! `TrainJobStatus`.

use serde_json::Value;
use sluice_quantity::Quantity;

use super::env::{index, upsert, upsert_port, variable};
use super::expand::{Draft, NODE, TRAINER};
use crate::object::int;

/// The port at which nodes find one another.
const PORT: i32 = 29500;

/// Whether the launcher of an MPI policy is one of the nodes.
pub(super) fn launcher_is_node(policy: &Value) -> bool {
    policy["mpi"]["runLauncherAsNode"] == true
}

/// Lets the policy of the runtime, or none, have its say.
pub(super) fn enforce(draft: &mut Draft<'_>) {
    let policy = draft.policy;
    let has = |name: &str| policy[name].is_object();
    let nodes = int(&draft.trainer()["numNodes"]);
    if has("mpi") {
        let at = draft.jobs.iter().position(|job| job["name"] == NODE);
        if let (Some(at), Some(nodes)) = (at, nodes) {
            draft.counts[at] = if launcher_is_node(policy) { nodes.saturating_sub(1).max(1) } else { nodes };
        }
        return launch(draft);
    }
    let Some(at) = draft.of_step(TRAINER) else { return };
    if let Some(nodes) = nodes {
        draft.counts[at] = nodes;
    }
    if !draft.trainer().is_object() {
        return;
    }
    if !has("jax") {
        let said = draft.trainer()["env"].as_array().cloned().unwrap_or_default();
        add(draft, at, &said, false);
    }
    let (count, first) = (draft.counts[at], format!("{0}-{NODE}-0-0.{0}", draft.name()));
    let added = if has("torch") {
        torch(draft, count, &first)
    } else if has("jax") {
        vec![
            variable("JAX_NUM_PROCESSES", &count.to_string()),
            index("JAX_PROCESS_ID"),
            variable("JAX_COORDINATOR_ADDRESS", &format!("{first}:{PORT}")),
        ]
    } else if has("xgboost") {
        let workers = i64::from(count).saturating_mul(gpus(&resources(draft)).max(1));
        vec![
            variable("DMLC_TRACKER_URI", &first),
            variable("DMLC_TRACKER_PORT", &PORT.to_string()),
            index("DMLC_TASK_ID"),
            variable("DMLC_NUM_WORKER", &workers.to_string()),
        ]
    } else {
        return;
    };
    add(draft, at, &added, true);
}

/// Puts variables, and the port, into the first container of a node.
fn add(draft: &mut Draft<'_>, at: usize, variables: &[Value], port: bool) {
    let Some(container) = draft.containers(at, NODE).next() else { return };
    for variable in variables {
        upsert(container, "env", variable);
    }
    if port {
        upsert_port(container, PORT);
    }
}

/// The variables of torchrun.
fn torch(draft: &Draft<'_>, count: i32, first: &str) -> Vec<Value> {
    let resources = resources(draft);
    let processes = match int(&draft.trainer()["numProcPerNode"]) {
        Some(processes) => processes.to_string(),
        None if gpus(&resources) == 0 => cpus(&resources).max(1).to_string(),
        None => "auto".to_owned(),
    };
    let mut added = vec![
        variable("PET_NNODES", &count.to_string()),
        variable("PET_NPROC_PER_NODE", &processes),
        index("PET_NODE_RANK"),
    ];
    let command = &draft.trainer()["command"];
    if command != &serde_json::json!(["tune", "run"]) {
        added.extend([variable("PET_MASTER_ADDR", first), variable("PET_MASTER_PORT", &PORT.to_string())]);
    }
    added
}

/// The variables of Open MPI in the launcher.
fn launch(draft: &mut Draft<'_>) {
    let policy = &draft.policy["mpi"];
    let own = int(&policy["numProcPerNode"]).unwrap_or(1);
    let slots = match int(&draft.trainer()["numProcPerNode"]) {
        Some(said) => i64::from(said),
        None if own == 1 => gpus(&resources(draft)).max(1),
        None => i64::from(own),
    };
    let added = [
        variable("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"),
        variable("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
        variable("OMPI_MCA_orte_set_default_slots", &slots.to_string()),
        variable("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
    ];
    let launchers = draft.jobs.iter().enumerate().filter(|(_, job)| job["name"] == "launcher");
    for at in launchers.map(|(at, _)| at).collect::<Vec<_>>() {
        for container in draft.containers(at, NODE) {
            for variable in &added {
                upsert(container, "env", variable);
            }
        }
    }
}

/// The resources of a node: from the TrainJob, else from the runtime.
fn resources(draft: &Draft<'_>) -> Value {
    let said = &draft.trainer()["resourcesPerNode"];
    if said.is_object() {
        return said.clone();
    }
    let trains = |at: usize| draft.jobs[at]["name"] == NODE || draft.of_step(TRAINER) == Some(at);
    let found = (0..draft.jobs.len()).filter(|at| trains(*at)).find_map(|at| {
        let containers = draft.jobs[at].pointer("/template/spec/template/spec/containers")?.as_array()?;
        let node = containers.iter().find(|one| one["name"] == NODE && one["resources"].is_object())?;
        Some(node["resources"].clone())
    });
    found.unwrap_or_default()
}

/// A whole number of a resource, rounded up as Kubernetes does.
fn whole(amount: &Value) -> i64 {
    let parsed = match amount {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    };
    parsed.map_or(0, |amount| amount.value())
}

fn cpus(resources: &Value) -> i64 {
    let of = |field: &str| whole(&resources[field]["cpu"]);
    if of("requests") == 0 { of("limits") } else { of("requests") }
}

fn gpus(resources: &Value) -> i64 {
    let of = |field: &str| {
        let amounts = resources[field].as_object();
        let found = amounts.into_iter().flatten().find(|(name, _)| name.to_ascii_lowercase().contains("gpu"));
        found.map_or(0, |(_, amount)| whole(amount))
    };
    if of("requests") == 0 { of("limits") } else { of("requests") }
}
