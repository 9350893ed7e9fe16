//! The gauges, page by page: the largest world has some hundred thousand series, and the engine does not stop for all of them at once.
//!
//! Each object is read once during a scrape, in its state at that moment: every series is right at some moment of the scrape, and sums over the
//! Workloads count each of them once.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_api::gates::Gate;
use sluice_core::{Name, WorkloadKey};

use super::counts::Counts;
use super::topologies::FitSearch;
use super::{Custom, Gauge, GaugeValue, OBJECTS_SET_ASIDE, number};
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};
use crate::world::after;

/// How many numbers that are only added up cost as much as one series.
pub(crate) const LIGHT: usize = 32;

/// Objects and series that are visited for one page, plus those of the object that ends it: half a millisecond; if the largest object of the largest
/// world ends it, about two. One pass over the hosts of a topology may end it, too.
pub const SCRAPE_PAGE: usize = 100;

/// The object that was visited last.
#[derive(Clone, Debug)]
pub(super) enum ScrapePosition {
    Workload(Option<WorkloadKey>),
    ClusterQueue(Option<Name>),
    /// Flavors, for those with a topology.
    Flavor(Option<Name>),
    /// What fits onto the nodes of the next one, in the domains of this topology.
    Fits {
        topology: String,
        search: FitSearch,
    },
    LocalQueue(Option<(Name, Name)>),
    /// Cohorts that have an object, for their names and their parents' names.
    Named(Option<Name>),
    Cohorts,
    End,
}

/// By Cohort: what the ClusterQueues below have admitted, by their custom labels. Cohorts that are only named have no entry.
type Cohorts = BTreeMap<Name, Option<BTreeMap<Vec<Arc<str>>, usize>>>;

/// A scrape in progress.
#[derive(Clone, Debug)]
pub struct Scrape {
    at: ScrapePosition,
    counts: Counts,
    cohorts: Cohorts,
    pages: Vec<Vec<GaugeValue>>,
    complete: bool,
    largest: usize,
}

impl Default for Scrape {
    fn default() -> Self {
        Self {
            at: ScrapePosition::Workload(None),
            counts: Counts::default(),
            cohorts: Cohorts::default(),
            pages: Vec::new(),
            complete: true,
            largest: 0,
        }
    }
}

impl Scrape {
    /// Whether it has the whole world: the engine had seen everything, all the time.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The largest number of objects and series that one page visited.
    pub fn largest_page(&self) -> usize {
        self.largest
    }

    /// The gauges.
    pub fn into_values(self) -> impl Iterator<Item = GaugeValue> {
        self.pages.into_iter().flatten()
    }
}

/// Collects gauges, with their custom labels, and counts how much was looked at.
pub(super) struct Page<'a> {
    values: Vec<GaugeValue>,
    looks: usize,
    custom: &'a Custom,
}

impl Page<'_> {
    pub fn add<const N: usize>(&mut self, metric: Gauge<N>, labels: &[&str; N], value: f64) {
        self.add_with(metric, labels, value, &[]);
    }

    /// The same with custom labels that do not follow from the others.
    pub fn add_with<const N: usize>(
        &mut self,
        metric: Gauge<N>,
        labels: &[&str; N],
        value: f64,
        custom: &[Arc<str>],
    ) {
        let metric = metric.name;
        let mut labels = labels.iter().map(|l| Arc::from(*l)).collect();
        self.custom.complete(metric, &mut labels, custom);
        self.values.push(GaugeValue { metric, labels, value });
        self.looks += 1;
    }

    /// Adds this number of visits beside the series.
    pub fn looked_at(&mut self, much: usize) {
        self.looks += much;
    }
}

impl Engine {
    /// The current value of every gauge. A series that it does not have is removed.
    pub fn metrics_snapshot(&self) -> Vec<GaugeValue> {
        let mut scrape = Scrape::default();
        while !self.scrape(&mut scrape, usize::MAX) {}
        scrape.into_values().collect()
    }

    /// The next page of a scrape; whether it was the last. A page ends with the object at which `most` objects and series were looked at.
    /// Before everything was seen once, there are no queues.
    pub fn scrape(&self, scrape: &mut Scrape, most: usize) -> bool {
        let most = most.max(1);
        if !self.synced {
            scrape.complete = false;
            scrape.at = ScrapePosition::End;
        }
        let mut page = Page { values: Vec::new(), looks: 0, custom: &self.custom };
        while page.looks < most && !matches!(scrape.at, ScrapePosition::End) {
            scrape.at = match std::mem::replace(&mut scrape.at, ScrapePosition::End) {
                ScrapePosition::Workload(last) => {
                    self.scrape_workloads(last.as_ref(), &mut scrape.counts, most, &mut page)
                }
                ScrapePosition::ClusterQueue(last) => {
                    self.scrape_cluster_queue(last.as_ref(), scrape, &mut page)
                }
                ScrapePosition::Flavor(last) => self.scrape_flavor(last.as_ref(), &mut page),
                ScrapePosition::Fits { topology, search } => self.scrape_fits(topology, search, &mut page),
                ScrapePosition::LocalQueue(last) => self.scrape_local_queue(last.as_ref(), scrape, &mut page),
                ScrapePosition::Named(last) => {
                    self.scrape_cohort_names(last.as_ref(), &mut scrape.cohorts, &mut page)
                }
                ScrapePosition::Cohorts => match scrape.cohorts.pop_first() {
                    Some((name, admitted)) => {
                        page.looked_at(1);
                        self.cohort_gauges(&name, admitted, &mut page);
                        ScrapePosition::Cohorts
                    }
                    None => ScrapePosition::End,
                },
                ScrapePosition::End => ScrapePosition::End,
            };
        }
        let done = matches!(scrape.at, ScrapePosition::End) && page.looks < most;
        if done {
            if let Some(counted) = scrape.counts.queues.remove("") {
                Self::gauges_of_no_queue(&counted, &mut page);
            }
            page.add(OBJECTS_SET_ASIDE, &[], number(self.aside.len()));
        }
        scrape.largest = scrape.largest.max(page.looks);
        scrape.pages.push(page.values);
        done
    }

    fn scrape_workloads(
        &self,
        last: Option<&WorkloadKey>,
        counts: &mut Counts,
        most: usize,
        page: &mut Page<'_>,
    ) -> ScrapePosition {
        for (key, entry) in self.world.workloads.after(last) {
            self.count_workload(key, entry, counts);
            page.looked_at(1);
            if page.looks >= most {
                return ScrapePosition::Workload(Some(key.clone()));
            }
        }
        ScrapePosition::ClusterQueue(None)
    }

    fn scrape_cluster_queue(
        &self,
        last: Option<&Name>,
        scrape: &mut Scrape,
        page: &mut Page<'_>,
    ) -> ScrapePosition {
        let Some((name, queue)) = after(&self.world.cluster_queues, last).next() else {
            return ScrapePosition::Flavor(None);
        };
        page.looked_at(1);
        let counted = scrape.counts.queues.remove(name).unwrap_or_default();
        self.cluster_queue_gauges(name, queue, counted, page);
        if self.config.on(Gate::MetricsForCohorts) {
            let admitted = self.scheduler.admitted_of(name);
            let labels = self.custom.of(&ObjectRef::cluster(Kind::ClusterQueue, Arc::clone(name)));
            for cohort in self.cohorts_above(name) {
                let of = scrape.cohorts.entry(cohort).or_default().get_or_insert_default();
                *of.entry(labels.clone()).or_default() += admitted;
            }
        }
        ScrapePosition::ClusterQueue(Some(Name::clone(name)))
    }

    fn scrape_flavor(&self, last: Option<&Name>, page: &mut Page<'_>) -> ScrapePosition {
        let Some((name, flavor)) = after(&self.world.flavors, last).next() else {
            return ScrapePosition::LocalQueue(None);
        };
        page.looked_at(1);
        let name = Name::clone(name);
        match flavor.spec.topology_name.clone() {
            Some(topology) => ScrapePosition::Fits { topology, search: FitSearch::new(name) },
            None => ScrapePosition::Flavor(Some(name)),
        }
    }

    fn scrape_local_queue(
        &self,
        last: Option<&(Name, Name)>,
        scrape: &mut Scrape,
        page: &mut Page<'_>,
    ) -> ScrapePosition {
        let next = after(&self.world.local_queues, last).next();
        let Some((key, queue)) = next.filter(|_| self.config.local_queue_metrics.enable) else {
            return if self.config.on(Gate::MetricsForCohorts) {
                ScrapePosition::Named(None)
            } else {
                ScrapePosition::End
            };
        };
        page.looked_at(1);
        if self.is_measured(queue) {
            let counted = scrape.counts.local_queues.remove(key).unwrap_or_default();
            self.local_queue_gauges(key, queue, counted, page);
        }
        ScrapePosition::LocalQueue(Some(key.clone()))
    }

    fn scrape_cohort_names(
        &self,
        last: Option<&Name>,
        cohorts: &mut Cohorts,
        page: &mut Page<'_>,
    ) -> ScrapePosition {
        let Some((name, cohort)) = after(&self.world.cohorts, last).next() else {
            return ScrapePosition::Cohorts;
        };
        page.looked_at(1);
        cohorts.entry(Name::clone(name)).or_default();
        if let Some(parent) = cohort.spec.parent_name.as_deref() {
            cohorts.entry(Name::from(parent)).or_default();
        }
        ScrapePosition::Named(Some(Name::clone(name)))
    }
}
