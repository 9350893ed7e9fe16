//! Pod sets that ask for more than their ClusterQueue can ever have, and the largest that fits.

use std::cmp::Ordering;

use serde_json::Value;
use sluice_core::{Name, Refusal};
use sluice_engine::Kind;

use super::MOST_LISTED;
use super::advice::Advice;
use super::finding::{Code, Finding, Help};
use super::view::View;
use crate::json::text;
use crate::record::show_amount;

/// A resource of which a pod set asks for more than its ClusterQueue can have of a flavor; amounts in the resource's unit.
pub(super) struct Excess {
    pub flavor: Name,
    resource: Name,
    needed: i64,
    /// What the ClusterQueue can have for this pod set, with all that it may borrow.
    room: i64,
}

impl Excess {
    /// According to a refusal, if it says so.
    pub fn of(refusal: &Refusal) -> Option<Self> {
        let Refusal::ExceedsMaxQuota { flavor, resource, previous, needed, max } = refusal else {
            return None;
        };
        let room = max.get().saturating_sub(previous.get()).max(0);
        let (flavor, resource) = (Name::clone(flavor), Name::clone(resource));
        Some(Self { flavor, resource, needed: needed.get().max(1), room })
    }

    fn show(&self, amount: i64) -> String {
        show_amount(&self.resource, amount)
    }

    /// In words.
    pub fn line(&self, set: &str) -> String {
        format!(
            "pod set {set} asks for {} {}, and its ClusterQueue can have at most {} of flavor {}, with all that it may borrow",
            self.show(self.needed),
            self.resource,
            self.show(self.room),
            self.flavor
        )
    }

    /// By the share of what is asked for that there is room for.
    fn by_share(&self, other: &Self) -> Ordering {
        let of = |room: &Self, needed: &Self| i128::from(room.room) * i128::from(needed.needed);
        of(self, other).cmp(&of(other, self))
    }
}

/// The flavors of each resource group of a Workload's ClusterQueue; none if that is not known.
pub(super) fn groups<'a>(view: &View<'a>, workload: &Value) -> Vec<Vec<&'a str>> {
    let namespace = text(&workload["metadata"]["namespace"]);
    let local = view.namespaced(Kind::LocalQueue, namespace, text(&workload["spec"]["queueName"]));
    let queue =
        local.and_then(|local| view.cluster(Kind::ClusterQueue, text(&local["spec"]["clusterQueue"])));
    let groups = queue.and_then(|queue| queue["spec"]["resourceGroups"].as_array()).into_iter().flatten();
    let flavors = |group: &'a Value| group["flavors"].as_array().into_iter().flatten();
    groups.map(|group| flavors(group).map(|flavor| text(&flavor["name"])).collect()).collect()
}

/// The resource group that has a flavor.
pub(super) fn group_of(groups: &[Vec<&str>], flavor: &str) -> Option<usize> {
    groups.iter().position(|group| group.contains(&flavor))
}

/// The finding for a pod set for which each flavor of a resource group is too small, with the largest that one of them could have.
pub(super) fn finding(set: &str, count: i64, all: &[Excess]) -> Finding {
    let mut flavors: Vec<(&Name, Vec<&Excess>)> = Vec::new();
    for excess in all {
        match flavors.iter_mut().find(|(flavor, _)| **flavor == excess.flavor) {
            Some((_, own)) => own.push(excess),
            None => flavors.push((&excess.flavor, vec![excess])),
        }
    }
    let mut finding = match all {
        [one] => Finding::new(Code::TooLarge, one.line(set)),
        _ => several(set, &flavors, all),
    };
    // The resource that is scarcest decides how large it may be on a flavor; it may be as large as on the flavor with most room.
    let room = flavors.iter().filter_map(|(flavor, of)| Some((flavor, of, scarcest(of)?)));
    let Some((flavor, of, _)) = room.rev().max_by(|(.., a), (.., b)| a.by_share(b)) else { return finding };
    let amounts = |amount: &dyn Fn(&Excess) -> i64| {
        let words = of.iter().map(|excess| format!("{} {}", excess.show(amount(excess)), excess.resource));
        words.collect::<Vec<_>>().join(" and ")
    };
    let per_pod = |excess: &Excess| (excess.needed / count).max(1);
    let pods = of.iter().map(|excess| excess.room / per_pod(excess)).min().unwrap_or(0);
    if pods > 0 && pods < count {
        let each = amounts(&per_pod);
        let help = format!("ask for at most {pods} pods of {each} each (flavor {flavor})");
        finding = finding.with(Help::words(Advice::FewerPodsOfThatSize, help));
    }
    let smaller = |excess: &Excess| excess.room / count;
    if of.iter().all(|excess| smaller(excess) > 0) {
        let each = amounts(&smaller);
        let help = format!("ask for at most {each} for each of the {count} pod(s) (flavor {flavor})");
        finding = finding.with(Help::words(Advice::SmallerPods, help));
    }
    finding
}

/// Of what there is least.
fn scarcest<'a>(of: &[&'a Excess]) -> Option<&'a Excess> {
    of.iter().copied().min_by(|a, b| a.by_share(b))
}

fn several(set: &str, flavors: &[(&Name, Vec<&Excess>)], all: &[Excess]) -> Finding {
    let names: Vec<&str> = flavors.iter().take(MOST_LISTED).map(|(flavor, _)| &***flavor).collect();
    let mut finding = Finding::new(
        Code::TooLarge,
        format!(
            "pod set {set} asks for more than its ClusterQueue can have of flavor {}, with all that it may borrow",
            names.join(" or ")
        ),
    );
    for excess in all.iter().take(MOST_LISTED) {
        finding = finding.detail(format!(
            "{} of flavor {}: {} asked for, at most {}",
            excess.resource,
            excess.flavor,
            excess.show(excess.needed),
            excess.show(excess.room)
        ));
    }
    finding
}
