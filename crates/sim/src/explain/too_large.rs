//! Pod sets that ask for more than their ClusterQueue can ever have, and the largest that fits.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value;
use sluice_api::config::Configuration;
use sluice_core::{Name, Refusal};
use sluice_engine::Kind;
use sluice_quantity::{Quantity, amount_of};

use super::MOST_LISTED;
use super::advice::Advice;
use super::finding::{Code, Finding, Help};
use super::searched::{Searched, pods_left};
use super::view::View;
use crate::json::text;
use crate::record::show_amount;

/// A resource of which pod sets ask for more than their ClusterQueue can have of a flavor; amounts in the resource's unit.
pub(super) struct Excess {
    pub flavor: Name,
    resource: Name,
    /// What the pod sets before take of it.
    previous: i64,
    needed: i64,
    /// What the ClusterQueue can have, with all that it may borrow.
    most: i64,
}

impl Excess {
    /// According to a refusal, if it says so.
    pub fn of(refusal: &Refusal) -> Option<Self> {
        let Refusal::ExceedsMaxQuota { flavor, resource, previous, needed, max } = refusal else {
            return None;
        };
        let (flavor, resource) = (Name::clone(flavor), Name::clone(resource));
        let (previous, needed, most) = (previous.get().max(0), needed.get().max(1), max.get().max(0));
        Some(Self { flavor, resource, previous, needed, most })
    }

    fn show(&self, amount: i64) -> String {
        show_amount(&self.resource, amount)
    }

    /// What there is beside the pod sets before.
    fn room(&self) -> i64 {
        self.most.saturating_sub(self.previous).max(0)
    }

    /// Where other pod sets take a part of it: that, in words.
    fn beside(&self) -> String {
        match self.previous {
            0 => String::new(),
            previous => format!(" beside the {} of its other pod sets", self.show(previous)),
        }
    }

    /// In words.
    pub fn line(&self, of: &Searched<'_>) -> String {
        format!(
            "{} for {} {}{}, and its ClusterQueue can have at most {} of flavor {}, with all that it may borrow",
            of.who("ask"),
            self.show(self.needed),
            self.resource,
            self.beside(),
            self.show(self.most),
            self.flavor
        )
    }

    /// By the share of what is asked for that there is room for.
    fn by_share(&self, other: &Self) -> Ordering {
        by_share((self.room(), self.needed), (other.room(), other.needed))
    }
}

/// Which of two is the smaller share: of what is asked for, what there is.
fn by_share((room, needed): (i64, i64), (other_room, other_needed): (i64, i64)) -> Ordering {
    let of = |room: i64, needed: i64| i128::from(room) * i128::from(needed);
    of(room, other_needed).cmp(&of(other_room, needed))
}

/// A resource group of a ClusterQueue.
pub(super) struct Group<'a> {
    flavors: Vec<&'a str>,
    resources: Vec<&'a str>,
}

impl Group<'_> {
    /// Whether pod sets request anything of this group.
    pub fn is_requested(&self, searched: &Searched<'_>) -> bool {
        searched.resources().any(|resource| self.resources.contains(&resource))
    }
}

/// The resource groups of a Workload's ClusterQueue; none if that is not known.
pub(super) fn groups<'a>(view: &View<'a>, workload: &Value) -> Vec<Group<'a>> {
    let namespace = text(&workload["metadata"]["namespace"]);
    let local = view.namespaced(Kind::LocalQueue, namespace, text(&workload["spec"]["queueName"]));
    let queue =
        local.and_then(|local| view.cluster(Kind::ClusterQueue, text(&local["spec"]["clusterQueue"])));
    let groups = queue.and_then(|queue| queue["spec"]["resourceGroups"].as_array()).into_iter().flatten();
    let list = |list: &'a Value| list.as_array().into_iter().flatten();
    let group = |group: &'a Value| Group {
        flavors: list(&group["flavors"]).map(|flavor| text(&flavor["name"])).collect(),
        resources: list(&group["coveredResources"]).map(text).collect(),
    };
    groups.map(group).collect()
}

/// The resource group that has a flavor.
pub(super) fn group_of(groups: &[Group<'_>], flavor: &str) -> Option<usize> {
    groups.iter().position(|group| group.flavors.contains(&flavor))
}

/// The finding for pod sets for which each flavor of a resource group is too small. If this group is `all` that the job needs quota of, and one pod
/// set all that it has: with the largest that one of the flavors could have. Else with what all of the job could have of one.
pub(super) fn finding(of: &Searched<'_>, excess: &[Excess], all: bool) -> Finding {
    let mut flavors: Vec<(&Name, Vec<&Excess>)> = Vec::new();
    for one in excess {
        match flavors.iter_mut().find(|(flavor, _)| **flavor == one.flavor) {
            Some((_, own)) => own.push(one),
            None => flavors.push((&one.flavor, vec![one])),
        }
    }
    let mut finding = match excess {
        [one] => Finding::new(Code::TooLarge, one.line(of)),
        _ => several(of, &flavors, excess),
    };
    if !all {
        finding.helps.extend(bound(of, &flavors));
        return finding;
    }
    // The resource that is scarcest decides how large it may be on a flavor; it may be as large as on the flavor with most room.
    let room = flavors.iter().filter_map(|(_, own)| Some((own, scarcest(own)?)));
    let Some((own, _)) = room.rev().max_by(|(_, a), (_, b)| a.by_share(b)) else { return finding };
    let parts = own.iter().map(|one| Part {
        flavor: &one.flavor,
        resource: &one.resource,
        per_pod: of.largest_pod(&one.resource).max(1),
        room: one.room(),
    });
    finding.helps = sizes(of.count(), &parts.collect::<Vec<_>>());
    finding
}

/// How much all of a job may ask for of the flavor on which the largest part of it has room: it never gets more of that one, whatever else it lacks.
fn bound(of: &Searched<'_>, flavors: &[(&Name, Vec<&Excess>)]) -> Option<Help> {
    let share = |own: &[&Excess]| {
        let shares = own.iter().map(|one| (one.most, one.previous.saturating_add(one.needed)));
        shares.min_by(|a, b| by_share(*a, *b)).filter(|(most, _)| *most > 0)
    };
    let shares = flavors.iter().filter_map(|(_, own)| Some((own, share(own)?)));
    let (own, _) = shares.rev().max_by(|(_, a), (_, b)| by_share(*a, *b))?;
    let parts = own.iter().map(|one| (&*one.flavor, &*one.resource, one.most));
    Some(in_all(of.sets.len() + of.others > 1, parts))
}

/// So much may be asked for in all: of each resource of a flavor.
fn in_all<'a>(of_several_sets: bool, parts: impl Iterator<Item = (&'a str, &'a str, i64)>) -> Help {
    let one = |(flavor, resource, most): (&str, &str, i64)| {
        format!("{} {resource} of flavor {flavor}", show_amount(resource, most))
    };
    let all = parts.map(one).collect::<Vec<_>>().join(" and ");
    let whom = if of_several_sets { "in all pod sets" } else { "for all pods" };
    Help::words(Advice::SmallerInAll, format!("ask for at most {all} {whom} together"))
}

/// Of what there is least.
fn scarcest<'a>(of: &[&'a Excess]) -> Option<&'a Excess> {
    of.iter().copied().min_by(|a, b| a.by_share(b))
}

fn several(of: &Searched<'_>, flavors: &[(&Name, Vec<&Excess>)], all: &[Excess]) -> Finding {
    let names: Vec<&str> = flavors.iter().take(MOST_LISTED).map(|(flavor, _)| &***flavor).collect();
    let mut finding = Finding::new(
        Code::TooLarge,
        format!(
            "{} for more than its ClusterQueue can have of flavor {}, with all that it may borrow",
            of.who("ask"),
            names.join(" or ")
        ),
    );
    for excess in all.iter().take(MOST_LISTED) {
        finding = finding.detail(format!(
            "{} of flavor {}: {} asked for{}, at most {}",
            excess.resource,
            excess.flavor,
            excess.show(excess.needed),
            excess.beside(),
            excess.show(excess.most)
        ));
    }
    finding
}

/// A resource of a flavor, of which the only pod set of a job has too little.
struct Part<'a> {
    flavor: &'a str,
    resource: &'a str,
    per_pod: i64,
    /// For all pods.
    room: i64,
}

/// How many such pods, or how large ones, so much is enough for.
fn sizes(count: i64, parts: &[Part<'_>]) -> Vec<Help> {
    let mut flavors: Vec<&str> = parts.iter().map(|part| part.flavor).collect();
    flavors.dedup();
    let several = if flavors.len() > 1 { "s" } else { "" };
    let flavors = format!("flavor{several} {}", flavors.join(" and "));
    let amounts = |amount: &dyn Fn(&Part<'_>) -> i64| {
        let words = parts
            .iter()
            .map(|part| format!("{} {}", show_amount(part.resource, amount(part)), part.resource));
        words.collect::<Vec<_>>().join(" and ")
    };
    let mut helps = Vec::new();
    let pods = parts.iter().map(|part| part.room / part.per_pod).min().unwrap_or(0);
    if pods > 0 && pods < count {
        let each = amounts(&|part| part.per_pod);
        let help = format!("ask for at most {pods} pods of {each} each ({flavors})");
        helps.push(Help::words(Advice::FewerPodsOfThatSize, help));
    }
    let smaller = |part: &Part<'_>| part.room / count;
    if parts.iter().all(|part| smaller(part) > 0) {
        let each = amounts(&smaller);
        let help = format!("ask for at most {each} for each of the {count} pod(s) ({flavors})");
        helps.push(Help::words(Advice::SmallerPods, help));
    }
    helps
}

/// Whether a finding says how large a job may be.
pub(super) fn says_a_size(finding: &Finding) -> bool {
    finding.helps.iter().any(|help| matches!(help.advice, Advice::FewerPodsOfThatSize | Advice::SmallerPods))
}

/// What a ClusterQueue can have of each resource of a flavor, with all that it may borrow, as far as refusals say it.
#[derive(Default)]
pub(super) struct Limits(BTreeMap<(Name, Name), i64>);

impl Limits {
    /// Notes what refusals say where there is so much more nominal quota of a resource of a flavor.
    pub fn note(&mut self, refusals: &[&Refusal], more: impl Fn(&Name, &Name) -> i64) {
        for refusal in refusals {
            let (flavor, resource, most) = match refusal {
                Refusal::ExceedsMaxQuota { flavor, resource, max, .. } => (flavor, resource, *max),
                Refusal::InsufficientQuota { flavor, resource, nominal, borrowable, .. } => {
                    (flavor, resource, nominal.add(*borrowable))
                }
                _ => continue,
            };
            let most = most.get().saturating_sub(more(flavor, resource));
            self.0.entry((Name::clone(flavor), Name::clone(resource))).or_insert(most);
        }
    }
}

/// How large a job may be on flavors on which all of it is too large.
pub(super) struct Largest {
    pub helps: Vec<Help>,
    /// What there is of what it has least of, and what it asks for.
    share: (i64, i64),
}

impl Largest {
    /// From a Workload that starts with more quota: the flavors that it has then, and what its ClusterQueue can have of them without that.
    pub fn of(workload: &Value, limits: &Limits, configuration: &Configuration) -> Option<Self> {
        let list = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let sets = list(&workload["status"]["admission"]["podSetAssignments"]);
        let starting: i64 = sets.iter().filter_map(|set| set["count"].as_i64()).sum();
        let wanted = list(&workload["spec"]["podSets"]);
        let wanted: i64 = wanted.iter().map(|spec| pods_left(workload, spec, configuration)).sum();
        // Of a part of the pods, nothing follows for all.
        if starting != wanted {
            return None;
        }
        let mut totals: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        let mut taking = Vec::new();
        for set in &sets {
            let mut takes = false;
            // A pod set that requests nothing has no flavors.
            for (resource, flavor) in set["flavors"].as_object().into_iter().flatten() {
                let written = Quantity::parse(set["resourceUsage"][resource].as_str()?).ok()?;
                let amount = amount_of(resource, &written).get();
                let total = totals.entry((text(flavor), resource.as_str())).or_default();
                *total = total.saturating_add(amount);
                takes |= amount > 0;
            }
            taking.extend(Some(set).filter(|_| takes));
        }
        let most = |(flavor, resource): &(&str, &str)| {
            limits.0.iter().find(|((f, r), _)| **f == **flavor && **r == **resource).map(|(_, most)| *most)
        };
        let short = totals.iter().filter_map(|(of, total)| Some((*of, *total, most(of)?)));
        let short: Vec<_> = short.filter(|(_, total, most)| most < total).collect();
        let of = |(_, total, most): &(_, i64, i64)| (*most, *total);
        let share = short.iter().map(of).min_by(|a, b| by_share(*a, *b)).filter(|(most, _)| *most > 0)?;
        let helps = if let [set] = &taking[..] {
            let count = set["count"].as_i64().filter(|count| *count > 0)?;
            let parts = short.iter().map(|&((flavor, resource), total, room)| Part {
                flavor,
                resource,
                per_pod: (total / count).max(1),
                room,
            });
            sizes(count, &parts.collect::<Vec<_>>())
        } else {
            vec![in_all(true, short.iter().map(|&((flavor, resource), _, most)| (flavor, resource, most)))]
        };
        Some(Self { helps, share })
    }

    /// The one of several flavors on which the job may be largest; the first of them that are equal.
    pub fn of_all(all: Vec<Self>) -> Option<Self> {
        all.into_iter().rev().max_by(|a, b| by_share(a.share, b.share))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_api::gates::Gate;

    use super::*;
    use crate::Options;

    #[test]
    fn a_job_some_of_whose_pods_are_over_starts_whole_with_the_others() {
        let set = |name: &str, count: i64| {
            let usage = json!({"cpu": count.to_string()});
            json!({"name": name, "count": count, "flavors": {"cpu": "default"}, "resourceUsage": usage})
        };
        let workload = json!({
            "spec": {"podSets": [{"name": "leader", "count": 3}, {"name": "worker", "count": 12}]},
            "status": {
                "reclaimablePods": [{"name": "worker", "count": 2}],
                "admission": {"podSetAssignments": [set("leader", 3), set("worker", 10)]},
            },
        });
        let limits = Limits(BTreeMap::from([((Name::from("default"), Name::from("cpu")), 10_000)]));
        let mut configuration = Options::default_configuration();
        let largest = Largest::of(&workload, &limits, &configuration).unwrap();
        let words: Vec<&str> = largest.helps.iter().map(|help| help.text.as_str()).collect();
        assert_eq!(words, ["ask for at most 10 cpu of flavor default in all pod sets together"]);
        // Where they count, these are a part of it.
        configuration.gates = configuration.gates.with(Gate::ReclaimablePods, false);
        assert!(Largest::of(&workload, &limits, &configuration).is_none());
    }
}
