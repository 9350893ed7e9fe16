//! Every bound of every field, in both versions, on a real API server without a manager: for each entry in the tables of Kueue's API, an object that
//! exceeds it is refused with a message that names the field. `sluice-api` tests that the definitions equal the tables; here the API server enforces
//! them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fmt::Write as _;
use std::fs;
use std::sync::LazyLock;

use futures::StreamExt as _;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, ValidationDirective,
};
use kube::{Client, Error};
use serde_json::{Map, Value, json};
use sluice_api::crds::document;
use sluice_testkit::assets::workspace;
use sluice_testkit::wait::{Progress, eventually};
use sluice_tests::place::DEADLINE;

use crate::bed::definitions;

/// One line of a table.
struct Row {
    kind: String,
    path: String,
    type_: String,
    required: bool,
    constraints: Vec<(String, String)>,
}

/// `a=1; b=2`: values may hold anything but `; `.
fn constraints(text: &str) -> Vec<(String, String)> {
    let pairs = text.split("; ").filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn table(version: &str) -> Vec<Row> {
    let path = workspace().join(format!("crates/api/tests/data/fields-{version}.tsv"));
    let text = fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let mut columns = line.split('\t').map(str::to_owned);
        let mut next = || columns.next().unwrap_or_default();
        let (kind, path, type_, required) = (next(), next(), next(), next());
        Row { kind, path, type_, required: required == "required", constraints: constraints(&next()) }
    };
    text.lines().skip(1).map(row).collect()
}

/// A way to overstep a bound.
struct Violation {
    /// Which bound, for the report.
    bound: String,
    /// What takes the field's place; nothing takes it away.
    value: Option<Value>,
}

fn long(length: &str) -> String {
    "a".repeat(length.parse::<usize>().unwrap() + 1)
}

/// As many different items as are one too many.
fn many(schema: &Value, length: &str) -> Value {
    let count = length.parse::<usize>().unwrap() + 1;
    let items = &schema["items"];
    let distinct = |n: usize| {
        let mut item = minimal(items);
        if items["type"] == "string" {
            return json!(format!("n{n}"));
        }
        for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
            let key = key.as_str().unwrap();
            // An enumerated key has too few values for that; conditions and evictions have free ones.
            item[key] = json!(format!("n{n}"));
        }
        item
    };
    (0..count).map(distinct).collect()
}

/// The ways to overstep one bound of a field.
fn oversteps(row: &Row, schema: &Value, (key, value): &(String, String)) -> Vec<Violation> {
    let one = |value: Value| vec![Violation { bound: format!("{key}={value}"), value: Some(value) }];
    match key.as_str() {
        "maxLength" if schema["enum"].is_null() => one(long(value).into()),
        "minLength" => one("".into()),
        "pattern" if row.type_ == "int-or-string" => one("lots".into()),
        "pattern" => one("-/ ".into()),
        "enum" => one("NoneOfThese".into()),
        "minimum" => one((value.parse::<i64>().unwrap() - 1).into()),
        "maximum" => one((value.parse::<i64>().unwrap() + 1).into()),
        "maxItems" => one(many(schema, value)),
        "minItems" => one(json!([])),
        "maxProperties" => {
            let count = value.parse::<usize>().unwrap() + 1;
            one((0..count).map(|n| (format!("k{n}"), Value::from("v"))).collect::<Map<_, _>>().into())
        }
        "items.maxLength" => one(json!([long(value)])),
        "items.pattern" => one(json!(["-/ "])),
        "items.minimum" => one(json!([value.parse::<i64>().unwrap() - 1])),
        "x-kubernetes-list-type" if value == "set" => one(json!(["a", "a"])),
        "x-kubernetes-list-type" if value == "map" => {
            let item = minimal(&schema["items"]);
            one(json!([item, item]))
        }
        _ => Vec::new(),
    }
}

/// The least that a schema takes.
fn minimal(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|names| names.first()) {
        return first.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return 1.into();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "boolean" => true.into(),
        "integer" | "number" => 1.into(),
        "string" if schema["format"] == "date-time" => "2026-01-02T03:04:05Z".into(),
        "string" => "a".into(),
        "array" => {
            let count = schema["minItems"].as_u64().unwrap_or(0);
            (0..count).map(|_| minimal(&schema["items"])).collect()
        }
        _ => {
            let mut object = Map::new();
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap();
                object.insert(name.to_owned(), minimal(&schema["properties"][name]));
            }
            object.into()
        }
    }
}

/// Puts a value where a path of the table leads, making what is above it.
fn put(target: &mut Value, schema: &Value, path: &[&str], value: Option<Value>) {
    let Some((first, rest)) = path.split_first() else {
        *target = value.unwrap_or_default();
        return;
    };
    let (name, list) = first.strip_suffix("[]").map_or((*first, false), |name| (name, true));
    if rest.is_empty() && value.is_none() {
        target.as_object_mut().unwrap().remove(name);
        return;
    }
    let child = &schema["properties"][name];
    let (inner, below) = if list { (child["items"].clone(), true) } else { (child.clone(), false) };
    let mut made = minimal(&inner);
    put(&mut made, &inner, rest, value);
    if !target.is_object() {
        *target = json!({});
    }
    target[name] = if below { json!([made]) } else { made };
}

fn schema_at<'a>(schema: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(schema, |schema, part| match part.strip_suffix("[]") {
        Some(name) => &schema["properties"][name]["items"],
        None => &schema["properties"][*part],
    })
}

/// One request, and what its refusal has to name.
struct Case {
    kind: String,
    version: &'static str,
    path: String,
    bound: String,
    object: Value,
    status: bool,
}

/// The definitions, generated once: that takes a while.
static DEFINITIONS: LazyLock<Vec<Value>> =
    LazyLock::new(|| sluice_api::crds().iter().map(document).collect());

fn definition(kind: &str) -> &'static Value {
    DEFINITIONS.iter().find(|crd| crd["spec"]["names"]["kind"] == kind).unwrap()
}

fn schema_of(kind: &str, version: &str) -> &'static Value {
    let versions = definition(kind)["spec"]["versions"].as_array().unwrap();
    let found = versions.iter().find(|v| v["name"] == version).unwrap();
    &found["schema"]["openAPIV3Schema"]
}

fn cases(version: &'static str) -> Vec<Case> {
    let mut cases = Vec::new();
    for row in table(version) {
        let root = schema_of(&row.kind, version);
        let path: Vec<&str> = row.path.split('.').collect();
        let schema = schema_at(root, &path);
        assert!(schema.is_object(), "{} {}", row.kind, row.path);
        let mut wrong: Vec<Violation> =
            row.constraints.iter().flat_map(|constraint| oversteps(&row, schema, constraint)).collect();
        // A default fills in what is missing; the spec and status of a kind may be left out as a whole.
        if row.required && schema["default"].is_null() && path.len() > 1 {
            wrong.push(Violation { bound: "required".to_owned(), value: None });
        }
        for Violation { bound, value } in wrong {
            let mut object = minimal(root);
            put(&mut object, root, &path, value);
            object["apiVersion"] = format!("kueue.x-k8s.io/{version}").into();
            object["kind"] = row.kind.as_str().into();
            object["metadata"] = json!({"name": "bound"});
            let status = path[0] == "status";
            cases.push(Case {
                kind: row.kind.clone(),
                version,
                path: row.path.clone(),
                bound,
                object,
                status,
            });
        }
    }
    cases
}

fn api(client: &Client, case: &Case) -> Api<DynamicObject> {
    let spec = &definition(&case.kind)["spec"];
    let kind = GroupVersionKind::gvk("kueue.x-k8s.io", case.version, &case.kind);
    let plural = spec["names"]["plural"].as_str().unwrap();
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    if spec["scope"] == "Namespaced" {
        Api::namespaced_with(client.clone(), "default", &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

/// The last name in a path: how messages end that name the field.
fn leaf(path: &str) -> &str {
    path.trim_end_matches("[]").rsplit(['.']).next().unwrap_or_default()
}

/// What is wrong with the answer to a case, if anything.
async fn verdict(client: &Client, case: &Case) -> Option<String> {
    let api = api(client, case);
    let answer = if case.status {
        let params = PatchParams {
            dry_run: true,
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        api.patch_status("bound", &params, &Patch::Merge(json!({"status": case.object["status"]}))).await
    } else {
        let object: DynamicObject = serde_json::from_value(case.object.clone()).unwrap();
        api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await
    };
    let what = format!("{} {} {} {}", case.version, case.kind, case.path, shortened(&case.bound));
    match answer {
        Err(Error::Api(status)) if [400, 422].contains(&status.code) => {
            let named = status.message.contains(leaf(&case.path));
            (!named).then(|| format!("{what}: the message does not name it: {}", shortened(&status.message)))
        }
        Err(error) => Some(format!("{what}: {error}")),
        Ok(_) => Some(format!("{what}: should be refused")),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}

/// The objects whose status is written to, stored by the API server in the version of the cases.
async fn make_bases(client: &Client, cases: &[Case]) {
    let mut made = Vec::new();
    for case in cases.iter().filter(|case| case.status) {
        if made.contains(&&case.kind) {
            continue;
        }
        made.push(&case.kind);
        let mut base = minimal(schema_of(&case.kind, "v1beta2"));
        base["apiVersion"] = "kueue.x-k8s.io/v1beta2".into();
        base["kind"] = case.kind.as_str().into();
        base["metadata"] = json!({"name": "bound"});
        let stored = Case { kind: case.kind.clone(), version: "v1beta2", object: base, ..blank() };
        let api = api(client, &stored);
        let object: DynamicObject = serde_json::from_value(stored.object.clone()).unwrap();
        eventually(&format!("a {}", case.kind), DEADLINE, || async {
            match api.create(&PostParams::default(), &object).await {
                Err(Error::Api(status)) if status.code == 404 => Ok(Progress::NotYet(status.message)),
                answer => Ok(Progress::Done(answer.map(drop)?)),
            }
        })
        .await
        .unwrap();
    }
}

fn blank() -> Case {
    Case {
        kind: String::new(),
        version: "v1beta2",
        path: String::new(),
        bound: String::new(),
        object: Value::Null,
        status: false,
    }
}

#[tokio::test]
async fn every_bound_of_every_field_is_kept_and_its_refusal_names_the_field() {
    let client = definitions().await.client().await.unwrap();
    let new = cases("v1beta2");
    make_bases(&client, &new).await;
    let all: Vec<Case> = new.into_iter().chain(cases("v1beta1")).collect();
    assert!(all.len() > 500, "{}", all.len());
    let mut report = String::new();
    let mut verdicts = futures::stream::iter(&all).map(|case| verdict(&client, case)).buffer_unordered(8);
    while let Some(verdict) = verdicts.next().await {
        if let Some(verdict) = verdict {
            writeln!(report, "{verdict}").unwrap();
        }
    }
    println!("{} bounds", all.len());
    assert!(report.is_empty(), "{report}");
}
