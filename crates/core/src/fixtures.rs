//! A short notation for tests: flavors, queues, cohorts and workloads in a few words (feature `fixtures`).
#![expect(clippy::return_self_not_must_use, reason = "a fixture that is dropped is noticed by its test")]

use crate::spec::{
    ClusterQueueSpec, CohortSpec, FlavorQuotas, FlavorSpec, LocalQueueSpec, PreemptionPolicy,
    QueueingStrategy, ResourceGroup, ResourceQuota, StopPolicy, Time, Weight,
};
use crate::topology::{HOSTNAME, NodeSpec, TopologySpec};
use crate::workload::{
    Admission, PodSetAssignment, PodSetSpec, ReplacedSlice, WorkloadKey, WorkloadSpec, WorkloadState,
};
use crate::{Amount, Name};

/// The namespace of everything.
pub const NS: &str = "ns";
/// The flavor of [`Cq::quota`].
pub const DEFAULT: &str = "default";

/// A name.
pub fn n(text: &str) -> Name {
    Name::from(text)
}

/// Names and values.
pub fn pairs(of: &[(&str, &str)]) -> Vec<(Name, Name)> {
    of.iter().map(|(key, value)| (n(key), n(value))).collect()
}

/// A flavor without labels and taints.
pub fn flavor(name: &str) -> FlavorSpec {
    FlavorSpec {
        name: n(name),
        node_labels: Vec::new(),
        taints: Vec::new(),
        tolerations: Vec::new(),
        topology: None,
    }
}

/// A Topology with these levels, from the highest to the lowest.
pub fn topology(name: &str, levels: &[&str]) -> TopologySpec {
    TopologySpec { name: n(name), levels: levels.iter().map(|level| n(level)).collect() }
}

/// A Node that has its name as its hostname label, these labels beside it, and these resources; and room for 110 pods.
pub fn node(name: &str, labels: &[(&str, &str)], allocatable: &[(&str, i64)]) -> NodeSpec {
    let hostname = (n(HOSTNAME), n(name));
    let amounts = allocatable.iter().map(|(resource, amount)| (n(resource), Amount(*amount)));
    NodeSpec {
        name: n(name),
        labels: pairs(labels).into_iter().chain([hostname]).collect(),
        taints: Vec::new(),
        allocatable: amounts.chain([(n("pods"), Amount(110))]).collect(),
        usable: true,
    }
}

/// A LocalQueue that points to a ClusterQueue.
pub fn lq(name: &str, cluster_queue: &str) -> LocalQueueSpec {
    LocalQueueSpec {
        namespace: n(NS),
        name: n(name),
        cluster_queue: n(cluster_queue),
        stop_policy: StopPolicy::None,
        terminating: false,
        fair_weight: Weight::ONE,
        consumed: Vec::new(),
    }
}

/// The key of a workload.
pub fn key(name: &str) -> WorkloadKey {
    WorkloadKey::new(NS, name)
}

/// A quota of one resource.
#[derive(Debug, Clone, Copy)]
pub struct Q {
    nominal: Amount,
    borrow: Option<Amount>,
    lend: Option<Amount>,
}

/// A nominal quota without limits.
pub fn q(nominal: i64) -> Q {
    Q { nominal: Amount(nominal), borrow: None, lend: None }
}

impl Q {
    /// With a `borrowingLimit`.
    pub fn borrow(self, limit: i64) -> Q {
        Q { borrow: Some(Amount(limit)), ..self }
    }

    /// With a `lendingLimit`.
    pub fn lend(self, limit: i64) -> Q {
        Q { lend: Some(Amount(limit)), ..self }
    }
}

/// Adds a flavor: to the group that covers the same resources, or as a group of its own.
fn add_flavor(groups: &mut Vec<ResourceGroup>, name: &str, quotas: &[(&str, Q)]) {
    let resources: Vec<ResourceQuota> = quotas
        .iter()
        .map(|(resource, quota)| ResourceQuota {
            name: n(resource),
            nominal: quota.nominal,
            borrowing_limit: quota.borrow,
            lending_limit: quota.lend,
        })
        .collect();
    let covered: Vec<Name> = resources.iter().map(|resource| resource.name.clone()).collect();
    let flavor = FlavorQuotas { name: n(name), resources };
    match groups.iter_mut().find(|group| group.covered == covered) {
        Some(group) => group.flavors.push(flavor),
        None => groups.push(ResourceGroup { covered, flavors: vec![flavor] }),
    }
}

/// A ClusterQueue; its LocalQueue has the same name.
#[derive(Debug, Clone)]
pub struct Cq(
    /// The spec.
    pub ClusterQueueSpec,
);

/// A ClusterQueue with the API's defaults and no quota.
pub fn cq(name: &str) -> Cq {
    Cq(ClusterQueueSpec::named(name))
}

impl Cq {
    /// In a Cohort.
    pub fn cohort(mut self, cohort: &str) -> Cq {
        self.0.cohort = Some(n(cohort));
        self
    }

    /// Quota of `gpu` in the flavor `default`.
    pub fn quota(self, quota: Q) -> Cq {
        self.flavor(DEFAULT, &[("gpu", quota)])
    }

    /// Quotas of a flavor; flavors with the same resources form a resource group.
    pub fn flavor(mut self, name: &str, quotas: &[(&str, Q)]) -> Cq {
        add_flavor(&mut self.0.resource_groups, name, quotas);
        self
    }

    /// `StrictFIFO`.
    pub fn strict(mut self) -> Cq {
        self.0.strategy = QueueingStrategy::StrictFIFO;
        self
    }

    /// `preemption.withinClusterQueue`.
    pub fn within(mut self, policy: PreemptionPolicy) -> Cq {
        self.0.preemption.within_cluster_queue = policy;
        self
    }

    /// `preemption.reclaimWithinCohort`.
    pub fn reclaim(mut self, policy: PreemptionPolicy) -> Cq {
        self.0.preemption.reclaim_within_cohort = policy;
        self
    }

    /// Anything else of the spec.
    pub fn with(mut self, change: impl FnOnce(&mut ClusterQueueSpec)) -> Cq {
        change(&mut self.0);
        self
    }
}

/// A Cohort.
#[derive(Debug, Clone)]
pub struct Co(
    /// The spec.
    pub CohortSpec,
);

/// A Cohort without quota.
pub fn cohort(name: &str) -> Co {
    Co(CohortSpec { name: n(name), parent: None, resource_groups: Vec::new(), fair_weight: Weight::ONE })
}

impl Co {
    /// Below another Cohort.
    pub fn parent(mut self, parent: &str) -> Co {
        self.0.parent = Some(n(parent));
        self
    }

    /// Quota of `gpu` in the flavor `default`.
    pub fn quota(self, quota: Q) -> Co {
        self.flavor(DEFAULT, &[("gpu", quota)])
    }

    /// Quotas of a flavor.
    pub fn flavor(mut self, name: &str, quotas: &[(&str, Q)]) -> Co {
        add_flavor(&mut self.0.resource_groups, name, quotas);
        self
    }

    /// `fairSharing.weight`, in thousandths.
    pub fn weight(mut self, milli: i64) -> Co {
        self.0.fair_weight = Weight::from_milli(milli);
        self
    }
}

/// A workload.
#[derive(Debug, Clone)]
pub struct Job {
    /// The spec.
    pub spec: WorkloadSpec,
    /// The second of its creation, if it was said.
    pub created: Option<i64>,
}

/// A workload of one pod, `main`, without requests yet.
pub fn job(name: &str, queue: &str) -> Job {
    let spec = WorkloadSpec {
        key: key(name),
        uid: n(name),
        local_queue: n(queue),
        priority: 0,
        created: Time(0),
        queue_order: Time(0),
        generation: 1,
        pod_sets: vec![pods("main")],
        state: WorkloadState::PENDING,
        preemption_gated: false,
        replaces: None,
    };
    Job { spec, created: None }
}

/// A pod set of one pod without requests yet.
pub fn pods(name: &str) -> PodSetSpec {
    PodSetSpec::plain(n(name))
}

impl Job {
    /// Asks for `gpu` per pod.
    pub fn gpu(self, amount: i64) -> Job {
        self.req("gpu", amount)
    }

    /// Asks for a resource per pod of the last pod set.
    pub fn req(self, resource: &str, amount: i64) -> Job {
        self.pod(|pod_set| {
            pod_set.requests.push((n(resource), Amount(amount)));
            pod_set.requests.sort();
        })
    }

    /// How many pods the last pod set has.
    pub fn count(self, count: i64) -> Job {
        self.pod(|pod_set| pod_set.count = count)
    }

    /// `minCount`.
    pub fn min(self, count: i64) -> Job {
        self.pod(|pod_set| pod_set.min_count = Some(count))
    }

    /// Another pod set; what follows is about it.
    pub fn pod_set(mut self, name: &str) -> Job {
        self.spec.pod_sets.push(pods(name));
        self
    }

    /// Anything of the last pod set.
    pub fn pod(mut self, change: impl FnOnce(&mut PodSetSpec)) -> Job {
        if let Some(last) = self.spec.pod_sets.last_mut() {
            change(last);
        }
        self
    }

    /// With a priority.
    pub fn priority(mut self, priority: i32) -> Job {
        self.spec.priority = priority;
        self
    }

    /// Created, and ordered, at this second. Otherwise in the order of submission.
    pub fn at(mut self, second: i64) -> Job {
        self.created = Some(second);
        self
    }

    /// Takes over from another slice, whose pods all run in this flavor.
    pub fn replaces(self, slice: &Job, flavor: &str) -> Job {
        let flavors = slice.admission("", flavor).pod_sets.into_iter();
        let flavors = flavors.map(|pod_set| (pod_set.name, pod_set.flavors)).collect();
        let key = slice.spec.key.clone();
        self.with(|spec| spec.replaces = Some(ReplacedSlice { key, flavors }))
    }

    /// Anything of the spec.
    pub fn with(mut self, change: impl FnOnce(&mut WorkloadSpec)) -> Job {
        change(&mut self.spec);
        self
    }

    /// Its admission if every resource gets this flavor.
    pub fn admission(&self, cluster_queue: &str, flavor: &str) -> Admission {
        let pod_sets = self.spec.pod_sets.iter().map(|pod_set| PodSetAssignment {
            name: pod_set.name.clone(),
            flavors: pod_set.requests.iter().map(|(resource, _)| (resource.clone(), n(flavor))).collect(),
            usage: pod_set
                .requests
                .iter()
                .map(|(resource, amount)| (resource.clone(), amount.saturating_mul(pod_set.count)))
                .collect(),
            count: pod_set.count,
            topology: None,
            topology_delayed: false,
        });
        Admission { cluster_queue: n(cluster_queue), pod_sets: pod_sets.collect() }
    }
}
