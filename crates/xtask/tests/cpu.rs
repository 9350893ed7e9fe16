//! `make test` counts the CPU time of all that a test program starts, of what outlives it too.

use std::process::Command;

/// Works for 200 ms of its own CPU time, in the background of a shell that ends at once with 3. `read` is built in: /proc/self is the shell.
const LEFT_BEHIND: &str = r"
work() {
  while read -r stat </proc/self/stat; do
    set -- ${stat##*) }
    [ $((${12} + ${13})) -lt 20 ] || break
  done
}
(work) &
exit 3
";

#[test]
fn what_a_program_leaves_behind_is_waited_for_and_counted() {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice-xtask"))
        .args(["test-program", "sh", "-c", LEFT_BEHIND])
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let ms = said.trim_end().strip_prefix("cpu time in ms: ").and_then(|ms| ms.parse::<u64>().ok());
    assert!(ms.is_some_and(|ms| ms >= 200), "{output:?}");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn what_its_process_waited_for_before_is_not_counted() {
    // The shell waits for the first, and becomes the second.
    let script =
        format!("sh -c '{}'; wait; exec \"$0\" test-program true", LEFT_BEHIND.replace("(work) &", "work"));
    let output = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_sluice-xtask")]).output();
    let output = output.expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let ms = said.trim_end().strip_prefix("cpu time in ms: ").and_then(|ms| ms.parse::<u64>().ok());
    assert!(ms.is_some_and(|ms| ms < 200), "{output:?}");
}

#[test]
fn a_program_that_dies_of_a_signal_ends_as_a_shell_says() {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice-xtask"))
        .args(["test-program", "sh", "-c", "kill -9 $$"])
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(137), "{output:?}");
}
