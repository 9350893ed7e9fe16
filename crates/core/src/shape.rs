//! Shapes: the requests of workloads, shared by all with equal requests. Workloads of equal shape and priority form an equivalence class: one
//! negative answer holds for all of them (docs/reference/06-algorithm.md 6.4 "equivalence hashing"). Shapes are compared, not hashed, so that there
//! are no collisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::index_map::IndexMap;
use smallvec::SmallVec;

use crate::intern::{Names, PODS, ResourceId, ShapeId};
use crate::matching::label_keys;
use crate::workload::PodSetSpec;
use crate::{Amount, Name};

/// One pod set of a shape.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodSetShape {
    /// Requests per pod, sorted by the resource's name, without duplicates, nothing negative.
    pub(crate) requests: Vec<(ResourceId, i64)>,
    /// The usage of a node by each pod, as `requests`, without `pods`.
    pub(crate) node_requests: SmallVec<[(ResourceId, i64); 2]>,
    /// Effective count, at least zero.
    pub(crate) count: i64,
    /// `minCount` if it is below the count.
    pub(crate) min_count: Option<i64>,
}

/// The requests of a workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    pub(crate) pod_sets: Vec<PodSetShape>,
}

impl Shape {
    /// Whether partial admission could shrink it (docs/reference/06-algorithm.md 6.6 "Partial admission").
    pub(crate) fn reducible(&self) -> bool {
        self.pod_sets.iter().any(|pod_set| pod_set.min_count.is_some())
    }
}

#[derive(Debug, Clone)]
struct ShapeRow {
    shape: Option<Arc<Shape>>,
    users: usize,
    key: Arc<[PodSetSpec]>,
}

/// All shapes in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shapes {
    rows: Vec<ShapeRow>,
    free: Vec<ShapeId>,
    index: IndexMap<Arc<[PodSetSpec]>, ShapeId>,
    /// The keys of the node labels by which pods of shapes in use select nodes, or prefer some, and how often they name each.
    labels: BTreeMap<Name, usize>,
}

impl Shapes {
    /// The shape of these pod sets; adds a user.
    pub(crate) fn acquire(&mut self, names: &mut Names, pod_sets: &[PodSetSpec]) -> ShapeId {
        if let Some(&id) = self.index.get(pod_sets) {
            self.rows[id.at()].users += 1;
            return id;
        }
        for key in labels_of(pod_sets) {
            if let Some(named) = self.labels.get_mut(key) {
                *named += 1;
            } else {
                self.labels.insert(Name::from(key), 1);
            }
        }
        let key: Arc<[PodSetSpec]> = pod_sets.into();
        let row = ShapeRow { shape: Some(Arc::new(compile(names, pod_sets))), users: 1, key: key.clone() };
        let id = if let Some(id) = self.free.pop() {
            self.rows[id.at()] = row;
            id
        } else {
            self.rows.push(row);
            ShapeId::new(self.rows.len() - 1)
        };
        self.index.insert(key, id);
        id
    }

    /// The resources that shapes in use ask for.
    pub(crate) fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        let pod_sets =
            self.rows.iter().filter_map(|row| row.shape.as_ref()).flat_map(|shape| &shape.pod_sets);
        pod_sets.flat_map(|pod_set| pod_set.requests.iter().chain(&pod_set.node_requests)).map(|(id, _)| *id)
    }

    /// Adds a user to a shape in use.
    pub(crate) fn retain(&mut self, id: ShapeId) {
        self.rows[id.at()].users += 1;
    }

    /// Removes a user; a shape without users is removed. Returns true if it was.
    pub(crate) fn release(&mut self, id: ShapeId) -> bool {
        let row = &mut self.rows[id.at()];
        row.users = row.users.saturating_sub(1);
        if row.users > 0 {
            return false;
        }
        row.shape = None;
        let key = std::mem::replace(&mut row.key, Arc::from([]));
        for label in labels_of(&key) {
            if let Some(named) = self.labels.get_mut(label) {
                *named -= 1;
                if *named == 0 {
                    self.labels.remove(label);
                }
            }
        }
        self.index.swap_remove(&key);
        self.free.push(id);
        true
    }

    /// A shape in use.
    pub(crate) fn get(&self, id: ShapeId) -> &Arc<Shape> {
        self.rows[id.at()].shape.as_ref().expect("a shape is kept while a workload uses it")
    }

    /// Whether pods of a shape in use select nodes by a label, or prefer some.
    pub(crate) fn read_label(&self, key: &str) -> bool {
        self.labels.contains_key(key)
    }

    /// Compares the labels with those that the pod sets name.
    pub(crate) fn audit(&self, found: &mut Vec<String>) {
        let mut labels: BTreeMap<Name, usize> = BTreeMap::new();
        for key in self.rows.iter().flat_map(|row| labels_of(&row.key)) {
            *labels.entry(Name::from(key)).or_default() += 1;
        }
        if labels != self.labels {
            found.push(format!("shapes read the labels {:?}, should be {labels:?}", self.labels));
        }
    }

    /// The pod sets that made the shape.
    pub(crate) fn pod_sets(&self, id: ShapeId) -> &[PodSetSpec] {
        &self.rows[id.at()].key
    }

    /// The same, shared.
    pub(crate) fn shared_pod_sets(&self, id: ShapeId) -> Arc<[PodSetSpec]> {
        Arc::clone(&self.rows[id.at()].key)
    }
}

/// The keys of the node labels that pod sets read, some several times.
fn labels_of(pod_sets: &[PodSetSpec]) -> impl Iterator<Item = &str> {
    pod_sets.iter().flat_map(|set| label_keys(&set.node_selector, &set.affinity, &set.preferred_affinity))
}

/// Requests by id, sorted by the resource's name, without duplicates, nothing negative.
fn by_resource(names: &mut Names, requests: &[(Name, Amount)]) -> Vec<(ResourceId, i64)> {
    let mut sorted: Vec<_> = requests.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut merged: Vec<(ResourceId, i64)> = Vec::with_capacity(requests.len());
    for (name, amount) in sorted {
        let (id, amount) = (names.resource(name), amount.get().max(0));
        match merged.last_mut() {
            Some(last) if last.0 == id => last.1 = last.1.saturating_add(amount),
            _ => merged.push((id, amount)),
        }
    }
    merged
}

fn compile(names: &mut Names, pod_sets: &[PodSetSpec]) -> Shape {
    let pod_sets = pod_sets
        .iter()
        .map(|spec| {
            let count = spec.count.max(0);
            let requests = by_resource(names, &spec.requests);
            let mut node_requests: SmallVec<[_; 2]> = match &spec.node_requests {
                None => requests.iter().copied().collect(),
                Some(own) => by_resource(names, own).into(),
            };
            node_requests.retain(|&mut (id, amount)| amount > 0 && &**names.resource_name(id) != PODS);
            PodSetShape {
                requests,
                node_requests,
                count,
                min_count: spec.min_count.map(|min| min.max(0)).filter(|&min| min < count),
            }
        })
        .collect();
    Shape { pod_sets }
}
