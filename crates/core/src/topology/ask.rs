//! The request of a pod set to a tree, with levels as numbers (docs/reference/06-algorithm.md 6.12 "Level").

use smallvec::{SmallVec, smallvec};

use crate::Name;
use crate::config::Gates;
use crate::topology::spec::{RequestedLevel, SliceLayer, TopologyRequest};

/// One layer of slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    /// The label of its level.
    pub(crate) name: Name,
    /// Its level.
    pub(crate) level: usize,
    /// How many pods a slice has.
    pub(crate) size: i64,
}

/// A request, ready to be placed. Levels count from the highest, which is 0.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not one state")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    /// How many pods.
    pub(crate) count: i64,
    /// How many leaders come with them: 0 or 1.
    pub(crate) leaders: i64,
    /// How many pods a slice of the outermost layer has; 1 without slices. The only slice is no larger than its pods need.
    pub(crate) size: i64,
    /// The level of which the pods have to be in one domain.
    pub(crate) level: usize,
    /// The level of which a slice has to be in one domain.
    pub(crate) slice_level: usize,
    /// `required`.
    pub(crate) required: bool,
    /// `unconstrained`, nothing at all, or slices alone.
    pub(crate) unconstrained: bool,
    /// The smallest domains first (LeastFreeCapacity) instead of the largest (BestFit).
    pub(crate) least_free: bool,
    /// Preferred pods are spread evenly (balanced placement).
    pub(crate) evenly: bool,
    /// Among equal domains, take the one in the smaller domain (not in Kueue: gate TASKeepWholeDomains).
    pub(crate) keep_whole: bool,
    /// For each level, in what portions its domains take pods because of inner layers; 1 without.
    pub(crate) portions: SmallVec<[i64; 4]>,
    /// All layers, if there is more than one.
    pub(crate) layers: Vec<Layer>,
}

impl Ask {
    /// Reads a request. Fails with Kueue's text if the topology lacks a level that it names, or its layers contradict each other.
    pub(crate) fn new(
        levels: &[Name],
        request: Option<&TopologyRequest>,
        count: i64,
        leaders: i64,
        gates: &Gates,
    ) -> Result<Ask, String> {
        let lowest = levels.len().saturating_sub(1);
        let slices = request.map_or(&[][..], |request| &request.slices);
        let slices = if gates.tas_multi_layer_topology { slices } else { &slices[..slices.len().min(1)] };
        let (level, name) = requested_level(levels, request)?;
        let mut ask = Ask {
            count,
            leaders,
            size: 1,
            level,
            slice_level: lowest,
            required: matches!(request.map(|request| &request.level), Some(RequestedLevel::Required(_))),
            unconstrained: request.is_none_or(|request| request.level == RequestedLevel::Unconstrained),
            least_free: false,
            evenly: false,
            keep_whole: gates.tas_keep_whole_domains,
            portions: smallvec![1; levels.len()],
            layers: Vec::new(),
        };
        ask.least_free = ask.unconstrained && gates.tas_profile_mixed;
        ask.evenly = gates.tas_balanced_placement && !ask.required && !ask.unconstrained;
        if let Some((outermost, inner)) = slices.split_first() {
            ask.set_slices(levels, outermost, inner, name)?;
        }
        Ok(ask)
    }

    /// How many slices are requested. The last one has the pods that do not fill it.
    pub(crate) fn slices(&self) -> i64 {
        slices_of(self.count, self.size)
    }

    /// How many pods these slices have if the last one is filled, too. There must be room for all of these.
    pub(crate) fn pods(&self) -> i64 {
        self.slices().saturating_mul(self.size)
    }

    fn set_slices(
        &mut self,
        levels: &[Name],
        outermost: &SliceLayer,
        inner: &[SliceLayer],
        name: &str,
    ) -> Result<(), String> {
        if outermost.size <= 0 {
            return Err("slice topology requested, but slice size not provided".to_owned());
        }
        self.size = outermost.size;
        self.slice_level = find(levels, &outermost.level)
            .ok_or_else(|| format!("no requested topology level for slices: {}", outermost.level))?;
        if self.level > self.slice_level {
            return Err(format!(
                "podset slice topology {} is above the podset topology {name}",
                outermost.level
            ));
        }
        let mut layers = vec![layer(outermost, self.slice_level)];
        for one in inner {
            let above = &layers[layers.len() - 1];
            let level = inner_level(levels, one, above)?;
            self.portions[above.level + 1..=level].fill(one.size);
            layers.push(layer(one, level));
        }
        // Inner layers give pods in portions: the only slice consists of whole portions of the next layer.
        let portion = inner.first().map_or(1, |next| next.size);
        self.size = self.size.min(slices_of(self.count.max(1), portion).saturating_mul(portion));
        layers[0].size = self.size;
        if !inner.is_empty() {
            self.layers = layers;
        }
        Ok(())
    }
}

/// How many slices of a size these pods make up, the last of which may be incomplete.
pub(crate) fn slices_of(count: i64, size: i64) -> i64 {
    count / size + i64::from(count % size != 0)
}

fn layer(spec: &SliceLayer, level: usize) -> Layer {
    Layer { name: spec.level.clone(), level, size: spec.size }
}

fn find(levels: &[Name], level: &str) -> Option<usize> {
    levels.iter().position(|other| **other == *level)
}

/// The level of which the pods have to be in one domain, and its label.
fn requested_level<'a>(
    levels: &'a [Name],
    request: Option<&'a TopologyRequest>,
) -> Result<(usize, &'a str), String> {
    let lowest = levels.len().saturating_sub(1);
    let named = |at: usize| (at, levels.get(at).map_or("", |level| &**level));
    match request.map(|request| (&request.level, request.slices.is_empty())) {
        Some((RequestedLevel::Required(level) | RequestedLevel::Preferred(level), _)) => find(levels, level)
            .map(|at| (at, &**level))
            .ok_or_else(|| format!("no requested topology level: {level}")),
        Some((RequestedLevel::Unconstrained, false)) => Ok(named(0)),
        Some((RequestedLevel::Unconstrained, true)) | None => Ok(named(lowest)),
    }
}

/// The level of an inner layer: below that of the outer layer, and with a size that divides the outer one's.
fn inner_level(levels: &[Name], layer: &SliceLayer, above: &Layer) -> Result<usize, String> {
    let name = &layer.level;
    let level = find(levels, name)
        .ok_or_else(|| format!("no requested topology level for additional slice layer: {name}"))?;
    if level <= above.level {
        let above = &above.name;
        return Err(format!("additional slice layer topology {name} must be at a lower level than {above}"));
    }
    if layer.size <= 0 || above.size % layer.size != 0 {
        return Err(format!(
            "additional slice layer size {} must evenly divide parent layer size {}",
            layer.size, above.size
        ));
    }
    Ok(level)
}
