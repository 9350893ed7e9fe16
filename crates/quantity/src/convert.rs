//! Conversions between users' quantities and the scheduler's amounts (docs/reference/06-algorithm.md 6.2 and 6.28).

use crate::amount::Amount;
use crate::quantity::{Format, Quantity};

/// The only resource that is counted in thousandths.
pub const CPU: &str = "cpu";

/// From this many cores on, `cpu` is unlimited: thousandths would no longer fit in 64 bits.
const UNLIMITED_CORES: i64 = i64::MAX / 1000;

/// Whether a resource is an extended one, such as `nvidia.com/gpu`: a device of a node's plugin, outside Kubernetes' own names.
pub fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/") && !resource.starts_with("requests.")
}

/// The amount of a quantity of the named resource: millicores for `cpu`, whole units otherwise, both rounded up.
/// What exceeds 64 bits is [`Amount::UNLIMITED`].
pub fn amount_of(resource: &str, quantity: &Quantity) -> Amount {
    if resource != CPU {
        return Amount(quantity.value());
    }
    if *quantity >= Quantity::from_units(UNLIMITED_CORES, Format::DecimalSi) {
        return Amount::UNLIMITED;
    }
    Amount(quantity.milli_value())
}

/// The quantity that prints an amount of the named resource in the usual form: bytes with binary suffixes, everything else with decimal ones.
pub fn quantity_of(resource: &str, amount: Amount) -> Quantity {
    if resource == CPU {
        return Quantity::from_milli(amount.get(), Format::DecimalSi);
    }
    let bytes = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    Quantity::from_units(amount.get(), if bytes { Format::BinarySi } else { Format::DecimalSi })
}

#[cfg(test)]
mod tests {
    use super::is_extended;

    #[test]
    fn extended_resources_have_a_domain_of_their_own() {
        assert!(is_extended("google.com/tpu") && is_extended("nvidia.com/gpu"));
        for native in ["cpu", "hugepages-2Mi", "kubernetes.io/thing", "requests.nvidia.com/gpu"] {
            assert!(!is_extended(native), "{native}");
        }
    }
}
