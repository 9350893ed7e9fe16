//! From a declaration to its adapter.

use serde_json::{Value, json};
use sluice_api::config::{DeclaredKind, DeclaredPodSet, DeclaredStates, FieldError, path_parts};
use sluice_api::job::{CountAt, DeclaredNames, JobKind, PodPlace, PodsAt};

use super::adapter::{Count, Declared, PodSet, Template};
use super::cel::{Budget, Expression, Failure};
use super::places::{Places, pointer};

/// The errors so far.
struct Errors<'a> {
    /// Where the declaration stands in the file.
    path: &'a str,
    found: Vec<FieldError>,
}

impl Errors<'_> {
    fn add(&mut self, field: &str, message: String) {
        self.found.push(FieldError { path: format!("{}.{field}", self.path), message });
    }

    /// Compiles an expression.
    fn expression(&mut self, field: &str, source: Option<&str>) -> Option<Expression> {
        Expression::compile(source?).map_err(|why| self.add(field, why)).ok()
    }

    /// Reads a path whose form was checked when the configuration was read.
    fn parts(&mut self, field: &str, path: &str) -> Vec<String> {
        path_parts(path).map_err(|why| self.add(field, why)).unwrap_or_default()
    }
}

/// Compiles a declaration; an error describes the problem.
pub(super) fn compile(declaration: &DeclaredKind, path: &str) -> Result<Declared, Vec<FieldError>> {
    let mut errors = Errors { path, found: Vec::new() };
    let suspend = errors.parts("suspend.path", &declaration.suspend.path);
    let suspend: Vec<&str> = suspend.iter().map(String::as_str).collect();
    let pod_sets: Vec<_> = declaration
        .pod_sets
        .iter()
        .enumerate()
        .filter_map(|(index, pod_set)| pod_set_of(pod_set, index, &mut errors))
        .collect();
    let finished = errors.expression("finished", declaration.finished.as_deref());
    let success = errors.expression("success", declaration.success.as_deref());
    let message = errors.expression("message", declaration.message.as_deref());
    let active = errors.expression("active", Some(&declaration.active));
    let ready = errors.expression("ready", declaration.ready.as_deref());
    let through_list = pod_sets.iter().any(|pod_set| pod_set.places.lead_through_list());
    if through_list && declaration.pod_sets.iter().any(|pod_set| !pod_set.inject.is_empty()) {
        errors.add("podSets", "inject cannot be used where a template is in a list".to_owned());
    }
    let Some(active) = active.filter(|_| errors.found.is_empty()) else { return Err(errors.found) };
    if declaration.suspend.gates_pods {
        check_sizes(&pod_sets, &mut errors);
    }
    let pods: Vec<PodsAt> = pod_sets.iter().filter_map(described).collect();
    let whole = pods.len() == pod_sets.len() && pods.iter().all(|pods| pods.count != CountAt::ByAdapter);
    let plain = declaration.pod_sets.iter().all(|pod_set| !pod_set.optional && pod_set.inject.is_empty());
    let ungated =
        pod_sets.iter().filter(|pod_set| !declaration.suspend.gates_pods && !pod_set.places.has_gates());
    let ungated: Vec<_> = ungated.map(|pod_set| pod_set.name.as_str()).collect();
    let names = DeclaredNames {
        group: &declaration.group,
        version: &declaration.version,
        kind: &declaration.kind,
        plural: &declaration.plural,
        suspend: &suspend,
        ends: declaration.finished.is_some(),
        suspends_pods: declaration.suspend.gates_pods,
        ungated: &ungated,
        pod_index: declaration
            .pod_sets
            .first()
            .and_then(|pod_set| pod_set.pod_index_label.as_deref())
            .filter(|_| declaration.suspend.gates_pods),
        pods: &pods,
        pods_by_adapter: (!(whole && plain)).then_some(BY_EXPRESSIONS),
    };
    let declared = Declared {
        of: JobKind::declared(&names),
        declaration: declaration.clone(),
        pod_sets,
        through_list,
        finished,
        success,
        message,
        active,
        ready,
    };
    if let Some(states) = &declaration.states {
        check_states(&declared, states, &mut errors);
    }
    if errors.found.is_empty() { Ok(declared) } else { Err(errors.found) }
}

/// Why paths do not say all of the pods of a declared kind.
const BY_EXPRESSIONS: &str =
    "its declaration has expressions, pod sets that may be missing, or other places for what admission adds";

/// The location of a pod set, if a path describes it. It is kept as long as the process runs.
fn described(pod_set: &PodSet) -> Option<PodsAt> {
    let kept = |text: &str| -> &'static str { String::from(text).leak() };
    let Template::At(template) = &pod_set.template else { return None };
    let count = match &pod_set.count {
        Count::One => CountAt::One,
        Count::At(parts) => CountAt::Field(kept(&pointer(parts))),
        Count::Made(_) => CountAt::ByAdapter,
    };
    Some(PodsAt {
        place: PodPlace::Object(kept(&pod_set.name)),
        index: pod_set.pod_index_label.as_deref().map(kept),
        ..PodsAt::one(kept(&pointer(template)), count)
    })
}

fn pod_set_of(pod_set: &DeclaredPodSet, index: usize, errors: &mut Errors<'_>) -> Option<PodSet> {
    let field = |name: &str| format!("podSets[{index}].{name}");
    // All mistakes are found before any is left for the next time.
    let reclaimable = errors.expression(&field("reclaimable"), pod_set.reclaimable.as_deref());
    let counted = errors.expression(&field("count"), pod_set.count.as_deref());
    let template = match (&pod_set.template, &pod_set.template_expression) {
        (Some(path), _) => Template::At(errors.parts(&field("template"), path)),
        (None, made) => Template::Made(
            errors.expression(&field("templateExpression"), Some(made.as_deref().unwrap_or("")))?,
        ),
    };
    let count = match (&pod_set.count_path, &pod_set.count) {
        (Some(path), _) => Count::At(errors.parts(&field("countPath"), path)),
        (None, Some(_)) => Count::Made(counted?),
        (None, None) => Count::One,
    };
    let at = match &template {
        Template::At(parts) => Some(parts.as_slice()),
        Template::Made(_) => None,
    };
    let given = pod_set
        .inject
        .paths()
        .map(|(name, path)| path.map(|path| errors.parts(&field(&format!("inject.{name}")), path)));
    Some(PodSet {
        name: pod_set.name.clone(),
        index,
        places: Places::new(at, given),
        template,
        count,
        reclaimable,
        optional: pod_set.optional,
        pod_index_label: pod_set.pod_index_label.clone(),
    })
}

/// The sizes of pods that wait in the place of their object are fixed by the webhook, which does not see what becomes of a status.
fn check_sizes(pod_sets: &[PodSet], errors: &mut Errors<'_>) {
    for pod_set in pod_sets {
        let template = match &pod_set.template {
            Template::Made(expression) => expression.reads_beside_spec(),
            Template::At(_) => false,
        };
        let (field, count) = match &pod_set.count {
            Count::Made(expression) => ("count", expression.reads_beside_spec()),
            Count::At(parts) => ("countPath", parts.first().is_none_or(|first| first != "spec")),
            Count::One => ("count", false),
        };
        for (field, wrong) in [("templateExpression", template), (field, count)] {
            if wrong {
                let message = "must read nothing but the spec with suspend.gatesPods".to_owned();
                errors.add(&format!("podSets[{}].{field}", pod_set.index), message);
            }
        }
    }
}

/// The states of the declaration have to be recognized by its expressions, as far as that depends on the status alone.
fn check_states(declared: &Declared, states: &DeclaredStates, errors: &mut Errors<'_>) {
    let read = |expression: Option<&Expression>, status: &Value| {
        let object = json!({"metadata": {}, "spec": {}, "status": status});
        match expression?.truth(&object, &Budget::new()) {
            Ok(value) => Some(value),
            Err(Failure::Absent(_)) => None,
            Err(Failure::Wrong(_) | Failure::TooCostly) => Some(false),
        }
    };
    if read(Some(&declared.active), &states.running) == Some(false) {
        errors.add("states.running", "active is not true in this state".to_owned());
    }
    if read(declared.finished.as_ref(), &states.running) == Some(true) {
        errors.add("states.running", "finished is true in this state".to_owned());
    }
    for (field, state, success) in
        [("states.succeeded", &states.succeeded, true), ("states.failed", &states.failed, false)]
    {
        if state.is_null() {
            continue;
        }
        if read(declared.finished.as_ref(), state) == Some(false) {
            errors.add(field, "finished is not true in this state".to_owned());
        }
        if read(declared.success.as_ref(), state) == Some(!success) {
            errors.add(field, format!("success is not {success} in this state"));
        }
    }
}
