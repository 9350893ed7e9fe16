//! The programs of the test bed.

use std::process::ExitCode;

use clap::Subcommand;
use sluice_testkit::assets::{self, Tool};

/// What to do with them.
#[derive(Subcommand)]
pub enum Args {
    /// Build what is missing, and print the folder that has the built ones.
    Build,
}

/// Builds the programs that neither `KUBEBUILDER_ASSETS` nor the cache has.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args {
        Args::Build => {
            assets::ensure(&Tool::ALL)?;
            println!("{}", assets::bin_folder()?.display());
            Ok(ExitCode::SUCCESS)
        }
    }
}
