//! The core against the oracle, and the oracle against Kueue.
//!
//! * `cases`: the oracle reproduces the outcome of Kueue's own core on the engine cases.
//! * `alone`: properties that need no oracle: determinism, rebuilding, settling.
//! * `fairness`: fair sharing converges.
//! * `loops`: the preemption-loop guard on the smallest loop.
//! * `extremes`: unusual sizes.
//! * `hostile`: any events, without a panic or wrong accounting.
//! * `placed_worlds`: nodes never get more pods than they have room for.
//! * `rare`: worlds that random generation hardly ever makes.
//! * `snapshots`: later events do not change them.
//! * `random_worlds`: the core agrees with the oracle over random worlds and events, and keeps its properties.
//! * `exhaustive`: the core agrees with the oracle over every small world; here a sample, all with `SLUICE_EXHAUSTIVE=all`.
#![expect(clippy::disallowed_methods, reason = "a test reads its cases, and may use all processors")]
#![expect(clippy::panic, reason = "a test fails by a panic")]

#[path = "../oracle/mod.rs"]
mod oracle;

mod alone;
mod cases;
mod covering;
mod exhaustive;
mod extremes;
mod fairness;
mod hostile;
mod loops;
mod pair;
mod placed_worlds;
mod properties;
mod random_worlds;
mod rare;
mod small_worlds;
mod snapshots;
mod translate;
