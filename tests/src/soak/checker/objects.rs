//! What the checker needs to know of each object.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sluice_testkit::workloads::{condition, holds};

use super::nodes::{Assigned, assigned};
use super::quota::{FlavorResource, Usage, node_queue};
use crate::place::QUEUE_NAME;

/// A pod with this fails after so many seconds.
pub const FAILS: &str = "sluice.dev/fail-after-seconds";

/// An amount in thousandths, exactly.
pub(super) fn amount(text: &Value) -> Result<i128> {
    let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: i128 = digits.parse().with_context(|| format!("reading the amount {text}"))?;
    let unit = match &text[digits.len()..] {
        "m" => 1,
        "" => 1_000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "Ki" => 1_000 << 10,
        "Mi" => 1_000 << 20,
        "Gi" => 1_000 << 30,
        other => anyhow::bail!("reading the amount {text}: the unit {other} is not known"),
    };
    Ok(number * unit)
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The UID of the controller of an object.
fn controller(object: &Value) -> Option<String> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    owner["uid"].as_str().map(str::to_owned)
}

/// A Job or a JobSet.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one object")]
pub(super) struct Job {
    pub uid: String,
    /// Its controller: the JobSet of a Job.
    pub owner: Option<String>,
    /// It names a queue itself.
    pub queued: bool,
    pub suspended: bool,
    pub finished: bool,
    /// It failed, and no pod of it was made to fail.
    pub failed_unmade: bool,
    pub deleting: bool,
    /// Its own controller says that it has seen it run.
    pub seen_running: bool,
    /// Its own controller says whether it is suspended: that it has not seen a stop is to be seen then.
    pub says_suspended: bool,
    /// Its own controller says that it is suspended.
    pub seen_suspended: bool,
    /// How many pods a Job has at a time.
    pub parallelism: usize,
    /// The revision at which it last began to run.
    pub began: u64,
}

impl Job {
    pub fn read(object: &Value) -> Self {
        Self {
            uid: text(object, "/metadata/uid"),
            owner: controller(object),
            queued: object["metadata"]["labels"][QUEUE_NAME].is_string(),
            suspended: object["spec"]["suspend"] == true,
            finished: ["Complete", "Failed", "Completed"].iter().any(|kind| holds(object, kind)),
            failed_unmade: holds(object, "Failed")
                && !object["spec"]["template"]["metadata"]["annotations"][FAILS].is_string(),
            deleting: object["metadata"]["deletionTimestamp"].is_string(),
            seen_running: object["status"]["active"].as_u64().is_some_and(|active| active > 0)
                || condition(object, "Suspended").is_some_and(|one| one["status"] == "False"),
            says_suspended: condition(object, "Suspended").is_some(),
            seen_suspended: holds(object, "Suspended"),
            parallelism: object["spec"]["parallelism"]
                .as_u64()
                .map_or(1, |pods| usize::try_from(pods).unwrap_or(usize::MAX)),
            began: 0,
        }
    }

    /// It has pods, or will have.
    pub fn runs(&self) -> bool {
        !self.suspended && !self.finished && !self.deleting
    }
}

/// A pod.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    /// The UID of its Job.
    pub owner: Option<String>,
    /// It has not ended and was not stopped.
    pub live: bool,
    pub node: Option<String>,
    /// The revision at which it was made.
    pub made: u64,
}

impl Pod {
    pub fn read(object: &Value) -> Self {
        let over = ["Succeeded", "Failed"].contains(&text(object, "/status/phase").as_str());
        let deleting = object["metadata"]["deletionTimestamp"].is_string();
        let node = object["spec"]["nodeName"].as_str().map(str::to_owned);
        Self { owner: controller(object), live: !over && !deleting, node, made: 0 }
    }
}

/// What an admission gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    pub queue: String,
    /// Flavors and counts by pod set: what must not change without an eviction.
    assigned: Value,
}

impl Admission {
    /// All but the nodes.
    pub fn without_places(&self) -> Self {
        let mut all = self.clone();
        for set in all.assigned.as_array_mut().into_iter().flatten() {
            if let Some(set) = set.as_object_mut() {
                set.remove("topologyAssignment");
            }
        }
        all
    }
}

/// A Workload.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one object")]
pub(super) struct Workload {
    pub uid: String,
    /// The UID of its job.
    pub job: Option<String>,
    pub reserved: bool,
    pub admitted: bool,
    pub evicted: bool,
    /// `spec.active` is false.
    pub inactive: bool,
    pub finished: bool,
    pub admission: Option<Admission>,
    /// How many pods it is admitted with.
    pub pods: usize,
    /// Some of its pods have completed.
    pub partly_completed: bool,
    /// What it uses now, without the pods that need nothing any more.
    pub usage: Usage,
    /// What it has of each node, if nodes are assigned to it: also for pods that need nothing any more.
    pub nodes: Option<BTreeMap<String, Assigned>>,
}

impl Workload {
    pub fn read(object: &Value) -> Result<Self> {
        let mut read = Self {
            uid: text(object, "/metadata/uid"),
            job: controller(object),
            reserved: holds(object, "QuotaReserved"),
            admitted: holds(object, "Admitted"),
            evicted: holds(object, "Evicted"),
            inactive: object["spec"]["active"] == false,
            finished: holds(object, "Finished"),
            ..Self::default()
        };
        let reclaimable = object["status"]["reclaimablePods"].as_array();
        read.partly_completed = reclaimable.is_some_and(|sets| !sets.is_empty());
        let admission = &object["status"]["admission"];
        if admission.is_object() {
            let assigned = admission["podSetAssignments"].clone();
            let counts = assigned.as_array().into_iter().flatten().filter_map(|set| set["count"].as_u64());
            read.pods = usize::try_from(counts.sum::<u64>())?;
            read.admission = Some(Admission { queue: text(admission, "/clusterQueue"), assigned });
        }
        ensure!(read.admission.is_some() || !read.reserved, "quota is reserved without an admission");
        if read.reserved && !read.finished {
            read.usage = usage(object)?;
            read.nodes = assigned(&admission["podSetAssignments"])?;
        }
        Ok(read)
    }

    /// What it uses, by queue: of its ClusterQueue, and of each node that is assigned to it.
    pub fn charges(&self) -> Vec<(String, &Usage)> {
        let own = self.admission.iter().map(|admission| (admission.queue.clone(), &self.usage));
        let nodes = self.nodes.iter().flatten().map(|(node, has)| (node_queue(node), &has.usage));
        own.chain(nodes).collect()
    }

    /// Its job may run.
    pub fn covers(&self) -> bool {
        self.admitted && self.reserved && !self.finished
    }
}

/// What a Workload's admission uses: of each pod set the share of those pods that are not reclaimable. It may have been admitted with fewer than
/// it asks for, because some had completed before.
fn usage(object: &Value) -> Result<Usage> {
    let wanted: BTreeMap<&str, i128> = object["spec"]["podSets"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|set| Some((set["name"].as_str()?, i128::from(set["count"].as_i64()?))))
        .collect();
    let reclaimable: BTreeMap<&str, i128> = object["status"]["reclaimablePods"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|set| Some((set["name"].as_str()?, i128::from(set["count"].as_i64()?))))
        .collect();
    let mut used = Usage::new();
    for set in object["status"]["admission"]["podSetAssignments"].as_array().into_iter().flatten() {
        let name = set["name"].as_str().unwrap_or_default();
        let pods = i128::from(set["count"].as_i64().unwrap_or(1));
        let wanted = *wanted.get(name).with_context(|| format!("there is no pod set {name:?}"))?;
        let needed = wanted - reclaimable.get(name).copied().unwrap_or_default();
        let left = needed.clamp(0, pods);
        for (resource, flavor) in set["flavors"].as_object().into_iter().flatten() {
            let flavor = flavor.as_str().unwrap_or_default();
            let whole = amount(&set["resourceUsage"][resource])?;
            let one = FlavorResource { flavor: flavor.to_owned(), resource: resource.clone() };
            *used.entry(one).or_default() += whole * left / pods.max(1);
        }
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_read_exactly() {
        let read = |value: Value| amount(&value).unwrap();
        assert_eq!(read(json!("1500m")), 1_500);
        assert_eq!(read(json!(2)), 2_000);
        assert_eq!(read(json!("3Gi")), 3_000 * (1 << 30));
        assert!(amount(&json!("1.5")).is_err() && amount(&json!("1Zi")).is_err());
    }
}
