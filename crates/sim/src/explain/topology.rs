//! What is short on the nodes: the level, the domains, how many pods would fit where; and which laxer wish would be met.

use serde::Serialize;
use serde_json::{Value, json};
use sluice_api::labels::{
    POD_SET_PREFERRED_TOPOLOGY, POD_SET_REQUIRED_TOPOLOGY, POD_SET_UNCONSTRAINED_TOPOLOGY,
};
use sluice_core::{LevelFits, Refusal};
use sluice_engine::{Kind, ObjectRef, PodSetFits};

use super::finding::{Code, Finding, Help};
use super::patch::{Patch, difference, patch_of};
use super::view::View;
use crate::json::text;
use crate::simulation::Simulation;

/// Where the pods of a pod set would fit on the nodes of a flavor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyFit {
    /// The pod set.
    pub pod_set: String,
    /// The flavor.
    pub flavor: String,
    /// How many pods it has.
    pub pods: i64,
    /// `required`, `preferred` or `unconstrained`.
    pub wish: &'static str,
    /// The level that it asks for.
    pub level: Option<String>,
    /// By level, from the highest.
    pub levels: Vec<Domains>,
}

/// The domains of a level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Domains {
    /// The label of the level.
    pub level: String,
    /// How many domains it has.
    pub domains: usize,
    /// How many such pods fit into one of them at most: the largest job of this shape that fits there.
    pub largest: i64,
    /// How many such pods fit into all of them.
    pub all: i64,
    /// The roomiest: `block/rack`, and how many such pods fit.
    pub roomiest: Vec<(String, i64)>,
}

/// What a pod set of a Workload wishes, and at which level.
fn wish(workload: &Value, pod_set: &str) -> (&'static str, Option<String>) {
    let mut sets = workload["spec"]["podSets"].as_array().into_iter().flatten();
    let request = sets.find(|set| set["name"] == pod_set).map(|set| &set["topologyRequest"]);
    let level = |field: &str| request.and_then(|r| r[field].as_str()).map(str::to_owned);
    if let Some(level) = level("required") {
        ("required", Some(level))
    } else if let Some(level) = level("preferred") {
        ("preferred", Some(level))
    } else {
        ("unconstrained", level("podSetSliceRequiredTopology"))
    }
}

fn domains(level: &LevelFits) -> Domains {
    Domains {
        level: level.level.to_string(),
        domains: level.domains,
        largest: level.largest(),
        all: level.pods,
        roomiest: level.roomiest.iter().map(|(path, pods)| (path.join("/"), *pods)).collect(),
    }
}

/// What the engine counted, with what was wished.
pub(super) fn fits(workload: &Value, fits: &[PodSetFits]) -> Vec<TopologyFit> {
    fits.iter()
        .map(|fit| {
            let (wish, level) = wish(workload, &fit.pod_set);
            TopologyFit {
                pod_set: fit.pod_set.to_string(),
                flavor: fit.flavor.to_string(),
                pods: fit.count,
                wish,
                level,
                levels: fit.levels.iter().map(domains).collect(),
            }
        })
        .collect()
}

impl Domains {
    fn line(&self) -> String {
        let each: Vec<String> =
            self.roomiest.iter().map(|(domain, pods)| format!("{pods} in {domain}")).collect();
        format!(
            "{} ({} domain(s)): at most {} pod(s) of this shape in one, {} in all; {}",
            self.level,
            self.domains,
            self.largest,
            self.all,
            if each.is_empty() { "none has room".to_owned() } else { each.join(", ") }
        )
    }
}

impl TopologyFit {
    /// What is short, with what would be met. `why` is the engine's own message, with why nodes were left out.
    pub(super) fn finding(&self, why: Option<&str>) -> Finding {
        let level = self.level.as_ref().and_then(|level| self.levels.iter().find(|l| l.level == *level));
        let wished = match (self.wish, &self.level) {
            ("unconstrained", _) | (_, None) => "anywhere".to_owned(),
            (wish, Some(level)) => format!("in one domain of the level {level} ({wish})"),
        };
        let most = match (self.wish, level) {
            ("required", Some(level)) => level.largest,
            _ => self.levels.first().map_or(0, |level| level.all),
        };
        let text = format!(
            "the {} pods of pod set {} are to be {wished} on nodes of flavor {}, where {most} fit now",
            self.pods, self.pod_set, self.flavor
        );
        let mut finding = Finding::new(Code::TopologyShort, text);
        for level in &self.levels {
            finding = finding.detail(level.line());
        }
        finding =
            finding.detail("these counts are of what is free; selectors and taints leave fewer".to_owned());
        if let Some(why) = why {
            finding = finding.detail(why.to_owned());
        }
        finding
    }

    /// Whether a laxer wish can be met with what is free.
    fn has_room(&self, wish: &str, level: &str) -> bool {
        let of = self.levels.iter().find(|l| l.level == level);
        match wish {
            "preferred" => self.levels.first().is_some_and(|top| top.all >= self.pods),
            _ => of.is_some_and(|of| of.largest >= self.pods),
        }
    }
}

/// That a flavor's topology, or that it has none, contradicts what a pod set asks for.
pub(super) fn mismatch(
    view: &View<'_>,
    workload: &Value,
    set: &str,
    (flavor, refusal): (&str, &Refusal),
) -> Finding {
    let (_, level) = wish(workload, set);
    let topology = view.cluster(Kind::ResourceFlavor, flavor).map(|f| text(&f["spec"]["topologyName"]));
    let topology = topology.unwrap_or_default();
    let levels = view.cluster(Kind::Topology, topology).and_then(|t| t["spec"]["levels"].as_array());
    let levels: Vec<&str> = levels.into_iter().flatten().map(|level| text(&level["nodeLabel"])).collect();
    let (text, help) = match refusal {
        Refusal::WithoutTopology { .. } => (
            format!("pod set {set} asks for nodes by topology, and flavor {flavor} has no topology"),
            format!(
                "take the topology annotations out of the pod template, or give the flavor {flavor} a topology (topologyName)"
            ),
        ),
        Refusal::OnlyTopology { .. } => (
            format!(
                "pod set {set} asks for no topology, and flavor {flavor} gives nodes by the topology {topology} only"
            ),
            format!(
                "give the pod template the annotation {POD_SET_UNCONSTRAINED_TOPOLOGY}: \"true\", or another one of topology"
            ),
        ),
        Refusal::LevelMissing { .. } => (
            format!(
                "pod set {set} asks for the level {}, which the topology {topology} of flavor {flavor} does not have",
                level.as_deref().unwrap_or("of its slices")
            ),
            format!("name one of the levels of the topology {topology} instead: {}", levels.join(", ")),
        ),
        _ => (
            format!("the nodes of flavor {flavor} are not known by its topology {topology}"),
            format!(
                "create the Topology {topology}, or name another one in topologyName of the flavor {flavor}"
            ),
        ),
    };
    Finding::new(Code::TopologyMismatch, text).with(Help::words(help))
}

/// The laxer wishes that there is room for: each higher level, the nearest first, and `preferred`.
pub(super) fn laxer(
    simulation: &Simulation,
    job: &ObjectRef,
    fits: &[TopologyFit],
) -> Vec<(String, Vec<Patch>)> {
    let Kind::Job(kind) = job.kind else { return Vec::new() };
    let Some(value) = simulation.object(job) else { return Vec::new() };
    let mut wishes: Vec<(&'static str, String, String)> = Vec::new();
    for fit in fits.iter().filter(|fit| fit.wish == "required") {
        let Some(own) = &fit.level else { continue };
        let Some(at) = fit.levels.iter().position(|l| l.level == *own) else { continue };
        let higher = fit.levels[..at].iter().rev().find(|l| fit.has_room("required", &l.level));
        wishes.extend(higher.map(|l| ("required", own.clone(), l.level.clone())));
        if fit.has_room("preferred", own) {
            wishes.push(("preferred", own.clone(), own.clone()));
        }
    }
    wishes.dedup();
    let help = |(wish, own, level): (&'static str, String, String)| {
        let mut changed = value.clone();
        for group in sluice_jobs::pod_groups(kind, value) {
            let Some(template) = changed.pointer_mut(&group.pointer) else { continue };
            let Some(annotations) = template["metadata"]["annotations"].as_object_mut() else { continue };
            if annotations.get(POD_SET_REQUIRED_TOPOLOGY).map(text) != Some(&*own) {
                continue;
            }
            annotations.remove(POD_SET_REQUIRED_TOPOLOGY);
            let key =
                if wish == "preferred" { POD_SET_PREFERRED_TOPOLOGY } else { POD_SET_REQUIRED_TOPOLOGY };
            annotations.insert(key.to_owned(), json!(level));
        }
        let change = difference(value, &changed);
        if change.as_object().is_none_or(serde_json::Map::is_empty) {
            return None;
        }
        let words = if wish == "preferred" {
            format!("ask for {own} as preferred instead of required")
        } else {
            format!("ask for one {level} (a higher level) instead of one {own}")
        };
        // The Workload of a job that waits is kept when only an annotation changes: both are changed.
        let uid = text(&value["metadata"]["uid"]);
        let mut patches = vec![patch_of(job, change)];
        for workload in simulation.workloads_of(uid) {
            let mut changed = workload.clone();
            for set in changed["spec"]["podSets"].as_array_mut().into_iter().flatten() {
                let request = &mut set["topologyRequest"];
                if request["required"] == *own {
                    request["required"] = Value::Null;
                    request[wish] = json!(level);
                    request.as_object_mut()?.retain(|_, value| !value.is_null());
                }
            }
            let reference = crate::object::reference(Kind::Workload, workload);
            patches.push(patch_of(&reference, difference(workload, &changed)));
        }
        Some((words, patches))
    };
    wishes.into_iter().filter_map(help).collect()
}
