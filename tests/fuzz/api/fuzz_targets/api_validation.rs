//! Arbitrary objects for the validation of the API.
#![no_main]

#[path = "../../../../crates/api/tests/fuzz/objects.rs"]
#[expect(dead_code, reason = "there is a body for each target")]
mod objects;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    objects::validation(input);
});
