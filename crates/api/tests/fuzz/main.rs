//! The fuzz targets of this crate on a fixed set of inputs: quick, the same every time, on the stable compiler.
#![cfg(test)]

#[path = "../../../core/tests/fuzz/bytes.rs"]
mod bytes;
mod objects;

use bytes::input;

fn each(body: fn(&[u8])) {
    for seed in 0..400 {
        let length = 40 + usize::try_from(seed % 9).expect("small") * 300;
        let run = std::panic::catch_unwind(|| body(&input(seed, length)));
        assert!(run.is_ok(), "the input of seed {seed}, {length} bytes");
    }
}

#[test]
fn conversion_answers_whatever_it_is_given_and_is_stable() {
    each(objects::conversion);
}

#[test]
fn validation_answers_whatever_it_is_given() {
    each(objects::validation);
}
