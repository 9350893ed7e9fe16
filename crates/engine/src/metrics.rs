//! The metrics that the engine moves, and the gauges that are computed from its state (docs/reference/05-metrics.md).

mod cohorts;
mod counts;
pub(crate) mod custom;
pub(crate) mod definitions;
mod gates;
mod local;
mod pending;
mod queues;
mod scrape;
mod seen;
mod series;
mod topologies;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::slim;
use sluice_core::{Amount, Name};
use sluice_quantity::CPU;

pub(crate) use custom::Custom;
pub use definitions::*;
pub(crate) use gates::RemovedGate;
pub(crate) use scrape::LIGHT;
pub use scrape::{SCRAPE_PAGE, Scrape};
pub use topologies::{FitSearch, LargestFits, ShapeFit};

/// The current value of one gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct GaugeValue {
    /// The metric's name.
    pub metric: &'static str,
    /// The values of its labels.
    pub labels: Vec<Arc<str>>,
    /// Its value, in base units (cpu in cores).
    pub value: f64,
}

/// Seconds between two instants; never negative.
#[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
pub(crate) fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    (to.as_millisecond().saturating_sub(from.as_millisecond()).max(0) as f64) / 1_000.0
}

/// The name of a workload's priority class, empty without one.
pub(crate) fn priority_class(object: &slim::Workload) -> &str {
    object.spec.priority_class_ref.as_ref().map_or("", |c| c.name.as_str())
}

/// An amount in base units; what is without limit is infinite.
#[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
fn base_units(resource: &str, amount: Amount) -> f64 {
    if amount.is_unlimited() {
        f64::INFINITY
    } else if resource == CPU {
        amount.get() as f64 / 1_000.0
    } else {
        amount.get() as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
fn number(n: usize) -> f64 {
    n as f64
}

/// A share; infinite ones are not a number (docs/reference/05-metrics.md).
fn share(value: f64) -> f64 {
    if value.is_finite() { value } else { f64::NAN }
}

/// The smallest free part of a resource, given what is free and what there is. Resources without quota do not count:
/// no Workload that asks for them waits for others.
#[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
fn free_ratio(free: &BTreeMap<Name, (Amount, Amount)>) -> f64 {
    let parts = free
        .values()
        .filter(|(_, all)| *all > Amount::ZERO)
        .map(|(free, all)| if free.is_unlimited() { 1.0 } else { free.get() as f64 / all.get() as f64 });
    parts.reduce(f64::min).unwrap_or(0.0)
}
