//! `sluice integration try`: applies a declaration of a job kind to an object, without a cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluice_api::config::{Configuration, DeclaredKind};
use sluice_api::job::{JobKind, JobView, PodScheduling, PodSetInfo};
use sluice_jobs::Patch;
use sluice_jobs::webhook::{Context, Operation, mutate};
use sluice_sim::{Kind, Manifest, Options, Simulation, Source};

use crate::print::line;

/// `sluice integration …`.
#[derive(Clone, Debug, Subcommand)]
pub enum IntegrationCommand {
    /// Print the Workload that a declared kind's object gets, and the patches that start and stop it
    Try(TryArgs),
}

/// `sluice integration try`.
#[derive(Clone, Debug, Args)]
pub struct TryArgs {
    /// One declaration, or a configuration file with `integrations.declared`
    pub declaration: PathBuf,
    /// An object of the kind, with a status or without
    pub object: PathBuf,
}

/// The node label that admission adds in the example, besides Sluice's own.
const FLAVOR: (&str, &str) = ("example.com/flavor", "chosen");

/// Runs the command.
///
/// # Errors
///
/// If a file cannot be read, the declaration is wrong, the object is of no declared kind, or it has no name; if it would not be queued, gets no
/// Workload or could not be started; or if standard output cannot be written.
pub fn run(command: &IntegrationCommand) -> anyhow::Result<u8> {
    let IntegrationCommand::Try(args) = command;
    let configuration = declarations(&args.declaration)?;
    let object = document(&args.object)?;
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let declares = |kind: &DeclaredKind| {
        text("apiVersion") == format!("{}/{}", kind.group, kind.version) && text("kind") == kind.kind
    };
    let declaration = configuration.integrations.declared.iter().find(|kind| declares(kind));
    let kind = declaration.and_then(|kind| JobKind::named(&kind.framework())).with_context(|| {
        format!(
            "{}: apiVersion {:?} and kind {:?} are not declared in {}",
            args.object.display(),
            text("apiVersion"),
            text("kind"),
            args.declaration.display()
        )
    })?;
    for shown in shown(configuration, kind, object)? {
        line(&shown)?;
    }
    Ok(0)
}

/// The configuration of a file, or a configuration with only the file's declaration.
fn declarations(path: &Path) -> anyhow::Result<Configuration> {
    let name = path.display();
    let mut file = document(path)?;
    if file["kind"] != sluice_api::config::KIND {
        file = json!({
            "apiVersion": format!("{}/v1beta2", sluice_api::config::GROUP),
            "kind": sluice_api::config::KIND,
            "integrations": {"declared": if file.is_array() { file } else { json!([file]) }},
        });
    }
    let read = Configuration::parse(&file.to_string());
    let (configuration, _) = read.with_context(|| format!("reading {name}"))?;
    sluice_jobs::declare(&configuration).with_context(|| format!("compiling {name}"))?;
    Ok(configuration)
}

fn document(path: &Path) -> anyhow::Result<Value> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {name}"))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{name}: not one YAML document"))
}

/// The output, part by part.
fn shown(configuration: Configuration, kind: JobKind, mut object: Value) -> anyhow::Result<Vec<String>> {
    if object["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        bail!("the object has no metadata.name");
    }
    if !(object["metadata"]["labels"].is_null() || object["metadata"]["labels"].is_object()) {
        bail!("the object's metadata.labels is not a map");
    }
    for (field, value) in
        [("namespace", "default"), ("resourceVersion", "1"), ("uid", "00000000-0000-0000-0000-000000000001")]
    {
        if object["metadata"][field].is_null() {
            object["metadata"][field] = json!(value);
        }
    }
    if object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].is_null() {
        object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("queue");
    }
    let marks = kind.gathers_pods().then(|| marks(&configuration, kind, &object));
    if let Some(marks) = &marks {
        object = patched(&object, marks)?;
    }
    let view = sluice_jobs::observe(kind, &object);
    let mut parts = vec![format!("# What is read of it:\n{}", yaml(&facts(&view))?)];
    if let Some(invalid) = &view.invalid {
        bail!("{}\nit would not be queued: {invalid}", parts.join("\n"));
    }
    parts.push(format!(
        "# The Workload that would be made:\n{}",
        yaml(&workload(configuration, kind, &object)?)?
    ));
    if let Some(marks) = marks {
        parts.push(format!("# What marks its pods ({}):\n{}", marks.content_type(), yaml(&marks.body())?));
        if let Some(pod) = sluice_jobs::made_pod(kind, &object, 0) {
            parts.push(format!("# The first pod, before the webhook of pods gates it:\n{}", yaml(&pod)?));
        }
        return Ok(parts);
    }
    let added: Vec<_> = view.pod_sets.iter().map(|pod_set| addition(&pod_set.name, pod_set.count)).collect();
    let start = sluice_jobs::start(&view, &added).context("it could not be started")?;
    parts.push(format!(
        "# The patch that starts it on a flavor with the node label {}={} ({}):\n{}",
        FLAVOR.0,
        FLAVOR.1,
        start.content_type(),
        yaml(&start.body())?
    ));
    let running = sluice_jobs::observe(kind, &patched(&object, &start)?);
    let restored = view.pod_sets.iter().map(|pod_set| PodSetInfo {
        name: pod_set.name.clone(),
        count: pod_set.count,
        scheduling: pod_set.scheduling.clone(),
    });
    for step in sluice_jobs::stop(&running, &restored.collect::<Vec<_>>()) {
        let patch = step.patch;
        parts.push(format!(
            "# The patch that stops it ({}):\n{}",
            patch.content_type(),
            yaml(&patch.body())?
        ));
    }
    Ok(parts)
}

/// What the webhook adds to a new object whose pods wait for admission themselves.
fn marks(configuration: &Configuration, kind: JobKind, object: &Value) -> Patch {
    let context = Context {
        manage_jobs_without_queue_name: configuration.manage_jobs_without_queue_name,
        managed_jobs_namespace_selector: &configuration.managed_jobs_namespace_selector,
        namespace_labels: &BTreeMap::new(),
        default_local_queue: false,
        default_priority_class: false,
        managed_owner: false,
        gatherer: None,
        gates: configuration.gates,
    };
    mutate(kind, Operation::Create, object, &context)
}

fn facts(view: &JobView) -> Value {
    let finished = view.finished.as_ref().map(|end| json!({"success": end.success, "message": end.message}));
    let reclaimable: serde_json::Map<_, _> =
        view.reclaimable.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
    json!({
        "framework": view.job.kind.framework(), "suspended": view.suspended, "active": view.active,
        "ready": view.pods_ready, "finished": finished, "reclaimable": reclaimable,
    })
}

fn addition(name: &str, count: i32) -> PodSetInfo {
    let scheduling = PodScheduling {
        node_selector: [(FLAVOR.0.to_owned(), FLAVOR.1.to_owned())].into(),
        ..PodScheduling::default()
    };
    PodSetInfo { name: name.to_owned(), count, scheduling }
}

/// The Workload that the engine makes of it.
fn workload(configuration: Configuration, kind: JobKind, object: &Value) -> anyhow::Result<Value> {
    let mut simulation = Simulation::new(Options::new(configuration));
    let source = Source { file: "the object".to_owned(), document: 1 };
    let mut object = object.clone();
    if let Some(object) = object.as_object_mut() {
        // The state before its first start.
        object.remove("status");
    }
    simulation.apply(&Manifest { source, kind: Kind::Job(kind), object })?;
    simulation.begin();
    simulation.settle()?;
    let made = simulation.objects(Kind::Workload).next().map(|(_, workload)| workload.clone());
    let mut made = made.context("no Workload is made of it")?;
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        if let Some(metadata) = made["metadata"].as_object_mut() {
            metadata.remove(field);
        }
    }
    if let Some(workload) = made.as_object_mut() {
        workload.remove("status");
    }
    Ok(made)
}

fn patched(object: &Value, patch: &Patch) -> anyhow::Result<Value> {
    let mut object = object.clone();
    match patch {
        Patch::Merge(body) | Patch::Strategic(body) | Patch::Apply(_, body) => {
            json_patch::merge(&mut object, body);
        }
        Patch::Json(operations) => {
            let operations: json_patch::Patch = serde_json::from_value(json!(operations))?;
            json_patch::patch(&mut object, &operations)?;
        }
    }
    Ok(object)
}

fn yaml(value: &Value) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(value)?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(name: &str) -> anyhow::Result<Vec<Value>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/integrations").join(name);
        let configuration = declarations(&folder.join("declaration.yaml"))?;
        let framework = configuration.integrations.declared[0].framework();
        let object = document(&folder.join("object.yaml"))?;
        let shown = shown(configuration, JobKind::named(&framework).context("known")?, object)?;
        Ok(shown.iter().map(|part| serde_saphyr::from_str(part).unwrap()).collect())
    }

    #[test]
    fn the_examples_make_workloads_and_patches() {
        let [facts, workload, start, stop] = <[_; 4]>::try_from(tried("argo-workflow").unwrap()).unwrap();
        assert_eq!(facts["suspended"], true);
        assert_eq!(workload["spec"]["queueName"], "team");
        let pod_set = &workload["spec"]["podSets"][0];
        assert_eq!(pod_set["count"], 2);
        assert_eq!(pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
        assert_eq!(pod_set["template"]["spec"]["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
        assert_eq!(start["spec"], json!({"suspend": false, "nodeSelector": {FLAVOR.0: FLAVOR.1}}));
        assert_eq!(stop["spec"], json!({"suspend": true, "nodeSelector": {FLAVOR.0: null}}));

        let [_, workload, start, stop] = <[_; 4]>::try_from(tried("virtualmachine").unwrap()).unwrap();
        let pod_sets = workload["spec"]["podSets"].as_array().unwrap();
        assert_eq!(
            (pod_sets.len(), &pod_sets[0]["name"], &pod_sets[0]["count"]),
            (1, &json!("main"), &json!(1))
        );
        let at = "/spec/template/spec/nodeSelector";
        assert_eq!(start.pointer(at), Some(&json!({FLAVOR.0: FLAVOR.1})));
        assert_eq!(stop.pointer(at), Some(&Value::Null));

        // No field suspends it, so its pods get gates.
        let [facts, workload, marks, pod] = <[_; 4]>::try_from(tried("cloneset").unwrap()).unwrap();
        assert_eq!(facts["framework"], "apps.kruise.io/cloneset");
        assert_eq!(workload["spec"]["podSets"][0]["count"], 3);
        let parent = "kueue.x-k8s.io/pod-suspending-parent";
        let at = "/spec/template/metadata/annotations/kueue.x-k8s.io~1pod-suspending-parent";
        let marks = marks.as_array().unwrap();
        assert!(
            marks.iter().any(|mark| mark["path"] == at && mark["value"] == facts["framework"]),
            "{marks:?}"
        );
        assert_eq!(pod["metadata"]["annotations"][parent], facts["framework"]);
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "CloneSet");

        let [_, workload, start, stop] = <[_; 4]>::try_from(tried("virtualmachine").unwrap()).unwrap();
        assert_eq!(workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["name"], "compute");
        let node_selector = |value: Value| json!({"spec": {"nodeSelector": value}});
        assert_eq!(
            start["spec"],
            json!({"runStrategy": "Always", "template": node_selector(json!({FLAVOR.0: FLAVOR.1}))})
        );
        assert_eq!(stop["spec"], json!({"runStrategy": "Halted", "template": node_selector(Value::Null)}));
    }

    #[test]
    fn what_cannot_be_tried_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let declaration = write(
            "d.yaml",
            "{group: try.example.com, version: v1, kind: Foo, podSets: [{name: a, template: spec.t, count: \"1 +\"}], active: \"true\"}",
        );
        let object = write("o.yaml", "{apiVersion: try.example.com/v1, kind: Foo, metadata: {name: x}}");
        let attempt = |declaration: &Path, object: &Path| {
            let args = TryArgs { declaration: declaration.to_owned(), object: object.to_owned() };
            format!("{:#}", run(&IntegrationCommand::Try(args)).unwrap_err())
        };
        let why = attempt(&declaration, &object);
        assert!(why.contains("integrations.declared[0].podSets[0].count: column"), "{why}");
        let right = std::fs::read_to_string(&declaration).unwrap().replace("1 +", "1");
        let declaration = write("d.yaml", &right);
        let why = attempt(&declaration, &object);
        assert!(why.contains("it would not be queued: spec.t: required"), "{why}");
        for labels in ["foo", "[foo]", "7"] {
            let text = format!(
                "{{apiVersion: try.example.com/v1, kind: Foo, metadata: {{name: x, labels: {labels}}}}}"
            );
            let why = attempt(&declaration, &write("l.yaml", &text));
            assert_eq!(why, "the object's metadata.labels is not a map", "{labels}");
        }
        let why = attempt(&declaration, &write("p.yaml", "{apiVersion: v1, kind: Pod}"));
        assert!(why.contains("are not declared in"), "{why}");
    }
}
