//! Every kind of Kueue's API in both versions, with defaults, validation and conversion.

pub mod job;
