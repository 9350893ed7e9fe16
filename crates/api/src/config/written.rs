//! How values are printed in the effective configuration.

use std::collections::BTreeMap;

/// Quantities as text.
pub(super) fn quantities<S: serde::Serializer>(
    map: &BTreeMap<String, sluice_quantity::Quantity>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(map.iter().map(|(name, quantity)| (name, quantity.to_string())))
}
