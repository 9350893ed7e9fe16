//! Jobs for which the healthy nodes of a flavor have no room: which flavor, how many pods, and since when.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_api::conditions::reason;
use sluice_api::config::{Configuration, Hotswap};
use sluice_core::Amount;
use sluice_engine::Kind;

use super::MOST_LISTED;
use super::advice::Advice;
use super::finding::{Code, Finding, Help, condition};
use super::pods::is_own;
use super::queues::{labels, shown};
use super::searched::Searched;
use super::view::View;
use crate::json::text;
use crate::record::show_amount;

/// Where nodes are looked up, and what is said of them.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub view: &'a View<'a>,
    pub configuration: &'a Configuration,
    /// Whether nodes are named: users with the right to list nodes see names, others how many.
    pub names_nodes: bool,
}

/// How much of a resource the nodes of a flavor lack.
pub(super) struct Lack {
    pub resource: String,
    /// By this and earlier pod sets.
    pub needed: Amount,
    pub free: Amount,
    pub missing: Amount,
}

/// The finding that the healthy nodes of a flavor have no room for pods of these pod sets.
pub(super) fn short(
    around: Around<'_>,
    workload: &Value,
    of: &Searched<'_>,
    (flavor, lacks): (&str, &[Lack]),
) -> Finding {
    let count = of.count();
    let without_room = |lack: &Lack| {
        let each = of.largest_pod(&lack.resource);
        let missing = lack.missing.get().max(1);
        if each <= 0 { count } else { missing / each + i64::from(missing % each != 0) }
    };
    let pods = lacks.iter().map(without_room).max().unwrap_or(count).clamp(1, count);
    let text = format!(
        "the healthy nodes of flavor {flavor} have no room for {pods} of the {count} pod(s) of {}",
        of.words()
    );
    let mut finding = Finding::new(Code::CapacityShort, text);
    for lack in lacks {
        let show = |amount: Amount| show_amount(&lack.resource, amount.get().max(0));
        finding = finding.detail(format!(
            "{}: {} needed, {} free, {} more needed",
            lack.resource,
            show(lack.needed),
            show(lack.free),
            show(lack.missing)
        ));
    }
    finding = finding.detail(match since(workload) {
        Since::NodesFailed(at) => format!(
            "it lost its nodes at {at}, and waits for others since then; it goes first in its ClusterQueue"
        ),
        Since::Waits(at) => format!("it waits since {at}"),
        Since::Unknown => "its status does not say since when it waits: it began a moment ago".to_owned(),
    });
    finding.details.extend(nodes_of(around, flavor));
    with_helps(finding, around.view, flavor)
}

/// The same for a Workload that lost nodes and keeps its place because no other nodes are free: `lost` are its failed nodes.
pub(super) fn not_moved(around: Around<'_>, workload: &Value, job: Option<&Value>) -> Option<Finding> {
    let lost = workload["status"]["unhealthyNodes"].as_array().into_iter().flatten();
    let lost: Vec<&str> = lost.map(|node| text(&node["name"])).collect();
    let mut flavors: Vec<&str> = Vec::new();
    let sets = workload["status"]["admission"]["podSetAssignments"].as_array().into_iter().flatten();
    for flavor in
        sets.filter_map(|set| set["flavors"].as_object()).flat_map(serde_json::Map::values).map(text)
    {
        let has_nodes = labels_of(around.view, flavor).is_some_and(|labels| !labels.is_empty());
        if has_nodes && !flavors.contains(&flavor) {
            flavors.push(flavor);
        }
    }
    let first = *flavors.first()?;
    let all = around.view.of_kind(Kind::Pod);
    let on_lost = |pod: &Value| lost.contains(&text(&pod["spec"]["nodeName"])) && is_own(pod, workload, job);
    let there = all.iter().filter(|(_, pod)| on_lost(pod)).count();
    let who = match there {
        0 => "its pods".to_owned(),
        pods => format!("{pods} of its pods"),
    };
    let said = format!(
        "the other healthy nodes of flavor {} have no room for {who} that are on nodes that failed",
        flavors.join(", ")
    );
    let mut finding = Finding::new(Code::CapacityShort, said);
    for name in lost.iter().take(MOST_LISTED).filter(|_| around.names_nodes) {
        let node = around.view.cluster(Kind::Node, name);
        let ready = node.and_then(|node| condition(node, "Ready")).filter(|ready| ready["status"] != "True");
        let line =
            |ready: &Value| format!("{name} is not ready since {}", text(&ready["lastTransitionTime"]));
        finding.details.extend(ready.map(line));
    }
    for flavor in &flavors {
        finding.details.extend(nodes_of(around, flavor));
    }
    Some(with_helps(finding, around.view, first))
}

fn with_helps(finding: Finding, view: &View<'_>, flavor: &str) -> Finding {
    let labels = labels_of(view, flavor).unwrap_or_default();
    let add = format!(
        "repair the nodes of flavor {flavor} or make those schedulable again that are cordoned, or add nodes with its labels \
         ({})",
        shown(&labels)
    );
    let wait = Help::words(Advice::AwaitRoom, "wait until other workloads on these nodes have ended");
    finding.with(Help::words(Advice::RepairNodes, add)).with(wait)
}

enum Since<'a> {
    NodesFailed(&'a str),
    Waits(&'a str),
    Unknown,
}

fn since(workload: &Value) -> Since<'_> {
    let of = |kind: &str, status: &str| condition(workload, kind).filter(|c| c["status"] == status);
    if let Some(evicted) = of("Evicted", "True").filter(|c| c["reason"] == reason::NODE_FAILURES) {
        return Since::NodesFailed(text(&evicted["lastTransitionTime"]));
    }
    of("QuotaReserved", "False").map_or(Since::Unknown, |c| Since::Waits(text(&c["lastTransitionTime"])))
}

fn labels_of(view: &View<'_>, flavor: &str) -> Option<BTreeMap<String, String>> {
    let flavor = view.cluster(Kind::ResourceFlavor, flavor)?;
    let map = flavor["spec"]["nodeLabels"].as_object();
    Some(map.into_iter().flatten().map(|(k, v)| (k.clone(), text(v).to_owned())).collect())
}

/// How many nodes a flavor has, as far as they were read, and which of them are not well.
fn nodes_of(around: Around<'_>, flavor: &str) -> Vec<String> {
    let Around { view, configuration, names_nodes } = around;
    let Some(wanted) = labels_of(view, flavor).filter(|labels| !labels.is_empty()) else { return Vec::new() };
    let nodes = view.of_kind(Kind::Node);
    let own = nodes.iter().filter(|(_, node)| {
        let has = labels(node);
        wanted.iter().all(|(key, value)| has.get(key) == Some(value))
    });
    let own: Vec<_> = own.collect();
    if own.is_empty() {
        return Vec::new();
    }
    let named = |what: &str, is: &dyn Fn(&Value) -> bool| {
        let names: Vec<&str> = own.iter().filter(|(_, node)| is(node)).map(|(r, _)| &*r.name).collect();
        let more = names.len().saturating_sub(MOST_LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let first = names.iter().take(MOST_LISTED).copied().collect::<Vec<_>>().join(", ");
        let which = if names_nodes { format!(": {first}{more}") } else { String::new() };
        (!names.is_empty()).then(|| format!("{} {what}{which}", names.len()))
    };
    let is_ready = |node: &Value| condition(node, "Ready").is_some_and(|c| c["status"] == "True");
    let mut parts = vec![format!("flavor {flavor} has {} node(s)", own.len())];
    let goes = |node: &Value| departs(node, &configuration.hotswap);
    parts.extend(named("not ready", &|node| !is_ready(node)));
    parts.extend(named("marked for removal", &|node| is_ready(node) && goes(node)));
    parts.extend(named("cordoned", &|node| {
        is_ready(node) && !goes(node) && node["spec"]["unschedulable"] == true
    }));
    vec![parts.join("; ")]
}

/// Whether a node says that it goes.
fn departs(node: &Value, hotswap: &Hotswap) -> bool {
    let labels = &node["metadata"]["labels"];
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    node["metadata"]["deletionTimestamp"].is_string()
        || hotswap.departing_labels.iter().any(|(key, value)| labels[key.as_str()] == **value)
        || taints.any(|taint| hotswap.departing_taints.iter().any(|key| taint["key"] == **key))
}
