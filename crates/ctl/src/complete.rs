//! Completions for a shell: words and flags from the command line's definition, names from the cluster and the kubeconfig.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args as _, FromArgMatches as _};
use clap_complete::aot::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;
use kube::config::Kubeconfig;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_sim::Kind;
use sluice_sim::resource::{explained, named};

use crate::cluster::{collection, list};
use crate::connection::ClusterArgs;
use crate::switch_values::with_values;

/// The program.
const PROGRAM: &str = "kubectl-kueue";
/// The name under which kubectl asks for completions.
const FOR_KUBECTL: &str = "kubectl_complete-kueue";
/// The variable with which a shell requests completions.
const VARIABLE: &str = "KUBECTL_KUEUE_COMPLETE";
/// A shell does not wait longer for a completion.
const PATIENCE: Duration = Duration::from_secs(3);
/// The directive that kubectl reads after the candidates: do not complete file names.
const NO_FILES: &str = ":4";
/// The same, and no space after the candidate, because the word continues.
const NO_FILES_NO_SPACE: &str = ":6";

/// The names of a kind's objects, in the namespace of the command line.
pub fn names(kind: Kind) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| matching(current, of_cluster(kind)))
}

/// The names of the kind that the command line has named, for commands that are handed to kubectl.
pub fn names_of_resource() -> ArgValueCompleter {
    names_of_last(named)
}

/// The names of the kind that the command line has named, for `explain`.
pub fn names_of_explained() -> ArgValueCompleter {
    names_of_last(explained)
}

fn names_of_last(kind_of: fn(&str) -> Option<Kind>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let kind = words().iter().rev().skip(1).find_map(|word| kind_of(word));
        matching(current, kind.map(of_cluster).unwrap_or_default())
    })
}

/// The kinds that are handed to kubectl, and KIND/NAME.
pub fn resources() -> ArgValueCompleter {
    let all = ["clusterqueue", "localqueue", "resourceflavor", "workload", "cohort", "topology"];
    let more = ["admissioncheck", "provisioningrequestconfig", "workloadpriorityclass"];
    ArgValueCompleter::new(move |current: &OsStr| {
        kinds_or_names(current, all.iter().chain(&more).map(ToString::to_string), named)
    })
}

/// Arguments of `explain`: workload or a kind of jobs, and KIND/NAME.
pub fn explained_kinds() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        kinds_or_names(current, std::iter::once("workload".to_owned()).chain(job_kinds()), explained)
    })
}

/// Jobs: TYPE/NAME, the slash right after the type.
pub fn jobs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        // `job.batch`, `jobs.v1.batch`: names follow for every way to write a type.
        let job = |word: &str| explained(word.split_once('.').map_or(word, |(word, _)| word));
        kinds_or_names(current, job_kinds().map(|kind| kind + "/"), job)
    })
}

/// Flavors and their quota, `FLAVOR:…,FLAVOR:…`: completes the last name, with the colon.
pub fn flavors_of_quota() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let text = current.to_string_lossy();
        let before = text.rsplit_once(',').map_or("", |(before, _)| &text[..=before.len()]);
        let candidate = |name: String| format!("{before}{name}:");
        matching(current, of_cluster(Kind::ResourceFlavor).into_iter().map(candidate).collect())
    })
}

/// The words for the kinds of jobs.
pub(crate) fn job_kinds() -> impl Iterator<Item = String> {
    JobKind::all().iter().map(|kind| kind.kind().to_ascii_lowercase())
}

/// Kinds; behind a slash the names of the kind in front of it.
fn kinds_or_names(
    current: &OsStr,
    kinds: impl Iterator<Item = String>,
    kind_of: fn(&str) -> Option<Kind>,
) -> Vec<CompletionCandidate> {
    let text = current.to_string_lossy();
    let Some((word, _)) = text.split_once('/') else { return matching(current, kinds.collect()) };
    let names = kind_of(word).map(of_cluster).unwrap_or_default();
    matching(current, names.into_iter().map(|name| format!("{word}/{name}")).collect())
}

/// The formats of `--output`.
pub fn formats() -> ArgValueCompleter {
    let all = ["name", "json", "yaml", "jsonpath=", "jsonpath-as-json=", "jsonpath-file="];
    ArgValueCompleter::new(move |current: &OsStr| {
        matching(current, all.iter().map(ToString::to_string).collect())
    })
}

/// The namespaces of the cluster.
pub fn namespaces() -> ArgValueCompleter {
    names(Kind::Namespace)
}

/// The contexts of the kubeconfig.
pub fn contexts() -> ArgValueCompleter {
    of_kubeconfig(|file| file.contexts.iter().map(|one| one.name.clone()).collect())
}

/// The clusters of the kubeconfig.
pub fn clusters() -> ArgValueCompleter {
    of_kubeconfig(|file| file.clusters.iter().map(|one| one.name.clone()).collect())
}

/// The users of the kubeconfig.
pub fn users() -> ArgValueCompleter {
    of_kubeconfig(|file| file.auth_infos.iter().map(|one| one.name.clone()).collect())
}

fn of_kubeconfig(names: fn(&Kubeconfig) -> Vec<String>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let file = connection(&words()).file().ok().flatten();
        matching(current, file.map(|file| names(&file)).unwrap_or_default())
    })
}

fn matching(current: &OsStr, names: Vec<String>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    names.into_iter().filter(|name| name.starts_with(&*current)).map(CompletionCandidate::new).collect()
}

/// The words of the command line that is being completed. A shell passes them after `--`, kubectl without it.
fn words() -> Vec<String> {
    let mut all = std::env::args();
    let by_kubectl = all.next().is_some_and(|program| is_for_kubectl(program.as_ref()));
    let all: Vec<String> = all.collect();
    match all.iter().position(|word| word == "--").filter(|_| !by_kubectl) {
        Some(at) => all[at + 1..].iter().skip(1).cloned().collect(),
        None => all,
    }
}

/// The connection flags of a command line that need not be complete.
fn connection(words: &[String]) -> ClusterArgs {
    let command = with_values(ClusterArgs::augment_args(clap::Command::new(PROGRAM)));
    let known = |word: &str| {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        command.get_arguments().find(|flag| match name.strip_prefix("--") {
            Some(long) => flag.get_long() == Some(long),
            None => flag.get_short().is_some_and(|short| name == format!("-{short}")),
        })
    };
    let mut kept = vec![PROGRAM.to_owned()];
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let Some(flag) = known(word) else { continue };
        kept.push(word.clone());
        if flag.get_action().takes_values() && !flag.is_require_equals_set() && !word.contains('=') {
            kept.extend(rest.next().cloned());
        }
    }
    let matches = command.clone().ignore_errors(true).try_get_matches_from(kept);
    matches.ok().and_then(|matches| ClusterArgs::from_arg_matches(&matches).ok()).unwrap_or_default()
}

/// The names of a kind's objects; none if the cluster does not answer soon.
fn of_cluster(kind: Kind) -> Vec<String> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let asking = async {
        let person = connection(&words()).connect().await.ok()?;
        let name = |object: Value| object["metadata"]["name"].as_str().map(str::to_owned);
        list(&person.client, &collection(kind, Some(&person.namespace)), "", name).await.ok()
    };
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, asking).await })
        .ok()
        .flatten()
        .unwrap_or_default()
}

fn is_for_kubectl(program: &OsStr) -> bool {
    Path::new(program).file_stem().is_some_and(|name| name == FOR_KUBECTL)
}

/// Answers a shell or kubectl that requests completions. Returns true if there was such a request: then the program ends.
///
/// # Errors
/// If the answer cannot be written.
pub fn answer(command: impl Fn() -> clap::Command) -> anyhow::Result<bool> {
    let mut args = std::env::args_os();
    if args.next().is_some_and(|program| is_for_kubectl(&program)) {
        crate::print::print(&for_kubectl(command(), args.collect(), folder().as_deref())?)?;
        return Ok(true);
    }
    let completing = clap_complete::CompleteEnv::with_factory(command).var(VARIABLE);
    // A shell that asks in the wrong way gets no completions, and no message between what is typed.
    Ok(completing.try_complete(std::env::args_os(), folder().as_deref()).unwrap_or(true))
}

/// The folder in which file names are completed.
fn folder() -> Option<PathBuf> {
    std::env::current_dir().ok()
}

/// The candidates for the last word, in kubectl's form: one per line, then a directive.
fn for_kubectl(
    mut command: clap::Command,
    words: Vec<OsString>,
    folder: Option<&Path>,
) -> anyhow::Result<String> {
    let args: Vec<OsString> = std::iter::once(PROGRAM.into()).chain(words).collect();
    let last = args.len() - 1;
    let found = clap_complete::engine::complete(&mut command, args, last, folder)?;
    let mut text = String::new();
    for candidate in &found {
        let value = candidate.get_value().to_string_lossy();
        // Writing into a String does not fail.
        let _ = match candidate.get_help() {
            Some(help) => writeln!(text, "{value}\t{}", help.to_string().lines().next().unwrap_or_default()),
            None => writeln!(text, "{value}"),
        };
    }
    let goes_on =
        |candidate: &CompletionCandidate| candidate.get_value().to_string_lossy().ends_with(['/', '=', ':']);
    let no_space = !found.is_empty() && found.iter().all(goes_on);
    Ok(text + if no_space { NO_FILES_NO_SPACE } else { NO_FILES } + "\n")
}

/// The script that has a shell complete `kubectl-kueue`.
///
/// # Errors
/// When there is no script for the shell.
pub fn script(shell: Shell) -> anyhow::Result<String> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&name).with_context(|| format!("there is no completion for {name}"))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Plugin;
    use clap::{CommandFactory as _, ValueEnum as _};

    #[test]
    fn every_shell_has_a_script() {
        for shell in Shell::value_variants() {
            let script = script(*shell).unwrap();
            assert!(script.contains(PROGRAM) && script.contains(VARIABLE), "{shell}: {script}");
        }
    }

    #[test]
    fn kubectl_reads_one_candidate_a_line() {
        let complete = |line: &str| {
            let words = line.split(' ').map(Into::into).collect();
            for_kubectl(Plugin::command(), words, None).unwrap()
        };
        assert_eq!(complete("li"), "list\tList queues, Workloads, flavors or pods\n:4\n");
        for (line, expected) in [
            ("list work", "workload"),
            ("list kueuew", "kueueworkload"),
            ("stop workload --dry-run ser", "server"),
            ("list workload --status quota", "quotareserved"),
            ("create clusterqueue --lend", "--lending-limit"),
            ("list workload --as-g", "--as-group"),
            ("resume cq a -o jsonp", "jsonpath="),
            ("get local", "localqueue"),
            ("explain wor", "workload"),
            ("explain jobs", "jobset"),
            ("list pods --for jobs", "jobset/"),
            ("list workload --for jobs", "jobset/"),
            ("delete local", "localqueue"),
        ] {
            let candidates = complete(line);
            let found = candidates.lines().any(|line| line.split('\t').next() == Some(expected));
            assert!(found, "{line}: {candidates}");
        }
    }

    #[test]
    fn file_names_are_completed_in_the_current_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("manager.yaml"), "").unwrap();
        std::fs::create_dir(folder.path().join("examples")).unwrap();
        let complete = |line: &str| {
            let words = line.split(' ').map(Into::into).collect();
            for_kubectl(Plugin::command(), words, Some(folder.path())).unwrap()
        };
        for line in ["simulate ma", "simulate --config ma", "simulate --change ma", "list wl --kubeconfig ma"]
        {
            assert_eq!(complete(line), "manager.yaml\n:4\n", "{line}");
        }
        assert_eq!(complete("simulate exam"), "examples/\n:6\n");
    }

    #[test]
    fn no_space_follows_what_continues() {
        let directive = |line: &str| {
            let words = line.split(' ').map(Into::into).collect();
            for_kubectl(Plugin::command(), words, None).unwrap().lines().last().map(str::to_owned)
        };
        assert_eq!(directive("list pods --for jobs").as_deref(), Some(":6"));
        assert_eq!(directive("list wl -o jsonp").as_deref(), Some(":6"));
        assert_eq!(directive("explain jobs").as_deref(), Some(":4"));
        assert_eq!(directive("list pods --for no").as_deref(), Some(":4"));
    }

    #[test]
    fn names_come_from_the_kubeconfig_that_the_line_names() {
        let words: Vec<String> =
            "list wl --kubeconfig k --context=c -n team -l a=b --as-group x --insecure-skip-tls-verify --as"
                .split_whitespace()
                .map(str::to_owned)
                .collect();
        let found = connection(&words);
        assert_eq!(found.kubeconfig.as_deref(), Some("k".as_ref()));
        assert_eq!((found.context.as_deref(), found.namespace.as_deref()), (Some("c"), Some("team")));
        assert_eq!((found.as_group.len(), found.insecure_skip_tls_verify, found.as_user), (1, true, None));
        let words = ["--insecure-skip-tls-verify=true", "--context", "c"].map(str::to_owned);
        let found = connection(&words);
        assert_eq!((found.insecure_skip_tls_verify, found.context.as_deref()), (true, Some("c")));
    }
}
