//! Restart at every step, on a real control plane: each two-step protocol is cut at each of the manager's writes. Whatever the cut, the end is
//! that of the play that was not cut: nothing lost, nothing twice, no quota leaked, and at no moment more than the quota.
//!
//! Each play has a namespace and queues of its own behind one proxy, so that all cuts of a protocol are played at once: a play's writes
//! fail from its cut on, while those of the others go on; when all are cut, the manager is killed and started again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod outcome;
mod protocol;
mod stage;
mod swap;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures::future::join_all;
use outcome::Outcome;
use protocol::Protocol;
use sluice_testkit::{Fault, Write};
use stage::{Bed, Play, Stage, bed};

/// How long one step of a play may take among a hundred others, with a restart in between.
const PATIENCE: Duration = Duration::from_mins(5);

/// The ways of a cut: what it is called, whether the API server carries the write out, whether the manager dies. A manager that dies of a
/// write that is lost leaves what it leaves after the write before: that is played alone only.
const WAYS: [(&str, bool, bool); 3] =
    [("goes on, answer lost", true, false), ("goes on, write lost", false, false), ("killed", true, true)];

/// The ways of a protocol's cuts: a swap takes a world of nodes and JobSets for each, so the manager always dies of it.
fn ways(protocol: Protocol) -> impl Iterator<Item = &'static (&'static str, bool, bool)> + Clone {
    WAYS.iter().filter(move |(_, _, for_good)| *for_good || protocol != Protocol::DisplaceSwap)
}

/// A play that nothing happens to: its end, and its writes.
async fn whole(
    stage: Stage,
    bed: &'static Bed,
    protocol: Protocol,
    name: &str,
) -> (Stage, Outcome, Vec<Write>) {
    let plays = [Play::prepare(bed, protocol, None, name).await];
    let (stage, played) = stage.play(&plays).await;
    assert_eq!(played, [Ok(())]);
    let outcome = plays[0].outcome(None).await.unwrap();
    let writes = stage.proxy.scope(name).writes;
    (stage, outcome, writes)
}

/// What a play came to: in a word, or in its differences from the whole play.
async fn verdict(stage: &Stage, play: &Play, played: &Result<(), String>, whole: &Outcome) -> String {
    let outcome = match played {
        Ok(()) => play.outcome(Some(whole)).await,
        Err(error) => Err(error.clone()),
    };
    let differences = match outcome {
        Ok(outcome) => outcome.differences(whole),
        Err(error) => vec![error],
    };
    match (differences.is_empty(), stage.proxy.scope(&play.place.name).struck) {
        (true, true) => "same".to_owned(),
        (true, false) => "not reached".to_owned(),
        (false, _) => format!("DIFFERS: {}", differences.join("; ")),
    }
}

/// Plays a protocol with these faults, all at once; what each came to.
async fn cut(
    stage: Stage,
    bed: &'static Bed,
    protocol: Protocol,
    faults: &[Fault],
    whole: &Outcome,
) -> (Stage, Vec<String>) {
    let plays = join_all(faults.iter().map(|fault| {
        let way = if fault.carried_out { "answer" } else { "write" };
        let kind = match (fault.for_good, faults.len()) {
            (_, 1) => "alone",
            (true, _) => "killed",
            (false, _) => "goes-on",
        };
        let name = format!("{}-{kind}-{}-{way}", protocol.slug(), fault.at);
        async move { Play::prepare(bed, protocol, Some(*fault), &name).await }
    }))
    .await;
    let (stage, played) = stage.play(&plays).await;
    let verdicts = plays.iter().zip(&played).map(|(play, played)| verdict(&stage, play, played, whole));
    let verdicts = join_all(verdicts).await;
    stage.audit().await;
    (stage, verdicts)
}

/// A write as people name it: what is done to which part of which object.
fn label(write: &Write) -> String {
    let parts: Vec<_> = write.path.split('/').collect();
    let from = parts.iter().position(|part| *part == "namespaces").map_or(4, |at| at + 2);
    format!("{} {}", write.method, parts[from.min(parts.len())..].join("/"))
}

/// All cuts of one protocol: its part of the matrix, and what went wrong.
async fn matrix(mut stage: Stage, bed: &'static Bed, protocol: Protocol) -> (Stage, String, Vec<String>) {
    let began = Instant::now();
    let (next, whole, writes) = whole(stage, bed, protocol, &format!("{}-whole", protocol.slug())).await;
    stage = next;
    let mut cells = vec![Vec::new(); writes.len()];
    for dies in [false, true] {
        let ways = ways(protocol).filter(|(_, _, for_good)| *for_good == dies);
        if ways.clone().next().is_none() {
            continue;
        }
        let faults: Vec<_> = (1..=writes.len())
            .flat_map(|at| {
                let fault = move |(_, carried_out, for_good): &(&str, bool, bool)| Fault {
                    at,
                    carried_out: *carried_out,
                    for_good: *for_good,
                };
                ways.clone().map(fault)
            })
            .collect();
        let (next, verdicts) = cut(stage, bed, protocol, &faults, &whole).await;
        stage = next;
        for (fault, verdict) in faults.iter().zip(verdicts) {
            cells[fault.at - 1].push(verdict);
        }
    }
    let mut wrong = Vec::new();
    // No other replica is there, and the manager dies at that very moment.
    for (at, carried_out) in [(writes.len() / 3, true), (writes.len() * 2 / 3, false)] {
        let fault = Fault { at: at.max(1), carried_out, for_good: true };
        let (next, verdicts) = cut(stage, bed, protocol, &[fault], &whole).await;
        stage = next;
        let bad = verdicts.iter().filter(|verdict| *verdict != "same");
        wrong.extend(bad.map(|verdict| format!("{}, alone at {at}: {verdict}", protocol.title())));
    }
    let mut text = format!("{} ({} writes, {:.0?})\n", protocol.title(), writes.len(), began.elapsed());
    for (index, (write, cells)) in writes.iter().zip(&cells).enumerate() {
        let at = index + 1;
        let bad = cells.iter().filter(|cell| !["same", "not reached"].contains(&cell.as_str()));
        wrong.extend(bad.map(|cell| format!("{} at {at}: {cell}", protocol.title())));
        writeln!(text, "{at:4} {:60} {}", label(write), cells.join(" | ")).unwrap();
    }
    // Some plays need fewer writes than others: no one saw the pods ready before they finished, or a Job stopped at the first try.
    let all: Vec<_> = cells.iter().flatten().collect();
    let reached = all.iter().filter(|cell| **cell != "not reached").count();
    if reached * 3 < all.len() * 2 {
        wrong.push(format!("{}: only {reached} of {} cuts were reached", protocol.title(), all.len()));
    }
    (stage, text, wrong)
}

/// Plays, cuts, prints and judges one protocol.
async fn judge(protocol: Protocol) {
    let (bed, _guard) = bed().await;
    let (_stage, text, wrong) = matrix(Stage::new(bed).await, bed, protocol).await;
    let names: Vec<_> = ways(protocol).map(|(name, ..)| *name).collect();
    println!("each write: {}\n{text}", names.join(" | "));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn admit_and_start_come_to_the_same_end_after_any_cut() {
    judge(Protocol::AdmitStart).await;
}

#[tokio::test]
async fn evict_and_release_come_to_the_same_end_after_any_cut() {
    judge(Protocol::EvictRelease).await;
}

#[tokio::test]
async fn drain_and_resume_come_to_the_same_end_after_any_cut() {
    judge(Protocol::DrainResume).await;
}

#[tokio::test]
async fn check_and_start_come_to_the_same_end_after_any_cut() {
    judge(Protocol::CheckStart).await;
}

#[tokio::test]
async fn provision_and_start_come_to_the_same_end_after_any_cut() {
    judge(Protocol::ProvisionStart).await;
}

#[tokio::test]
async fn displace_and_swap_come_to_the_same_end_after_any_cut() {
    judge(Protocol::DisplaceSwap).await;
}
