//! The additions of a runtime's policies: the number of nodes, the variables by which they find one another, and the container that installs Flux.
//!
//! Left out are parts that neither quota nor a scheduler needs: the commands of torchtune and Flux, the volumes of MPI and Flux, and the token of the
//! trainer's gate `TrainJobStatus`.

use serde_json::{Value, json};
use sluice_quantity::Quantity;

use super::env::{index, upsert, upsert_port, variable};
use super::expand::{Draft, NODE, TRAINER};
use crate::object::int;
use crate::patch::set;

/// The port at which nodes find one another.
const PORT: i32 = 29500;
/// The init container that installs Flux.
const INSTALLER: &str = "flux-installer";
/// The variable with its image, and the image if nothing sets that.
const INSTALLER_IMAGE: (&str, &str) =
    ("FLUX_VIEW_IMAGE", "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy");

/// Whether the launcher of an MPI policy is one of the nodes.
pub(super) fn launcher_is_node(policy: &Value) -> bool {
    policy["mpi"]["runLauncherAsNode"] == true
}

/// Lets the policy of the runtime, or none, have its say. An error says why the trainer makes no pods.
pub(super) fn enforce(draft: &mut Draft<'_>) -> Result<(), String> {
    if draft.policy["flux"].is_object() {
        install_flux(draft)?;
    }
    shape(draft);
    Ok(())
}

/// Sets the number of nodes and the variables.
fn shape(draft: &mut Draft<'_>) {
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

/// Adds the init container that installs Flux to the nodes.
fn install_flux(draft: &mut Draft<'_>) -> Result<(), String> {
    if int(&draft.trainer()["numNodes"]).is_none() {
        return Err("spec.trainer.numNodes: required, as the runtime has the policy flux".to_owned());
    }
    let installer = json!({
        "name": INSTALLER, "image": installer_image(draft), "command": ["/bin/bash", "/etc/flux-config/init.sh"],
    });
    for job in draft.jobs.iter_mut().filter(|job| job["name"] == NODE) {
        let known = &job["template"]["spec"]["template"]["spec"]["initContainers"];
        let mut containers = known.as_array().cloned().unwrap_or_default();
        if containers.iter().any(|container| container["name"] == INSTALLER) {
            return Err(format!("the runtime has an init container {INSTALLER}, as its policy flux adds"));
        }
        containers.push(installer.clone());
        set(job, &["template", "spec", "template", "spec", "initContainers"], Value::Array(containers));
    }
    Ok(())
}

/// The image that has Flux: the TrainJob's, else the runtime's, else the trainer's own.
fn installer_image(draft: &mut Draft<'_>) -> String {
    let (name, otherwise) = INSTALLER_IMAGE;
    let last = |container: &Value, counts: fn(&Value) -> bool| {
        let mut variables = container["env"].as_array().into_iter().flatten();
        let set = variables.rfind(|variable| variable["name"] == name && counts(variable))?;
        Some(set["value"].as_str().unwrap_or_default().to_owned())
    };
    // The trainer takes a variable of the TrainJob without a value for an empty one, and passes over one of the runtime.
    let said = last(draft.trainer(), |_| true);
    let of_runtime = draft.of_step(TRAINER).and_then(|at| {
        let node = draft.containers(at, NODE).next()?;
        last(node, |variable| variable["value"].as_str().is_some_and(|value| !value.is_empty()))
    });
    said.or(of_runtime).unwrap_or_else(|| otherwise.to_owned())
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
    if command != &json!(["tune", "run"]) {
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
