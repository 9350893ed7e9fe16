//! The engine's work for each input has a budget: cycles, flavor assignments, searches, effects, allocations (`tests/performance/budgets.toml`).

use std::process::Command;

#[test]
fn no_count_is_above_its_budget() {
    let bench = Command::new(env!("CARGO_BIN_EXE_sluice-xtask")).args(["bench", "--counts"]).output();
    let bench = bench.expect("the program runs");
    let (said, errors) = (String::from_utf8_lossy(&bench.stdout), String::from_utf8_lossy(&bench.stderr));
    assert!(bench.status.success(), "{said}\n{errors}");
    // That it measured: each of its tables has lines.
    for part in [
        "churn-baseline",
        "2 takeover",
        "hotswap, ",
        "lent, ",
        "2 all run",
        "3 one says something",
        "refused placements",
    ] {
        assert!(said.contains(part), "{part} is missing in\n{said}");
    }
}
