//! Arbitrary event streams for the scheduler, audited after each event.
#![no_main]

#[path = "../../../../crates/core/tests/fuzz/events.rs"]
mod events;
#[path = "../../../../crates/core/tests/fuzz/nodes.rs"]
mod nodes;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    events::run(input);
});
