//! Lists of resource amounts, exact in billionths, as the request calculation needs them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use sluice_core::{Amount, Name};
use sluice_quantity::{CPU, Quantity};

/// Billionths of a resource's unit, by resource.
pub(super) type Nano = BTreeMap<String, i128>;

/// One billion: billionths in a unit.
const UNIT: i128 = 1_000_000_000;
/// Billionths in a thousandth.
const MILLI: i128 = 1_000_000;

/// Parses a resource list; what cannot be parsed counts as nothing (the schema keeps it out).
pub(super) fn parsed(list: &BTreeMap<String, Text>) -> Nano {
    list.iter().map(|(name, text)| (name.clone(), parse(text))).collect()
}

/// Billionths of one quantity.
pub(super) fn parse(text: &Text) -> i128 {
    Quantity::parse(&text.0).map_or(0, |q| q.nano())
}

/// Adds `other` to `sum`.
pub(super) fn add(sum: &mut Nano, other: &Nano) {
    for (name, amount) in other {
        let entry = sum.entry(name.clone()).or_default();
        *entry = entry.saturating_add(*amount);
    }
}

/// Raises `most` to at least `other`.
pub(super) fn raise(most: &mut Nano, other: &Nano) {
    for (name, amount) in other {
        let entry = most.entry(name.clone()).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}

/// Adds what `defaults` has and `list` lacks.
pub(super) fn fill(list: &mut Nano, defaults: &Nano) {
    for (name, amount) in defaults {
        list.entry(name.clone()).or_insert(*amount);
    }
}

/// The product of two amounts.
pub(super) fn product(a: i128, b: i128) -> i128 {
    let (whole, rest) = (a.div_euclid(UNIT), a.rem_euclid(UNIT));
    let part = rest.checked_mul(b).map_or_else(|| (b / UNIT).saturating_mul(rest), |p| p / UNIT);
    whole.saturating_mul(b).saturating_add(part)
}

/// Whole units (cpu: thousandths), rounded up; below zero is zero.
pub(super) fn amount(name: &str, nano: i128) -> Amount {
    let divisor = if name == CPU { MILLI } else { UNIT };
    let nano = nano.max(0);
    let rounded = nano / divisor + i128::from(nano % divisor != 0);
    i64::try_from(rounded).map_or(Amount::UNLIMITED, Amount)
}

/// The list as the core takes it, sorted by resource.
pub(super) fn amounts(list: &Nano) -> Vec<(Name, Amount)> {
    list.iter().map(|(name, nano)| (Name::from(name.as_str()), amount(name, *nano))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_round_up_to_the_unit_that_the_reference_has() {
        assert_eq!(amount("cpu", 1), Amount(1));
        assert_eq!(amount("cpu", 1_500 * MILLI), Amount(1_500));
        assert_eq!(amount("memory", UNIT + 1), Amount(2));
        assert_eq!(amount("memory", -5), Amount::ZERO);
        assert_eq!(amount("memory", i128::MAX), Amount::UNLIMITED);
    }

    #[test]
    fn products_keep_fractions() {
        assert_eq!(product(3 * UNIT / 2, 2 * UNIT), 3 * UNIT);
        assert_eq!(product(UNIT / 2, UNIT / 2), UNIT / 4);
        assert_eq!(product(4 * UNIT, 250 * MILLI), UNIT);
        assert_eq!(product(i128::MAX, UNIT), i128::MAX / UNIT * UNIT + i128::MAX % UNIT);
    }
}
