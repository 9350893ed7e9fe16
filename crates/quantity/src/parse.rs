//! Parsing, exact for any number of digits.

use crate::error::QuantityError;
use crate::quantity::{Format, MAX_NANO, NANO_PER_UNIT, Quantity};

/// The factor of the suffix: 10^`power_of_ten` × `factor`.
struct Scale {
    format: Format,
    power_of_ten: i64,
    factor: i128,
}

pub(crate) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, rest) = split_digits(unsigned);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(after_point) => split_digits(after_point),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(QuantityError::NoDigits(text.to_owned()));
    }
    let scale = scale_of(suffix).ok_or_else(|| QuantityError::Suffix(text.to_owned()))?;

    let magnitude = scaled(whole, fraction, scale.power_of_ten, scale.factor * NANO_PER_UNIT);
    let magnitude = match scale.format {
        Format::BinarySi => magnitude.min(i128::from(i64::MAX) * NANO_PER_UNIT),
        Format::DecimalSi | Format::DecimalExponent => magnitude,
    };
    // A binary quantity below one keeps the decimal format, even after an addition.
    let format = match scale.format {
        Format::BinarySi if magnitude > 0 && magnitude < NANO_PER_UNIT => Format::DecimalSi,
        format => format,
    };
    Ok(Quantity::from_nano(if negative { -magnitude } else { magnitude }, format))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn scale_of(suffix: &str) -> Option<Scale> {
    let decimal = |power_of_ten| Some(Scale { format: Format::DecimalSi, power_of_ten, factor: 1 });
    let binary = |power_of_two: u32| {
        Some(Scale { format: Format::BinarySi, power_of_ten: 0, factor: 1 << power_of_two })
    };
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let power = suffix.strip_prefix(['e', 'E'])?;
            let digits = power.strip_prefix(['+', '-']).unwrap_or(power);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let power_of_ten = power.parse().ok()?;
            Some(Scale { format: Format::DecimalExponent, power_of_ten, factor: 1 })
        }
    }
}

/// ⌈`whole`.`fraction` × 10^`power_of_ten` × `factor`⌉, at most [`MAX_NANO`].
///
/// `factor` is at most 2⁶⁰ · 10⁹ < 10²⁸. Runs in the number of digits, whatever the exponent.
fn scaled(whole: &str, fraction: &str, power_of_ten: i64, factor: i128) -> i128 {
    let whole = whole.trim_start_matches('0');
    let zeros = if whole.is_empty() { fraction.len() - fraction.trim_start_matches('0').len() } else { 0 };
    let digits: Vec<u8> =
        whole.bytes().chain(fraction.bytes().skip(zeros)).map(|digit| digit - b'0').collect();
    if digits.is_empty() {
        return 0;
    }
    // How many digits stand before the point once the power of ten is applied; may lie outside of the digits.
    let point = power_of_ten.saturating_add(length(whole.len())).saturating_sub(length(zeros));
    let split = usize::try_from(point).unwrap_or(0).min(digits.len());

    let mut integer: i128 = 0;
    for digit in &digits[..split] {
        integer = (integer * 10 + i128::from(*digit)).min(MAX_NANO / 10);
    }
    for _ in length(split)..point {
        if integer == 0 || integer >= MAX_NANO / 10 {
            break;
        }
        integer = (integer * 10).min(MAX_NANO / 10);
    }

    // The fraction by Horner's scheme from its last digit; floors compose, and `inexact` remembers what they dropped.
    let mut part: i128 = 0;
    let mut inexact = false;
    for digit in digits[split..].iter().rev() {
        part += i128::from(*digit) * factor;
        inexact |= part % 10 != 0;
        part /= 10;
    }
    for _ in point..0 {
        if part == 0 {
            break;
        }
        inexact |= part % 10 != 0;
        part /= 10;
    }
    integer.saturating_mul(factor).saturating_add(part).saturating_add(i128::from(inexact)).min(MAX_NANO)
}

fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("no text is longer than 2⁶³ bytes")
}
