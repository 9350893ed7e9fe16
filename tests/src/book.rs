//! The pages of the book, whose commands the tests type.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use sluice_testkit::assets::workspace;
use sluice_testkit::{ControlPlane, shell};

/// The fenced blocks of a page in a language, in their order. The page's path begins at the root of the repository.
///
/// # Errors
///
/// If the page cannot be read, or has no such block.
pub fn blocks(page: &str, language: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(workspace().join(page)).with_context(|| format!("reading {page}"))?;
    let fence = format!("```{language}\n");
    let after = text.split(&fence).skip(1);
    let found: Vec<_> = after.filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect();
    ensure!(!found.is_empty(), "{page} has no block of {language}");
    Ok(found)
}

/// Types a script in a folder, as a cluster's administrator; what it printed.
///
/// # Errors
///
/// As [`shell::paste`]; also if a command fails: then the error has all that was printed.
pub async fn typed(plane: &ControlPlane, folder: &Path, script: &str) -> Result<String> {
    let pasted = shell::paste(plane, folder, script).await?;
    ensure!(pasted.code == Some(0), "{script}\n{}", pasted.printed);
    Ok(pasted.printed)
}
