//! Names become dense numbers at the door; inside, everything is an index.

use indexmap::IndexSet;

use crate::Name;

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

            /// The index of a position; a table never reaches 2^32 rows, since a row takes more than one byte of each
            /// of its several vectors.
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
    /// One (node, flavor, resource) that exists.
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
    /// A lane of a queue: pending workloads of one class.
    LaneId
);

/// The names of flavors and resources. They are few, and never forgotten.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    flavors: IndexSet<Name>,
    resources: IndexSet<Name>,
    pairs: IndexSet<(FlavorId, ResourceId)>,
}

impl Names {
    /// The id of a flavor's name.
    pub(crate) fn flavor(&mut self, name: &Name) -> FlavorId {
        FlavorId::new(Self::id(&mut self.flavors, name))
    }

    /// The id of a resource's name.
    pub(crate) fn resource(&mut self, name: &Name) -> ResourceId {
        ResourceId::new(Self::id(&mut self.resources, name))
    }

    /// The id of a pair.
    pub(crate) fn pair(&mut self, flavor: FlavorId, resource: ResourceId) -> FrId {
        FrId::new(self.pairs.insert_full((flavor, resource)).0)
    }

    /// The id of a flavor's name, if it was ever seen.
    pub(crate) fn find_flavor(&self, name: &str) -> Option<FlavorId> {
        self.flavors.get_index_of(name).map(FlavorId::new)
    }

    /// The id of a pair, if it was ever seen.
    pub(crate) fn find_pair(&self, flavor: &str, resource: &str) -> Option<FrId> {
        let flavor = self.find_flavor(flavor)?;
        let resource = self.resources.get_index_of(resource).map(ResourceId::new)?;
        self.pairs.get_index_of(&(flavor, resource)).map(FrId::new)
    }

    /// The name of a flavor.
    pub(crate) fn flavor_name(&self, id: FlavorId) -> &Name {
        &self.flavors[id.at()]
    }

    /// The name of a resource.
    pub(crate) fn resource_name(&self, id: ResourceId) -> &Name {
        &self.resources[id.at()]
    }

    /// The flavor and the resource of a pair.
    pub(crate) fn parts(&self, id: FrId) -> (FlavorId, ResourceId) {
        self.pairs[id.at()]
    }

    fn id(names: &mut IndexSet<Name>, name: &Name) -> usize {
        match names.get_index_of(name) {
            Some(at) => at,
            None => names.insert_full(name.clone()).0,
        }
    }
}
