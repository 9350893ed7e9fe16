//! Resources as columns of dense rows.

use crate::intern::ResourceId;

/// The column of `pods`: every pod uses one.
pub(crate) const PODS_COLUMN: usize = 0;

/// Which resource has which column. Columns are few and are kept for good.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    by_resource: Vec<Option<usize>>,
    resources: Vec<Option<ResourceId>>,
}

impl Default for Columns {
    fn default() -> Self {
        Self { by_resource: Vec::new(), resources: vec![None] }
    }
}

impl Columns {
    /// Whether it was said which resource is `pods`.
    pub(crate) fn knows_pods(&self) -> bool {
        self.resources[PODS_COLUMN].is_some()
    }

    /// Says which resource is `pods`. Must come before the resource is given a column.
    pub(crate) fn set_pods(&mut self, resource: ResourceId) {
        if self.resources[PODS_COLUMN].is_none() {
            self.put(resource, PODS_COLUMN);
            self.resources[PODS_COLUMN] = Some(resource);
        }
    }

    /// The column of a resource, created if necessary.
    pub(crate) fn column(&mut self, resource: ResourceId) -> usize {
        if let Some(column) = self.find(resource) {
            return column;
        }
        let column = self.resources.len();
        self.resources.push(Some(resource));
        self.put(resource, column);
        column
    }

    /// The column of a resource, if it has one.
    pub(crate) fn find(&self, resource: ResourceId) -> Option<usize> {
        self.by_resource.get(resource.at()).copied().flatten()
    }

    /// How many columns there are.
    pub(crate) fn len(&self) -> usize {
        self.resources.len()
    }

    /// All resources that have a column.
    pub(crate) fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.resources.iter().copied().flatten()
    }

    fn put(&mut self, resource: ResourceId, column: usize) {
        if self.by_resource.len() <= resource.at() {
            self.by_resource.resize(resource.at() + 1, None);
        }
        self.by_resource[resource.at()] = Some(column);
    }
}
