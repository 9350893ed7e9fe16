//! `integrations.declared`: a section that Kueue does not have; job kinds that the configuration describes.
//!
//! Only the form is read and checked here. `sluice-jobs` compiles the expressions when the kinds are declared.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::reader::{Errors, Reader, report};
use crate::job::JobKind;
use crate::names::{dns1123_label_error, dns1123_subdomain_error, qualified_name_error};

/// Most kinds that are declared.
const MAX_KINDS: usize = 32;
/// Most pod sets of one kind (docs/reference/01-api.md 1.4).
const MAX_POD_SETS: usize = 18;
/// Longest path, in bytes.
const MAX_PATH: usize = 256;

/// One entry of `integrations.declared`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredKind {
    /// The API group.
    pub group: String,
    /// The API version inside the group.
    pub version: String,
    /// The kind's name.
    pub kind: String,
    /// The plural resource name; the kind's name in lower case and an `s` unless it says so.
    pub plural: String,
    /// How it is suspended.
    pub suspend: DeclaredSuspend,
    /// Its pods.
    pub pod_sets: Vec<DeclaredPodSet>,
    /// A CEL expression: whether it ended; without one it never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// A CEL expression: whether it succeeded, once it ended; without one it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<String>,
    /// A CEL expression: what it says of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A CEL expression: whether pods of it run, or are to.
    pub active: String,
    /// A CEL expression: whether all its pods are ready or succeeded; without one, whether it is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// What its controller writes into its status, by state: what the simulator shows. Without it the kind is not simulated, unless its pods
    /// say what happens: they wait in its place, and it never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub states: Option<DeclaredStates>,
}

impl DeclaredKind {
    /// Its name among the frameworks: `<group>/<kind in lower case>`.
    pub fn framework(&self) -> String {
        format!("{}/{}", self.group, self.kind.to_ascii_lowercase())
    }
}

/// `integrations.declared[].suspend`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredSuspend {
    /// The field that suspends it; `spec.suspend` by default.
    pub path: String,
    /// The value that suspends it, a boolean or a string; `true` by default.
    pub suspended: Value,
    /// The value that lets it run, a boolean, a string, or `null` for no value; `false` by default.
    pub running: Value,
    /// Whether no field suspends it: its pods, of which it is the controller itself, wait for admission in its place, each held by a scheduling
    /// gate. Its pod templates are marked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gates_pods: bool,
}

impl Default for DeclaredSuspend {
    fn default() -> Self {
        Self {
            path: "spec.suspend".to_owned(),
            suspended: Value::Bool(true),
            running: Value::Bool(false),
            gates_pods: false,
        }
    }
}

/// One entry of `integrations.declared[].podSets`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredPodSet {
    /// Its name.
    pub name: String,
    /// The path of its pod template; or `templateExpression`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// A CEL expression that makes its pod template, where the object has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_expression: Option<String>,
    /// The path of its number of pods, 1 where there is no value; or `count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_path: Option<String>,
    /// A CEL expression: its number of pods; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// A CEL expression: how many of its pods ended well and will not come again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaimable: Option<String>,
    /// Whether a job without its template has no such pods; else such a job is not queued.
    pub optional: bool,
    /// The label of a pod with its index in the pod set, for topology-aware scheduling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_index_label: Option<String>,
    /// Where admission puts what it adds, if not into the pod template.
    #[serde(skip_serializing_if = "DeclaredInjection::is_empty")]
    pub inject: DeclaredInjection,
}

/// `integrations.declared[].podSets[].inject`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredInjection {
    /// The path of the node selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<String>,
    /// The path of the list of tolerations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<String>,
    /// The path of the pods' labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// The path of the pods' annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<String>,
}

impl DeclaredInjection {
    /// Whether everything goes into the pod template.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Its paths, by the names of the fields.
    pub fn paths(&self) -> [(&'static str, Option<&str>); 4] {
        [
            ("nodeSelector", self.node_selector.as_deref()),
            ("tolerations", self.tolerations.as_deref()),
            ("labels", self.labels.as_deref()),
            ("annotations", self.annotations.as_deref()),
        ]
    }
}

/// `integrations.declared[].states`: the status that the kind's controller writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredStates {
    /// While its pods run and are ready.
    pub running: Value,
    /// Once it succeeded, if it ends.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub succeeded: Value,
    /// Once it failed, if it ends.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub failed: Value,
}

/// The parts of a path such as `spec.tasks[0].template`. A quoted key is in brackets: `metadata.annotations["example.com/x"]`.
///
/// # Errors
///
/// If the path is empty or longer than 256 bytes, or has a part without a name, an unclosed bracket or an index above 65535.
pub fn path_parts(path: &str) -> Result<Vec<String>, String> {
    if path.is_empty() || path.len() > MAX_PATH {
        return Err(format!("must have 1 to {MAX_PATH} characters"));
    }
    let mut parts = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (part, after) = if let Some(quoted) = rest.strip_prefix("[\"") {
            quoted.split_once("\"]").ok_or("a bracket is not closed")?
        } else if let Some(index) = rest.strip_prefix('[') {
            let (index, after) = index.split_once(']').ok_or("a bracket is not closed")?;
            // As a JSON pointer has it: without a sign or zeros before it.
            if !index.parse::<u16>().is_ok_and(|number| number.to_string() == index) {
                return Err(format!("{index:?} is not an index"));
            }
            (index, after)
        } else {
            let name = if parts.is_empty() { rest } else { rest.strip_prefix('.').unwrap_or("") };
            name.split_at(name.find(['.', '[']).unwrap_or(name.len()))
        };
        if part.is_empty() {
            return Err(format!("cannot be read from {rest:?} on"));
        }
        parts.push(part.to_owned());
        rest = after;
    }
    Ok(parts)
}

/// Reads the list.
pub(super) fn declared(reader: &mut Reader<'_>) -> Option<Vec<DeclaredKind>> {
    Some(reader.objects("declared")?.into_iter().map(kind).collect())
}

fn kind(mut reader: Reader<'_>) -> DeclaredKind {
    let name = reader.string("kind").unwrap_or_default();
    let plural = reader.string("plural").unwrap_or_else(|| format!("{}s", name.to_ascii_lowercase()));
    DeclaredKind {
        group: reader.string("group").unwrap_or_default(),
        version: reader.string("version").unwrap_or_default(),
        plural,
        suspend: reader.object("suspend").map_or_else(DeclaredSuspend::default, suspend),
        pod_sets: reader.objects("podSets").unwrap_or_default().into_iter().map(pod_set).collect(),
        finished: reader.string("finished"),
        success: reader.string("success"),
        message: reader.string("message"),
        active: reader.string("active").unwrap_or_default(),
        ready: reader.string("ready"),
        states: reader.object("states").map(|mut reader| DeclaredStates {
            running: reader.value("running").cloned().unwrap_or_default(),
            succeeded: reader.value("succeeded").cloned().unwrap_or_default(),
            failed: reader.value("failed").cloned().unwrap_or_default(),
        }),
        kind: name,
    }
}

fn suspend(mut reader: Reader<'_>) -> DeclaredSuspend {
    let default = DeclaredSuspend::default();
    let suspended = reader.value("suspended").cloned().unwrap_or(default.suspended);
    let running = if reader.is_null("running") { Value::Null } else { default.running };
    let gates_pods = reader.bool("gatesPods").unwrap_or(false);
    for field in ["path", "suspended", "running"] {
        if gates_pods && (reader.has(field) || reader.is_null(field)) {
            reader.error(field, "has no effect with gatesPods: no field suspends it");
        }
    }
    DeclaredSuspend {
        gates_pods,
        path: reader.string("path").unwrap_or(default.path),
        suspended,
        running: reader.value("running").cloned().unwrap_or(running),
    }
}

fn pod_set(mut reader: Reader<'_>) -> DeclaredPodSet {
    DeclaredPodSet {
        name: reader.string("name").unwrap_or_default(),
        template: reader.string("template"),
        template_expression: reader.string("templateExpression"),
        count_path: reader.string("countPath"),
        count: reader.string("count"),
        reclaimable: reader.string("reclaimable"),
        optional: reader.bool("optional").unwrap_or(false),
        pod_index_label: reader.string("podIndexLabel"),
        inject: reader.object("inject").map_or_else(DeclaredInjection::default, |mut reader| {
            DeclaredInjection {
                node_selector: reader.string("nodeSelector"),
                tolerations: reader.string("tolerations"),
                labels: reader.string("labels"),
                annotations: reader.string("annotations"),
            }
        }),
    }
}

/// Checks the form of the declarations.
pub(super) fn check(kinds: &[DeclaredKind], errors: &Errors) {
    const PATH: &str = "integrations.declared";
    if kinds.len() > MAX_KINDS {
        report(errors, PATH, format!("too many: {}: must have at most {MAX_KINDS} items", kinds.len()));
    }
    let mut seen = BTreeSet::new();
    for (index, kind) in kinds.iter().enumerate() {
        let place = InFile { path: format!("{PATH}[{index}]"), errors };
        let framework = kind.framework();
        if JobKind::ALL.iter().any(|built| built.framework() == framework || same(*built, kind)) {
            place.error("kind", format!("{:?} of {:?} is built in", kind.kind, kind.group));
        } else if !seen.insert(framework) {
            place.error("kind", format!("{:?} of {:?} is declared twice", kind.kind, kind.group));
        }
        one(kind, &place);
    }
}

fn same(built: JobKind, kind: &DeclaredKind) -> bool {
    built.group() == kind.group && built.kind().eq_ignore_ascii_case(&kind.kind)
}

/// Where a declaration stands in the file.
struct InFile<'a> {
    path: String,
    errors: &'a Errors,
}

impl InFile<'_> {
    fn error(&self, field: &str, message: impl Into<String>) {
        report(self.errors, &format!("{}.{field}", self.path), message);
    }

    /// Checks a path; returns its parts if it is valid.
    fn path(&self, field: &str, path: &str) -> Option<Vec<String>> {
        path_parts(path).map_err(|why| self.error(field, format!("invalid value {path:?}: {why}"))).ok()
    }
}

fn one(kind: &DeclaredKind, place: &InFile<'_>) {
    // The kinds of Kubernetes itself have groups without a dot, and controllers that no declaration describes.
    if let Some(why) = dns1123_subdomain_error(&kind.group) {
        place.error("group", format!("invalid value {:?}: {why}", kind.group));
    } else if !kind.group.contains('.') || kind.group == "kueue.x-k8s.io" {
        place.error(
            "group",
            format!("invalid value {:?}: must be the group of a custom resource", kind.group),
        );
    }
    for (field, name) in [("version", &kind.version), ("plural", &kind.plural)] {
        if let Some(why) = dns1123_label_error(name) {
            place.error(field, format!("invalid value {name:?}: {why}"));
        }
    }
    let is_name = kind.kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.kind.len() <= 63
        && kind.kind.chars().all(|letter| letter.is_ascii_alphanumeric());
    if !is_name {
        place.error(
            "kind",
            format!("invalid value {:?}: must be the name of a kind, as in \"Job\"", kind.kind),
        );
    }
    if kind.active.is_empty() {
        place.error("active", "required: an expression that says whether its pods run");
    }
    if kind.finished.is_none() {
        for (field, _) in
            [("success", &kind.success), ("message", &kind.message)].iter().filter(|(_, it)| it.is_some())
        {
            place.error(field, "has no effect without finished");
        }
    }
    check_suspend(&kind.suspend, place);
    pod_sets(kind, place);
    if kind.suspend.gates_pods {
        check_gated(kind, place);
    }
    if let Some(states) = &kind.states {
        let ends = kind.finished.is_some();
        let fields = [
            ("running", &states.running, true),
            ("succeeded", &states.succeeded, ends),
            ("failed", &states.failed, ends),
        ];
        for (field, state, needed) in fields {
            if !state.is_object() && (needed || !state.is_null()) {
                place.error(&format!("states.{field}"), "must be an object: the status in this state");
            }
        }
    }
}

/// Checks a kind whose pods wait for admission themselves: pods are read for the requests of others, and templates carry marks.
fn check_gated(kind: &DeclaredKind, place: &InFile<'_>) {
    if kind.ready.is_some() {
        place.error("ready", "has no effect with suspend.gatesPods: its pods say whether they are ready");
    }
    for (index, pod_set) in kind.pod_sets.iter().enumerate() {
        let field = |name: &str| format!("podSets[{index}].{name}");
        if pod_set.reclaimable.is_some() {
            // A removed pod may come back without another quota check.
            place.error(
                &field("reclaimable"),
                "has no effect with suspend.gatesPods: its pods say what has ended",
            );
        }
        for (name, path) in pod_set.inject.paths() {
            let of_marks = matches!(name, "labels" | "annotations");
            if path.is_some() && !of_marks {
                place.error(&field(&format!("inject.{name}")), "has no effect with suspend.gatesPods");
            } else if path.is_none() && of_marks && pod_set.template_expression.is_some() {
                place.error(
                    &field(&format!("inject.{name}")),
                    "required for the marks of pods that are gated",
                );
            }
        }
        if pod_set.pod_index_label != kind.pod_sets[0].pod_index_label {
            place.error(&field("podIndexLabel"), "must be the same in all pod sets with suspend.gatesPods");
        }
    }
}

fn check_suspend(suspend: &DeclaredSuspend, place: &InFile<'_>) {
    if let Some(parts) = place.path("suspend.path", &suspend.path) {
        if parts.first().is_none_or(|first| first != "spec") || parts.len() < 2 {
            place.error("suspend.path", "must be a field of the spec");
        } else if parts.iter().any(|part| part.parse::<usize>().is_ok()) {
            place.error("suspend.path", "must not lead through a list");
        }
    }
    if !(suspend.suspended.is_boolean() || suspend.suspended.is_string()) {
        place.error("suspend.suspended", "must be a boolean or a string");
    }
    if !(suspend.running.is_boolean() || suspend.running.is_string() || suspend.running.is_null()) {
        place.error("suspend.running", "must be a boolean, a string or null");
    }
    if suspend.running == suspend.suspended {
        place.error("suspend.running", "must not be the value that suspends");
    }
}

fn pod_sets(kind: &DeclaredKind, place: &InFile<'_>) {
    if kind.pod_sets.is_empty() || kind.pod_sets.len() > MAX_POD_SETS {
        place.error("podSets", format!("must have 1 to {MAX_POD_SETS} items"));
    }
    // Two pod sets with the same field would overwrite each other.
    let mut written = BTreeMap::new();
    if !kind.suspend.gates_pods {
        written.insert(path_parts(&kind.suspend.path).unwrap_or_default(), "suspend.path".to_owned());
    }
    let mut names = BTreeSet::new();
    for (index, pod_set) in kind.pod_sets.iter().enumerate() {
        let field = format!("podSets[{index}]");
        if let Some(why) = dns1123_label_error(&pod_set.name) {
            place.error(&format!("{field}.name"), format!("invalid value {:?}: {why}", pod_set.name));
        } else if !names.insert(&pod_set.name) {
            place.error(&format!("{field}.name"), format!("duplicate value {:?}", pod_set.name));
        }
        if pod_set.template.is_some() == pod_set.template_expression.is_some() {
            place.error(&format!("{field}.template"), "give either template or templateExpression");
        }
        if pod_set.count.is_some() && pod_set.count_path.is_some() {
            place.error(&format!("{field}.count"), "give either count or countPath");
        }
        if pod_set.optional && pod_set.template.is_none() {
            place.error(&format!("{field}.optional"), "needs the path of a template");
        }
        if let Some(path) = &pod_set.count_path {
            place.path(&format!("{field}.countPath"), path);
        }
        if let Some(why) = pod_set.pod_index_label.as_deref().and_then(qualified_name_error) {
            place.error(&format!("{field}.podIndexLabel"), why);
        }
        let template = (String::from("template"), pod_set.template.as_deref());
        let injected = pod_set.inject.paths().map(|(name, path)| (format!("inject.{name}"), path));
        for (name, path) in std::iter::once(template).chain(injected) {
            let name = format!("{field}.{name}");
            let Some(parts) = path.and_then(|path| place.path(&name, path)) else { continue };
            if let Some(other) = overlapping(&written, &parts) {
                place.error(&name, format!("writes where {other} does"));
            }
            if name.contains("inject") && parts.iter().any(|part| part.parse::<usize>().is_ok()) {
                place.error(&name, "must not lead through a list");
            }
            if parts.first().is_none_or(|first| first != "spec") || parts.len() < 2 {
                place.error(&name, "must be a field of the spec");
            }
            written.insert(parts, name);
        }
        if pod_set.template_expression.is_some() && !kind.suspend.gates_pods {
            for (name, path) in pod_set.inject.paths() {
                if path.is_none() && matches!(name, "nodeSelector" | "tolerations") {
                    place.error(
                        &format!("{field}.inject.{name}"),
                        "required where no path leads to a template",
                    );
                }
            }
        }
    }
}

/// The written field at a path, above it or below it.
fn overlapping<'a>(written: &'a BTreeMap<Vec<String>, String>, parts: &[String]) -> Option<&'a str> {
    let found = written.iter().find(|(other, _)| other.starts_with(parts) || parts.starts_with(other));
    found.map(|(_, field)| field.as_str())
}
