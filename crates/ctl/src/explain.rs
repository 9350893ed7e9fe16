//! `sluice explain`: why a job waits, what would let it start, and when it will start. The answer comes from `sluice-sim`, which asks the engine;
//! this module does its I/O. Nothing is written to a cluster.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use sluice_sim::Kind;
use sluice_sim::duration;
use sluice_sim::explain::{Patience, Question};
use sluice_sim::resource::{explained, not_explained};

use crate::connection::ClusterArgs;
use crate::list::Named;
use crate::made;
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

impl Output {
    /// As a manager is asked for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
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
    /// The time to explain, counted from the beginning of the simulation; with --from-cluster, from now
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "0s")]
    pub at: jiff::SignedDuration,
    /// Show names from other namespaces too
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// How to write the answer
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

/// What the user means.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// A Workload or job: its kind, where that was given, and its name.
    Job(Option<Kind>, String),
    /// The job that this object made.
    MadeBy(Named),
}

/// What the user means, and the paths that remain.
fn target(target: &str, mut paths: Vec<PathBuf>) -> anyhow::Result<(Target, Vec<PathBuf>)> {
    if let Some((word, name)) = target.split_once('/') {
        return Ok(match explained(word) {
            Some(kind) => (Target::Job(Some(kind), name.to_owned()), paths),
            None => (Target::MadeBy(Named::parse(target)?), paths),
        });
    }
    if let Some(kind) = explained(target).filter(|_| !paths.is_empty()) {
        let name = paths.remove(0).display().to_string();
        return Ok((Target::Job(Some(kind), name), paths));
    }
    Ok((Target::Job(None, target.to_owned()), paths))
}

/// Runs `sluice explain`.
///
/// # Errors
/// If the world cannot be read, or has no such job.
pub async fn run(mut args: ExplainArgs, cluster: &ClusterArgs) -> anyhow::Result<u8> {
    // The target's kind may be declared in the configuration.
    simulate::configured(&args.world)?;
    let (target, paths) = target(&args.target, std::mem::take(&mut args.world.paths))?;
    args.world.paths = paths;
    // The world of a cluster is read without the jobs of such kinds.
    if let Target::Job(Some(Kind::Job(kind)), _) = target {
        simulate::only_simulated_kind(kind)?;
    }
    let (loaded, options) = simulate::world(&args.world, cluster).await?;
    let namespace = match &cluster.namespace {
        Some(namespace) => namespace.clone(),
        None if args.world.from_cluster => cluster.connect().await?.namespace,
        None => "default".to_owned(),
    };
    let (kind, name) = match target {
        Target::Job(kind, name) => (kind, name),
        Target::MadeBy(maker) => {
            match made::the_one(made::in_manifests(&loaded.manifests.objects, &namespace, &maker))? {
                Some(job) => (Some(Kind::Job(job.kind)), job.name),
                None => bail!("{}", not_explained(args.target.split('/').next().unwrap_or_default())),
            }
        }
    };
    let question = Question {
        manifests: &loaded.manifests,
        files: &loaded.files,
        options,
        at: args.at,
        namespace: &namespace,
        kind,
        name: &name,
        all_namespaces: args.all_namespaces,
        names_nodes: true,
        names_queues: true,
        live: None,
        decides: false,
        patience: Patience::ENDLESS,
    };
    let answer = question.answer()?;
    let text = match args.output {
        Output::Text => answer.text(),
        Output::Json => answer.json(),
    };
    crate::print::print(&text)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_taken_as_kubectl_takes_them() {
        let paths = || vec![PathBuf::from("a"), PathBuf::from("b.yaml")];
        let job = Some(Kind::Job(sluice_api::job::JobKind::JOB));
        let named = |kind, name: &str| Target::Job(kind, name.to_owned());
        assert_eq!(target("job/x", paths()).unwrap(), (named(job, "x"), paths()));
        assert_eq!(
            target("workload", paths()).unwrap(),
            (named(Some(Kind::Workload), "a"), vec![PathBuf::from("b.yaml")])
        );
        assert_eq!(target("x", paths()).unwrap(), (named(None, "x"), paths()));
        let maker = Target::MadeBy(Named::parse("minicluster/x").unwrap());
        assert_eq!(target("minicluster/x", paths()).unwrap(), (maker, paths()));
        assert!(target("job/x/y", paths()).is_ok() && target("node/x/y", paths()).is_err());
    }
}
