//! Which policy protects which job, if preemption cannot free the missing quota (docs/reference/06-algorithm.md 6.7).

use serde_json::Value;
use sluice_core::{Amount, PreemptionPossibility};
use sluice_engine::{Kind, ObjectRef};
use sluice_quantity::{Quantity, amount_of};

use super::{MOST_LISTED, Question, Refused};
use crate::json::text;
use crate::record::{JobRecord, show_amount};
use crate::simulation::Simulation;

/// The fields of a ClusterQueue's `preemption`; an absent one is `Never`.
struct Policies {
    queue: String,
    within: String,
    reclaim: String,
    borrow: String,
    /// `maxPriorityThreshold`.
    threshold: Option<i64>,
    /// Whether its Cohort is the root of its tree: then no queue has a hierarchical advantage.
    flat: bool,
    /// Whether fair sharing decides between queues, instead of `borrowWithinCohort`.
    fair: bool,
}

/// A job that holds what is missing.
struct Holder<'a> {
    job: &'a JobRecord,
    queue: &'a str,
    amount: i64,
}

impl Question<'_> {
    /// Fills in which preemption was considered, which policy refused it, and which jobs hold the resource, largest first.
    pub(super) fn refused_by_policy(
        &self,
        simulation: &Simulation,
        asking: &JobRecord,
        refused: &mut Refused,
        (needed, nominal, possibility): (Amount, Amount, PreemptionPossibility),
    ) {
        let (Some(flavor), Some(resource)) = (refused.flavor.clone(), refused.resource.clone()) else {
            return;
        };
        let Some(policies) = Policies::of(simulation, asking) else { return };
        refused.preemption = Some(policies.possibility(possibility, &resource, needed, nominal));
        if possibility != PreemptionPossibility::NoCandidates {
            return;
        }
        let holders = holders(simulation, &flavor, &resource);
        let used =
            |queue: &str| -> i64 { holders.iter().filter(|h| h.queue == queue).map(|h| h.amount).sum() };
        let borrows = used(&policies.queue).saturating_add(needed.get()) > nominal.get();
        for holder in holders.iter().take(MOST_LISTED) {
            let above = nominal_of(simulation, holder.queue, &flavor, &resource)
                .is_none_or(|nominal| used(holder.queue) > nominal);
            let its_queue = self.shown_queue(simulation, holder.queue);
            if let Some(rule) = policies.spares(asking, (holder, its_queue), borrows, above) {
                let who = self.shown(&holder.job.namespace, &holder.job.name);
                refused.spared.push(format!("{who} is spared: {rule}"));
            }
        }
    }

    /// The jobs that hold a flavor's resource now, the largest first.
    pub(super) fn held_by(&self, simulation: &Simulation, refused: &mut Refused) {
        let (Some(flavor), Some(resource)) = (&refused.flavor, &refused.resource) else { return };
        let held = holders(simulation, flavor, resource).into_iter().take(MOST_LISTED).map(|holder| {
            let who = self.shown(&holder.job.namespace, &holder.job.name);
            let queue = self.shown_queue(simulation, holder.queue).unwrap_or("another ClusterQueue");
            format!("{who} ({} by {queue})", show_amount(resource, holder.amount))
        });
        refused.held_by = held.collect();
    }
}

impl Policies {
    fn of(simulation: &Simulation, asking: &JobRecord) -> Option<Self> {
        let queue = asking.cluster_queue.as_deref()?;
        let object = simulation.world.get(&ObjectRef::cluster(Kind::ClusterQueue, queue))?;
        let preemption = &object["spec"]["preemption"];
        let policy = |value: &Value| match text(value) {
            "" => "Never".to_owned(),
            policy => policy.to_owned(),
        };
        let cohort = text(&object["spec"]["cohortName"]);
        let parent = simulation.world.get(&ObjectRef::cluster(Kind::Cohort, cohort));
        Some(Self {
            queue: queue.to_owned(),
            within: policy(&preemption["withinClusterQueue"]),
            reclaim: policy(&preemption["reclaimWithinCohort"]),
            borrow: policy(&preemption["borrowWithinCohort"]["policy"]),
            threshold: preemption["borrowWithinCohort"]["maxPriorityThreshold"].as_i64(),
            flat: parent.is_none_or(|cohort| text(&cohort["spec"]["parentName"]).is_empty()),
            fair: simulation.engine().config().fair_sharing.is_some(),
        })
    }

    /// The engine's finding, in words.
    fn possibility(
        &self,
        possibility: PreemptionPossibility,
        resource: &str,
        needed: Amount,
        nominal: Amount,
    ) -> String {
        match possibility {
            PreemptionPossibility::NotAllowed => {
                let (needed, nominal) =
                    (show_amount(resource, needed.get()), show_amount(resource, nominal.get()));
                let policy = if self.fair { "reclaimWithinCohort" } else { "borrowWithinCohort" };
                format!(
                    "not considered: {needed} are more than the nominal quota of {nominal}, and {policy} of \
                     ClusterQueue {} is Never",
                    self.queue
                )
            }
            PreemptionPossibility::NotConsidered => {
                "not considered: the flavor cannot serve another resource of the job either way".to_owned()
            }
            PreemptionPossibility::NoCandidates => {
                "considered, but no workload that the policies let it preempt makes room".to_owned()
            }
            PreemptionPossibility::Preempt => "victims in its own queue would make room".to_owned(),
            PreemptionPossibility::Reclaim => "victims in other queues would make room".to_owned(),
        }
    }

    /// The policy that protects a holder, if one does.
    fn spares(
        &self,
        asking: &JobRecord,
        (holder, its_queue): (&Holder<'_>, Option<&str>),
        borrows: bool,
        above: bool,
    ) -> Option<String> {
        let (own, its) = (asking.priority, holder.job.priority);
        let not_below = || format!("its priority {its} is not below {own}");
        let rule = |field: &str, policy: &str, why: String| Some(format!("{field} is {policy}, and {why}"));
        if holder.queue == self.queue {
            let field = "withinClusterQueue";
            return match self.within.as_str() {
                "Never" => Some(format!("{field} is Never")),
                "LowerPriority" if its >= own => rule(field, "LowerPriority", not_below()),
                policy if its > own => rule(field, policy, format!("its priority {its} is above {own}")),
                policy if its == own && holder.job.submitted <= asking.submitted => {
                    rule(field, policy, "it is as important and came earlier".to_owned())
                }
                _ => None,
            };
        }
        let field = "reclaimWithinCohort";
        match self.reclaim.as_str() {
            "Never" => return Some(format!("{field} is Never")),
            _ if !above && !self.fair => {
                let which =
                    its_queue.map_or("its ClusterQueue".to_owned(), |name| format!("ClusterQueue {name}"));
                return Some(format!("{which} uses no more than its nominal quota"));
            }
            "LowerPriority" if its >= own => return rule(field, "LowerPriority", not_below()),
            _ if !borrows || self.fair || !self.flat => return None,
            _ => {}
        }
        let field = "borrowWithinCohort";
        match (self.borrow.as_str(), self.threshold) {
            ("Never", _) => Some(format!("the job would borrow, and {field} is Never")),
            (policy, _) if its >= own => rule(field, policy, not_below()),
            (_, Some(most)) if i64::from(its) > most => {
                Some(format!("the job would borrow, and maxPriorityThreshold of {field} is {most}"))
            }
            _ => None,
        }
    }
}

/// The jobs that hold a flavor's resource now, the largest first.
fn holders<'a>(simulation: &'a Simulation, flavor: &str, resource: &str) -> Vec<Holder<'a>> {
    let mut holders = Vec::new();
    for job in &simulation.record().jobs {
        let Some(hold) = job.holds.last().filter(|h| h.to.is_none()) else { continue };
        let of = |h: &&crate::Holding| *h.flavor == *flavor && *h.resource == *resource;
        if let Some(holding) = hold.holdings.iter().find(of) {
            holders.push(Holder { job, queue: &hold.queue, amount: holding.amount });
        }
    }
    let name = |h: &Holder<'a>| (&h.job.namespace, &h.job.name);
    holders.sort_by(|a, b| b.amount.cmp(&a.amount).then_with(|| name(a).cmp(&name(b))));
    holders
}

/// The nominal quota of a ClusterQueue.
fn nominal_of(simulation: &Simulation, queue: &str, flavor: &str, resource: &str) -> Option<i64> {
    let object = simulation.world.get(&ObjectRef::cluster(Kind::ClusterQueue, queue))?;
    let groups = object["spec"]["resourceGroups"].as_array()?;
    let flavors = groups.iter().filter_map(|group| group["flavors"].as_array()).flatten();
    let of = flavors.filter(|f| f["name"] == flavor).filter_map(|f| f["resources"].as_array()).flatten();
    let quota = of.into_iter().find(|r| r["name"] == resource)?;
    nominal_amount(quota, resource).map(Amount::get)
}

/// The `nominalQuota` of one resource of one flavor, written as a number or a string.
pub(super) fn nominal_amount(quota: &Value, resource: &str) -> Option<Amount> {
    let written = match &quota["nominalQuota"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(amount_of(resource, &Quantity::parse(&written).ok()?))
}
