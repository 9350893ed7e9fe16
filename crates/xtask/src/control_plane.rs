//! The programs of the test control planes.

use std::process::ExitCode;

use clap::Subcommand;
use sluice_testkit::assets::{self, Tool};

/// What to do with them.
#[derive(Subcommand)]
pub enum Args {
    /// Build what is missing, and print where each program is.
    Build,
}

/// Builds the programs that neither `KUBEBUILDER_ASSETS` nor the cache has.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args {
        Args::Build => {
            assets::ensure(&Tool::ALL)?;
            for tool in Tool::ALL {
                println!("{}", assets::path(tool)?.display());
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
