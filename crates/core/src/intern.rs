//! Names are converted to dense numbers at the interface; inside, everything is an index.

use std::collections::BTreeSet;
use std::hash::Hash;

use indexmap::Equivalent;

use crate::Name;
use crate::index_map::IndexMap;
use crate::tables::{TableSize, put};

/// The resource that counts pods (docs/reference/06-algorithm.md 6.2).
pub(crate) const PODS: &str = "pods";

/// Declares a dense index type.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub(crate) u32);

        impl $name {
            /// The position in its table.
            pub(crate) const fn at(self) -> usize {
                self.0 as usize
            }

            /// The index of a position; a table never has 2^32 rows, since a row takes more than one byte of each of its several vectors.
            pub(crate) fn new(at: usize) -> Self {
                Self(u32::try_from(at).unwrap_or(u32::MAX))
            }
        }
    };
}

index!(
    /// A node of the forest: a ClusterQueue or a Cohort.
    NodeId
);
index!(
    /// A ClusterQueue.
    QueueId
);
index!(
    /// A LocalQueue.
    LocalId
);
index!(
    /// A ResourceFlavor's name.
    FlavorId
);
index!(
    /// A resource's name.
    ResourceId
);
index!(
    /// A (flavor, resource) pair.
    FrId
);
index!(
    /// One existing (node, flavor, resource).
    SlotId
);
index!(
    /// A workload.
    WorkloadId
);
index!(
    /// A shape: what several workloads ask for alike.
    ShapeId
);
index!(
    /// A class of a queue: pending workloads of one class.
    ClassId
);
index!(
    /// A lowest domain of topologies, whether its nodes exist or not: a host, or a domain of one flavor's topology.
    PlaceId
);
index!(
    /// A Kubernetes node that carries pods, whether it exists as an object or is only named by its usage.
    HostId
);

/// Values by dense id. An id whose value is forgotten is given out again.
#[derive(Debug, Clone)]
struct Table<T> {
    rows: Vec<Option<T>>,
    index: IndexMap<T, usize>,
    free: Vec<usize>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), index: IndexMap::default(), free: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    fn id(&mut self, value: &T) -> usize {
        if let Some(&at) = self.index.get(value) {
            return at;
        }
        let at = self.free.pop().unwrap_or(self.rows.len());
        put(&mut self.rows, at, Some(value.clone()));
        self.index.insert(value.clone(), at);
        at
    }

    fn find<Q: ?Sized + Hash + Equivalent<T>>(&self, value: &Q) -> Option<usize> {
        self.index.get(value).copied()
    }

    fn get(&self, at: usize) -> &T {
        self.rows[at].as_ref().expect("an id is used only while its value is known")
    }

    /// Forgets the values whose ids are not in use.
    fn retain(&mut self, used: impl Fn(usize) -> bool) {
        for (at, row) in self.rows.iter_mut().enumerate() {
            if let Some(value) = row.take_if(|_| !used(at)) {
                self.index.swap_remove(&value);
                self.free.push(at);
            }
        }
    }

    fn size(&self) -> TableSize {
        TableSize { rows: self.rows.len(), free: self.free.len() }
    }
}

/// The names of flavors and resources, and the pairs of them, as long as they are referenced (see [`crate::tables`]).
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    flavors: Table<Name>,
    resources: Table<Name>,
    pairs: Table<(FlavorId, ResourceId)>,
}

/// Ids that something refers to.
#[derive(Debug, Default)]
pub(crate) struct UsedNames {
    pub(crate) flavors: BTreeSet<FlavorId>,
    pub(crate) resources: BTreeSet<ResourceId>,
    pub(crate) pairs: BTreeSet<FrId>,
}

impl Names {
    /// The id of a flavor's name.
    pub(crate) fn flavor(&mut self, name: &Name) -> FlavorId {
        FlavorId::new(self.flavors.id(name))
    }

    /// The id of a resource's name.
    pub(crate) fn resource(&mut self, name: &Name) -> ResourceId {
        ResourceId::new(self.resources.id(name))
    }

    /// The id of a pair.
    pub(crate) fn pair(&mut self, flavor: FlavorId, resource: ResourceId) -> FrId {
        FrId::new(self.pairs.id(&(flavor, resource)))
    }

    /// The id of a flavor's name, if it is known.
    pub(crate) fn find_flavor(&self, name: &str) -> Option<FlavorId> {
        self.flavors.find(name).map(FlavorId::new)
    }

    /// The id of a resource, if it has one.
    pub(crate) fn find_resource(&self, name: &str) -> Option<ResourceId> {
        self.resources.find(name).map(ResourceId::new)
    }

    /// The id of a pair, if it is known.
    pub(crate) fn find_pair(&self, flavor: &str, resource: &str) -> Option<FrId> {
        let flavor = self.find_flavor(flavor)?;
        let resource = self.find_resource(resource)?;
        self.pairs.find(&(flavor, resource)).map(FrId::new)
    }

    /// The name of a flavor.
    pub(crate) fn flavor_name(&self, id: FlavorId) -> &Name {
        self.flavors.get(id.at())
    }

    /// The name of a resource.
    pub(crate) fn resource_name(&self, id: ResourceId) -> &Name {
        self.resources.get(id.at())
    }

    /// Whether a pair counts pods.
    pub(crate) fn is_pods(&self, id: FrId) -> bool {
        &**self.resource_name(self.flavor_and_resource(id).1) == PODS
    }

    /// The flavor and the resource of a pair.
    pub(crate) fn flavor_and_resource(&self, id: FrId) -> (FlavorId, ResourceId) {
        *self.pairs.get(id.at())
    }

    /// Removes unused names. A used pair uses its flavor and its resource.
    pub(crate) fn retain(&mut self, mut used: UsedNames) {
        for &pair in &used.pairs {
            let (flavor, resource) = self.flavor_and_resource(pair);
            used.flavors.insert(flavor);
            used.resources.insert(resource);
        }
        self.pairs.retain(|at| used.pairs.contains(&FrId::new(at)));
        self.flavors.retain(|at| used.flavors.contains(&FlavorId::new(at)));
        self.resources.retain(|at| used.resources.contains(&ResourceId::new(at)));
    }

    /// How long the tables are.
    pub(crate) fn sizes(&self) -> [TableSize; 3] {
        [self.flavors.size(), self.resources.size(), self.pairs.size()]
    }
}
