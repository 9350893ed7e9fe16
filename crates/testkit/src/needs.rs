//! Tests that need the real controller of a job kind. These controllers take minutes to build, and not every developer needs them: without one its
//! tests are skipped with a message. If all tests are required, such a test fails.

use std::ffi::OsStr;
use std::io::Write as _;

use crate::assets::{self, Tool};

/// Variables that require all tests: `make test` sets the first, CI services set the second.
const ALL_STORIES: [&str; 2] = ["SLUICE_ALL_STORIES", "CI"];

/// Ends a test, which then passes, where a program that it needs is missing (see [`has`]).
#[macro_export]
macro_rules! needs {
    ($tool:expr) => {
        if !$crate::needs::has($tool) {
            return;
        }
    };
}

/// What to do with a test.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Runs,
    /// The test is skipped, with this message.
    LeftOut(String),
    /// The test fails, for this reason.
    Fails(String),
}

impl Verdict {
    fn of(tool: Tool, is_there: bool, all: bool) -> Self {
        let needs = format!("needs {} (make control-plane)", tool.name());
        match (is_there, all) {
            (true, _) => Self::Runs,
            (false, false) => Self::LeftOut(format!("skipped: {needs}")),
            (false, true) => Self::Fails(needs),
        }
    }
}

/// Whether a variable is set to something else than no.
fn is_set(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !["", "0", "false"].map(OsStr::new).contains(&value))
}

/// Whether a program is installed. If not, a line on stderr says that the calling test is skipped.
///
/// # Panics
///
/// If it is missing where all tests are required.
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn has(tool: Tool) -> bool {
    let all = ALL_STORIES.iter().any(|name| is_set(std::env::var_os(name).as_deref()));
    match Verdict::of(tool, assets::is_there(tool), all) {
        Verdict::Runs => true,
        Verdict::LeftOut(line) => {
            // Past the harness, which shows nothing of tests that pass. A line that cannot be written fails no test.
            let _ = writeln!(std::io::stderr(), "{line}");
            false
        }
        Verdict::Fails(why) => panic!("{why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_without_its_program_is_skipped_locally_and_fails_where_all_are_required() {
        let of = |is_there, all| Verdict::of(Tool::KubeRayOperator, is_there, all);
        let left_out = "skipped: needs kuberay-operator (make control-plane)".to_owned();
        assert_eq!(of(false, false), Verdict::LeftOut(left_out));
        assert_eq!(of(false, true), Verdict::Fails("needs kuberay-operator (make control-plane)".to_owned()));
        assert_eq!([of(true, false), of(true, true)], [Verdict::Runs, Verdict::Runs]);
    }

    #[test]
    fn a_variable_counts_unless_it_says_no() {
        let set = |value: &str| is_set(Some(OsStr::new(value)));
        assert!(set("1") && set("true"));
        assert!(!set("") && !set("0") && !set("false") && !is_set(None));
    }

    #[test]
    fn make_test_runs_all_stories() {
        let makefile = std::fs::read_to_string(assets::workspace().join("Makefile")).unwrap();
        let (_, recipe) = makefile.split_once("\ntest: ").unwrap();
        let recipe = recipe.split("\n\n").next().unwrap();
        assert!(recipe.contains(&format!("{}=1", ALL_STORIES[0])), "{recipe}");
        let ci = std::fs::read_to_string(assets::workspace().join(".ci/run")).unwrap();
        assert!(ci.contains("\nmake test "), "{ci}");
    }
}
