//! Nodes and the places of pods over time, as data for the heat map in pages: see the head of the dashboard's `places.js`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::record::{JobRecord, NodeSeen, PlacedSet, Record};
use serde::Serialize;

/// The lowest level of most topologies.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Most periods in which a node does not change, and in which pods are in a domain.
const MOST_STRETCHES: usize = 200_000;
/// The most resources of a topology.
const MOST_RESOURCES: usize = 12;

/// A topology over time, in milliseconds from the beginning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Places {
    name: Arc<str>,
    levels: Vec<String>,
    resources: Vec<String>,
    /// The values of each lowest domain.
    leaves: Vec<Vec<String>>,
    /// Nodes: from, to, whether it takes pods, the leaf, then an amount for each resource.
    nodes: Vec<Vec<i64>>,
    /// The requests of each pod, by resource.
    sizes: Vec<Vec<i64>>,
    /// The jobs that have pods, as `namespace/name`; absent for a job that may not be named.
    jobs: Vec<Option<String>>,
    /// Pods: from, to, the job, the leaf, the size, how many.
    pods: Vec<[i64; 6]>,
    /// Whether some were left out.
    cut: bool,
}

fn number(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}

impl Places {
    /// Removes the names of jobs that the user may not see, and all but `most` periods.
    pub fn reduce(&mut self, sees: impl Fn(&str) -> bool, most: usize) {
        for job in &mut self.jobs {
            *job = job.take().filter(|name| sees(name));
        }
        self.cut |= self.nodes.len() > most || self.pods.len() > most;
        self.nodes.truncate(most);
        self.pods.truncate(most);
    }
}

/// The topologies of a record. `end` in milliseconds from the beginning, `most_jobs` the jobs that are looked at.
pub fn places(record: &Record, end: i64, most_jobs: usize) -> Vec<Places> {
    let of = |(name, levels): (&Arc<str>, &Vec<String>)| {
        let flavors: BTreeMap<&Arc<str>, &BTreeMap<String, String>> = record
            .placed_flavors
            .iter()
            .filter(|(_, (topology, _))| topology == name)
            .map(|(flavor, (_, labels))| (flavor, labels))
            .collect();
        Making { record, end, levels, flavors, leaves: BTreeMap::new(), hosts: BTreeMap::new() }
            .whole(name, most_jobs)
    };
    record.topologies.iter().map(of).filter(|places| !places.nodes.is_empty()).collect()
}

/// The sizes of pods, the jobs that have some, and the pods, each as in [`Places`].
type Pods = (Vec<Vec<i64>>, Vec<Option<String>>, Vec<[i64; 6]>);

struct Making<'a> {
    record: &'a Record,
    end: i64,
    levels: &'a [String],
    flavors: BTreeMap<&'a Arc<str>, &'a BTreeMap<String, String>>,
    leaves: BTreeMap<Vec<String>, usize>,
    /// By host: the leaf that it is, or is in.
    hosts: BTreeMap<&'a str, usize>,
}

impl Making<'_> {
    fn whole(mut self, name: &Arc<str>, most_jobs: usize) -> Places {
        let resources = self.resources();
        let mut nodes = self.nodes(&resources);
        let (sizes, jobs, mut pods) = self.pods(&resources, most_jobs);
        let cut = nodes.len() > MOST_STRETCHES || pods.len() > MOST_STRETCHES;
        nodes.truncate(MOST_STRETCHES);
        pods.truncate(MOST_STRETCHES);
        let mut leaves = vec![Vec::new(); self.leaves.len()];
        for (path, at) in self.leaves {
            leaves[at] = path;
        }
        Places {
            name: Arc::clone(name),
            levels: self.levels.to_vec(),
            resources,
            leaves,
            nodes,
            sizes,
            jobs,
            pods,
            cut,
        }
    }

    fn is_ours(&self, node: &NodeSeen) -> bool {
        self.flavors
            .values()
            .any(|labels| labels.iter().all(|(key, value)| node.labels.get(key) == Some(value)))
    }

    /// Accelerators first.
    fn resources(&self) -> Vec<String> {
        let seen = self
            .record
            .nodes
            .iter()
            .filter_map(|change| change.node.as_ref())
            .filter(|node| self.is_ours(node));
        let names: BTreeSet<(bool, &String)> =
            seen.flat_map(|node| node.offers.keys()).map(|name| (!name.contains('/'), name)).collect();
        names.into_iter().map(|(_, name)| name.clone()).take(MOST_RESOURCES).collect()
    }

    fn leaf(&mut self, path: Vec<String>) -> usize {
        let next = self.leaves.len();
        *self.leaves.entry(path).or_insert(next)
    }

    fn nodes(&mut self, resources: &[String]) -> Vec<Vec<i64>> {
        let record = self.record;
        let mut open: BTreeMap<&Arc<str>, (i64, &Arc<NodeSeen>)> = BTreeMap::new();
        let mut stretches = Vec::new();
        for change in &record.nodes {
            if let Some((from, node)) = open.remove(&change.name) {
                stretches.push((from, change.at, &change.name, node));
            }
            if let Some(node) = &change.node {
                open.insert(&change.name, (change.at, node));
            }
        }
        stretches.extend(open.into_iter().map(|(name, (from, node))| (from, self.end.max(from), name, node)));
        stretches.retain(|(.., node)| self.is_ours(node));
        stretches.sort_by_key(|(from, _, name, _)| (*from, *name));
        let mut rows = Vec::new();
        for (from, to, name, node) in stretches {
            let path: Option<Vec<String>> =
                self.levels.iter().map(|level| node.labels.get(level).cloned()).collect();
            let Some(path) = path else { continue };
            let leaf = self.leaf(path);
            self.hosts.insert(node.labels.get(HOSTNAME).map_or(&**name, String::as_str), leaf);
            let mut row = vec![from, to, i64::from(node.healthy), number(leaf)];
            row.extend(resources.iter().map(|resource| node.offers.get(resource).copied().unwrap_or(0)));
            rows.push(row);
        }
        rows
    }

    fn pods(&self, resources: &[String], most_jobs: usize) -> Pods {
        let mut sizes: Vec<Vec<i64>> = Vec::new();
        let mut known: BTreeMap<Vec<i64>, usize> = BTreeMap::new();
        let (mut jobs, mut numbers) = (Vec::new(), BTreeMap::new());
        let mut rows = Vec::new();
        let ours = |set: &&PlacedSet| {
            set.flavors.iter().any(|flavor| self.flavors.keys().any(|own| ***own == **flavor))
        };
        let mut next: BTreeMap<usize, i64> = BTreeMap::new();
        // From the last place to the first: each lasts until the next one of its job, or until its hold ends.
        let mut places: Vec<(i64, i64, usize, &PlacedSet)> = Vec::new();
        for change in self.record.places.iter().rev().filter(|change| change.job < most_jobs) {
            let holds = &self.record.jobs[change.job].holds;
            let hold = holds.iter().rev().find(|hold| hold.from <= change.at);
            let ends = hold.and_then(|hold| hold.to).unwrap_or(self.end);
            let to = next.insert(change.job, change.at).map_or(ends, |next| next.min(ends));
            places.extend(change.sets.iter().filter(ours).map(|set| (change.at, to, change.job, set)));
        }
        for (from, to, job, set) in places.into_iter().rev() {
            let amount = |resource: &String| {
                set.each.iter().find(|(name, _)| name == resource).map_or(0, |(_, amount)| *amount)
            };
            let size: Vec<i64> = resources.iter().map(amount).collect();
            let place = *known.entry(size.clone()).or_insert_with(|| {
                sizes.push(size);
                sizes.len() - 1
            });
            for (values, pods) in &set.domains {
                let host = || values.last().and_then(|host| self.hosts.get(host.as_str()).copied());
                let leaf = if set.levels.len() < self.levels.len() {
                    host()
                } else {
                    self.leaves.get(values).copied()
                };
                let Some(leaf) = leaf else { continue };
                let job = *numbers.entry(job).or_insert_with(|| {
                    jobs.push(Some(JobRecord::key(&self.record.jobs[job])));
                    jobs.len() - 1
                });
                rows.push([from, to, number(job), number(leaf), number(place), *pods]);
            }
        }
        (sizes, jobs, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Hold, HoldEnd, NodeChange, PlaceChange};
    use sluice_engine::Kind;

    fn node(rack: &str, host: &str) -> NodeChange {
        let labels = [("pool", "gpu"), ("rack", rack), (HOSTNAME, host)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let offers = [("cpu".to_owned(), 4000), ("nvidia.com/gpu".to_owned(), 8)].into();
        NodeChange {
            at: 0,
            name: host.into(),
            node: Some(Arc::new(NodeSeen { labels, offers, healthy: true })),
        }
    }

    fn record() -> Record {
        let mut record = Record::new(jiff::Timestamp::UNIX_EPOCH);
        record.topologies.insert("racks".into(), vec!["rack".to_owned(), HOSTNAME.to_owned()]);
        record.topologies.insert("of-nothing".into(), vec!["rack".to_owned()]);
        record
            .placed_flavors
            .insert("gpu".into(), ("racks".into(), [("pool".to_owned(), "gpu".to_owned())].into()));
        record.nodes = vec![node("r1", "n1"), node("r2", "n2")];
        record.nodes.push(NodeChange { at: 50, name: "n2".into(), node: None });
        let hold = Hold {
            from: 5,
            admitted: Some(5),
            evicted: None,
            to: Some(90),
            end: HoldEnd::Finished,
            queue: "q".into(),
            holdings: [].into(),
        };
        record.jobs.push(JobRecord {
            kind: Kind::Workload,
            namespace: "t".into(),
            name: "j".into(),
            local_queue: "main".into(),
            cluster_queue: None,
            priority: 0,
            submitted: 1,
            admitted: Some(5),
            finished: Some(90),
            success: true,
            deleted: None,
            managed: true,
            holds: vec![hold],
            preempted: 0,
            preempts: 0,
            lost: 0,
            deactivated: false,
            waits_for: None,
        });
        let set = |host: &str| PlacedSet {
            flavors: vec!["gpu".to_owned()],
            levels: vec![HOSTNAME.to_owned()],
            each: vec![("nvidia.com/gpu".to_owned(), 4)],
            domains: vec![(vec![host.to_owned()], 2)],
        };
        record.places = vec![
            PlaceChange { at: 5, job: 0, sets: [set("n2")].into() },
            PlaceChange { at: 50, job: 0, sets: [set("n1")].into() },
        ];
        record
    }

    #[test]
    fn nodes_and_pods_have_their_stretches_of_time() {
        let all = places(&record(), 100, 10);
        assert_eq!(all.len(), 1, "a topology without nodes is not drawn");
        let racks = &all[0];
        assert_eq!(
            (&racks.resources, &racks.leaves),
            (
                &vec!["nvidia.com/gpu".to_owned(), "cpu".to_owned()],
                &vec![vec!["r1".to_owned(), "n1".to_owned()], vec!["r2".to_owned(), "n2".to_owned()]]
            )
        );
        assert_eq!(racks.nodes, [[0, 100, 1, 0, 8, 4000], [0, 50, 1, 1, 8, 4000]]);
        // The job moves when its node goes, and stays there until its hold ends.
        assert_eq!(
            (&racks.sizes, &racks.pods),
            (&vec![vec![4, 0]], &vec![[5, 50, 0, 1, 0, 2], [50, 90, 0, 0, 0, 2]])
        );
        assert_eq!(racks.jobs, [Some("t/j".to_owned())]);
        assert!(!racks.cut && places(&record(), 100, 0)[0].pods.is_empty());
    }

    #[test]
    fn a_user_who_may_not_see_a_job_sees_where_it_is_without_its_name() {
        let mut racks = places(&record(), 100, 10).remove(0);
        racks.reduce(|job| job != "t/j", 1);
        assert_eq!((&racks.jobs[..], racks.cut), (&[None][..], true));
        assert_eq!((racks.nodes.len(), &racks.pods[..]), (1, &[[5, 50, 0, 1, 0, 2]][..]));
    }
}
