//! Queues, cohorts and workloads in a few words.

use sluice_core::{
    Admission, Amount, ClusterQueueSpec, CohortSpec, FlavorQuotas, Name, PodSetAssignment, PodSetSpec,
    PreemptionPolicy, QueueingStrategy, ResourceGroup, ResourceQuota, Time, Weight, WorkloadKey,
    WorkloadSpec, WorkloadState,
};

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

/// A quota of one resource.
#[derive(Clone, Copy)]
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
#[derive(Clone)]
pub struct Cq(pub ClusterQueueSpec);

/// A ClusterQueue with the API's defaults and no quota.
pub fn cq(name: &str) -> Cq {
    Cq(ClusterQueueSpec::named(name))
}

impl Cq {
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
pub struct Co(pub CohortSpec);

/// A Cohort without quota.
pub fn cohort(name: &str) -> Co {
    Co(CohortSpec { name: n(name), parent: None, resource_groups: Vec::new(), fair_weight: Weight::ONE })
}

impl Co {
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

    pub fn weight(mut self, milli: i64) -> Co {
        self.0.fair_weight = Weight::from_milli(milli);
        self
    }
}

/// A workload.
#[derive(Clone)]
pub struct Job {
    pub spec: WorkloadSpec,
    /// The second of its creation, if it was said.
    pub created: Option<i64>,
}

/// A workload of one pod, `main`, that asks for nothing yet.
pub fn job(name: &str, queue: &str) -> Job {
    let spec = WorkloadSpec {
        key: WorkloadKey::new(NS, name),
        uid: n(name),
        local_queue: n(queue),
        priority: 0,
        created: Time(0),
        queue_order: Time(0),
        generation: 1,
        pod_sets: vec![pods("main")],
        state: WorkloadState::PENDING,
        preemption_gated: false,
    };
    Job { spec, created: None }
}

fn pods(name: &str) -> PodSetSpec {
    PodSetSpec {
        name: n(name),
        count: 1,
        min_count: None,
        requests: Vec::new(),
        node_selector: Vec::new(),
        affinity: Vec::new(),
        tolerations: Vec::new(),
        group: None,
        shape: 0,
    }
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
        change(self.spec.pod_sets.last_mut().unwrap());
        self
    }

    pub fn priority(mut self, priority: i32) -> Job {
        self.spec.priority = priority;
        self
    }

    /// Created, and ordered, at this second. Otherwise in the order of submission.
    pub fn at(mut self, second: i64) -> Job {
        self.created = Some(second);
        self
    }

    /// Anything of the spec.
    pub fn with(mut self, change: impl FnOnce(&mut WorkloadSpec)) -> Job {
        change(&mut self.spec);
        self
    }

    /// What it holds if every resource gets this flavor.
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
        });
        Admission { cluster_queue: n(cluster_queue), pod_sets: pod_sets.collect() }
    }
}
