//! Restart at every step, on a real control plane: each protocol is cut at each of its writes. After every cut the end is that of the uncut run:
//! nothing is lost or done twice, no quota leaks, and usage never exceeds the quota.
//!
//! Each run has its own namespace and queues behind one proxy, so that many cuts happen at once: from its cut on a run's writes fail, while the
//! others continue; when all are cut, the manager is killed and restarted. The plane is not reset before each cut: etcd, the API server and all
//! watches would restart for each of hundreds of cuts, and a restarted manager would never meet the unfinished work of several runs at the same time.

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
use sluice_testkit::{Fault, Step, lasting};
use stage::{Bed, Play, Stage, bed};
use tokio::sync::Mutex;

/// How many plays are played at once, at most.
const AT_ONCE: usize = 48;
/// How long one step of a play may take among all others, with a restart in between.
const PATIENCE: Duration = Duration::from_mins(5);

/// The ways of a cut: what it is called, whether the API server carries the write out, whether the manager dies. A manager that dies of a
/// write that is lost leaves what it leaves after the write before: that is played alone only.
const WAYS: [(&str, bool, bool); 3] = [
    ("continues, answer lost", true, false),
    ("continues, write lost", false, false),
    ("killed", true, true),
];

/// The ways of a protocol's cuts that the manager survives, or those that it does not. A swap takes a world of nodes and JobSets for each, so
/// the manager always dies of it.
fn ways(protocol: Protocol, dies: bool) -> impl Iterator<Item = &'static (&'static str, bool, bool)> + Clone {
    let is_played = dies || protocol != Protocol::DisplaceSwap;
    WAYS.iter().filter(move |(_, _, for_good)| *for_good == dies && is_played)
}

/// One cut of one protocol.
struct Cut {
    protocol: Protocol,
    /// Where its step is among those of the whole play.
    index: usize,
    fault: Fault,
    /// Whether no other cut is played at the same time.
    alone: bool,
}

impl Cut {
    /// The name of its play.
    fn name(&self) -> String {
        let Fault { carried_out, for_good, .. } = self.fault;
        let way = if carried_out { "answer" } else { "write" };
        let kind = match (self.alone, for_good) {
            (true, _) => "alone",
            (_, true) => "killed",
            _ => "goes-on",
        };
        format!("{}-{kind}-{}-{way}", self.protocol.slug(), self.index + 1)
    }
}

/// What a protocol comes to when nothing happens to it.
struct Whole {
    outcome: Outcome,
    steps: Vec<Step>,
    /// What became of the cuts at each of these steps.
    cells: Vec<Vec<String>>,
}

/// What the tests share, each at its turn: the stage, and what all protocols came to on it when nothing happened. A test that fails takes its stage
/// along, and the next one has another.
static SHARED: Mutex<Option<Shared>> = Mutex::const_new(None);

struct Shared {
    bed: &'static Bed,
    stage: Stage,
    wholes: BTreeMap<Protocol, Whole>,
}

impl Shared {
    async fn new() -> Self {
        let bed = bed().await;
        let (stage, wholes) = wholes(Stage::new(bed).await, bed).await;
        Self { bed, stage, wholes }
    }
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
        let steps = stage.proxy.scope(&play.place.name).steps;
        (play.protocol, Whole { outcome, steps, cells: Vec::new() })
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
    let plays =
        join_all(cuts.iter().map(|cut| async {
            Play::prepare(bed, cut.protocol, Some(cut.fault.clone()), &cut.name()).await
        }))
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

/// The cuts of all protocols that the manager survives, or those that it does not.
fn cuts(wholes: &BTreeMap<Protocol, Whole>, dies: bool) -> Vec<Cut> {
    let of = |(protocol, whole): (&Protocol, &Whole)| {
        let protocol = *protocol;
        let at = |(index, step): (usize, &Step)| {
            let step = step.clone();
            ways(protocol, dies).map(move |(_, carried_out, for_good)| {
                let fault = Fault { at: step.clone(), carried_out: *carried_out, for_good: *for_good };
                Cut { protocol, index, fault, alone: false }
            })
        };
        whole.steps.iter().enumerate().flat_map(at).collect::<Vec<_>>()
    };
    wholes.iter().flat_map(of).collect()
}

/// All cuts of all protocols that the manager survives, or those that it does not: what each came to.
async fn matrix(Shared { bed, mut stage, mut wholes }: Shared, dies: bool) -> Shared {
    for whole in wholes.values_mut() {
        whole.cells = vec![Vec::new(); whole.steps.len()];
    }
    for cuts in cuts(&wholes, dies).chunks(AT_ONCE) {
        let (next, verdicts) = cut(stage, bed, cuts, &wholes).await;
        stage = next;
        for (cut, verdict) in cuts.iter().zip(verdicts) {
            wholes.get_mut(&cut.protocol).unwrap().cells[cut.index].push(verdict);
        }
    }
    Shared { bed, stage, wholes }
}

/// A protocol's part of the matrix, and what went wrong.
fn judge(protocol: Protocol, whole: &Whole, dies: bool) -> (String, Vec<String>) {
    let Whole { steps, cells, .. } = whole;
    let names: Vec<_> = ways(protocol, dies).map(|(name, ..)| *name).collect();
    let mut text = format!("{} ({} steps), each: {}\n", protocol.title(), steps.len(), names.join(" | "));
    let mut wrong = Vec::new();
    for (step, cells) in steps.iter().zip(cells) {
        let label = format!("{} ({})", step.what, step.nth);
        // Only what a play may do without is not always reached.
        let fine = |cell: &str| cell == "same" || (step.by_chance && cell == "not reached");
        let bad = cells.iter().filter(|cell| !fine(cell));
        wrong.extend(bad.map(|cell| format!("{}, {label}: {cell}", protocol.title())));
        if cells.len() != names.len() {
            wrong.push(format!("{}, {label}: {} cuts", protocol.title(), cells.len()));
        }
        writeln!(text, "  {label:80} {}", cells.join(" | ")).unwrap();
    }
    if steps.iter().filter(|step| !step.by_chance).count() < protocol.least_steps() {
        wrong.push(format!("{}: only {} steps", protocol.title(), steps.len()));
    }
    (text, wrong)
}

/// Plays on the stage that is shared, from which what went wrong is taken.
fn play<F: Future<Output = (Shared, Vec<String>)>>(act: impl FnOnce(Shared) -> F) {
    lasting().block_on(async {
        let mut turn = SHARED.lock().await;
        let shared = match turn.take() {
            Some(shared) => shared,
            // On the heap: a test's stack is too small for all of it in a debug build.
            None => Box::pin(Shared::new()).await,
        };
        let (shared, wrong) = Box::pin(act(shared)).await;
        *turn = Some(shared);
        drop(turn);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// Plays the matrix; what went wrong.
async fn play_matrix(shared: Shared, dies: bool) -> (Shared, Vec<String>) {
    let shared = matrix(shared, dies).await;
    let mut wrong = Vec::new();
    for (protocol, whole) in
        shared.wholes.iter().filter(|(protocol, _)| ways(**protocol, dies).next().is_some())
    {
        let (text, bad) = judge(*protocol, whole, dies);
        println!("{text}");
        wrong.extend(bad);
    }
    (shared, wrong)
}

#[test]
fn every_protocol_comes_to_the_same_end_after_any_cut_that_the_manager_survives() {
    play(|shared| play_matrix(shared, false));
}

#[test]
fn every_protocol_comes_to_the_same_end_after_any_cut_with_a_restart() {
    play(|shared| play_matrix(shared, true));
}

// No other replica is there, and the manager dies at that very moment.
#[test]
fn every_protocol_comes_to_the_same_end_after_a_cut_of_which_the_manager_dies_at_once() {
    play(play_alone);
}

async fn play_alone(Shared { bed, mut stage, wholes }: Shared) -> (Shared, Vec<String>) {
    let mut wrong = Vec::new();
    for protocol in Protocol::ALL {
        let steps = wholes[&protocol].steps.iter().enumerate().filter(|(_, step)| !step.by_chance);
        let steps: Vec<_> = steps.collect();
        for (at, carried_out) in [(steps.len() / 3, true), (steps.len() * 2 / 3, false)] {
            let (index, step) = steps[at];
            let fault = Fault { at: step.clone(), carried_out, for_good: true };
            let label = &step.what;
            let cuts = [Cut { protocol, index, fault, alone: true }];
            let (next, verdicts) = cut(stage, bed, &cuts, &wholes).await;
            stage = next;
            let bad = verdicts.iter().filter(|verdict| *verdict != "same");
            wrong.extend(bad.map(|verdict| format!("{}, alone at {label}: {verdict}", protocol.title())));
        }
    }
    (Shared { bed, stage, wholes }, wrong)
}
