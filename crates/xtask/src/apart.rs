//! Worlds that are measured in a process of their own: peak memory and allocations are those of one world.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde::de::DeserializeOwned;

/// The figures that this program prints as JSON when it is started with these arguments.
pub fn figures<T: DeserializeOwned>(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> anyhow::Result<T> {
    let output = Command::new(std::env::current_exe()?)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .context("measure a world")?;
    ensure!(output.status.success(), "the process that measures a world: {}", output.status);
    serde_json::from_slice(&output.stdout).context("the figures of a world")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_process_that_fails_has_no_figures() {
        // A program of tests does not know such an option.
        let error = figures::<Value>(["--measure-nothing"]).unwrap_err().to_string();
        assert!(error.starts_with("the process that measures a world: "), "{error}");
    }
}
