//! Development commands: generated files, drift checks, cases, benchmarks, the demo.

mod apart;
mod beds;
mod bench;
mod case;
mod control_plane;
mod crds;
mod demo;
mod docs;
mod engine_bench;
mod events_bench;
mod hotswap_bench;
mod lent_bench;
mod manifests;
mod model;
mod mutants;
mod pods_bench;
mod race;
mod scale;
mod sim;
mod test;
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
    /// Measure the engine on its cases and check the counts against the budgets.
    Bench(bench::Args),
    /// Run engine cases and compare every expected count and digest.
    Case(case::Args),
    /// The programs of the test bed: etcd, kube-apiserver, kwok, helm, …
    #[command(subcommand)]
    ControlPlane(control_plane::Args),
    /// Write the CustomResourceDefinitions of config/crd.
    Crds(crds::Args),
    /// Run an example on a cluster of fake nodes, with a live table.
    Demo(demo::Args),
    #[command(hide = true)]
    DemoRunner(demo::RunnerArgs),
    /// Write the generated tables of the book in docs/, and check its links, paths and entries.
    Docs(docs::Args),
    /// Measure the whole engine on one world.
    Engine(engine_bench::Args),
    /// Measure single events of nodes and pods.
    Events,
    /// Measure the search for room when many node pools fail.
    Hotswap(hotswap_bench::Args),
    /// Measure the search for nodes that the cohort has lent out.
    Lent(lent_bench::Args),
    /// Write the chart's CRDs and the plain manifests of config/.
    Manifests(manifests::Args),
    /// Change the core on purpose, and see whether a test notices.
    Mutants(mutants::Args),
    /// Measure jobs that are made of many pods.
    Pods(pods_bench::Args),
    /// Let a manager admit thousands of Workloads, and count its writes.
    Race(race::Args),
    /// Measure one world of the table of sizes.
    Scale(scale::Args),
    /// Play seeded worlds on bad days, and check what must hold after each step.
    Sim(sim::Args),
    /// Build and run the tests, and name the slowest.
    Test(test::Args),
    #[command(hide = true)]
    TestProgram(test::ProgramArgs),
    /// Check what the compiler does not: file sizes, words, dependencies between crates.
    Tidy(tidy::Args),
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Case(args) => case::run(&args),
        Command::ControlPlane(args) => control_plane::run(&args),
        Command::Crds(args) => crds::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::DemoRunner(args) => demo::keep(&args),
        Command::Docs(args) => docs::run(&args),
        Command::Engine(args) => engine_bench::run(&args),
        Command::Events => bench::run_events(),
        Command::Hotswap(args) => hotswap_bench::run(&args),
        Command::Lent(args) => lent_bench::run(&args),
        Command::Pods(args) => pods_bench::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Race(args) => race::run(&args),
        Command::Scale(args) => scale::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Test(args) => test::run(&args),
        Command::TestProgram(args) => test::run_program(&args),
        Command::Tidy(args) => tidy::run(&args),
    }
}
