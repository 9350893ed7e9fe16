//! The shipped declarations (examples/integrations), compared with the fields in their kinds' CRDs.
//!
//! `tests/declared/fields` has their names and types: `'*'` is any key of a map, `'[]'` any item of a list, `any` an object of unknown content.

#![expect(clippy::disallowed_methods, reason = "a test reads its files")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_api::config::{Configuration, DeclaredKind, path_parts};
use sluice_api::job::JobKind;

pub fn read(path: &Path) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Each kind: what it is called there, its folder, its fields.
pub fn shipped() -> Vec<(String, PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = std::fs::read_dir(root.join("../../examples/integrations")).unwrap();
    let folders = folders.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let mut found: Vec<_> = folders
        .map(|folder| {
            let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
            let fields = read(&root.join(format!("tests/declared/fields/{name}.yaml")));
            (name, folder, fields)
        })
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// As the manager reads it at its start.
pub fn declared(declaration: &Value) -> DeclaredKind {
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"declared": [declaration]},
    });
    let (configuration, _) = Configuration::parse(&configuration.to_string()).unwrap();
    sluice_jobs::declare(&configuration).unwrap();
    configuration.integrations.declared[0].clone()
}

/// The type of the field at a path; else the part of the path that is no field.
fn field<'a>(fields: &'a Value, parts: &[String]) -> Result<&'a Value, String> {
    let mut at = fields;
    for part in parts {
        if at == "any" || at == "map" {
            return Ok(at);
        }
        let item = at.get("[]").filter(|_| part.parse::<usize>().is_ok());
        at = at.get(part).or(item).or_else(|| at.get("*")).ok_or_else(|| part.clone())?;
    }
    Ok(at)
}

/// The fields that an expression reads of `self`, as far as they are written down: not beyond a call.
fn reads(expression: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (start, _) in expression.match_indices("self.") {
        let mut rest = &expression[start + "self".len()..];
        let mut parts = Vec::new();
        loop {
            if let Some(index) = rest.strip_prefix('[') {
                // What is in there says which one, and is found by itself.
                parts.push("0".to_owned());
                rest = &index[index.find(']').unwrap() + 1..];
                continue;
            }
            let Some(name) = rest.strip_prefix(".?").or_else(|| rest.strip_prefix('.')) else { break };
            let end = name
                .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
                .unwrap_or(name.len());
            if name[end..].starts_with('(') {
                break;
            }
            parts.push(name[..end].to_owned());
            rest = &name[end..];
        }
        found.push(parts);
    }
    found
}

/// The paths of a declaration, each with the types that its field may have.
fn paths(kind: &DeclaredKind) -> Vec<(String, &[&str])> {
    let mut paths: Vec<(String, &[&str])> = Vec::new();
    if !kind.suspend.gates_pods {
        let types: &[&str] = if kind.suspend.suspended.is_boolean() { &["boolean"] } else { &["string"] };
        paths.push((kind.suspend.path.clone(), types));
    }
    for pod_set in &kind.pod_sets {
        paths.extend(pod_set.template.clone().map(|path| (path, &["any"][..])));
        paths.extend(pod_set.count_path.clone().map(|path| (path, &["integer"][..])));
        for (name, path) in pod_set.inject.paths() {
            let types: &[&str] = if name == "tolerations" { &["list"] } else { &["map", "any"] };
            paths.extend(path.map(|path| (path.to_owned(), types)));
        }
    }
    paths
}

fn expressions(kind: &DeclaredKind) -> Vec<String> {
    let of_all = [&kind.finished, &kind.success, &kind.message, &kind.ready].into_iter().flatten();
    let of_sets = kind.pod_sets.iter().flat_map(|pod_set| {
        [&pod_set.template_expression, &pod_set.count, &pod_set.reclaimable].into_iter().flatten()
    });
    of_all.chain(of_sets).cloned().chain([kind.active.clone()]).collect()
}

/// The fields of an object that its CRD does not have.
pub fn unknown(fields: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) if !fields.is_string() => {
            for (key, value) in map {
                let path = format!("{path}.{key}");
                match fields.get(key).or_else(|| fields.get("*")) {
                    Some(field) => unknown(field, value, &path, found),
                    None => found.push(path),
                }
            }
        }
        Value::Array(items) if !fields.is_string() => {
            for item in items {
                match fields.get("[]") {
                    Some(field) => unknown(field, item, path, found),
                    None => found.push(path.to_owned()),
                }
            }
        }
        value => {
            let right = match fields.as_str().unwrap_or_default() {
                "any" | "map" => value.is_object(),
                "list" => value.is_array(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64(),
                "string" => value.is_string(),
                "quantity" => value.is_string() || value.is_number(),
                _ => false,
            };
            if !right {
                found.push(format!("{path}: {fields}"));
            }
        }
    }
}

#[test]
fn what_a_shipped_declaration_names_is_in_the_crd_of_its_kind() {
    let shipped = shipped();
    let names: Vec<_> = shipped.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["argo-workflow", "cloneset", "virtualmachine"]);
    for (name, folder, fields) in shipped {
        let kind = declared(&read(&folder.join("declaration.yaml")));
        for (path, types) in paths(&kind) {
            let parts = path_parts(&path).unwrap();
            let found =
                field(&fields, &parts).unwrap_or_else(|part| panic!("{name}: {path}: no field {part:?}"));
            assert!(
                types.iter().any(|type_| found == type_),
                "{name}: {path} is {found}, not one of {types:?}"
            );
        }
        let mut read_fields = 0;
        for expression in expressions(&kind) {
            for parts in reads(&expression) {
                let found = field(&fields, &parts);
                assert!(found.is_ok(), "{name}: {expression}: no field {found:?} of {}", parts.join("."));
                read_fields += 1;
            }
        }
        assert!(read_fields > 0, "{name}");
        if let Some(states) = &kind.states {
            for state in [&states.running, &states.succeeded, &states.failed] {
                let mut found = Vec::new();
                if !state.is_null() {
                    unknown(&fields["status"], state, "status", &mut found);
                }
                assert!(found.is_empty(), "{name}: {found:?}");
            }
        }
    }
}

#[test]
fn the_shipped_object_of_a_kind_is_one_of_its_crd_and_can_be_read() {
    for (name, folder, fields) in shipped() {
        let kind = declared(&read(&folder.join("declaration.yaml")));
        let mut object = read(&folder.join("object.yaml"));
        assert_eq!(object["apiVersion"], format!("{}/{}", kind.group, kind.version), "{name}");
        assert_eq!(object["kind"], kind.kind, "{name}");
        let mut found = Vec::new();
        unknown(&fields["spec"], &object["spec"], "spec", &mut found);
        assert!(found.is_empty(), "{name}: {found:?}");
        let kind = JobKind::named(&kind.framework()).unwrap();
        if kind.gathers_pods() {
            object["metadata"]["resourceVersion"] = json!("1");
            let world = crate::testing::World::default();
            object = world.written(kind, sluice_jobs::webhook::Operation::Create, &object);
        }
        let view = sluice_jobs::observe(kind, &object);
        assert_eq!(view.invalid, None, "{name}");
        assert!(view.pod_sets.iter().all(|pod_set| pod_set.count > 0), "{name}");
    }
}

#[test]
fn a_field_that_is_not_there_is_found() {
    let fields =
        json!({"spec": {"a": "boolean", "m": {"*": {"template": "any"}}, "l": {"[]": {"x": "string"}}}});
    let of = |path: &str| field(&fields, &path_parts(path).unwrap()).cloned();
    assert_eq!(of("spec.a"), Ok(json!("boolean")));
    assert_eq!(of("spec.m[\"k\"].template"), Ok(json!("any")));
    assert_eq!(of("spec.l[0].x"), Ok(json!("string")));
    assert_eq!(of("spec.b"), Err("b".to_owned()));
    assert_eq!(of("spec.m.k.templates"), Err("templates".to_owned()));
    let named = |expression: &str| reads(expression).iter().map(|parts| parts.join(".")).collect::<Vec<_>>();
    assert_eq!(
        named(
            "self.status.nodes.exists(n, self.status.nodes[n].type == 'Pod') && self.?spec.?x.orValue(1) > 0"
        ),
        ["status.nodes", "status.nodes.0.type", "spec.x"]
    );
    let mut found = Vec::new();
    unknown(&fields["spec"], &json!({"a": "no", "l": [{"y": 1}], "z": 1}), "spec", &mut found);
    assert_eq!(found, ["spec.a: \"boolean\"", "spec.l.y", "spec.z"]);
}

#[test]
fn a_workflow_is_active_while_pods_run_or_its_nodes_are_not_in_its_status() {
    let (_, folder, _) = shipped().into_iter().find(|(name, ..)| name == "argo-workflow").unwrap();
    let kind = JobKind::named(&declared(&read(&folder.join("declaration.yaml"))).framework()).unwrap();
    let object = read(&folder.join("object.yaml"));
    let seen = |status: Value| {
        let mut object = object.clone();
        object["status"] = status;
        let view = sluice_jobs::observe(kind, &object);
        (view.active, view.invalid)
    };
    let node = |type_: &str, phase: &str| json!({"type": type_, "phase": phase});
    for (status, active) in [
        (Value::Null, false),
        (json!({"phase": "Running"}), false),
        (json!({"phase": "Running", "nodes": {"a": node("Pod", "Pending")}}), true),
        (
            json!({"phase": "Running", "nodes": {"a": node("DAG", "Running"), "b": node("Pod", "Succeeded")}}),
            false,
        ),
        (json!({"phase": "Running", "compressedNodes": "H4sI"}), true),
        (json!({"phase": "Running", "offloadNodeStatusVersion": "fnv:1"}), true),
    ] {
        assert_eq!(seen(status.clone()), (active, None), "{status}");
    }
    // Argo takes the nodes out of a status that is longer.
    let longest = 1 << 20;
    for nodes in [of_pods as fn(usize) -> (String, Value), of_groups] {
        let mut status = json!({"phase": "Running", "nodes": {}});
        let mut length = 0;
        for number in 0.. {
            let (id, node) = nodes(number);
            length += format!("{id:?}:{node},").len();
            if length > longest {
                break;
            }
            status["nodes"][id] = node;
        }
        assert_eq!(seen(status), (false, None));
    }
    let many = (0..20_000).map(|number| (format!("diamond-{number:010}"), node("Pod", "Succeeded")));
    let (active, why) = seen(json!({"phase": "Running", "nodes": many.collect::<serde_json::Map<_, _>>()}));
    assert!(active && why.is_some_and(|why| why.contains("evaluation exceeds the limit of 200000 steps")));
}

/// What the containers of a pod ask for, of the init containers and of the others: a job's first pod set, with the example's spec changed.
fn asked(name: &str, change: impl FnOnce(&mut Value)) -> Result<[Vec<Value>; 2], String> {
    let (_, folder, _) = shipped().into_iter().find(|(one, ..)| one == name).unwrap();
    let kind = JobKind::named(&declared(&read(&folder.join("declaration.yaml"))).framework()).unwrap();
    let mut object = read(&folder.join("object.yaml"));
    change(&mut object["spec"]);
    let view = sluice_jobs::observe(kind, &object);
    if let Some(why) = view.invalid {
        return Err(why);
    }
    let template = json!(view.pod_sets[0].template.as_deref().unwrap());
    Ok(["initContainers", "containers"].map(|list| {
        let containers = template["spec"][list].as_array().into_iter().flatten();
        containers.map(|one| one["resources"].clone()).collect()
    }))
}

#[test]
fn each_pod_of_a_workflow_counts_as_the_largest_of_its_templates() {
    let of = |templates: Value| asked("argo-workflow", |spec| spec["templates"] = templates);
    let cpus = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let step = |name: &str, kind: &str, cpu: &str| json!({"name": name, kind: {"image": "i", "resources": cpus(cpu)}});
    let dag = json!({"name": "all", "dag": {"tasks": [{"name": "a", "template": "large"}]}});
    let both = of(json!([dag, step("small", "container", "1"), step("large", "script", "64")]));
    assert_eq!(both, Ok([vec![cpus("1"), cpus("64")], vec![cpus("1")]]));
    assert_eq!(of(json!([step("only", "script", "64")])), Ok([vec![cpus("64")], vec![cpus("64")]]));
    let bare = json!([{"name": "bare", "container": {"image": "i"}}, step("large", "container", "64")]);
    assert_eq!(of(bare), Ok([vec![json!({}), cpus("64")], vec![json!({})]]));
    assert!(of(json!([dag])).is_err(), "it has no pods that are known");
}

#[test]
fn a_virtual_machine_counts_its_processors_its_memory_and_its_devices() {
    let of = |domain: Value| {
        asked("virtualmachine", |spec| spec["template"]["spec"]["domain"] = domain).map(|[_, asked]| asked)
    };
    let memory = json!({"requests": {"memory": "8Gi"}});
    let cpus = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let both = json!({"requests": {"cpu": "4", "memory": "8Gi"}});
    assert_eq!(
        of(json!({"resources": both, "cpu": {"cores": 8}})),
        Ok(vec![both.clone()]),
        "what it requests"
    );
    let cpu = json!({"cores": 8, "sockets": 2, "threads": 2});
    assert_eq!(of(json!({"resources": memory, "cpu": cpu})), Ok(vec![memory.clone(), cpus("32")]));
    assert_eq!(of(json!({"resources": memory})), Ok(vec![memory.clone(), cpus("1")]));
    let limits = json!({"limits": {"cpu": "2", "memory": "1Gi"}});
    assert_eq!(of(json!({"resources": limits})), Ok(vec![limits]));
    let guest = json!({"cpu": {"cores": 2}, "memory": {"guest": "8Gi"}});
    assert_eq!(of(guest), Ok(vec![json!({}), cpus("2"), memory]));
    let device = |name: &str| json!({"name": name, "deviceName": "nvidia.com/gpu"});
    let devices = json!({"gpus": [device("a"), device("b")], "hostDevices": [device("c")]});
    let found = of(json!({"resources": both, "devices": devices})).unwrap();
    assert_eq!(found[1..], vec![json!({"limits": {"nvidia.com/gpu": "1"}}); 3]);
    assert!(of(json!({"devices": {}})).is_err(), "its size is that of an instance type");
}

/// A node of a Workflow as Argo writes it: a pod that ended.
fn of_pods(number: usize) -> (String, Value) {
    let id = format!("diamond-x7k2p-{number:010}");
    let node = json!({
        "id": id, "name": format!("diamond-x7k2p.train({number}:shard-{number})"), "displayName": format!("train({number}:shard-{number})"),
        "type": "Pod", "templateName": "train", "templateScope": "local/diamond-x7k2p", "phase": "Succeeded",
        "boundaryID": "diamond-x7k2p", "startedAt": "2026-01-01T10:00:00Z", "finishedAt": "2026-01-01T10:05:00Z",
        "progress": "1/1", "hostNodeName": "gke-pool-1-abcdef12-x3k4", "resourcesDuration": {"cpu": 300, "memory": 1200},
        "inputs": {"parameters": [{"name": "shard", "value": number.to_string()}]},
        "outputs": {"exitCode": "0", "artifacts": [{"name": "main-logs", "s3": {"key": format!("diamond-x7k2p/{id}/main.log")}}]},
        "children": [format!("diamond-x7k2p-{:010}", number + 1)],
    });
    (id, node)
}

/// The same: one of no pod, with as little as there is.
fn of_groups(number: usize) -> (String, Value) {
    let id = format!("diamond-x7k2p-{number:010}");
    let node = json!({
        "id": id, "name": format!("diamond-x7k2p[{number}]"), "displayName": format!("[{number}]"), "type": "StepGroup",
        "templateScope": "local/diamond-x7k2p", "phase": "Succeeded", "boundaryID": "diamond-x7k2p",
        "startedAt": "2026-01-01T10:00:00Z", "finishedAt": "2026-01-01T10:05:00Z", "progress": "1/1",
    });
    (id, node)
}
