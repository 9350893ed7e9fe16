//! Polls a condition with a deadline. On timeout the error has the last observation.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::vital::{VITALS, Vitals};

/// How far a condition is.
pub enum Progress<T> {
    /// The condition holds.
    Done(T),
    /// The condition does not hold yet; this is the present state.
    NotYet(String),
    /// The condition can never hold, so waiting ends.
    Never(String),
}

/// A condition that holds, or what there is instead.
pub fn progress(holds: bool, seen: impl Display) -> Progress<()> {
    if holds { Progress::Done(()) } else { Progress::NotYet(seen.to_string()) }
}

/// The pause between two looks at what shall come, at first.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two such looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The pause between two looks at what shall stay: a change must not hide between them.
const STEADY_PAUSE: Duration = Duration::from_millis(50);

/// The pause after a wait of this length: a fifth of it. Many conditions are waited for at the same time, and the looks at them are a good part of
/// what the API server does in tests.
fn pause(waited: Duration) -> Duration {
    (waited / 5).clamp(PAUSE, LONGEST_PAUSE)
}

/// Looks until the condition holds or `deadline` has passed. An error counts as "not yet": the API server may be away.
///
/// # Errors
///
/// If `deadline` passes first: the error says what was seen last. At once if the condition never will hold ([`Progress::Never`]), or a program has
/// ended that must not ([`crate::Manager::must_not_end`]).
pub async fn eventually<T, F>(what: &str, deadline: Duration, condition: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Progress<T>>>,
{
    while_alive(&VITALS, what, deadline, condition).await
}

async fn while_alive<T, F>(
    vitals: &Vitals,
    what: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<Progress<T>>>,
{
    let started = Instant::now();
    let mut seen = "nothing yet".to_owned();
    loop {
        if let Some(why) = vitals.ended() {
            bail!("{what}: never, because {why}");
        }
        // A hanging request must not outlive the deadline.
        let left = deadline.saturating_sub(started.elapsed()).max(PAUSE);
        match tokio::time::timeout(left, condition()).await {
            Ok(Ok(Progress::Done(value))) => return Ok(value),
            Ok(Ok(Progress::NotYet(now))) => seen = now,
            Ok(Ok(Progress::Never(why))) => bail!("{what}: never, because {why}"),
            Ok(Err(error)) => seen = format!("{error:#}"),
            // The last look has little time left: the result of the previous one is more informative.
            Err(_) => seen = format!("a look that did not finish; before that {seen}"),
        }
        if started.elapsed() >= deadline {
            bail!("{what}: not within {deadline:?}; last seen: {seen}");
        }
        tokio::time::sleep(pause(started.elapsed())).await;
    }
}

/// Checks that the condition holds at every look for as long as `period`.
///
/// # Errors
///
/// If the condition does not hold at a look: the error has the time and the observation. A look that returns an error ends it, too.
pub async fn consistently<F>(what: &str, period: Duration, mut condition: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<Progress<()>>>,
{
    let started = Instant::now();
    while started.elapsed() < period {
        if let Progress::NotYet(seen) | Progress::Never(seen) = condition().await? {
            bail!("{what}: no longer true after {:?}; seen: {seen}", started.elapsed());
        }
        tokio::time::sleep(STEADY_PAUSE).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Program, Watchdog};

    #[tokio::test]
    async fn it_returns_what_was_waited_for() {
        let mut looks = 0;
        let value = eventually("three looks", Duration::from_mins(1), || {
            looks += 1;
            let seen = looks;
            async move {
                Ok(if seen < 3 { Progress::NotYet(format!("{seen} looks")) } else { Progress::Done(seen) })
            }
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[test]
    fn what_takes_long_is_looked_at_less_often() {
        let after = |waited| pause(Duration::from_millis(waited)).as_millis();
        assert_eq!([after(0), after(400), after(1_000), after(60_000)], [100, 100, 200, 500]);
    }

    #[tokio::test]
    async fn the_error_says_what_was_seen_last() {
        let failed =
            eventually("a miracle", Duration::from_millis(1), || async { Ok(progress(false, "nothing")) })
                .await;
        assert_eq!(failed.unwrap_err().to_string(), "a miracle: not within 1ms; last seen: nothing");
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_program_that_must_not_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let watchdog = Watchdog::start(folder.path()).unwrap();
        let start = |name: &str, script: &str| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]);
            Program::start(name, command, &folder.path().join(name), &watchdog).unwrap()
        };
        let (well, ill) =
            (start("well", "exec sleep 600"), start("ill", "echo no rights to list jobs; exit 3"));
        let vitals = Vitals::default();
        vitals.add(well.id(), well.name(), well.log());
        let looked =
            while_alive(&vitals, "peace", Duration::from_mins(1), || async { Ok(progress(true, "")) });
        looked.await.unwrap();
        vitals.add(ill.id(), ill.name(), ill.log());
        let day = Duration::from_hours(24);
        let never = while_alive(&vitals, "peace", day, || async { Ok(progress(false, "war")) });
        let why = never.await.unwrap_err().to_string();
        assert_eq!(why, "peace: never, because ill has ended; its log ends:\nno rights to list jobs");
    }

    #[tokio::test]
    async fn what_stops_holding_is_noticed() {
        let mut looks = 0;
        let failed = consistently("peace", Duration::from_mins(1), || {
            looks += 1;
            let holds = looks < 2;
            async move { Ok(progress(holds, "war")) }
        });
        assert!(failed.await.unwrap_err().to_string().ends_with("seen: war"));
    }
}
