//! The LimitRanges of a namespace, summarised (docs/reference/06-algorithm.md 6.2).

use sluice_api::slim;

use super::amounts::{Nano, fill, parsed};

/// The combined LimitRanges of one type (Container or Pod).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    /// The least of the maxima.
    pub max: Nano,
    /// The most of the minima.
    pub min: Nano,
    /// The first default limit.
    pub default: Nano,
    /// The first default request.
    pub default_request: Nano,
}

impl Limits {
    fn add(&mut self, item: &slim::LimitItem) {
        for (name, amount) in parsed(&item.max) {
            let entry = self.max.entry(name).or_insert(amount);
            *entry = (*entry).min(amount);
        }
        for (name, amount) in parsed(&item.min) {
            let entry = self.min.entry(name).or_insert(amount);
            *entry = (*entry).max(amount);
        }
        fill(&mut self.default, &parsed(&item.default));
        fill(&mut self.default_request, &parsed(&item.default_request));
    }
}

/// The combined LimitRanges of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LimitSummary {
    /// For each container.
    pub container: Limits,
    /// For the pod as a whole.
    pub pod: Limits,
}

impl LimitSummary {
    /// Summarises the LimitRanges, in the order of their names.
    pub fn of<'a>(ranges: impl Iterator<Item = &'a slim::LimitRange>) -> Self {
        let mut summary = Self::default();
        for item in ranges.flat_map(|r| &r.limits) {
            match item.type_.as_str() {
                "Container" => summary.container.add(item),
                "Pod" => summary.pod.add(item),
                _ => {}
            }
        }
        summary
    }
}
