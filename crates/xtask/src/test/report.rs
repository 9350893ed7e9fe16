//! The results of the tests, as text.

use std::fmt::Write as _;
use std::time::Duration;

use super::plan::Part;
use super::{cpu, run};

/// If more tests of a program fail, none of them is repeated: that is no coincidence.
const MOST_SECOND_ATTEMPTS: usize = 2;

/// How many of the slowest tests are named.
const SLOWEST: usize = 10;

/// What took less CPU time has no line of its own.
const LEAST: Duration = Duration::from_secs(1);

/// What one program printed.
#[derive(Debug, Default)]
pub struct ProgramResult {
    name: String,
    /// Name and time of each test.
    tests: Vec<(String, Duration)>,
    /// The output of failed tests, and the list of their names.
    failures: String,
    /// The names of the failed tests.
    failed: Vec<String>,
    /// The names of failed tests that passed when they were run again, alone.
    second: Vec<String>,
    /// The line `test result: …`.
    result: String,
    good: bool,
    took: Duration,
    /// CPU time of the program and of all that it started; none if it was not counted.
    cpu: Option<Duration>,
}

impl ProgramResult {
    /// Of a part of a program that prints nothing yet.
    pub fn of(part: &Part<'_>) -> Self {
        let program = part.program;
        let unit = program.package.replace('-', "_") == program.target;
        let name =
            if unit { program.target.clone() } else { format!("{}::{}", program.package, program.target) };
        let name = part.group.map_or_else(|| name.clone(), |group| format!("{name}, {group}"));
        Self { name, ..Self::default() }
    }

    /// Takes a line of its standard output.
    pub fn read(&mut self, line: &str) {
        if let Some((name, good, took)) = run::test(line) {
            if !good {
                println!("FAILED: {} {name}", self.name);
                self.failed.push(name.to_owned());
            }
            self.tests.push((format!("{} {name}", self.name), took));
        } else if let Some(time) = cpu::read(line) {
            self.cpu = Some(time);
        } else if line.starts_with("test result: ") {
            line.clone_into(&mut self.result);
        } else if line == "failures:" || !self.failures.is_empty() {
            self.failures.push_str(line);
            self.failures.push('\n');
        }
    }

    /// Takes how it ended.
    pub fn end(&mut self, good: bool, took: Duration, errors: &str) {
        (self.good, self.took) = (good, took);
        if !good && self.result.is_empty() {
            // The program died: no result says how many tests were lost.
            self.failures.push_str(errors);
            "test result: FAILED. 0 passed; 1 failed; 0 ignored; the program died"
                .clone_into(&mut self.result);
        }
    }

    /// The failed tests that are worth a second attempt: few, in a program that came to its end.
    pub fn for_second_attempt(&self) -> Vec<String> {
        let ended = self.result.contains(&format!(" {} failed;", self.failed.len()));
        let few = ended && self.failed.len() <= MOST_SECOND_ATTEMPTS;
        if few { self.failed.clone() } else { Vec::new() }
    }

    /// Takes a test that failed and has passed alone. It counts as failed all the same.
    pub fn passed_alone(&mut self, test: String) {
        self.second.push(test);
    }

    /// Whether no test failed.
    pub fn is_good(&self) -> bool {
        self.good
    }

    /// The result with the program's name, and what failed tests said.
    pub fn text(&self) -> String {
        let (Self { name, result, failures, .. }, took) = (self, self.took.as_secs_f64());
        format!("{failures}{name}, {took:.1} s\n{result}\n")
    }
}

/// The results of all programs.
#[derive(Debug, Default)]
pub struct Report {
    outcomes: Vec<ProgramResult>,
    doc_tests: Option<bool>,
}

impl Report {
    /// Adds a program.
    pub fn add(&mut self, outcome: ProgramResult) {
        self.outcomes.push(outcome);
    }

    /// Adds the examples in comments.
    pub fn doc_tests(&mut self, good: bool) {
        self.doc_tests = Some(good);
    }

    /// Whether nothing failed.
    pub fn is_good(&self) -> bool {
        self.doc_tests != Some(false) && self.outcomes.iter().all(|outcome| outcome.good)
    }

    /// The programs that failed, how long it took beside how long it should at most, what each program took, and, at the end, the slowest tests.
    pub fn text(&self, built: Duration, took: Duration, goal: Duration) -> String {
        let mut text = String::from("\n");
        for bad in self.outcomes.iter().filter(|outcome| !outcome.good) {
            let _ = writeln!(text, "FAILED: {}: {}", bad.name, bad.result);
        }
        for program in &self.outcomes {
            for test in &program.second {
                let _ = writeln!(text, "UNSTABLE: {} {test}: failed, then passed alone", program.name);
            }
        }
        if self.doc_tests == Some(false) {
            text.push_str("FAILED: examples in comments\n");
        }
        let mut tests: Vec<_> = self.outcomes.iter().flat_map(|outcome| &outcome.tests).collect();
        tests.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let _ = writeln!(
            text,
            "{} tests: built in {:.0} s, run in {:.0} s; together they should take {} s at most.",
            tests.len(),
            built.as_secs_f64(),
            took.as_secs_f64(),
            goal.as_secs(),
        );
        self.costs(&mut text);
        text.push_str("The slowest tests:\n");
        for (name, took) in tests.into_iter().take(SLOWEST) {
            let _ = writeln!(text, "{:7.1} s  {name}", took.as_secs_f64());
        }
        text
    }

    /// The CPU time of each program with all that it started, the most first, beside how long it ran.
    fn costs(&self, text: &mut String) {
        let cpu = |program: &ProgramResult| program.cpu.unwrap_or_default();
        let seconds = |programs: &[&ProgramResult]| {
            programs.iter().map(|program| cpu(program)).sum::<Duration>().as_secs_f64()
        };
        let mut programs: Vec<_> = self.outcomes.iter().collect();
        programs.sort_by(|a, b| cpu(b).cmp(&cpu(a)).then_with(|| a.name.cmp(&b.name)));
        let _ = writeln!(
            text,
            "CPU time of the programs with all that they started, {:.0} s:",
            seconds(&programs)
        );
        let small = programs.partition_point(|program| cpu(program) >= LEAST);
        for program in &programs[..small] {
            let (cpu, took) = (cpu(program).as_secs_f64(), program.took.as_secs_f64());
            let _ = writeln!(text, "{cpu:7.1} s CPU in {took:6.1} s  {}", program.name);
        }
        let others = &programs[small..];
        if !others.is_empty() {
            let _ = writeln!(text, "{:7.1} s CPU of {} others", seconds(others), others.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lines: &str) -> ProgramResult {
        let mut outcome = ProgramResult { name: "p".to_owned(), good: true, ..ProgramResult::default() };
        lines.lines().for_each(|line| outcome.read(line));
        outcome
    }

    #[test]
    fn the_slowest_tests_are_named_slowest_first() {
        let mut report = Report::default();
        let lines: Vec<_> = (1..=12).map(|n| format!("test t{n} ... ok <{n}.000s>\n")).collect();
        let lines = lines.concat();
        report.add(outcome(&lines));
        let text = report.text(Duration::from_secs(3), Duration::from_secs(4), Duration::from_secs(9));
        assert!(
            text.contains("12 tests: built in 3 s, run in 4 s; together they should take 9 s at most."),
            "{text}"
        );
        let named: Vec<_> = text.lines().filter(|line| line.contains(" s  p ")).collect();
        assert_eq!((named.len(), named[0], named[9]), (10, "   12.0 s  p t12", "    3.0 s  p t3"));
        assert!(text.ends_with(&format!("{}\n", named.join("\n"))), "they are the last lines: {text}");
    }

    #[test]
    fn what_took_most_cpu_time_is_named_first_and_what_took_little_is_summed() {
        let mut report = Report::default();
        for (name, ms, took) in [("a", 900, 1), ("b", 12_340, 3), ("c", 300, 1), ("d", 250_000, 99)] {
            let mut program = outcome(&format!("test result: ok.\ncpu time in ms: {ms}"));
            name.clone_into(&mut program.name);
            program.end(true, Duration::from_secs(took), "");
            report.add(program);
        }
        let text = report.text(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let expected = "CPU time of the programs with all that they started, 264 s:\n  250.0 s CPU in   99.0 s  d\n   \
                        12.3 s CPU in    3.0 s  b\n    1.2 s CPU of 2 others\nThe slowest tests:\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn what_failed_is_shown_and_makes_the_whole_fail() {
        let mut bad = outcome(
            "test a ... FAILED <0.100s>\nfailures:\n---- a stdout ----\nno\nfailures:\n    a\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s",
        );
        bad.end(false, Duration::from_secs(1), "");
        let text = bad.text();
        assert!(
            text.contains("---- a stdout ----\nno\n") && text.contains("\ntest result: FAILED."),
            "{text}"
        );
        let mut report = Report::default();
        report.add(bad);
        assert!(!report.is_good());
    }

    #[test]
    fn what_passes_at_the_second_attempt_is_named_and_stays_a_failure() {
        let result = "test result: FAILED. 7 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        let mut unstable =
            outcome(&format!("test a ... FAILED <0.100s>\nfailures:\n---- a stdout ----\nno\n{result}"));
        unstable.end(false, Duration::from_secs(1), "");
        assert_eq!(unstable.for_second_attempt(), ["a"]);
        unstable.passed_alone("a".to_owned());
        assert!(unstable.text().contains("---- a stdout ----\nno\n") && unstable.text().contains(result));
        let mut report = Report::default();
        report.add(unstable);
        let text = report.text(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        assert!(!report.is_good() && text.contains("UNSTABLE: p a: failed, then passed alone\n"), "{text}");
    }

    #[test]
    fn many_failures_or_a_death_get_no_second_attempt() {
        let mut many = outcome(
            "test a ... FAILED <1.0s>\ntest b ... FAILED <1.0s>\ntest c ... FAILED <1.0s>\n\
                                test result: FAILED. 0 passed; 3 failed; 0 ignored;",
        );
        many.end(false, Duration::ZERO, "");
        let mut dead = outcome("test a ... FAILED <1.0s>\ntest b ... FAILED <1.0s>");
        dead.end(false, Duration::ZERO, "");
        assert!(many.for_second_attempt().is_empty() && dead.for_second_attempt().is_empty());
    }

    #[test]
    fn a_program_that_dies_counts_as_a_failure() {
        let mut dead = outcome("test a ... ok <0.100s>");
        dead.end(false, Duration::from_secs(1), "Segmentation fault");
        assert!(
            dead.text().contains("Segmentation fault")
                && dead.text().contains("test result: FAILED. 0 passed; 1 failed")
        );
    }
}
