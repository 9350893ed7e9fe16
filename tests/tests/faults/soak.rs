//! The long run with faults (see `sluice_tests::soak`): a short one by default; `make day` plays a long one. The command that repeats the run is
//! printed. `SOAK_SCALE` multiplies the quotas, `SOAK_USERS` is the number of concurrent users, `SOAK_PAUSES` multiplies the pauses between faults.
//! `SOAK_RECORDING=<file>` plays nothing, and checks a recorded run.

#![expect(clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::time::Duration;

use sluice_tests::soak::{Size, judge, run};

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, which is not a number"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_job_ends_and_none_runs_unadmitted_whatever_happens() {
    if let Ok(recording) = std::env::var("SOAK_RECORDING") {
        let judged = judge(Path::new(&recording)).unwrap();
        let broken: Vec<_> = judged.violations().iter().map(ToString::to_string).collect();
        println!("{:?}; open at the end: {:?}", judged.account(), judged.open());
        assert!(broken.is_empty(), "{}", broken.join("\n"));
        return;
    }
    let jobs = number("SOAK_JOBS", 70);
    let scale = number("SOAK_SCALE", if jobs > 500 { 4 } else { 1 });
    let size = Size {
        seed: number("SOAK_SEED", 1),
        jobs: usize::try_from(jobs).unwrap(),
        window: if jobs > 500 { 240 } else { 24 },
        scale: u32::try_from(scale).unwrap(),
        users: u32::try_from(number("SOAK_USERS", 1)).unwrap(),
        pauses: u32::try_from(number("SOAK_PAUSES", 1)).unwrap(),
        at_most: Duration::from_secs(60 * number("SOAK_MINUTES", 24 * 60)),
    };
    println!("{size}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("soak-{}", size.seed));
    let report = Box::pin(run(size, &folder)).await.unwrap();
    println!("{report}");
    let failures = report.failures();
    assert!(failures.is_empty(), "{report}\n{}\nsee {}", failures.join("\n"), folder.display());
    std::fs::remove_dir_all(&folder).unwrap();
}
