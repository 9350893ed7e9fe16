//! What the checker needs to know of each object.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use sluice_testkit::workloads::{condition, holds};

use super::pod_sets::{self, Assigned, PodSet};
use super::quota::{Usage, node_queue};
use crate::amounts::{Amounts, of_pod};
use crate::place::QUEUE_NAME;

/// The label of a pod that names its pod set.
const POD_SET: &str = "kueue.x-k8s.io/podset";

/// What a Workload is told whose reservation is revoked.
const REVOKED: &str = "Quota was reserved by a former leader";

/// The annotation of a pod that fails after this many seconds.
pub const FAILS: &str = "sluice.dev/fail-after-seconds";

/// The annotation that a user writes, each time with another value, with the same write that lets a job run by hand.
pub const LET_RUN: &str = "example.com/let-run";

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
    /// The job names a queue itself.
    pub queued: bool,
    pub suspended: bool,
    pub finished: bool,
    /// The job failed, although no pod of it was made to fail.
    pub failed_unmade: bool,
    pub deleting: bool,
    /// Its own controller says that it has seen it run.
    pub seen_running: bool,
    /// Its own controller reports whether it is suspended, so a missed stop is visible.
    pub says_suspended: bool,
    /// Its own controller says that it is suspended.
    pub seen_suspended: bool,
    /// It has begun to run, and its own controller has not reported since then that it saw this.
    pub unheard: bool,
    /// How many pods a Job has at a time.
    pub parallelism: usize,
    /// How many its own controller says that it has, if it says so.
    pub active: Option<usize>,
    /// The revision at which it last began to run.
    pub began: u64,
    /// When that was.
    pub began_at: Duration,
    /// When it was made.
    pub made: Duration,
    /// When it, or a Job of it, last changed.
    pub changed: Duration,
    /// The value of [`LET_RUN`].
    pub let_run: Option<String>,
    /// Its user let it run when it last began.
    pub by_hand: bool,
    /// It has been admitted since then.
    pub taken_on: bool,
    /// It was admitted when it last began.
    pub began_admitted: bool,
    /// Pods that were made before this revision may be of a run that its user began.
    pub by_hand_before: u64,
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
            unheard: false,
            parallelism: object["spec"]["parallelism"]
                .as_u64()
                .map_or(1, |pods| usize::try_from(pods).unwrap_or(usize::MAX)),
            active: object["status"]["active"].as_u64().and_then(|pods| usize::try_from(pods).ok()),
            began: 0,
            began_at: Duration::ZERO,
            made: Duration::ZERO,
            changed: Duration::ZERO,
            let_run: object["metadata"]["annotations"][LET_RUN].as_str().map(str::to_owned),
            by_hand: false,
            taken_on: false,
            began_admitted: false,
            by_hand_before: 0,
        }
    }

    /// Whether it has pods, or will have some.
    pub fn runs(&self) -> bool {
        !self.suspended && !self.finished && !self.deleting
    }

    /// Takes over what the state before it says of its runs. Whether it begins to run at this revision.
    pub fn follow(&mut self, before: Option<&Self>, revision: u64) -> bool {
        let ran = before.filter(|before| before.runs());
        let begins = self.runs() && ran.is_none();
        self.began = before.filter(|_| !begins).map_or(revision, |before| before.began);
        self.unheard = !self.seen_running && (begins || before.is_some_and(|before| before.unheard));
        let (was, until) = before.map_or((false, 0), |before| (before.by_hand, before.by_hand_before));
        let other = self.let_run.is_some() && before.is_some_and(|before| before.let_run != self.let_run);
        self.by_hand = if begins { other } else { was };
        self.by_hand_before = match until {
            // Until its controller reports the start, it may act on what it knows of the user's.
            _ if begins && was => u64::MAX,
            u64::MAX if !self.unheard => revision,
            until => until,
        };
        self.taken_on = !begins && before.is_some_and(|before| before.taken_on);
        self.began_admitted = !begins && before.is_some_and(|before| before.began_admitted);
        begins
    }

    /// Whether its user began its last run, which was never admitted.
    pub fn is_without_quota(&self) -> bool {
        self.by_hand && !self.taken_on
    }

    /// Whether a pod of it that was made at this revision may be of a run that its user began.
    pub fn is_by_hand(&self, made: u64) -> bool {
        made < self.by_hand_before || (self.by_hand && made >= self.began)
    }
}

/// A pod.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    /// The UID of its Job.
    pub owner: Option<String>,
    /// The pod has not ended and was not stopped.
    pub live: bool,
    /// The pod has not ended: a stopped pod needs its node until it has.
    pub present: bool,
    pub node: Option<String>,
    /// The pod set that it belongs to, if it says so.
    pub set: Option<String>,
    /// Its requests.
    pub asks: Amounts,
    /// The revision at which it was made.
    pub made: u64,
    /// When it was made.
    pub made_at: Duration,
}

impl Pod {
    pub fn read(object: &Value) -> Result<Self> {
        let over = ["Succeeded", "Failed"].contains(&text(object, "/status/phase").as_str());
        let deleting = object["metadata"]["deletionTimestamp"].is_string();
        let node = object["spec"]["nodeName"].as_str().map(str::to_owned);
        Ok(Self {
            owner: controller(object),
            live: !over && !deleting,
            present: !over,
            node,
            set: object["metadata"]["labels"][POD_SET].as_str().map(str::to_owned),
            asks: of_pod(&object["spec"])?,
            made: 0,
            made_at: Duration::ZERO,
        })
    }
}

/// The content of an admission.
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
    pub deleting: bool,
    pub finished: bool,
    /// Its reservation was revoked, as it came from a former leader.
    pub revoked: bool,
    pub admission: Option<Admission>,
    /// The LocalQueue that it names.
    pub local: String,
    /// How many pods it is admitted with.
    pub pods: usize,
    /// Its requests, and its admission.
    pub sets: Vec<PodSet>,
    /// Some of its pods have completed.
    pub partly_completed: bool,
    /// Its present usage, without the reclaimable pods.
    pub usage: Usage,
    /// Its usage of each assigned node, if nodes are assigned: including reclaimable pods.
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
            deleting: object["metadata"]["deletionTimestamp"].is_string(),
            finished: holds(object, "Finished"),
            revoked: condition(object, "QuotaReserved").is_some_and(|one| {
                one["status"] == "False"
                    && one["message"].as_str().is_some_and(|text| text.starts_with(REVOKED))
            }),
            local: text(object, "/spec/queueName"),
            sets: pod_sets::read(object)?,
            ..Self::default()
        };
        read.partly_completed = read.sets.iter().any(|set| set.reclaimable > 0);
        read.pods = read.sets.iter().filter_map(|set| Some(set.gift.as_ref()?.pods)).sum();
        let admission = &object["status"]["admission"];
        if admission.is_object() {
            let assigned = admission["podSetAssignments"].clone();
            read.admission = Some(Admission { queue: text(admission, "/clusterQueue"), assigned });
        }
        ensure!(read.admission.is_some() || !read.reserved, "quota is reserved without an admission");
        if read.reserved && !read.finished {
            read.usage = pod_sets::usage(&read.sets);
            read.nodes = pod_sets::assigned(&read.sets);
        }
        Ok(read)
    }

    /// Its usage by queue: of its ClusterQueue, and of each assigned node.
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
