//! The quantity type: value, format, arithmetic, rounding.

use crate::error::QuantityError;
use crate::{canonical, parse};
use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use core::{fmt, str};

/// Billionths in one unit.
pub(crate) const NANO_PER_UNIT: i128 = 1_000_000_000;
/// The largest magnitude a quantity holds, in billionths (10²⁹ units). Chosen so that the bound is symmetric, far
/// above every 64-bit value, and prints as a round number.
pub(crate) const MAX_NANO: i128 = 100_000_000_000_000_000_000_000_000_000_000_000_000;

/// The family of suffixes in which a quantity was written, and is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// `n u m` – `k M G T P E`, powers of 1000.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`, powers of 1024.
    BinarySi,
    /// `e3`, `e-6`: a power of ten.
    DecimalExponent,
}

/// An exact Kubernetes quantity.
///
/// Equality, order and hash look at the number only: `1024` and `1Ki` are equal although they print differently.
/// Magnitudes are bounded by 10²⁹ units; what exceeds that saturates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

impl Quantity {
    /// Zero.
    pub const ZERO: Quantity = Quantity { nano: 0, format: Format::DecimalSi };

    /// Reads a quantity: sign, digits with an optional point, and a suffix of any [`Format`].
    ///
    /// Digits below one billionth round away from zero; a binary quantity is capped at 2⁶³ − 1 (both as Kubernetes).
    ///
    /// # Errors
    ///
    /// If the text is empty, has no digits, or has a suffix that no [`Format`] has.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        parse::parse(text)
    }

    /// A whole number of units.
    pub const fn from_units(units: i64, format: Format) -> Quantity {
        // 2⁶³ · 10⁹ < 10²⁸, within bounds
        Quantity { nano: units as i128 * NANO_PER_UNIT, format }
    }

    /// A whole number of thousandths.
    pub const fn from_milli(milli: i64, format: Format) -> Quantity {
        Quantity { nano: milli as i128 * (NANO_PER_UNIT / 1000), format }
    }

    pub(crate) fn from_nano(nano: i128, format: Format) -> Quantity {
        Quantity { nano: nano.clamp(-MAX_NANO, MAX_NANO), format }
    }

    /// The exact number of billionths.
    pub const fn nano(&self) -> i128 {
        self.nano
    }

    /// The suffix family used for printing.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Whole units, rounded away from zero, saturating at the bounds of 64 bits.
    pub fn value(&self) -> i64 {
        self.rounded(NANO_PER_UNIT)
    }

    /// Thousandths, rounded away from zero, saturating at the bounds of 64 bits.
    pub fn milli_value(&self) -> i64 {
        self.rounded(NANO_PER_UNIT / 1000)
    }

    /// Whether the number is whole.
    pub const fn is_integer(&self) -> bool {
        self.nano % NANO_PER_UNIT == 0
    }

    /// Whether the number is zero.
    pub const fn is_zero(&self) -> bool {
        self.nano == 0
    }

    /// Whether the number is below zero.
    pub const fn is_negative(&self) -> bool {
        self.nano < 0
    }

    /// The sum. The format is that of `self`, or of `other` if `self` is zero (as Kubernetes).
    #[must_use]
    pub fn saturating_add(self, other: Quantity) -> Quantity {
        Quantity::from_nano(self.nano.saturating_add(other.nano), self.joint_format(other))
    }

    /// The difference. The format is chosen as by [`Quantity::saturating_add`].
    #[must_use]
    pub fn saturating_sub(self, other: Quantity) -> Quantity {
        Quantity::from_nano(self.nano.saturating_sub(other.nano), self.joint_format(other))
    }

    /// The product with a whole number.
    #[must_use]
    pub fn saturating_mul(self, factor: i64) -> Quantity {
        Quantity::from_nano(self.nano.saturating_mul(i128::from(factor)), self.format)
    }

    const fn joint_format(&self, other: Quantity) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }

    fn rounded(&self, unit: i128) -> i64 {
        let away_from_zero = i128::from(self.nano % unit != 0) * self.nano.signum();
        let rounded = self.nano / unit + away_from_zero;
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}

impl str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Quantity::parse(text)
    }
}

/// The canonical form, as Kubernetes prints it.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mantissa, suffix) = canonical::parts(*self);
        f.pad(&format!("{mantissa}{suffix}"))
    }
}
