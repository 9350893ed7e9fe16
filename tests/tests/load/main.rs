//! Loads on a plane each, one after the other: what is measured here needs the machine to itself.

mod flood;
mod race;
mod rate;
mod reviews;
