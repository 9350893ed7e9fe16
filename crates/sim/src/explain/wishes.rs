//! Topology requests of a pod set that contradict the flavors or cannot be met; and other requests instead, as patches.

use serde_json::{Map, Value, json};
use sluice_api::labels::{
    POD_SET_PREFERRED_TOPOLOGY, POD_SET_REQUIRED_TOPOLOGY, POD_SET_SLICE_REQUIRED_TOPOLOGY,
    POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS, POD_SET_UNCONSTRAINED_TOPOLOGY,
};
use sluice_core::Refusal;
use sluice_engine::{Kind, ObjectRef};

use super::advice::Advice;
use super::finding::{Code, Finding, Help};
use super::patch::{Patch, difference, patch_of};
use super::topology::{TopologyFit, layers, slices, wish};
use super::view::View;
use crate::json::text;
use crate::simulation::Simulation;

/// Another wish.
enum Change<'a> {
    /// A pod set that asks for one level asks for another one, `required` or `preferred`.
    Level { from: &'a str, to: (&'a str, &'a str) },
    /// The slices of a pod set are to be in one domain of another level each.
    Slices { from: &'a str, to: &'a str },
    /// Any nodes do, of a flavor with a topology.
    Unconstrained,
    /// No topology request.
    Nothing,
}

/// The annotation of a wish.
fn annotation(wish: &str) -> &'static str {
    if wish == "preferred" { POD_SET_PREFERRED_TOPOLOGY } else { POD_SET_REQUIRED_TOPOLOGY }
}

impl Change<'_> {
    /// In the annotations of a pod template.
    fn annotate(&self, annotations: &mut Map<String, Value>) {
        let asks = [POD_SET_REQUIRED_TOPOLOGY, POD_SET_PREFERRED_TOPOLOGY];
        match self {
            Self::Level { from, to: (wish, level) } => {
                let own = asks.into_iter().find(|key| annotations.get(*key).map(text) == Some(*from));
                if let Some(own) = own {
                    annotations.remove(own);
                    annotations.insert(annotation(wish).to_owned(), json!(level));
                }
            }
            Self::Slices { from, to } => {
                let own = annotations.get_mut(POD_SET_SLICE_REQUIRED_TOPOLOGY);
                if let Some(own) = own.filter(|own| text(own) == *from) {
                    *own = json!(to);
                }
                if let Some(layers) = annotations.get_mut(POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS)
                    && let Some(others) = with_another_level(text(layers), from, to)
                {
                    *layers = json!(others);
                }
            }
            Self::Unconstrained => {
                annotations.insert(POD_SET_UNCONSTRAINED_TOPOLOGY.to_owned(), json!("true"));
            }
            Self::Nothing => annotations
                .retain(|key, _| !asks.contains(&key.as_str()) && key != POD_SET_UNCONSTRAINED_TOPOLOGY),
        }
    }
}

/// The layers of slices in an annotation, with another level in place of this one; nothing if no layer has it.
fn with_another_level(layers: &str, from: &str, to: &str) -> Option<String> {
    let mut layers: Value = serde_json::from_str(layers).ok()?;
    let layer = layers.as_array_mut()?.iter_mut().find(|layer| layer["topology"] == *from)?;
    layer["topology"] = json!(to);
    Some(layers.to_string())
}

/// The patches of a job's objects with another topology request; nothing if it has no such request. Its Workload follows as long as it waits.
fn changed(simulation: &Simulation, objects: &[ObjectRef], change: &Change<'_>) -> Option<Vec<Patch>> {
    let patch = |job| Some(patch_of(job, of_object(job, simulation.object(job)?, change)?));
    objects.iter().map(patch).collect()
}

/// The merge patch of one object.
fn of_object(job: &ObjectRef, value: &Value, change: &Change<'_>) -> Option<Value> {
    let Kind::Job(kind) = job.kind else { return None };
    let mut changed = value.clone();
    for group in sluice_jobs::pod_groups(kind, value) {
        let Some(template) = changed.pointer_mut(&group.pointer) else { continue };
        if !template["metadata"]["annotations"].is_object() {
            if !matches!(change, Change::Unconstrained) {
                continue;
            }
            template["metadata"]["annotations"] = json!({});
        }
        if let Some(annotations) = template["metadata"]["annotations"].as_object_mut() {
            change.annotate(annotations);
        }
    }
    Some(difference(value, &changed)).filter(|merge| merge.as_object().is_some_and(|all| !all.is_empty()))
}

/// Topology requests that the refusing flavors can meet.
pub(super) fn meeting(
    simulation: &Simulation,
    objects: &[ObjectRef],
    refusals: &[&Refusal],
) -> Vec<(String, Vec<Patch>)> {
    let Some(value) = objects.first().and_then(|job| simulation.object(job)) else { return Vec::new() };
    let mut all: Vec<(String, Vec<Patch>)> = Vec::new();
    let mut offer = |text: String, change: &Change<'_>| {
        if let Some(patches) = changed(simulation, objects, change)
            && !all.iter().any(|(known, _)| *known == text)
        {
            all.push((text, patches));
        }
    };
    for refusal in refusals {
        match refusal {
            Refusal::WithoutTopology { .. } | Refusal::NoTopology => {
                offer("starts now if it asks for no topology".to_owned(), &Change::Nothing);
            }
            Refusal::OnlyTopology { .. } => {
                let text =
                    format!("starts now with the annotation {POD_SET_UNCONSTRAINED_TOPOLOGY} of its pods");
                offer(text, &Change::Unconstrained);
            }
            Refusal::LevelMissing { flavor } => {
                let workloads = simulation.workloads_of(text(&value["metadata"]["uid"]));
                let sets = workloads.into_iter().filter_map(|w| w["spec"]["podSets"].as_array());
                let known = levels(&View::Played(simulation), flavor).1;
                let requests = sets.flatten().map(|set| &set["topologyRequest"]);
                for (text, change) in requests.flat_map(|request| instead(request, &known)) {
                    offer(text, &change);
                }
            }
            _ => {}
        }
    }
    all
}

/// Another level in place of each one that a topology request names and a topology does not have: of those that it has, the lowest first.
fn instead<'a>(request: &'a Value, known: &[&'a str]) -> Vec<(String, Change<'a>)> {
    let is_missing = |level: &str| !known.contains(&level);
    let lowest_first = || known.iter().rev().copied();
    let mut all = Vec::new();
    let mut wishes = ["required", "preferred"].into_iter();
    let of_pods = wishes.find_map(|wish| Some((wish, request[wish].as_str()?)));
    if let Some((wish, from)) = of_pods.filter(|(_, from)| is_missing(from)) {
        all.extend(lowest_first().map(|level| {
            let text = format!("starts now if it asks for one {level} instead of one {from} ({wish})");
            (text, Change::Level { from, to: (wish, level) })
        }));
    }
    for (from, _) in layers(request).filter(|(from, _)| is_missing(from)) {
        all.extend(lowest_first().map(|level| {
            let text = format!("starts now if each slice asks for one {level} instead of one {from}");
            (text, Change::Slices { from, to: level })
        }));
    }
    all
}

/// The topology of a flavor, and its levels from the highest.
fn levels<'a>(view: &View<'a>, flavor: &str) -> (&'a str, Vec<&'a str>) {
    let topology = view.cluster(Kind::ResourceFlavor, flavor).map(|f| text(&f["spec"]["topologyName"]));
    let topology = topology.unwrap_or_default();
    let levels = view.cluster(Kind::Topology, topology).and_then(|t| t["spec"]["levels"].as_array());
    (topology, levels.into_iter().flatten().map(|level| text(&level["nodeLabel"])).collect())
}

/// The finding that a flavor's topology, or its absence, contradicts the request of a pod set.
pub(super) fn mismatch(
    view: &View<'_>,
    workload: &Value,
    set: &str,
    (flavor, refusal): (&str, &Refusal),
) -> Finding {
    let (topology, levels) = levels(view, flavor);
    let exists = view.cluster(Kind::Topology, topology).is_some();
    // An alternative request is tried, and offered if it helps.
    let (text, help) = match refusal {
        Refusal::WithoutTopology { .. } => (
            format!("pod set {set} asks for nodes by topology, and flavor {flavor} has no topology"),
            Some((Advice::GiveTopology, format!("give the flavor {flavor} a topology (topologyName)"))),
        ),
        Refusal::OnlyTopology { .. } => (
            format!(
                "pod set {set} requests no topology, but flavor {flavor} assigns nodes only by the topology {topology}"
            ),
            None,
        ),
        Refusal::Ungated { .. } => (
            format!(
                "nothing holds the pods of pod set {set} back until they have their nodes, and flavor {flavor} assigns nodes only by the \
                 topology {topology}"
            ),
            Some((
                Advice::UseFlavorWithoutTopology,
                "give the queue a flavor without a topology, or the declaration of the kind the template of its pods (template)"
                    .to_owned(),
            )),
        ),
        Refusal::LevelMissing { .. } if exists => {
            return level_missing(workload, set, flavor, (topology, &levels));
        }
        Refusal::TopologyUnknown { .. } if exists => {
            return tried_again(&format!("the topology {topology} of flavor {flavor} did not exist; it does now"));
        }
        _ => (
            format!("the topology {topology} of flavor {flavor} does not exist"),
            Some((
                Advice::CreateTopology,
                format!(
                    "create the Topology {topology}, or name another one in topologyName of the flavor {flavor}"
                ),
            )),
        ),
    };
    let finding = Finding::new(Code::TopologyMismatch, text);
    match help {
        Some((advice, help)) => finding.with(Help::words(advice, help)),
        None => finding,
    }
}

/// The finding that what the engine lacked at the last look is there by now.
pub(super) fn tried_again(was: &str) -> Finding {
    let help = Help::words(Advice::AwaitFlavor, "wait: it is tried again");
    Finding::new(Code::TriedAgain, format!("when it was last tried, {was}")).with(help)
}

/// The finding that the topology of a flavor lacks levels that a pod set asks for.
fn level_missing(workload: &Value, set: &str, flavor: &str, (topology, levels): (&str, &[&str])) -> Finding {
    let missing = missing(workload, set, levels);
    if missing.is_empty() {
        let was =
            format!("flavor {flavor} did not have every level that pod set {set} asks for; it does now");
        return tried_again(&was);
    }
    let (several, has) = (missing.len() > 1, levels.join(", "));
    let text = format!(
        "pod set {set} asks for the level{} {}, which the topology {topology} of flavor {flavor} does not have: its levels \
         are {has}",
        if several { "s" } else { "" },
        missing.join(" and ")
    );
    let finding = Finding::new(Code::TopologyMismatch, text);
    if !several {
        // Each other level is tried in its place.
        return finding;
    }
    let help =
        format!("name levels that the topology {topology} has ({has}) in the topology request of the pods");
    finding.with(Help::words(Advice::OtherTopology, help))
}

/// The levels that the topology request of a pod set names and a topology does not have, in words.
fn missing(workload: &Value, set: &str, levels: &[&str]) -> Vec<String> {
    let is_missing = |level: &String| !levels.contains(&level.as_str());
    let (wish, level) = wish(workload, set);
    let of_pods = level.filter(|level| wish != "unconstrained" && is_missing(level));
    let of_slices = slices(workload, set).into_iter().map(|(level, _)| level).filter(is_missing);
    of_pods.into_iter().chain(of_slices.map(|level| format!("{level} (of its slices)"))).collect()
}

/// The laxer wishes that there may be room for, with what is asked for in words: each higher level, the nearest first, and `preferred`; and of slices each
/// higher level up to that of the pod set.
pub(super) fn laxer(
    simulation: &Simulation,
    objects: &[ObjectRef],
    fits: &[TopologyFit],
) -> Vec<(String, Vec<Patch>)> {
    let mut wishes: Vec<(String, Change<'_>)> = Vec::new();
    for fit in fits {
        wishes.extend(of_pods(fit));
        wishes.extend(of_slices(fit));
    }
    let mut all: Vec<(String, Vec<Patch>)> = Vec::new();
    for (words, change) in wishes {
        if !all.iter().any(|(known, _)| *known == words)
            && let Some(patches) = changed(simulation, objects, &change)
        {
            all.push((words, patches));
        }
    }
    all
}

/// Laxer wishes of a pod set that requires one domain.
fn of_pods(fit: &TopologyFit) -> Vec<(String, Change<'_>)> {
    let Some(own) = fit.level.as_deref().filter(|_| fit.wish == "required") else { return Vec::new() };
    let at = fit.levels.iter().position(|level| level.level == own).unwrap_or(0);
    let higher = fit.levels[..at].iter().rev().map(|level| level.level.as_str());
    let mut wishes: Vec<(String, Change<'_>)> = higher
        .filter(|level| fit.has_room("required", level))
        .map(|level| {
            let words = format!("ask for one {level} (a higher level) instead of one {own}");
            (words, Change::Level { from: own, to: ("required", level) })
        })
        .collect();
    if fit.has_room("preferred", own) {
        let words = format!("ask for {own} as preferred instead of required");
        // The levels beyond the next are laxer.
        wishes.insert(wishes.len().min(1), (words, Change::Level { from: own, to: ("preferred", own) }));
    }
    wishes
}

/// Laxer wishes of a pod set with one layer of slices: what fits into a domain is counted in slices as they are, so whether there is room is not known.
fn of_slices(fit: &TopologyFit) -> Vec<(String, Change<'_>)> {
    let [(own, _)] = &fit.slices[..] else { return Vec::new() };
    let place = |level: &str| fit.levels.iter().position(|other| other.level == *level);
    let Some(at) = place(own) else { return Vec::new() };
    let of_pods = fit.level.as_deref().filter(|_| fit.wish != "unconstrained");
    let top = of_pods.and_then(place).unwrap_or(0).min(at);
    let higher = fit.levels[top..at].iter().rev().map(|level| level.level.as_str());
    let wish = |level| {
        let words = format!("ask for one {level} (a higher level) for each slice instead of one {own}");
        (words, Change::Slices { from: own, to: level })
    };
    higher.map(wish).collect()
}
