//! The fuzz targets of this crate on a fixed set of inputs: quick, the same every time, on the stable compiler.
#![cfg(test)]

mod bytes;
mod events;
mod mirror;
mod nodes;

use bytes::input;
use sluice_core::Outcome;

#[test]
fn event_streams_never_panic_and_never_break_the_accounting() {
    let (mut admitted, mut preempting, mut placed) = (0_usize, 0_usize, 0_usize);
    for seed in 0..1_600 {
        let length = 400 + usize::try_from(seed % 7).expect("small") * 900;
        let run = std::panic::catch_unwind(|| events::run(&input(seed, length)));
        let reports = run.unwrap_or_else(|_| panic!("the input of seed {seed}, {length} bytes"));
        for entry in reports.iter().flat_map(|report| &report.entries) {
            if let Outcome::Admitted { admission, .. } = &entry.outcome {
                admitted += 1;
                placed += usize::from(admission.has_nodes());
            }
            preempting += usize::from(matches!(entry.outcome, Outcome::Preempting { .. }));
        }
    }
    assert!(
        admitted > 400 && preempting > 20 && placed > 20,
        "the inputs get nowhere: {admitted} admitted, {placed} of them with nodes, {preempting} preempting"
    );
}

#[test]
fn the_same_stream_gives_the_same_reports() {
    for seed in 0..100 {
        let bytes = input(seed, 1_500);
        assert_eq!(format!("{:?}", events::run(&bytes)), format!("{:?}", events::run(&bytes)), "seed {seed}");
    }
}
