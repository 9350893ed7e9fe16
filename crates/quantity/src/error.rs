//! Why a text is not a quantity.

use thiserror::Error;

/// Why [`Quantity::parse`](crate::Quantity::parse) refused a text. Carries the text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("a quantity must not be empty")]
    Empty,
    /// There is no digit where the number should be.
    #[error("quantity {0:?} has no digits")]
    NoDigits(String),
    /// The suffix is none of `n u m k M G T P E Ki Mi Gi Ti Pi Ei`, and is not an exponent.
    #[error("quantity {0:?} has an unknown suffix")]
    Suffix(String),
}
