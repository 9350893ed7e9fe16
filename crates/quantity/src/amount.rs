//! Saturating amounts (docs/reference/06-algorithm.md 6.28): what quotas, usage and requests are counted in.

use core::fmt;
use core::iter::Sum;

/// A number of resource units: millicores for `cpu`, integral units (bytes, devices, …) for every other resource.
///
/// Arithmetic saturates; [`Amount::UNLIMITED`] is absorbing. There are no operators on purpose: every sum in the
/// scheduler goes through [`Amount::add`] and [`Amount::sub`], so that no overflow rule can be forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(pub i64);

impl Amount {
    /// Nothing.
    pub const ZERO: Amount = Amount(0);
    /// No limit at all; larger than every bounded amount.
    pub const UNLIMITED: Amount = Amount(i64::MAX);
    /// What a bounded amount minus [`Amount::UNLIMITED`] is: "available" becomes hugely negative.
    pub const LOWEST: Amount = Amount(i64::MIN);

    /// The number of units.
    #[inline]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whether this is [`Amount::UNLIMITED`].
    #[inline]
    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }

    /// Whether this is zero.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Sum; unlimited plus anything is unlimited, everything else clamps to ±(2⁶³ − 1).
    #[inline]
    #[must_use]
    pub const fn add(self, other: Amount) -> Amount {
        if self.is_unlimited() || other.is_unlimited() {
            return Amount::UNLIMITED;
        }
        match self.0.checked_add(other.0) {
            Some(sum) => Amount(sum),
            None => Amount::clamped(self.0 > 0),
        }
    }

    /// Difference; unlimited − unlimited = 0, unlimited − bounded = unlimited, bounded − unlimited =
    /// [`Amount::LOWEST`], everything else clamps to ±(2⁶³ − 1).
    #[inline]
    #[must_use]
    pub const fn sub(self, other: Amount) -> Amount {
        match (self.is_unlimited(), other.is_unlimited()) {
            (true, true) => Amount::ZERO,
            (true, false) => Amount::UNLIMITED,
            (false, true) => Amount::LOWEST,
            (false, false) => match self.0.checked_sub(other.0) {
                Some(difference) => Amount(difference),
                None => Amount::clamped(self.0 >= 0),
            },
        }
    }

    /// Product with a plain number; clamps to ±(2⁶³ − 1), so unlimited times a positive number is unlimited.
    #[inline]
    #[must_use]
    pub const fn saturating_mul(self, factor: i64) -> Amount {
        match self.0.checked_mul(factor) {
            Some(product) => Amount(product),
            None => Amount::clamped((self.0 > 0) == (factor > 0)),
        }
    }

    /// The smaller of the two.
    #[inline]
    #[must_use]
    pub const fn min(self, other: Amount) -> Amount {
        if other.0 < self.0 { other } else { self }
    }

    /// The larger of the two.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Amount) -> Amount {
        if other.0 > self.0 { other } else { self }
    }

    const fn clamped(positive: bool) -> Amount {
        Amount(if positive { i64::MAX } else { -i64::MAX })
    }
}

impl From<i64> for Amount {
    fn from(units: i64) -> Self {
        Amount(units)
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Amount>>(iter: I) -> Amount {
        iter.fold(Amount::ZERO, Amount::add)
    }
}

/// The bare number of units, or `Unlimited`.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() { f.pad("Unlimited") } else { fmt::Display::fmt(&self.0, f) }
    }
}

#[cfg(test)]
mod tests {
    use super::Amount;
    use proptest::prelude::*;

    const U: Amount = Amount::UNLIMITED;

    #[test]
    fn unlimited_follows_the_rules_of_6_28() {
        assert_eq!(U.add(Amount(-5)), U);
        assert_eq!(Amount(-5).add(U), U);
        assert_eq!(Amount::LOWEST.add(U), U);
        assert_eq!(U.sub(U), Amount::ZERO);
        assert_eq!(U.sub(Amount(7)), U);
        assert_eq!(U.sub(Amount(-7)), U);
        assert_eq!(Amount(7).sub(U), Amount(i64::MIN));
        assert_eq!(Amount::LOWEST.sub(U), Amount(i64::MIN));
        assert_eq!(U.min(Amount(3)), Amount(3));
        assert_eq!(U.max(Amount(3)), U);
    }

    #[test]
    fn bounded_sums_clamp_to_plus_and_minus_max() {
        let big = Amount(i64::MAX - 1);
        assert_eq!(big.add(big), U);
        assert_eq!(Amount(-i64::MAX).add(Amount(-2)), Amount(-i64::MAX));
        assert_eq!(Amount(-i64::MAX).sub(big), Amount(-i64::MAX));
        assert_eq!(Amount(0).sub(Amount::LOWEST), U);
        assert_eq!(Amount(-1).sub(Amount::LOWEST), U);
        assert_eq!(big.saturating_mul(2), U);
        assert_eq!(big.saturating_mul(-2), Amount(-i64::MAX));
        assert_eq!(Amount(-4).saturating_mul(i64::MIN), U);
        assert_eq!(U.saturating_mul(1), U);
        assert_eq!(U.saturating_mul(0), Amount::ZERO);
    }

    #[test]
    fn display_names_unlimited() {
        assert_eq!(U.to_string(), "Unlimited");
        assert_eq!(Amount(-3).to_string(), "-3");
    }

    proptest! {
        #[test]
        fn agrees_with_exact_arithmetic_when_bounded(a in any::<i64>(), b in any::<i64>()) {
            prop_assume!(a != i64::MAX && b != i64::MAX);
            let clamp = |exact: i128| match i64::try_from(exact) {
                Ok(fits) => fits,
                Err(_) if exact > 0 => i64::MAX,
                Err(_) => -i64::MAX,
            };
            prop_assert_eq!(Amount(a).add(Amount(b)).get(), clamp(i128::from(a) + i128::from(b)));
            prop_assert_eq!(Amount(a).sub(Amount(b)).get(), clamp(i128::from(a) - i128::from(b)));
            prop_assert_eq!(Amount(a).saturating_mul(b).get(), clamp(i128::from(a) * i128::from(b)));
        }

        #[test]
        fn addition_is_commutative_and_monotone(a in any::<i64>(), b in any::<i64>(), c in any::<i64>()) {
            prop_assert_eq!(Amount(a).add(Amount(b)), Amount(b).add(Amount(a)));
            prop_assume!(a != i64::MIN && b != i64::MIN && c != i64::MIN);
            let (low, high) = (Amount(a.min(b)), Amount(a.max(b)));
            prop_assert!(low.add(Amount(c)) <= high.add(Amount(c)));
        }
    }
}
