//! More quota or a higher priority, as much as lets a job start: each is tried in the engine.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use sluice_core::{Name, Refusal};
use sluice_engine::{Kind, ObjectRef};
use sluice_quantity::{Amount, quantity_of};

use super::advice::Advice;
use super::patch::{Patch, patch_of};
use super::preemption::nominal_amount;
use super::remedy::{Remedy, Tried, refusals_of};
use super::target::Target;
use super::too_large::{Largest, Limits};
use super::{ExplainError, Question};
use crate::record::show_amount;
use crate::simulation::Simulation;

/// How often quota is added: a search shows what is short only up to the first pod set, and of that up to the first resource group, that finds no
/// flavor.
const MOST_ROUNDS: usize = 6;

/// Quota of a resource of a flavor that a job lacks, in the unit of its [`Amount`].
#[derive(Clone)]
struct Lack {
    flavor: Name,
    resource: Name,
    amount: i64,
}

/// The flavor, the resource and how much of it is missing, if a refusal is about quota.
fn missing(refusal: &Refusal) -> Option<(&Name, &Name, Amount)> {
    match refusal {
        Refusal::InsufficientQuota { flavor, resource, missing, .. } => Some((flavor, resource, *missing)),
        Refusal::ExceedsMaxQuota { flavor, resource, previous, needed, max } => {
            Some((flavor, resource, previous.add(*needed).sub(*max)))
        }
        _ => None,
    }
}

/// The flavors whose quota is too small or in use, in the order in which they are tried.
pub(super) fn short_flavors<'a>(refusals: &[&'a Refusal]) -> Vec<&'a Name> {
    let mut flavors = Vec::new();
    for (flavor, ..) in refusals.iter().copied().filter_map(missing) {
        if !flavors.contains(&flavor) {
            flavors.push(flavor);
        }
    }
    flavors
}

/// What is missing of these flavors. A later pod set's refusal counts the earlier ones: the largest counts.
fn lacks(flavors: &[Name], refusals: &[&Refusal]) -> Vec<Lack> {
    let mut all: Vec<Lack> = Vec::new();
    for (flavor, resource, amount) in refusals.iter().copied().filter_map(missing) {
        if !flavors.contains(flavor) {
            continue;
        }
        let amount = amount.get();
        match all.iter_mut().find(|lack| lack.flavor == *flavor && lack.resource == *resource) {
            Some(known) => known.amount = known.amount.max(amount),
            None => {
                all.push(Lack { flavor: Name::clone(flavor), resource: Name::clone(resource), amount });
            }
        }
    }
    all
}

/// Adds what else is missing once that quota is there: more of the same flavors, or else of another one. False if nothing is.
fn add(all: &mut Vec<Lack>, refusals: &[&Refusal]) -> bool {
    let known: Vec<Name> = all.iter().map(|lack| Name::clone(&lack.flavor)).collect();
    let mut more = lacks(&known, refusals);
    if more.is_empty() {
        let other = short_flavors(refusals).first().copied().cloned();
        more = lacks(other.as_slice(), refusals);
    }
    let any = !more.is_empty();
    for lack in more {
        match all.iter_mut().find(|known| known.flavor == lack.flavor && known.resource == lack.resource) {
            Some(known) => known.amount = known.amount.saturating_add(lack.amount),
            None => all.push(lack),
        }
    }
    any
}

/// That much more nominal quota of a ClusterQueue: in words, and as a patch.
fn raise(simulation: &Simulation, queue: &str, lacks: &[Lack]) -> Option<(String, Patch)> {
    let reference = ObjectRef::cluster(Kind::ClusterQueue, queue);
    let mut groups = simulation.world.get(&reference)?["spec"]["resourceGroups"].clone();
    for group in groups.as_array_mut()? {
        for of in group["flavors"].as_array_mut()? {
            let own: Vec<&Lack> = lacks.iter().filter(|lack| of["name"] == *lack.flavor).collect();
            for quota in of["resources"].as_array_mut()? {
                let Some(lack) = own.iter().find(|lack| quota["name"] == *lack.resource) else { continue };
                let old = nominal_amount(quota, &lack.resource)?;
                let new = Amount(old.get().saturating_add(lack.amount));
                quota["nominalQuota"] = json!(quantity_of(&lack.resource, new).to_string());
            }
        }
    }
    let text = format!("needs {} as nominal quota of ClusterQueue {queue}", words(lacks));
    Some((text, patch_of(&reference, json!({"spec": {"resourceGroups": groups}}))))
}

/// What is lacking, flavor by flavor.
fn words(lacks: &[Lack]) -> String {
    let mut flavors: Vec<(&Name, Vec<String>)> = Vec::new();
    for Lack { flavor, resource, amount } in lacks {
        let words = format!("{} more {resource}", show_amount(resource, *amount));
        match flavors.iter_mut().find(|(known, _)| *known == flavor) {
            Some((_, all)) => all.push(words),
            None => flavors.push((flavor, vec![words])),
        }
    }
    let each = flavors.iter().map(|(flavor, all)| format!("{} of flavor {flavor}", all.join(" and ")));
    each.collect::<Vec<_>>().join(" and ")
}

/// More quota that was tried: in words, as a patch, and what came of it.
struct With {
    lacks: Vec<Lack>,
    text: String,
    patch: Patch,
    tried: Tried,
    after: Option<Simulation>,
}

impl Question<'_> {
    /// As much more nominal quota of its own queue as a job needs to start, beginning with what is missing of one flavor: all its resources at once.
    /// Where that is needless beside what another flavor lacks, it is of that one. Adds how large the job may be without more, if it is too large.
    pub(super) fn more_quota(
        &self,
        simulation: &Simulation,
        target: &Target,
        (flavor, refusals): (&Name, &[&Refusal]),
        sizes: &mut Vec<Largest>,
    ) -> Result<Option<Remedy>, ExplainError> {
        let queue = simulation.record().job(&target.job).and_then(|job| job.cluster_queue.clone());
        let Some(queue) = queue else { return Ok(None) };
        let mut more = lacks(std::slice::from_ref(flavor), refusals);
        let mut limits = Limits::default();
        limits.note(refusals, |_, _| 0);
        for _ in 0..MOST_ROUNDS {
            let Some(with) = self.with_more(simulation, &target.job, &queue, &more)? else { return Ok(None) };
            if !matches!(with.tried, Tried::Waits) {
                let With { text, patch, tried, after, .. } =
                    self.without_needless(simulation, &target.job, &queue, with)?;
                let workload = after.as_ref().and_then(|after| after.object(&target.workload));
                let configuration = &self.options.configuration;
                sizes.extend(workload.and_then(|workload| Largest::of(workload, &limits, configuration)));
                return Ok(Remedy::of(Advice::MoreQuota, text, vec![patch], tried));
            }
            let Some(after) = with.after else { return Ok(None) };
            let own = &target.workload;
            let account = after.engine().account(Some(Kind::Workload), &own.namespace, &own.name, 0);
            let decision = account.and_then(|account| account.decision);
            let refusals = decision.as_ref().map(refusals_of).unwrap_or_default();
            limits.note(&refusals, |flavor, resource| {
                let own = more.iter().find(|lack| lack.flavor == *flavor && lack.resource == *resource);
                own.map_or(0, |lack| lack.amount)
            });
            if !add(&mut more, &refusals) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// What comes of that much more quota, if the queue can have it.
    fn with_more(
        &self,
        simulation: &Simulation,
        job: &ObjectRef,
        queue: &str,
        lacks: &[Lack],
    ) -> Result<Option<With>, ExplainError> {
        let Some((text, patch)) = raise(simulation, queue, lacks) else { return Ok(None) };
        let (tried, after) = self.attempt(simulation, job, std::slice::from_ref(&patch))?;
        Ok(Some(With { lacks: lacks.to_vec(), text, patch, tried, after }))
    }

    /// Without the flavors that it starts without: what was added first may have been in vain.
    fn without_needless(
        &self,
        simulation: &Simulation,
        job: &ObjectRef,
        queue: &str,
        mut with: With,
    ) -> Result<With, ExplainError> {
        let flavors: BTreeSet<Name> = with.lacks.iter().map(|lack| Name::clone(&lack.flavor)).collect();
        for flavor in flavors {
            let others: Vec<Lack> = with.lacks.iter().filter(|lack| lack.flavor != flavor).cloned().collect();
            if others.is_empty() {
                continue;
            }
            match self.with_more(simulation, job, queue, &others)? {
                Some(less) if matches!(less.tried, Tried::Starts(..)) => with = less,
                _ => {}
            }
        }
        Ok(with)
    }

    /// The lowest priority class above the job's own with which it starts. What a class lets start, a higher one does, too.
    pub(super) fn higher_priority(
        &self,
        simulation: &Simulation,
        target: &Target,
    ) -> Result<Option<Remedy>, ExplainError> {
        let job = &target.job;
        let Some(own) = simulation.record().job(job).map(|job| i64::from(job.priority)) else {
            return Ok(None);
        };
        let mut classes: BTreeMap<i64, &Name> = BTreeMap::new();
        for (reference, class) in simulation.world.of_kind(Kind::WorkloadPriorityClass) {
            if let Some(value) = class["value"].as_i64().filter(|value| *value > own) {
                let name = classes.entry(value).or_insert(&reference.name);
                *name = (*name).min(&reference.name);
            }
        }
        let classes: Vec<&Name> = classes.into_values().collect();
        let patches = |class: &Name| {
            target.patches(&json!({"metadata": {"labels": {sluice_api::labels::PRIORITY_CLASS: &**class}}}))
        };
        let Some(highest) = classes.len().checked_sub(1) else { return Ok(None) };
        let mut best = self.starts_with(simulation, job, &patches(classes[highest]))?;
        let (mut at_least, mut works) = (0, highest);
        while at_least < works && matches!(best, Tried::Starts(..)) {
            let middle = usize::midpoint(at_least, works);
            match self.starts_with(simulation, job, &patches(classes[middle]))? {
                Tried::Waits => at_least = middle + 1,
                Tried::NotInTime => break,
                starts @ Tried::Starts(..) => (best, works) = (starts, middle),
            }
        }
        let class = classes[works];
        let text = format!("starts now with the WorkloadPriorityClass {class}");
        Ok(Remedy::of(Advice::HigherPriority, text, patches(class), best))
    }
}
