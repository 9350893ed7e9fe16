//! The result of a run, and its violations.

use std::collections::BTreeMap;
use std::time::Duration;

use super::checker::{Account, Rule, Violation};
use super::faults::Played;
use super::fleet::Memory;

/// How much memory a manager may use above what it uses with queues and without jobs.
const MEMORY: u64 = 128 << 20;

/// One fault in so many has the controllers of jobs miss something: two of the 22 kinds keep them from the API server, which are etcd and the API
/// server itself, ended.
const FAULTS_OF_AN_OVERSIGHT: usize = 11;
/// One fault in this number comes while an admission is under way whose right a user takes away: those that make a write of the leader late.
const FAULTS_OF_A_LATE_ADMISSION: usize = 4;

/// How many evictions of jobs that had partly completed a day with so many jobs has at least.
pub(super) fn least_partly(jobs: usize) -> usize {
    (jobs / 500).max(1)
}

/// Something that a day may have a few times.
struct Rare {
    what: &'static str,
    seen: usize,
    most: usize,
}

/// How large a day is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// What happens is this seed's.
    pub seed: u64,
    /// How many jobs are made.
    pub jobs: usize,
    /// How many of them are open at a time.
    pub window: usize,
    /// How many users make them side by side.
    pub users: u32,
    /// How many times as large the quotas are as for one job in each queue.
    pub scale: u32,
    /// How many times as long the pauses between faults are.
    pub pauses: u32,
    /// No job is made after this time.
    pub at_most: Duration,
}

/// The command that plays the same day again.
impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, jobs, users, scale, pauses, at_most, .. } = self;
        let minutes = at_most.as_secs() / 60;
        write!(
            f,
            "make day SOAK_SEED={seed} SOAK_JOBS={jobs} SOAK_MINUTES={minutes} SOAK_SCALE={scale} SOAK_USERS={users} SOAK_PAUSES={pauses}"
        )
    }
}

/// What a day came to.
#[derive(Debug)]
pub struct Report {
    pub(super) size: Size,
    pub(super) account: Account,
    pub(super) violations: Vec<Violation>,
    pub(super) played: Played,
    pub(super) ended: usize,
    pub(super) panics: Vec<String>,
    pub(super) memory: Memory,
    pub(super) made: usize,
    /// Jobs that ended only after the JobSet controller had begun again: it had missed something, and Sluice had nothing left to do for them.
    pub(super) overlooked: usize,
    pub(super) took: Duration,
}

impl Report {
    /// Everything that must not be, as text.
    pub fn failures(&self) -> Vec<String> {
        let mut failures: Vec<_> = self.violations.iter().map(ToString::to_string).collect();
        if self.account.jobs != self.made {
            failures.push(format!("{} jobs were made, and {} were seen", self.made, self.account.jobs));
        }
        if self.made < self.size.jobs {
            failures
                .push(format!("{} of {} jobs were made before the time was over", self.made, self.size.jobs));
        }
        let above = self.above_idle();
        if above > MEMORY {
            failures.push(format!("{} MiB above idle, and {} are allowed", above >> 20, MEMORY >> 20));
        }
        failures.extend(self.panics.iter().map(|line| format!("a panic: {line}")));
        failures.extend(self.too_many());
        failures.extend(self.too_few());
        failures
    }

    /// What a day may have a few times: each of these has a cause that is no more frequent than what it is compared with, and none of the faults is one
    /// that a manager may end of. The checker has counted only what its cause overlaps (`checker/faults.rs`).
    fn rare(&self) -> [Rare; 6] {
        let Account { jobs, freed_unseen, late_reservations, late_admissions, leaders, surplus, .. } =
            self.account;
        let faults: usize = self.played.faults.values().sum();
        let oversights = faults.div_ceil(FAULTS_OF_AN_OVERSIGHT);
        let late = faults.div_ceil(FAULTS_OF_A_LATE_ADMISSION);
        [
            ("ends of a manager by itself", self.ended, 0),
            ("reservations of former leaders above a limit", late_reservations, leaders),
            ("pods beyond those that a Job may have at a time", surplus, faults),
            (
                "jobs that ended only after a restart of the JobSet controller",
                self.overlooked,
                (self.made / 50).min(oversights),
            ),
            (
                "stops before a job's own controller had looked",
                freed_unseen,
                jobs.div_ceil(100).max(oversights),
            ),
            (
                "admissions just after the right to them was lost",
                late_admissions,
                jobs.div_ceil(25).min(late),
            ),
        ]
        .map(|(what, seen, most)| Rare { what, seen, most })
    }

    fn too_many(&self) -> Vec<String> {
        let rare = self.rare();
        let too_many = rare.iter().filter(|rare| rare.seen > rare.most);
        too_many.map(|Rare { what, seen, most }| format!("{seen} {what}, at most {most}")).collect()
    }

    /// A day on which little happens proves little.
    fn too_few(&self) -> Vec<String> {
        let Account {
            jobs,
            deleted,
            by_hand,
            admissions,
            evictions,
            placed,
            evictions_of_partly_completed,
            ..
        } = self.account;
        let frequent = [
            // What a user lets run may end before it is stopped.
            ("admissions", admissions, jobs.saturating_sub(deleted + by_hand)),
            ("evictions", evictions, jobs / 50),
            (
                "evictions of jobs that had partly completed",
                evictions_of_partly_completed,
                least_partly(jobs),
            ),
            ("pods that came to an assigned node", placed, 1),
        ];
        let too_few = frequent.iter().filter(|(_, seen, least)| seen < least);
        let mut too_few: Vec<_> =
            too_few.map(|(what, seen, least)| format!("{seen} {what}, at least {least}")).collect();
        let never = |what: &str, all: &BTreeMap<String, usize>| {
            let none = all.iter().filter(|(_, seen)| **seen == 0);
            none.map(|(name, _)| format!("{what}: {name} not once")).collect::<Vec<_>>()
        };
        too_few.extend(never("faults", &self.played.faults));
        too_few.extend(never("requests harmed", &self.played.harmed));
        for (what, all) in [("faults", &self.played.faults), ("harms", &self.played.harmed)] {
            if all.is_empty() {
                too_few.push(format!("no {what}"));
            }
        }
        too_few
    }

    fn above_idle(&self) -> u64 {
        self.memory.peak.saturating_sub(self.memory.idle)
    }

    fn broken(&self, rule: Rule) -> usize {
        self.violations.iter().filter(|violation| violation.rule == rule).count()
    }
}

fn figures(all: &BTreeMap<String, usize>) -> String {
    let figures = all.iter().map(|(name, times)| format!("{name} {times}"));
    figures.collect::<Vec<_>>().join(", ")
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, account, .. } = self;
        writeln!(f, "{size}, {} s", self.took.as_secs())?;
        let Account { jobs, finished, deleted, started, admissions, evictions, .. } = account;
        writeln!(f, "jobs {jobs}: {finished} ended, {deleted} deleted before")?;
        let partly = account.evictions_of_partly_completed;
        let Account { placed, moved, .. } = account;
        writeln!(
            f,
            "pods that came to an assigned node {placed}, moved off a lost one without an eviction {moved}"
        )?;
        writeln!(
            f,
            "started {started}, admissions {admissions}, evictions {evictions} ({partly} partly completed)"
        )?;
        writeln!(f, "faults: {}", figures(&self.played.faults))?;
        writeln!(f, "requests harmed: {}", figures(&self.played.harmed))?;
        writeln!(f, "changes {}, times that a replica began to lead {}", account.changes, account.leaders)?;
        let broken = Rule::ALL.map(|(rule, name)| format!("{name} {}", self.broken(rule)));
        writeln!(f, "{}", broken.join(", "))?;
        let unseen = account.freed_unseen;
        writeln!(
            f,
            "started and stopped before its own controller ever looked, and freed before its pods were gone: {unseen}"
        )?;
        writeln!(
            f,
            "above a limit for a moment by reservations on which nothing ran: {}",
            account.late_reservations
        )?;
        writeln!(f, "let run by users without an admission, and stopped again: {}", account.by_hand)?;
        writeln!(f, "{}", account.returns)?;
        writeln!(f, "admitted just after the right to it went: {}", account.late_admissions)?;
        writeln!(f, "more pods than a Job has at a time, made by its own controller: {}", account.surplus)?;
        writeln!(f, "ended only once the JobSet controller had begun again: {}", self.overlooked)?;
        let (idle, peak) = (self.memory.idle >> 20, self.memory.peak >> 20);
        write!(f, "memory {idle} MiB idle, {peak} MiB at most; {} ends of a manager by itself", self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A day of a hundred jobs on which nothing was wrong.
    fn good() -> Report {
        let size = Size {
            seed: 7,
            jobs: 100,
            window: 24,
            users: 2,
            scale: 1,
            pauses: 3,
            at_most: Duration::from_mins(30),
        };
        let account = Account {
            jobs: 100,
            finished: 90,
            deleted: 10,
            admissions: 95,
            evictions: 5,
            evictions_of_partly_completed: 1,
            placed: 20,
            leaders: 4,
            ..Account::default()
        };
        let times = |name: &str, times: usize| BTreeMap::from([(name.to_owned(), times)]);
        Report {
            size,
            account,
            violations: Vec::new(),
            played: Played { faults: times("Kill", 22), harmed: times("LoseAnswer", 1) },
            ended: 0,
            panics: Vec::new(),
            memory: Memory { idle: 50 << 20, peak: 100 << 20 },
            made: 100,
            overlooked: 0,
            took: Duration::from_mins(1),
        }
    }

    fn failures(change: impl FnOnce(&mut Report)) -> String {
        let mut report = good();
        change(&mut report);
        report.failures().join("\n")
    }

    #[test]
    fn a_good_day_has_no_failure_and_can_be_played_again() {
        assert_eq!(failures(|_| ()), "");
        let text = good().to_string();
        let again =
            "make day SOAK_SEED=7 SOAK_JOBS=100 SOAK_MINUTES=30 SOAK_SCALE=1 SOAK_USERS=2 SOAK_PAUSES=3";
        assert!(text.starts_with(again), "{text}");
        assert!(text.contains("quota of deleted jobs back 0 times"), "{text}");
        for (_, name) in Rule::ALL {
            assert!(text.contains(&format!("{name} 0")), "{name}: {text}");
        }
    }

    #[test]
    fn whatever_must_not_be_is_a_failure() {
        let violation =
            Violation { rule: Rule::Lost, revision: 3, key: "k".to_owned(), text: "t".to_owned() };
        assert_eq!(failures(|day| day.violations.push(violation)), "Lost at revision 3, k: t");
        assert_eq!(
            failures(|day| day.made = 99),
            "99 jobs were made, and 100 were seen\n99 of 100 jobs were made before the time was over"
        );
        assert_eq!(failures(|day| day.memory.peak = 300 << 20), "250 MiB above idle, and 128 are allowed");
        assert_eq!(failures(|day| day.panics.push("p".to_owned())), "a panic: p");
        assert_eq!(failures(|day| day.ended = 1), "1 ends of a manager by itself, at most 0");
        assert_eq!(failures(|day| day.account.late_reservations = 4), "");
        assert!(failures(|day| day.account.late_reservations = 5).ends_with("above a limit, at most 4"));
        assert_eq!(failures(|day| day.account.freed_unseen = 2), "");
        assert!(failures(|day| day.account.freed_unseen = 3).ends_with("had looked, at most 2"));
        assert!(failures(|day| day.account.late_admissions = 5).ends_with("was lost, at most 4"));
        assert!(failures(|day| day.account.surplus = 23).ends_with("at a time, at most 22"));
        assert!(failures(|day| day.overlooked = 3).ends_with("JobSet controller, at most 2"));
    }

    /// However many jobs a day has: what is excused has faults for its cause.
    #[test]
    fn a_day_of_few_faults_excuses_little() {
        let few = |day: &mut Report| day.played.faults.values_mut().for_each(|times| *times = 3);
        let overlooked = |day: &mut Report| {
            few(day);
            day.overlooked = 2;
        };
        assert!(failures(overlooked).ends_with("JobSet controller, at most 1"));
        let unseen = |day: &mut Report| {
            few(day);
            day.account.freed_unseen = 2;
        };
        assert!(failures(unseen).ends_with("had looked, at most 1"));
        let late = |day: &mut Report| {
            few(day);
            day.account.late_admissions = 2;
        };
        assert!(failures(late).ends_with("was lost, at most 1"));
    }

    /// The page of the book on failed seeds.
    fn page() -> String {
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contributing/failed-seed.md"))
            .unwrap()
    }

    /// How many the page allows, as in "one for 11 faults, and for 50 jobs" (as many as both allow) or "one for 11 faults, or for 50 jobs" (as many as
    /// one of them allows).
    fn allowed(text: &str, day: &Report) -> usize {
        let allowed = |text: &str| {
            let (number, what) = match text.trim_start_matches("one ").split(' ').collect::<Vec<_>>()[..] {
                ["for", "each", "fault"] => (1, "faults"),
                ["for", "each", "time", "that", "a", "replica", "began", "to", "lead"] => (1, "leads"),
                ["for", number, what] => (number.parse().unwrap(), what),
                _ => panic!("{text}"),
            };
            let all = match what {
                "faults" => day.played.faults.values().sum(),
                "jobs" => day.made,
                "leads" => day.account.leaders,
                _ => panic!("{text}"),
            };
            all / number
        };
        match (text.split_once(", and "), text.split_once(", or ")) {
            (Some((a, b)), _) => allowed(a).min(allowed(b)),
            (_, Some((a, b))) => allowed(a).max(allowed(b)),
            (None, None) => allowed(text),
        }
    }

    #[test]
    fn the_book_says_how_many_of_each_a_day_may_have() {
        let page = page();
        // Multiples of all that is divided by: with more faults than jobs cause, and with fewer.
        for (jobs, faults) in [(1_000, 1_100), (10_000, 44)] {
            let mut day = good();
            (day.made, day.account.jobs) = (jobs, jobs);
            day.played.faults.values_mut().for_each(|times| *times = faults);
            for Rare { what, most, .. } in day.rare().into_iter().filter(|rare| rare.most > 0) {
                let row = page.lines().find_map(|line| line.strip_prefix(&format!("| {what} | ")));
                let cell = row.unwrap_or_else(|| panic!("no row for {what}")).split(" | ").next().unwrap();
                assert_eq!(allowed(cell, &day), most, "{what}: {cell}");
            }
        }
    }

    #[test]
    fn a_day_on_which_too_little_happens_is_a_failure() {
        assert_eq!(failures(|day| day.account.admissions = 89), "89 admissions, at least 90");
        assert_eq!(failures(|day| day.account.evictions = 1), "1 evictions, at least 2");
        let partly = failures(|day| day.account.evictions_of_partly_completed = 0);
        assert_eq!(partly, "0 evictions of jobs that had partly completed, at least 1");
        let by_hand = |day: &mut Report| (day.account.admissions, day.account.by_hand) = (85, 5);
        assert_eq!(failures(by_hand), "");
        assert!(failures(|day| day.account.placed = 0).contains("0 pods that came"));
        let none = |all: &mut BTreeMap<String, usize>| all.values_mut().for_each(|times| *times = 0);
        assert_eq!(failures(|day| none(&mut day.played.faults)), "faults: Kill not once");
        assert_eq!(failures(|day| none(&mut day.played.harmed)), "requests harmed: LoseAnswer not once");
        assert_eq!(failures(|day| day.played = Played::default()), "no faults\nno harms");
    }
}
