//! Commands that kubectl carries out: `get`, `describe`, `edit`, `patch` and `delete` of Kueue's kinds.

use std::process::Command;

use anyhow::{Context as _, bail};
use clap::Args;
use sluice_sim::Kind;
use sluice_sim::resource::named;

use crate::complete;
use crate::connection::ClusterArgs;

/// The variable with the path of another kubectl.
const KUBECTL: &str = "KUBECTL";

/// Words that go to kubectl as they are, except for the name of the kind.
#[derive(Clone, Debug, Args)]
pub struct PassArgs {
    /// The kind, or KIND/NAME: clusterqueue (cq), localqueue (lq), resourceflavor (rf), workload (wl), cohort, topology,
    /// admissioncheck, provisioningrequestconfig, workloadpriorityclass
    #[arg(value_name = "KIND", add = complete::resources())]
    pub resource: String,
    /// Names, and flags of kubectl
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS", add = complete::names_of_resource())]
    pub rest: Vec<String>,
}

impl PassArgs {
    /// Runs kubectl with that verb; its exit code.
    ///
    /// # Errors
    /// If the kind is not in a group of Kueue, or kubectl cannot be run.
    pub fn run(&self, verb: &str, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        kubectl(&self.words(verb, cluster)?)
    }

    fn words(&self, verb: &str, cluster: &ClusterArgs) -> anyhow::Result<Vec<String>> {
        // `wl/NAME` as well as `wl NAME`.
        let (word, name) = match self.resource.split_once('/') {
            Some((word, name)) => (word, Some(name)),
            None => (self.resource.as_str(), None),
        };
        let Some(kind) = named(word) else {
            bail!(
                "expected clusterqueue, localqueue, resourceflavor, workload, cohort, topology, admissioncheck, \
                 provisioningrequestconfig or workloadpriorityclass, found {word}"
            );
        };
        let full = full_name(kind);
        let first = name.map_or_else(|| full.clone(), |name| format!("{full}/{name}"));
        let words = std::iter::once(verb.to_owned()).chain(cluster.flags()).chain([first]);
        Ok(words.chain(self.rest.iter().cloned()).collect())
    }
}

/// A kind as kubectl takes it for no other: `workloads.kueue.x-k8s.io`.
pub fn full_name(kind: Kind) -> String {
    match kind.group() {
        "" => kind.plural().to_owned(),
        group => format!("{}.{group}", kind.plural()),
    }
}

/// Becomes kubectl; where no program can become another, runs it, and gives its exit code.
///
/// # Errors
/// When it cannot be run.
pub fn kubectl(words: &[String]) -> anyhow::Result<u8> {
    let program = std::env::var(KUBECTL).unwrap_or_else(|_| "kubectl".to_owned());
    let mut command = Command::new(&program);
    command.args(words);
    run(command).with_context(|| format!("running {program}"))
}

/// Signals and the terminal are then kubectl's own, and nothing waits between.
#[cfg(unix)]
fn run(mut command: Command) -> std::io::Result<u8> {
    Err(std::os::unix::process::CommandExt::exec(&mut command))
}

#[cfg(not(unix))]
fn run(mut command: Command) -> std::io::Result<u8> {
    Ok(command.status()?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_get_their_full_names_and_the_rest_stays() {
        let words = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let args = PassArgs { resource: words.next().unwrap(), rest: words.collect() };
            let cluster = ClusterArgs { context: Some("c".to_owned()), ..ClusterArgs::default() };
            args.words("get", &cluster).map(|words| words.join(" ")).ok()
        };
        let expected = |rest: &str| Some(format!("get --context=c {rest}"));
        assert_eq!(words("cq a -o yaml"), expected("clusterqueues.kueue.x-k8s.io a -o yaml"));
        assert_eq!(words("kwl/a -w"), expected("workloads.kueue.x-k8s.io/a -w"));
        assert_eq!(words("pods"), None);
    }
}
