//! What the nodes lack: the level, the domains, how many pods would fit where; and which weaker topology request would be met.

use serde::Serialize;
use serde_json::Value;
use sluice_core::LevelFits;
use sluice_engine::PodSetFits;

use super::finding::{Code, Finding};

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
    /// The pod set of the leader that is placed with them, whose pod is not among those that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The pod sets of the Workload that get nodes before this one: what they take is not free.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placed: Vec<String>,
    /// `required`, `preferred` or `unconstrained`.
    pub wish: &'static str,
    /// The level that it asks for.
    pub level: Option<String>,
    /// The slices that have to be in one domain each, from the widest: their level, and how many pods they have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<(String, i64)>,
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
    /// How many such pods fit into one domain at most, down to the level of slices in whole slices: the largest job of this shape that fits.
    pub largest: i64,
    /// How many such pods fit into all domains, counted likewise.
    pub all: i64,
    /// The domains with the most room: `block/rack`, and how many such pods fit.
    pub roomiest: Vec<(String, i64)>,
}

/// The topology request of a pod set of a Workload.
fn request<'a>(workload: &'a Value, pod_set: &str) -> Option<&'a Value> {
    let mut sets = workload["spec"]["podSets"].as_array().into_iter().flatten();
    sets.find(|set| set["name"] == pod_set).map(|set| &set["topologyRequest"])
}

/// The level and the size of each layer of slices of a topology request, from the widest.
pub(super) fn layers(request: &Value) -> impl Iterator<Item = (&str, i64)> {
    fn layer<'a>(level: &'a Value, size: &Value) -> Option<(&'a str, i64)> {
        Some((level.as_str()?, size.as_i64()?))
    }
    let one = layer(&request["podSetSliceRequiredTopology"], &request["podSetSliceSize"]);
    let several = request["podsetSliceRequiredTopologyConstraints"].as_array().into_iter().flatten();
    one.into_iter().chain(several.filter_map(|one| layer(&one["topology"], &one["size"])))
}

/// The same of a pod set of a Workload.
pub(super) fn slices(workload: &Value, pod_set: &str) -> Vec<(String, i64)> {
    let all = request(workload, pod_set).into_iter().flat_map(layers);
    all.map(|(level, size)| (level.to_owned(), size)).collect()
}

/// The topology request of a pod set of a Workload, and its level, which is that of its slices if it names no other.
pub(super) fn wish(workload: &Value, pod_set: &str) -> (&'static str, Option<String>) {
    let request = request(workload, pod_set);
    let level = |field: &str| request.and_then(|r| r[field].as_str()).map(str::to_owned);
    if let Some(level) = level("required") {
        ("required", Some(level))
    } else if let Some(level) = level("preferred") {
        ("preferred", Some(level))
    } else {
        ("unconstrained", slices(workload, pod_set).into_iter().next().map(|(level, _)| level))
    }
}

/// The level whose domains are nodes.
const NODES: &str = "kubernetes.io/hostname";

fn domains(level: &LevelFits, names_nodes: bool) -> Domains {
    let named = names_nodes || &*level.level != NODES;
    Domains {
        level: level.level.to_string(),
        domains: level.domains,
        largest: level.largest(),
        all: level.pods,
        roomiest: level
            .roomiest
            .iter()
            .filter(|_| named)
            .map(|(path, pods)| (path.join("/"), *pods))
            .collect(),
    }
}

/// The engine's counts for the topology request.
pub(super) fn fits(workload: &Value, fits: &[PodSetFits], names_nodes: bool) -> Vec<TopologyFit> {
    fits.iter()
        .map(|fit| {
            let (wish, level) = wish(workload, &fit.pod_set);
            TopologyFit {
                pod_set: fit.pod_set.to_string(),
                flavor: fit.flavor.to_string(),
                pods: fit.count,
                leader: fit.leader.as_ref().map(ToString::to_string),
                placed: fit.placed.iter().map(ToString::to_string).collect(),
                wish,
                level,
                slices: slices(workload, &fit.pod_set),
                levels: fit.levels.iter().map(|level| domains(level, names_nodes)).collect(),
            }
        })
        .collect()
}

impl Domains {
    fn line(&self) -> String {
        let each: Vec<String> =
            self.roomiest.iter().map(|(domain, pods)| format!("{pods} in {domain}")).collect();
        let places = match (each.is_empty(), self.largest) {
            (false, _) => format!("; {}", each.join(", ")),
            (true, 0) => "; none has room".to_owned(),
            // Nodes are not named.
            (true, _) => String::new(),
        };
        format!(
            "{} ({} domain(s)): at most {} pod(s) of this shape in one, {} in all{places}",
            self.level, self.domains, self.largest, self.all
        )
    }
}

impl TopologyFit {
    /// What the nodes lack, with a request that would be met. `why` is the engine's own message, which says why nodes were left out.
    pub(super) fn finding(&self, why: Option<&str>) -> Finding {
        let level = self.level.as_ref().and_then(|level| self.levels.iter().find(|l| l.level == *level));
        let wished = match (self.wish, &self.level) {
            ("unconstrained", _) | (_, None) => "anywhere".to_owned(),
            (wish, Some(level)) => format!("in one domain of the level {level} ({wish})"),
        };
        let slices = self
            .slices
            .iter()
            .map(|(level, size)| format!(", each {size} of them in one of the level {level}"));
        let wished: String = std::iter::once(wished).chain(slices).collect();
        let most = match (self.wish, level) {
            ("required", Some(level)) => level.largest,
            _ => self.levels.first().map_or(0, |level| level.all),
        };
        let leader = self.leader.as_ref();
        let (and, beside) = leader.map_or_else(Default::default, |leader| {
            (format!(" and their leader (pod set {leader})"), " beside the leader")
        });
        let text = format!(
            "pod set {} needs {} pods{and} {wished} on nodes of flavor {}; {most} fit now{beside}",
            self.pod_set, self.pods, self.flavor
        );
        let mut finding = Finding::new(Code::TopologyShort, text);
        for level in &self.levels {
            finding = finding.detail(level.line());
        }
        finding = finding.detail(self.counted());
        if let Some(why) = why {
            finding = finding.detail(why.to_owned());
        }
        finding
    }

    /// What the counts are of.
    fn counted(&self) -> String {
        let placed = if self.placed.is_empty() {
            String::new()
        } else {
            format!(", without what the pods of pod set {} take of them", self.placed.join(", "))
        };
        let slices = self.slices.first().map_or_else(String::new, |(level, _)| {
            format!("; down to the level {level} in whole slices, below it in single pods")
        });
        format!(
            "these counts are of what is free on nodes that the pods select and whose taints they tolerate\
             {placed}{slices}"
        )
    }

    /// Whether a laxer wish can be met with what is free.
    pub(super) fn has_room(&self, wish: &str, level: &str) -> bool {
        let of = self.levels.iter().find(|l| l.level == level);
        match wish {
            "preferred" => self.levels.first().is_some_and(|top| top.all >= self.pods),
            _ => of.is_some_and(|of| of.largest >= self.pods),
        }
    }
}
