//! `sluice explain`: why a job waits, what would let it start, and when it will. The answer comes from `sluice-sim`, which
//! asks the engine; here is its I/O. Nothing is written to a cluster.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use sluice_sim::duration;
use sluice_sim::explain::Question;

use crate::simulate::{self, WorldArgs};

/// How the answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Plain text
    #[default]
    Text,
    /// For programs
    Json,
}

/// `sluice explain`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  sluice explain workload NAME -n team-a --from-cluster\n  \
                        sluice explain job/train -n team-a queues.yaml jobs.yaml --at 30m")]
pub struct ExplainArgs {
    /// The Workload or job: KIND/NAME, KIND NAME or NAME
    pub target: String,
    /// The world to explain it in.
    #[command(flatten)]
    pub world: WorldArgs,
    /// The namespace of the job
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// When to look, counted from the beginning of the simulation; with --from-cluster, from now
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "0s")]
    pub at: jiff::SignedDuration,
    /// Show names of other namespaces too
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// How to write the answer
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

const KINDS: [&str; 8] = ["workload", "workloads", "wl", "job", "jobs", "jobset", "jobsets", "j"];

/// The name that the user means, and the paths that remain.
fn name_of(target: &str, mut paths: Vec<PathBuf>) -> anyhow::Result<(String, Vec<PathBuf>)> {
    if let Some((kind, name)) = target.split_once('/') {
        if !KINDS.contains(&kind) {
            bail!("expected workload, job or jobset, found {kind}");
        }
        return Ok((name.to_owned(), paths));
    }
    if KINDS.contains(&target) && !paths.is_empty() {
        let name = paths.remove(0).display().to_string();
        return Ok((name, paths));
    }
    Ok((target.to_owned(), paths))
}

/// Runs `sluice explain`.
pub async fn run(mut args: ExplainArgs) -> anyhow::Result<u8> {
    let (name, paths) = name_of(&args.target, std::mem::take(&mut args.world.paths))?;
    args.world.paths = paths;
    let (loaded, options) = simulate::world(&args.world).await?;
    let question = Question {
        manifests: &loaded.manifests,
        files: &loaded.files,
        options,
        at: args.at,
        namespace: &args.namespace,
        name: &name,
        all_namespaces: args.all_namespaces,
    };
    let answer = question.answer()?;
    let text = match args.output {
        Output::Text => answer.text(),
        Output::Json => serde_json::to_string_pretty(&answer)? + "\n",
    };
    // Whoever reads may have seen enough.
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_taken_as_kubectl_takes_them() {
        let paths = || vec![PathBuf::from("a"), PathBuf::from("b.yaml")];
        assert_eq!(name_of("job/x", paths()).unwrap(), ("x".to_owned(), paths()));
        assert_eq!(name_of("workload", paths()).unwrap(), ("a".to_owned(), vec![PathBuf::from("b.yaml")]));
        assert_eq!(name_of("x", paths()).unwrap(), ("x".to_owned(), paths()));
        assert!(name_of("pod/x", paths()).is_err());
    }
}
