//! Tests of topology, by rule.

mod balanced;
mod events;
mod exhaustive;
mod filtering;
mod fixture;
mod groups;
mod kept;
mod largest_fit;
mod levels;
mod many_changes;
mod moving;
mod naive;
mod oracle;
mod preferred;
mod random;
mod slices;
mod staying;
