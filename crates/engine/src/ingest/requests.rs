//! The request of one pod (docs/reference/06-algorithm.md 6.2): containers, init containers and sidecars, overhead, pod-level resources,
//! defaults from RuntimeClass and LimitRange, exclusions and transformations.

use std::collections::BTreeMap;

use sluice_api::slim::{PodTemplate, Resources, RuntimeClass};
use sluice_core::{Amount, Name};

use super::amounts::{Nano, add, amounts, fill, parse, parsed, product, raise};
use super::limits::{LimitSummary, Limits};
use crate::config::ResourceConfig;

/// What a pod's request depends on besides its template.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// The LimitRanges of the namespace.
    pub limits: &'a LimitSummary,
    /// The RuntimeClasses.
    pub runtime_classes: &'a BTreeMap<Name, RuntimeClass>,
    /// Exclusions and transformations.
    pub resources: &'a ResourceConfig,
}

impl<'a> Surroundings<'a> {
    /// The RuntimeClass of a template's pods: the API server adds to them what it says.
    pub(crate) fn class_of(&self, template: &PodTemplate) -> Option<&'a RuntimeClass> {
        self.runtime_classes.get(template.runtime_class_name.as_deref()?)
    }
}

/// Requests and limits of one container (or of the pod as a whole) after defaulting.
struct Effective {
    requests: Nano,
    /// The limits that it has itself.
    own_limits: Nano,
    /// The limits, with defaults for missing ones, if there are any defaults.
    limits: Option<Nano>,
}

/// docs/reference/06-algorithm.md 6.2, (b) and (c): defaults for what is missing, then limits for missing requests.
fn effective(resources: &Resources, defaults: &Limits) -> Effective {
    let own_limits = parsed(&resources.limits);
    let limits = (!defaults.default.is_empty()).then(|| {
        let mut limits = own_limits.clone();
        fill(&mut limits, &defaults.default);
        limits
    });
    let mut requests = parsed(&resources.requests);
    fill(&mut requests, &defaults.default_request);
    fill(&mut requests, limits.as_ref().unwrap_or(&own_limits));
    Effective { requests, own_limits, limits }
}

/// The request of the pod before exclusions and transformations, and what is wrong with it.
struct PodRequest {
    total: Nano,
    above_own_limits: Vec<String>,
    outside_range: Vec<String>,
    /// Above limits that a LimitRange gives it.
    above_limits: Vec<String>,
}

/// The request of one pod of the template, sorted by resource, or why it cannot be admitted.
pub(crate) fn per_pod(
    template: &PodTemplate,
    path: &str,
    around: Surroundings<'_>,
) -> (Vec<(Name, Amount)>, Option<String>) {
    let mut request = pod_request(template, path, around);
    let invalid = if !request.above_own_limits.is_empty() {
        Some(format!("resources validation failed: {}", aggregate(&request.above_own_limits)))
    } else if !request.outside_range.is_empty() {
        Some(format!(
            "resources didn't satisfy LimitRange constraints: {}",
            aggregate(&request.outside_range)
        ))
    } else if !request.above_limits.is_empty() {
        // A LimitRange with a maximum alone has it as the default limit, too.
        Some(format!("resources validation failed: {}", aggregate(&request.above_limits)))
    } else {
        None
    };
    request.total.retain(|name, _| !around.resources.exclude_prefixes.iter().any(|p| name.starts_with(p)));
    let total = transformed(request.total, around.resources);
    (amounts(&total), invalid)
}

/// Several errors as one text, as Kubernetes writes an aggregate.
fn aggregate(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn pod_request(template: &PodTemplate, path: &str, around: Surroundings<'_>) -> PodRequest {
    let limits = &around.limits.container;
    let mut out = PodRequest {
        total: Nano::new(),
        above_own_limits: Vec::new(),
        outside_range: Vec::new(),
        above_limits: Vec::new(),
    };
    let (mut sidecars, mut most_of_init) = (Nano::new(), Nano::new());
    for (at, container) in template.init_containers.iter().enumerate() {
        let own = effective(&container.resources, limits);
        check(&own, limits, || format!("{path}.initContainers[{at}]"), &mut out);
        let mut here = own.requests;
        add(&mut here, &sidecars);
        if container.sidecar {
            sidecars.clone_from(&here);
        }
        raise(&mut most_of_init, &here);
    }
    for (at, container) in template.containers.iter().enumerate() {
        let own = effective(&container.resources, limits);
        check(&own, limits, || format!("{path}.containers[{at}]"), &mut out);
        if out.total.is_empty() {
            out.total = own.requests;
        } else {
            add(&mut out.total, &own.requests);
        }
    }
    add(&mut out.total, &sidecars);
    raise(&mut out.total, &most_of_init);
    if !template.resources.is_empty() {
        let own = effective(&template.resources, &around.limits.pod);
        check(&own, &around.limits.pod, || path.to_owned(), &mut out);
        // The sum of the containers counts if it is more: a cluster that does not know pod-level resources drops these.
        let of_pods = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
        let whole = own.requests.into_iter().filter(|(name, _)| of_pods(name));
        raise(&mut out.total, &whole.collect());
    } else if around.limits.pod != Limits::default() {
        let whole = Effective { requests: out.total.clone(), own_limits: Nano::new(), limits: None };
        check(&whole, &around.limits.pod, || path.to_owned(), &mut out);
    }
    add(&mut out.total, &overhead(template, around));
    out
}

/// docs/reference/06-algorithm.md 6.2, (a): the template's overhead, else its RuntimeClass's.
fn overhead(template: &PodTemplate, around: Surroundings<'_>) -> Nano {
    if !template.overhead.is_empty() {
        return parsed(&template.overhead);
    }
    around.class_of(template).map(|c| parsed(&c.overhead)).unwrap_or_default()
}

/// `path` is worked out only if something is wrong: nearly all requests are in order.
fn check(own: &Effective, range: &Limits, path: impl Fn() -> String, out: &mut PodRequest) {
    let names = |wrong: &dyn Fn(&str, i128) -> bool| {
        let names: Vec<_> =
            own.requests.iter().filter(|(n, v)| wrong(n, **v)).map(|(n, _)| n.clone()).collect();
        (!names.is_empty()).then(|| format!("{names:?}"))
    };
    let above = |limits: &Nano| {
        let names = names(&|name, v| limits.get(name).is_some_and(|limit| v > *limit))?;
        Some(format!("{}: Invalid value: {names}: requests must not exceed its limits", path()))
    };
    out.above_own_limits.extend(above(&own.own_limits));
    // Without defaults it would say the same again.
    out.above_limits.extend(own.limits.as_ref().and_then(above));
    if let Some(names) = names(&|name, v| range.max.get(name).is_some_and(|max| v > *max)) {
        let path = path();
        out.outside_range
            .push(format!("{path}: Invalid value: {names}: requests must not be above the limitRange max"));
    }
    if let Some(names) = names(&|name, v| range.min.get(name).is_some_and(|min| v < *min)) {
        let path = path();
        out.outside_range
            .push(format!("{path}: Invalid value: {names}: requests must not be below the limitRange min"));
    }
}

/// docs/reference/06-algorithm.md 6.2: outputs of several inputs add up; a negative total is nothing; `Retain` keeps the input.
fn transformed(input: Nano, config: &ResourceConfig) -> Nano {
    if !input.keys().any(|name| config.transformations.contains_key(name)) {
        return input;
    }
    let (mut kept, mut made) = (Nano::new(), Nano::new());
    for (name, amount) in &input {
        let Some(rule) = config.transformations.get(name) else {
            kept.insert(name.clone(), *amount);
            continue;
        };
        let factor = rule
            .multiply_by
            .as_ref()
            .and_then(|by| input.get(by))
            .map_or(*amount, |by| product(*amount, *by));
        for (output, per_unit) in &rule.outputs {
            let entry = made.entry(output.clone()).or_default();
            *entry = entry.saturating_add(product(factor, per_unit.nano()));
        }
        if rule.retain {
            kept.insert(name.clone(), *amount);
        }
    }
    for amount in made.values_mut() {
        *amount = (*amount).max(0);
    }
    add(&mut kept, &made);
    kept
}

/// The amount of one resource in a resource list, for callers that need a single one.
pub(crate) fn amount_in(
    list: &BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    name: &str,
) -> Amount {
    list.get(name).map_or(Amount::ZERO, |text| super::amounts::amount(name, parse(text)))
}
