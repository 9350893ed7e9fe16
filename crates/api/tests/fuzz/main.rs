//! The fuzz targets of this crate on a fixed set of inputs: quick, the same every time, on the stable compiler.
#![cfg(test)]

mod objects;

/// Bytes from SplitMix64.
fn input(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

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
