//! Exact Kubernetes quantities: parse, canonical form, rounding as Kubernetes does; no floats.
//!
//! [`Quantity`] is what users write (`100m`, `1.5Gi`, `2e3`). [`Amount`] is what the scheduler computes with: 64-bit
//! integers in the unit of the resource, saturating, with an explicit "unlimited". [`amount_of`] and [`quantity_of`]
//! are the only bridge between the two.
//!
//! This crate must never contain floating-point arithmetic, input/output, or knowledge of any Kubernetes object.
//!
//! Invariants: no input makes a function panic; a quantity is exact to one billionth (finer input is rounded away from
//! zero, as Kubernetes does); parsing the canonical form gives an equal quantity; arithmetic saturates.
#![forbid(unsafe_code)]

mod amount;
mod canonical;
mod convert;
mod error;
mod parse;
mod quantity;

pub use amount::Amount;
pub use convert::{CPU, amount_of, is_extended, quantity_of};
pub use error::QuantityError;
pub use quantity::{Format, Quantity};
