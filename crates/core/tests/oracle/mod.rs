//! An independent, naive oracle of the admission algorithm, written for clarity straight from
//! docs/reference/06-algorithm.md (sections 6.2 to 6.10): names are strings, maps are ordered, and everything is computed again whenever it is needed.
//!
//! It shares no code and no types with the core (only the saturating [`sluice_quantity::Amount`]), so that a mistake
//! in one does not hide in the other. It leaves out topology, admission checks, second passes and
//! admission fair sharing; where the reference leaves an order open, it takes the order of names.

pub mod amounts;
pub mod assignment;
pub mod bench;
pub mod classical;
pub mod cycle;
pub mod fair_preemption;
pub mod ordering;
pub mod outcome;
pub mod preemption;
pub mod queues;
pub mod quota;
pub mod random;
pub mod share;
pub mod snapshot;
pub mod world;
