//! Which objects have changed status numbers.

/// A set of dense indices with cheap insertion.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangedSet {
    marked: Vec<bool>,
    list: Vec<usize>,
}

impl ChangedSet {
    /// Marks an index.
    pub(crate) fn mark(&mut self, at: usize) {
        if self.marked.len() <= at {
            self.marked.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.marked[at], true) {
            self.list.push(at);
        }
    }

    /// Whether an index is marked.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.marked.get(at).copied().unwrap_or(false)
    }

    /// Whether none is marked.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The indices that were marked first, at most `most`, in order; they are not marked afterwards.
    pub(crate) fn take_most(&mut self, most: usize) -> Vec<usize> {
        let mut taken: Vec<usize> = self.list.drain(..most.min(self.list.len())).collect();
        for &at in &taken {
            self.marked[at] = false;
        }
        taken.sort_unstable();
        taken
    }

    /// All marked indices in order; none is marked afterwards.
    pub(crate) fn take(&mut self) -> Vec<usize> {
        for &at in &self.list {
            self.marked[at] = false;
        }
        let mut list = std::mem::take(&mut self.list);
        list.sort_unstable();
        list
    }
}
