//! `kubectl kueue delete` (docs/reference/08-tooling.md 8.1): for a Workload its *job* is deleted, since otherwise the Workload would be recreated.
//! Other kinds go to kubectl.

mod removal;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use kube::Client;
use serde_json::Value;
use sluice_client::error_chain::complaint;
use sluice_sim::Kind;
use sluice_sim::explain::plain;
use sluice_sim::resource::named;

use crate::cli::{Command, Plugin};
use crate::cluster::{collection, get, list, object, only, refusal};
use crate::complete;
use crate::connection::ClusterArgs;
use crate::kubectl::PassArgs;
use crate::output::Format;
use crate::print::{nothing_found, print, say};
use crate::write::{DryRun, WriteArgs};
use removal::Doomed;
#[cfg(test)]
pub(crate) use target::targets;
use target::{Kinds, Target};

/// The fields of a Workload that determine what is deleted.
const USED: [&str; 3] = ["/metadata/name", "/metadata/uid", "/metadata/ownerReferences"];

/// `kubectl kueue delete workload`.
#[derive(Clone, Debug, Default, Args)]
pub struct DeleteWorkloadArgs {
    /// The Workloads
    #[arg(value_name = "NAME", add = complete::names(Kind::Workload))]
    pub names: Vec<String>,
    /// All Workloads of the namespace
    #[arg(long)]
    pub all: bool,
    /// Delete without asking
    #[arg(long, short)]
    pub yes: bool,
    /// How far it goes, and how it is reported.
    #[command(flatten)]
    pub write: WriteArgs,
}

/// `kubectl kueue delete` of what kubectl deletes.
#[derive(Clone, Debug, Default, Args)]
pub struct DeleteArgs {
    /// Names, and flags of kubectl
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS", add = complete::names_of_resource())]
    pub rest: Vec<String>,
}

impl DeleteArgs {
    fn run(self, kind: Kind, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        PassArgs { resource: kind.as_str().to_owned(), rest: self.rest }.run("delete", cluster)
    }
}

/// `kubectl kueue delete`.
#[derive(Clone, Debug, Subcommand)]
pub enum DeleteCommand {
    /// Delete the jobs of Workloads; a Workload without a job is deleted itself
    #[command(visible_alias = "wl", aliases = ["workloads", "kwl", "kueueworkload", "kueueworkloads"])]
    Workload(DeleteWorkloadArgs),
    /// Run kubectl delete for ClusterQueues
    #[command(visible_alias = "cq", alias = "clusterqueues")]
    Clusterqueue(DeleteArgs),
    /// Run kubectl delete for LocalQueues
    #[command(visible_alias = "lq", aliases = ["localqueues", "queue", "queues"])]
    Localqueue(DeleteArgs),
    /// Run kubectl delete for ResourceFlavors
    #[command(visible_alias = "rf", aliases = ["resourceflavors", "flavor", "flavors"])]
    Resourceflavor(DeleteArgs),
    /// kubectl delete, for another kind of Kueue's API
    #[command(external_subcommand)]
    Other(Vec<String>),
}

impl DeleteCommand {
    /// Deletes.
    ///
    /// # Errors
    /// When the cluster or kubectl cannot be reached, or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        match self {
            Self::Workload(args) => args.run(cluster).await,
            Self::Clusterqueue(args) => args.run(Kind::ClusterQueue, cluster),
            Self::Localqueue(args) => args.run(Kind::LocalQueue, cluster),
            Self::Resourceflavor(args) => args.run(Kind::ResourceFlavor, cluster),
            Self::Other(words) => {
                let mut words = words.into_iter();
                let resource = words.next().context("expected a kind")?;
                if is_workload(&resource) {
                    return match workload_line(cluster, &resource, words) {
                        Ok((args, cluster)) => args.run(&cluster).await,
                        Err(error) => {
                            error.print()?;
                            Ok(u8::from(error.use_stderr()))
                        }
                    };
                }
                PassArgs { resource, rest: words.collect() }.run("delete", cluster)
            }
        }
    }
}

/// Whether `KIND` or `KIND/NAME` is a Workload.
fn is_workload(word: &str) -> bool {
    named(word.split_once('/').map_or(word, |(kind, _)| kind)) == Some(Kind::Workload)
}

/// The line that deletes the job of a Workload, for a user who named the Workload as in lists: `workload.kueue.x-k8s.io/NAME`.
fn workload_line(
    cluster: &ClusterArgs,
    resource: &str,
    rest: impl Iterator<Item = String>,
) -> Result<(DeleteWorkloadArgs, ClusterArgs), clap::Error> {
    let line = ["kubectl-kueue".to_owned()].into_iter().chain(cluster.flags());
    let line = line.chain(["delete", "workload"].map(str::to_owned));
    // A word with a slash is a name already.
    let line = line.chain(resource.contains('/').then(|| resource.to_owned())).chain(rest);
    let plugin = Plugin::read(line)?;
    match plugin.command {
        Command::Delete { command: DeleteCommand::Workload(args) } => Ok((args, plugin.cluster)),
        _ => Err(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand)),
    }
}

/// The objects to delete, each once, and which of them belong to each Workload.
#[derive(Debug, Default)]
struct Plan {
    doomed: Vec<Doomed>,
    /// The name of a Workload, and where in `doomed` is what goes for it.
    workloads: Vec<(String, Vec<usize>)>,
}

/// How many objects could not be deleted.
#[derive(Debug, Default)]
struct Troubles(usize);

impl Troubles {
    /// Says an error, and continues.
    fn report(&mut self, error: &anyhow::Error) {
        say(&complaint("kubectl kueue", error.as_ref()));
        self.0 += 1;
    }

    /// The same for a refusal of the API server. If the API server does not answer, the command ends.
    fn bear<T>(&mut self, outcome: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(error) if refusal(&error).is_some() => {
                self.report(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn code(&self) -> u8 {
        u8::from(self.0 > 0)
    }
}

impl DeleteWorkloadArgs {
    async fn run(&self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        if self.names.is_empty() != self.all {
            bail!("name Workloads, or delete all of the namespace with --all");
        }
        let format = self.write.format(Kind::Workload)?;
        let person = cluster.connect().await?;
        let (client, namespace) = (&person.client, person.namespace.as_str());
        let mut troubles = Troubles::default();
        let workloads = self.workloads(client, namespace, &mut troubles).await?;
        let plan = plan(client, namespace, &workloads, &mut troubles).await?;
        if plan.doomed.is_empty() {
            if troubles.0 == 0 {
                nothing_found(Some(namespace));
            }
            return Ok(troubles.code());
        }
        let asks = !self.yes && self.write.dry_run == DryRun::None;
        if asks && !agreed(&plan, namespace)? {
            say("Nothing was deleted.");
            return Ok(troubles.code());
        }
        let mut doomed = plan.doomed;
        if let Some(format) = format.as_ref().filter(|format| **format != Format::Name) {
            // Objects are printed before they are deleted.
            doomed = self.show(client, doomed, format, &mut troubles).await?;
        }
        for doomed in doomed {
            let removed = doomed.remove(client, self.write.dry_run).await;
            if troubles.bear(removed)? == Some(true) {
                self.report(&doomed, namespace, format.as_ref())?;
            }
        }
        Ok(troubles.code())
    }

    /// The Workloads that are named, or all.
    async fn workloads(
        &self,
        client: &Client,
        namespace: &str,
        troubles: &mut Troubles,
    ) -> anyhow::Result<Vec<Value>> {
        let place = collection(Kind::Workload, Some(namespace));
        if self.all {
            return list(client, &place, "", |workload| Some(only(workload, &USED))).await;
        }
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        for name in &self.names {
            // This accepts `workload.kueue.x-k8s.io/NAME`, as in lists.
            let name = if is_workload(name) {
                name.split_once('/').map_or(name.as_str(), |(_, name)| name)
            } else {
                name
            };
            if !seen.insert(name) {
                continue;
            }
            match object(&place, name) {
                Ok(place) => {
                    let workload = troubles.bear(get(client, &place).await)?;
                    found.extend(workload.map(|workload| only(workload, &USED)));
                }
                Err(error) => troubles.report(&error),
            }
        }
        Ok(found)
    }

    /// Prints what is still there, and gives it.
    async fn show(
        &self,
        client: &Client,
        doomed: Vec<Doomed>,
        format: &Format,
        troubles: &mut Troubles,
    ) -> anyhow::Result<Vec<Doomed>> {
        let (mut kept, mut documents) = (Vec::new(), Vec::new());
        for doomed in doomed {
            let found = doomed.look(client).await;
            if let Some(document) = troubles.bear(found)?.flatten() {
                documents.push(document);
                kept.push(doomed);
            }
        }
        if !documents.is_empty() {
            print(&self.write.output.documents(format, documents, true)?)?;
        }
        Ok(kept)
    }

    /// Reports a deletion in kubectl's words, unless the object was printed before.
    fn report(&self, doomed: &Doomed, namespace: &str, format: Option<&Format>) -> std::io::Result<()> {
        let dry = match self.write.dry_run {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        };
        match format {
            None => {
                let Target { name, .. } = &doomed.target;
                let word = doomed.target.word();
                print(&format!("{word} \"{name}\" deleted from {namespace} namespace{dry}\n"))
            }
            Some(Format::Name) => print(&format!("{doomed}\n")),
            Some(_) => Ok(()),
        }
    }
}

/// The objects to delete for these Workloads. Objects that cannot be deleted are reported.
async fn plan(
    client: &Client,
    namespace: &str,
    workloads: &[Value],
    troubles: &mut Troubles,
) -> anyhow::Result<Plan> {
    let mut plan = Plan::default();
    let mut kinds = Kinds::new(client, namespace);
    let mut known: BTreeMap<Target, Option<usize>> = BTreeMap::new();
    for workload in workloads {
        let name = workload["metadata"]["name"].as_str().unwrap_or_default();
        let mut of_workload = Vec::new();
        for target in target::targets(workload) {
            if !known.contains_key(&target) {
                let place = kinds.place(&target).await;
                let place = place.with_context(|| format!("Workload {name}: looking for its owner {target}"));
                let at = match troubles.bear(place)? {
                    Some(Some(place)) => {
                        plan.doomed.push(Doomed { target: target.clone(), place });
                        Some(plan.doomed.len() - 1)
                    }
                    Some(None) => {
                        troubles.report(&anyhow::anyhow!(
                            "Workload {name}: its owner {target} is not a job of the namespace, and is left alone"
                        ));
                        None
                    }
                    None => None,
                };
                known.insert(target.clone(), at);
            }
            of_workload.extend(known[&target]);
        }
        plan.workloads.push((name.to_owned(), of_workload));
    }
    Ok(plan)
}

/// The objects to delete, as text for the confirmation prompt.
fn question(plan: &Plan, namespace: &str) -> String {
    let mut text = format!("In namespace {namespace}:\n");
    for (name, doomed) in plan.workloads.iter().filter(|(_, doomed)| !doomed.is_empty()) {
        let all: Vec<_> = doomed.iter().map(|&at| plan.doomed[at].to_string()).collect();
        // Writing into a String does not fail.
        let _ =
            writeln!(text, "  Workload {}: deletes {}", plain::whole(name), plain::whole(&all.join(", ")));
    }
    text + "Do you want to proceed (y/n)? "
}

/// Lists on standard error what would go, and asks. Standard output is for what was deleted.
fn agreed(plan: &Plan, namespace: &str) -> anyhow::Result<bool> {
    std::io::stderr().write_all(question(plan, namespace).as_bytes()).context("asking")?;
    let mut answer = String::new();
    if std::io::stdin().lock().read_line(&mut answer)? == 0 {
        say("");
        bail!("no answer on standard input: --yes deletes without asking");
    }
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doomed(name: &str) -> Doomed {
        let text = str::to_owned;
        let target =
            Target { api_version: text("batch/v1"), kind: text("Job"), name: text(name), uid: text("u") };
        Doomed { target, place: String::new() }
    }

    #[test]
    fn the_question_lists_what_goes_and_does_not_act_on_a_terminal() {
        let plan = Plan {
            doomed: vec![doomed("a"), doomed("\u{1b}[2J\u{9b}\r")],
            workloads: vec![
                ("w".to_owned(), vec![0, 1]),
                ("refused".to_owned(), vec![]),
                ("x".to_owned(), vec![0]),
            ],
        };
        assert_eq!(
            question(&plan, "team"),
            "In namespace team:\n  Workload w: deletes job.batch/a, job.batch/\\u{1b}[2J\\u{9b}\\r\n  \
             Workload x: deletes job.batch/a\nDo you want to proceed (y/n)? "
        );
    }

    #[test]
    fn a_workload_s_job_goes_whatever_the_workload_is_called() {
        let line = |line: &str| {
            let plugin = Plugin::read(line.split(' ')).unwrap();
            let Command::Delete { command: DeleteCommand::Other(words) } = plugin.command else {
                panic!("{line}: another command")
            };
            let mut words = words.into_iter();
            let resource = words.next().unwrap();
            assert!(is_workload(&resource), "{line}");
            workload_line(&plugin.cluster, &resource, words)
                .map(|(args, cluster)| (args.names, args.yes, cluster))
        };
        for (text, names) in [
            ("delete workload.kueue.x-k8s.io/a", &["workload.kueue.x-k8s.io/a"][..]),
            ("delete wl/a wl/b", &["wl/a", "wl/b"]),
            ("delete WL a b", &["a", "b"]),
            ("delete workloads.v1beta2.kueue.x-k8s.io a", &["a"]),
        ] {
            let (found, yes, cluster) = line(&format!("x --context c {text} -n team -y")).unwrap();
            assert_eq!((found, yes), (names.iter().map(ToString::to_string).collect(), true), "{text}");
            assert_eq!((cluster.context.as_deref(), cluster.namespace.as_deref()), (Some("c"), Some("team")));
        }
        assert!(line("x delete wl/a --cascade=orphan").is_err());
        assert!(!is_workload("cq/a") && !is_workload("pods") && !is_workload("a"));
    }
}
