//! The canonical form: no fraction, the largest suffix that needs none, the suffix family the quantity was written in.

use crate::quantity::{Format, NANO_PER_UNIT, Quantity};
use core::fmt;

/// The suffix of a canonical quantity.
pub(crate) enum Suffix {
    Si(&'static str),
    Exponent(i32),
}

impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Suffix::Si(symbol) => f.write_str(symbol),
            Suffix::Exponent(0) => Ok(()),
            Suffix::Exponent(power) => write!(f, "e{power}"),
        }
    }
}

/// By power of 1000, from 10⁻⁹ on.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// By power of 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

pub(crate) fn parts(quantity: Quantity) -> (i128, Suffix) {
    let nano = quantity.nano();
    if nano == 0 {
        return (0, Suffix::Si(""));
    }
    match quantity.format() {
        // Below 1024 a binary suffix would be redundant, and it cannot express fractions.
        Format::BinarySi if quantity.is_integer() && nano.abs() >= 1024 * NANO_PER_UNIT => {
            let (mantissa, power) = strip(nano / NANO_PER_UNIT, 1024, BINARY.len() - 1);
            (mantissa, Suffix::Si(BINARY[power]))
        }
        Format::DecimalExponent => {
            let (mantissa, power) = strip(nano, 1000, usize::MAX);
            let power = i32::try_from(power).expect("128 bits hold at most 12 factors of 1000");
            (mantissa, Suffix::Exponent(3 * power - 9))
        }
        Format::DecimalSi | Format::BinarySi => {
            let (mantissa, power) = strip(nano, 1000, DECIMAL.len() - 1);
            (mantissa, Suffix::Si(DECIMAL[power]))
        }
    }
}

/// Takes at most `most` factors `base` out of a number other than zero.
fn strip(mut number: i128, base: i128, most: usize) -> (i128, usize) {
    let mut taken = 0;
    while taken < most && number % base == 0 {
        number /= base;
        taken += 1;
    }
    (number, taken)
}
