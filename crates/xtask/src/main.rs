//! Development commands: generated files, drift checks, cases, benchmarks, the demo.

mod case;
mod crds;
mod manifests;
mod tidy;

use clap::{Parser, Subcommand};

/// Development commands of Sluice.
#[derive(Parser)]
#[command(name = "xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run engine cases and compare every expected count and digest.
    Case(case::Args),
    /// Write the CustomResourceDefinitions of config/crd.
    Crds(crds::Args),
    /// Write the chart's CRDs and the plain manifests of config/.
    Manifests(manifests::Args),
    /// Check what the compiler does not: file sizes, words, dependencies between crates.
    Tidy(tidy::Args),
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    match Cli::parse().command {
        Command::Case(args) => case::run(&args),
        Command::Crds(args) => crds::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Tidy(args) => tidy::run(&args),
    }
}
