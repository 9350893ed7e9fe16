//! Tests of topology, by rule.

mod fixture;
