//! What kubectl does well already is left to it: `get`, `describe`, `edit`, `patch` and `delete` of Kueue's kinds.

use std::process::Stdio;

use anyhow::{Context as _, bail};
use clap::Args;

use crate::resource::named;

/// The variable that names another kubectl than the one in the path.
const KUBECTL: &str = "KUBECTL";

/// Words that go to kubectl as they are, but for the kind's name.
#[derive(Clone, Debug, Args)]
pub struct PassArgs {
    /// clusterqueue (cq), localqueue (lq), resourceflavor (rf) or workload (wl)
    pub resource: String,
    /// Everything else, as kubectl takes it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<String>,
}

impl PassArgs {
    /// Runs kubectl with that verb; its exit code.
    pub async fn run(&self, verb: &str) -> anyhow::Result<u8> {
        let mut words = vec![verb.to_owned()];
        words.extend(self.words()?);
        kubectl(&words).await
    }

    fn words(&self) -> anyhow::Result<Vec<String>> {
        // `wl/NAME` as well as `wl NAME`.
        let (word, name) = match self.resource.split_once('/') {
            Some((word, name)) => (word, Some(name)),
            None => (self.resource.as_str(), None),
        };
        let Some(kind) = named(word) else {
            bail!("expected clusterqueue, localqueue, resourceflavor or workload, found {word}");
        };
        let full = format!("{}.{}", kind.plural(), kind.group());
        let first = name.map_or_else(|| full.clone(), |name| format!("{full}/{name}"));
        Ok(std::iter::once(first).chain(self.rest.iter().cloned()).collect())
    }
}

/// Runs kubectl; its exit code.
pub async fn kubectl(words: &[String]) -> anyhow::Result<u8> {
    let program = std::env::var(KUBECTL).unwrap_or_else(|_| "kubectl".to_owned());
    let mut command = tokio::process::Command::new(&program);
    command.args(words).stdin(Stdio::inherit());
    let status = command.status().await.with_context(|| format!("running {program}"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_get_their_full_names_and_the_rest_stays() {
        let words = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            PassArgs { resource: words.next().unwrap(), rest: words.collect() }.words()
        };
        assert_eq!(words("cq a -o yaml").unwrap(), ["clusterqueues.kueue.x-k8s.io", "a", "-o", "yaml"]);
        assert_eq!(words("wl/a -w").unwrap(), ["workloads.kueue.x-k8s.io/a", "-w"]);
        assert!(words("pods").is_err());
    }
}
