//! `--controllers`: which parts of the manager run.
//!
//! The syntax is kube-controller-manager's: `*` means every part that is on by default, `name` turns a part on, `-name` turns it off, and a part's
//! own name takes precedence over `*`. Tests that do the work of a part themselves turn it off this way.

use std::collections::BTreeSet;

use sluice_api::job::JobKind;
use sluice_engine::Part;

/// A part of the manager that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Reserves quota, admits and preempts.
    Scheduler,
    /// Watches jobs of a kind and acts on them.
    Job(JobKind),
    /// A part of the engine.
    Engine(Part),
    /// Asks for nodes before admission, and answers for the checks that wait for them.
    Provisioning,
    /// Records Kubernetes events.
    Events,
    /// Serves the admission and conversion webhooks.
    Webhooks,
    /// Makes, rotates and injects the webhooks' certificates.
    Certificates,
}

impl Controller {
    /// Every part, in the order of `--help`.
    pub fn all() -> impl Iterator<Item = Self> {
        let queueing = [Self::Scheduler, Self::Engine(Part::Workload)];
        let others = [
            Self::Engine(Part::ClusterQueue),
            Self::Engine(Part::LocalQueue),
            Self::Engine(Part::Cohort),
            Self::Engine(Part::ResourceFlavor),
            Self::Engine(Part::AdmissionCheck),
            Self::Engine(Part::Topology),
            Self::Provisioning,
            Self::Engine(Part::PodTermination),
            Self::Events,
            Self::Webhooks,
            Self::Certificates,
        ];
        queueing.into_iter().chain(JobKind::jobs().map(Self::Job)).chain(others)
    }

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Job(kind) => kind.integration().controller,
            Self::Engine(part) => part.name(),
            Self::Provisioning => "provisioning",
            Self::Events => "events",
            Self::Webhooks => "webhooks",
            Self::Certificates => "certificates",
        }
    }

    /// What it does, for `--help`.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Scheduler => "reserves quota, admits and preempts workloads",
            Self::Job(kind) => kind.integration().about,
            Self::Engine(Part::Workload) => {
                "status of Workloads: activity, checks, stopped queues, timeouts, retention"
            }
            Self::Engine(Part::ClusterQueue) => "status and finalizers of ClusterQueues",
            Self::Engine(Part::LocalQueue) => "status of LocalQueues",
            Self::Engine(Part::Cohort) => "status of Cohorts",
            Self::Engine(Part::ResourceFlavor) => "finalizers of ResourceFlavors",
            Self::Engine(Part::AdmissionCheck) => "finalizers of AdmissionChecks",
            Self::Engine(Part::Topology) => "finalizers of Topologies",
            Self::Engine(Part::PodTermination) => "removal of pods that cannot end on lost nodes",
            Self::Provisioning => {
                "ProvisioningRequests of workloads, and the checks that wait for their nodes"
            }
            Self::Events => "Kubernetes events",
            Self::Webhooks => "admission and conversion webhooks",
            Self::Certificates => "creates, rotates and injects the certificates of the webhooks",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::all().find(|c| c.name() == name)
    }
}

fn known() -> String {
    Controller::all().map(Controller::name).collect::<Vec<_>>().join(", ")
}

/// Why a `--controllers` list is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControllersError {
    /// A name that no part has.
    #[error("unknown controller {0:?}; known are: *, {known}", known = known())]
    Unknown(String),
    /// A part is both turned on and off.
    #[error("controller {0:?} is both turned on and off")]
    Contradiction(&'static str),
}

/// The parts that run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers(BTreeSet<Controller>);

impl Controllers {
    /// Every part.
    pub fn all() -> Self {
        Self(Controller::all().collect())
    }

    /// Parses a comma-separated list; an empty one means `*`.
    ///
    /// # Errors
    ///
    /// If the list has a name that no part has, or turns a part both on and off.
    pub fn parse(list: &str) -> Result<Self, ControllersError> {
        let mut star = list.trim().is_empty();
        let (mut on, mut off) = (BTreeSet::new(), BTreeSet::new());
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            if item == "*" {
                star = true;
                continue;
            }
            let (set, name) = match item.strip_prefix('-') {
                Some(name) => (&mut off, name),
                None => (&mut on, item),
            };
            set.insert(Controller::parse(name).ok_or_else(|| ControllersError::Unknown(item.to_owned()))?);
        }
        if let Some(both) = on.intersection(&off).next() {
            return Err(ControllersError::Contradiction(both.name()));
        }
        if star {
            on.extend(Controller::all().filter(|c| !off.contains(c)));
        }
        Ok(Self(on))
    }

    /// The parts of the engine that do not run.
    pub fn without(&self) -> BTreeSet<Part> {
        Part::ALL.into_iter().filter(|part| !self.has(Controller::Engine(*part))).collect()
    }

    /// Whether a part runs.
    pub fn has(&self, controller: Controller) -> bool {
        self.0.contains(&controller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_means_every_part_and_a_minus_takes_one_away() {
        let controllers = Controllers::parse("*,-scheduler,-job").unwrap();
        assert!(!controllers.has(Controller::Scheduler));
        assert!(!controllers.has(Controller::Job(JobKind::JOB)));
        assert!(controllers.has(Controller::Job(JobKind::JOB_SET)));
        assert_eq!(Controllers::parse("").unwrap(), Controllers::all());
    }

    #[test]
    fn without_star_only_the_named_parts_run() {
        let controllers = Controllers::parse(" scheduler , jobset ").unwrap();
        assert_eq!(
            controllers,
            Controllers([Controller::Scheduler, Controller::Job(JobKind::JOB_SET)].into_iter().collect())
        );
    }

    #[test]
    fn every_part_of_the_engine_can_be_left_out_by_its_name() {
        for part in Part::ALL {
            let controllers = Controllers::parse(&format!("*,-{}", part.name())).unwrap();
            assert_eq!(controllers.without(), [part].into());
        }
        assert!(Controllers::all().without().is_empty());
        assert_eq!(Controllers::parse("scheduler").unwrap().without(), Part::ALL.into_iter().collect());
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        assert_eq!(Controllers::parse("-job,*"), Controllers::parse("*,-job"));
    }

    #[test]
    fn unknown_names_and_contradictions_are_refused() {
        let unknown = Controllers::parse("*,-schedular").unwrap_err();
        assert!(
            unknown
                .to_string()
                .starts_with("unknown controller \"-schedular\"; known are: *, scheduler, workload, job")
        );
        assert_eq!(Controllers::parse("job,-job"), Err(ControllersError::Contradiction("job")));
    }
}
