//! Tests of the adapters through their public interface.

#![expect(clippy::unwrap_used, reason = "helpers of tests, too, may fail a test")]

mod observe;
mod order_of_rules;
mod rules_of_all;
mod shipped;
mod shipped_states;
mod start_stop;
#[path = "../../src/testing.rs"]
#[expect(dead_code, reason = "tests of single kinds, in their folders, have it, too")]
mod testing;
mod topology;
mod webhook;
