//! Restart at every step, on a real control plane: each two-step protocol is cut at each of the manager's writes. Whatever the cut, the end is
//! that of the play that was not cut: nothing lost, nothing twice, no quota leaked, and at no moment more than the quota.
//!
//! Each play has a namespace and queues of its own behind one proxy, so that many cuts are played at once: a play's writes fail from its
//! cut on, while those of the others go on; when all are cut, the manager is killed and started again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod outcome;
mod protocol;
mod stage;
mod swap;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use futures::future::join_all;
use outcome::Outcome;
use protocol::Protocol;
use sluice_testkit::{Fault, Write};
use stage::{Bed, Play, Stage, bed};

/// How many plays are played at once, at most.
const AT_ONCE: usize = 48;
/// How long one step of a play may take among all others, with a restart in between.
const PATIENCE: Duration = Duration::from_mins(5);

/// The ways of a cut: what it is called, whether the API server carries the write out, whether the manager dies. A manager that dies of a
/// write that is lost leaves what it leaves after the write before: that is played alone only.
const WAYS: [(&str, bool, bool); 3] =
    [("goes on, answer lost", true, false), ("goes on, write lost", false, false), ("killed", true, true)];

/// The ways of a protocol's cuts that the manager survives, or those that it does not. A swap takes a world of nodes and JobSets for each, so
/// the manager always dies of it.
fn ways(protocol: Protocol, dies: bool) -> impl Iterator<Item = &'static (&'static str, bool, bool)> + Clone {
    let is_played = dies || protocol != Protocol::DisplaceSwap;
    WAYS.iter().filter(move |(_, _, for_good)| *for_good == dies && is_played)
}

/// One cut of one protocol.
#[derive(Clone, Copy)]
struct Cut {
    protocol: Protocol,
    fault: Fault,
    /// Whether no other cut is played at the same time.
    alone: bool,
}

impl Cut {
    /// The name of its play.
    fn name(&self) -> String {
        let Fault { at, carried_out, for_good } = self.fault;
        let way = if carried_out { "answer" } else { "write" };
        let kind = match (self.alone, for_good) {
            (true, _) => "alone",
            (_, true) => "killed",
            _ => "goes-on",
        };
        format!("{}-{kind}-{at}-{way}", self.protocol.slug())
    }
}

/// What a protocol comes to when nothing happens to it.
struct Whole {
    outcome: Outcome,
    writes: Vec<Write>,
    /// What became of the cuts at each of these writes.
    cells: Vec<Vec<String>>,
}

/// All protocols played to their ends, at the same time, with nothing happening to any.
async fn wholes(stage: Stage, bed: &'static Bed) -> (Stage, BTreeMap<Protocol, Whole>) {
    let plays = join_all(Protocol::ALL.map(|protocol| async move {
        Play::prepare(bed, protocol, None, &format!("{}-whole", protocol.slug())).await
    }))
    .await;
    let (stage, played) = stage.play(&plays).await;
    assert!(played.iter().all(Result::is_ok), "{played:?}");
    let wholes = join_all(plays.iter().map(|play| async {
        let outcome = play.outcome(None).await.unwrap();
        let writes = stage.proxy.scope(&play.place.name).writes;
        let cells = vec![Vec::new(); writes.len()];
        (play.protocol, Whole { outcome, writes, cells })
    }))
    .await;
    (stage, wholes.into_iter().collect())
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

/// Plays these cuts at the same time; what each came to.
async fn cut(
    stage: Stage,
    bed: &'static Bed,
    cuts: &[Cut],
    wholes: &BTreeMap<Protocol, Whole>,
) -> (Stage, Vec<String>) {
    let plays = join_all(
        cuts.iter().map(|cut| async { Play::prepare(bed, cut.protocol, Some(cut.fault), &cut.name()).await }),
    )
    .await;
    let (stage, played) = stage.play(&plays).await;
    let verdicts = plays
        .iter()
        .zip(&played)
        .map(|(play, played)| verdict(&stage, play, played, &wholes[&play.protocol].outcome));
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

/// The cuts of all protocols that the manager survives, or those that it does not.
fn cuts(wholes: &BTreeMap<Protocol, Whole>, dies: bool) -> Vec<Cut> {
    let of = |(protocol, whole): (&Protocol, &Whole)| {
        let protocol = *protocol;
        let faults = (1..=whole.writes.len()).flat_map(move |at| {
            ways(protocol, dies).map(move |(_, carried_out, for_good)| Fault {
                at,
                carried_out: *carried_out,
                for_good: *for_good,
            })
        });
        faults.map(move |fault| Cut { protocol, fault, alone: false }).collect::<Vec<_>>()
    };
    wholes.iter().flat_map(of).collect()
}

/// All cuts of all protocols that the manager survives, or those that it does not: what each came to.
async fn matrix(mut stage: Stage, bed: &'static Bed, dies: bool) -> (Stage, BTreeMap<Protocol, Whole>) {
    let mut all;
    (stage, all) = wholes(stage, bed).await;
    for cuts in cuts(&all, dies).chunks(AT_ONCE) {
        let (next, verdicts) = cut(stage, bed, cuts, &all).await;
        stage = next;
        for (cut, verdict) in cuts.iter().zip(verdicts) {
            all.get_mut(&cut.protocol).unwrap().cells[cut.fault.at - 1].push(verdict);
        }
    }
    (stage, all)
}

/// A protocol's part of the matrix, and what went wrong.
fn judge(protocol: Protocol, whole: &Whole, dies: bool) -> (String, Vec<String>) {
    let Whole { writes, cells, .. } = whole;
    let names: Vec<_> = ways(protocol, dies).map(|(name, ..)| *name).collect();
    let mut text = format!("{} ({} writes), each: {}\n", protocol.title(), writes.len(), names.join(" | "));
    let mut wrong = Vec::new();
    for (index, (write, cells)) in writes.iter().zip(cells).enumerate() {
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
    (text, wrong)
}

/// Plays the matrix on a bed of its own.
async fn play(dies: bool) {
    let bed = bed().await;
    let (_stage, all) = matrix(Stage::new(bed).await, bed, dies).await;
    let mut wrong = Vec::new();
    for (protocol, whole) in all.iter().filter(|(protocol, _)| ways(**protocol, dies).next().is_some()) {
        let (text, bad) = judge(*protocol, whole, dies);
        println!("{text}");
        wrong.extend(bad);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_protocol_comes_to_the_same_end_after_any_cut_that_the_manager_survives() {
    play(false).await;
}

#[tokio::test]
async fn every_protocol_comes_to_the_same_end_after_any_cut_with_a_restart() {
    play(true).await;
}

// No other replica is there, and the manager dies at that very moment.
#[tokio::test]
async fn every_protocol_comes_to_the_same_end_after_a_cut_of_which_the_manager_dies_at_once() {
    let bed = bed().await;
    let (mut stage, all) = wholes(Stage::new(bed).await, bed).await;
    let mut wrong = Vec::new();
    for protocol in Protocol::ALL {
        let writes = all[&protocol].writes.len();
        for (at, carried_out) in [(writes / 3, true), (writes * 2 / 3, false)] {
            let fault = Fault { at: at.max(1), carried_out, for_good: true };
            let (next, verdicts) = cut(stage, bed, &[Cut { protocol, fault, alone: true }], &all).await;
            stage = next;
            let bad = verdicts.iter().filter(|verdict| *verdict != "same");
            wrong.extend(bad.map(|verdict| format!("{}, alone at {at}: {verdict}", protocol.title())));
        }
    }
    drop(stage);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
