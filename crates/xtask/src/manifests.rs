//! `cargo xtask manifests`: the chart's copy of the CRDs, and the plain manifests of `config/` rendered from the chart.
//!
//! There is one source for all forms: the Rust types make `config/crd` (`cargo xtask crds`), the registry of job kinds makes the chart's list of
//! kinds and the frameworks of its values, and the chart's templates make the rest. `--check` compares and writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use sluice_api::gates::Gate;
use sluice_api::job::{Integration, JobKind};
use sluice_testkit::assets::{self, Tool};

/// First line of every file that this command writes into `config/`.
const HEADER: &str =
    "# Rendered from charts/sluice by `cargo xtask manifests`; edit the chart, not this file.\n";
/// The namespace that the plain manifests install into (docs/reference/08-tooling.md 8.6).
const NAMESPACE: &str = "kueue-system";
/// Folders of `config/` that this command owns. `config/crd` belongs to `cargo xtask crds`.
const FOLDERS: [&str; 7] =
    ["default", "manager", "prometheus", "rbac", "visibility", "visibility-apf", "webhook"];
/// Files that are templates in the chart, and separate upstream, because not every cluster wants them (docs/reference/08-tooling.md 8.8).
const APART: [(&str, &str); 1] = [("config/visibility/apf.yaml", "config/visibility-apf/apf.yaml")];

/// The chart's template with the job kinds.
const INTEGRATIONS: &str = "charts/sluice/templates/_integrations.tpl";

/// The chart's values.
const VALUES: &str = "charts/sluice/values.yaml";
/// The line in them before the list of frameworks, and how each line of the list begins.
const FRAMEWORKS: &str = "\n      frameworks:\n";
const FRAMEWORK: &str = "        - ";

/// Write the chart's CRDs and the plain manifests of config/.
#[derive(clap::Args)]
pub struct Args {
    /// Compare with what is there, and fail on a difference; write nothing.
    #[arg(long)]
    check: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let root = assets::workspace();
    let drift = bring_up_to_date(&root, args.check)?;
    for line in &drift {
        println!("{line}");
    }
    if args.check && !drift.is_empty() {
        bail!("generated manifests are out of date: run `cargo xtask crds && cargo xtask manifests`");
    }
    Ok(ExitCode::SUCCESS)
}

/// The files with differences, one line each; they are written as well, unless `check`.
fn bring_up_to_date(root: &Path, check: bool) -> Result<Vec<String>> {
    let mut drift = Vec::new();
    let values = fs::read_to_string(root.join(VALUES)).with_context(|| format!("reading {VALUES}"))?;
    let of_kinds = BTreeMap::from([
        (PathBuf::from(INTEGRATIONS), integrations()),
        (PathBuf::from(VALUES), with_frameworks(&values).with_context(|| format!("in {VALUES}"))?),
    ]);
    write(root, &of_kinds, check, &mut drift)?;
    // First the CRDs: the chart renders them.
    let crds = crds_of_the_chart(root)?;
    reconcile(root, Path::new("charts/sluice/files/crds"), &crds, check, &mut drift)?;
    let manifests = plain_manifests(root)?;
    for folder in FOLDERS {
        let below = Path::new("config").join(folder);
        let files = manifests.iter().filter(|(path, _)| path.starts_with(&below));
        let files = files.map(|(path, text)| (path.clone(), text.clone())).collect();
        reconcile(root, &below, &files, check, &mut drift)?;
    }
    Ok(drift)
}

/// Makes `folder` hold exactly `files` (paths relative to `root`), or says what is different.
fn reconcile(
    root: &Path,
    folder: &Path,
    files: &BTreeMap<PathBuf, String>,
    check: bool,
    drift: &mut Vec<String>,
) -> Result<()> {
    let present: BTreeSet<PathBuf> = match fs::read_dir(root.join(folder)) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| folder.join(entry.file_name())))
            .collect::<Result<_, _>>()
            .with_context(|| format!("listing {}", folder.display()))?,
        Err(_) => BTreeSet::new(),
    };
    for stale in present.iter().filter(|path| !files.contains_key(*path)) {
        drift.push(format!("{}: not generated any more", stale.display()));
        if !check {
            fs::remove_file(root.join(stale)).with_context(|| format!("removing {}", stale.display()))?;
        }
    }
    write(root, files, check, drift)
}

/// Writes what differs, or says so.
fn write(root: &Path, files: &BTreeMap<PathBuf, String>, check: bool, drift: &mut Vec<String>) -> Result<()> {
    for (path, text) in files {
        if fs::read_to_string(root.join(path)).is_ok_and(|there| there == *text) {
            continue;
        }
        drift.push(format!("{}: {}", path.display(), if check { "differs" } else { "written" }));
        if !check {
            let folder = root.join(path.parent().unwrap_or(Path::new("")));
            fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
            fs::write(root.join(path), text).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

/// The job kinds, as the chart's templates read them.
fn integrations() -> String {
    let mut text = "{{/* Written by `cargo xtask manifests` from the registry of job kinds. */}}\n\
         {{/* The job kinds, as a YAML map framework → facts. A framework that managerConfig lists and that is not here gets no webhook and\n\
         no right; the manager refuses it. */}}\n\
         {{- define \"sluice.jobKinds\" -}}\n"
        .to_owned();
    for kind in JobKind::ALL {
        let Integration { framework, group, version, plural, .. } = kind.integration();
        let confirms_stops = kind.integration().confirms_stops;
        let Integration { of_pods, suspends_pods, pods_are_jobs, .. } = kind.integration();
        let group = in_quotes_if_empty(group);
        let name = kind.kind().to_lowercase();
        let parts: Vec<_> = kind.descendants().into_iter().map(JobKind::framework).collect();
        let facts = format!("name: {name}, group: {group}, version: {version}, resource: {plural}");
        let changes = kind.changes_parts();
        let more = format!("parts: {parts:?}, changesParts: {changes}, confirmsStops: {confirms_stops}");
        let more =
            format!("{more}, ofPods: {of_pods}, suspendsPods: {suspends_pods}, podsAreJobs: {pods_are_jobs}");
        let templates = kind.templates().iter();
        let templates: Vec<_> =
            templates.map(|it| format!("{{group: {}, resource: {}}}", it.group(), it.plural())).collect();
        let more = format!("{more}, templates: [{}]", templates.join(", "));
        text.extend([framework, ": {", &facts, ", ", &more, "}\n"]);
    }
    text + "{{- end }}\n"
}

/// The chart's values with its default frameworks: those that do not need a gate that is off by default.
fn with_frameworks(values: &str) -> Result<String> {
    let (before, rest) = values.split_once(FRAMEWORKS).context("no list of frameworks")?;
    if rest.contains(FRAMEWORKS) {
        bail!("several lists of frameworks");
    }
    let after = rest.split_inclusive('\n').skip_while(|line| line.starts_with(FRAMEWORK));
    let is_on = |kind: &JobKind| kind.integration().gate.is_none_or(Gate::default_on);
    let listed = JobKind::ALL.into_iter().filter(is_on);
    let list = listed.flat_map(|kind| [FRAMEWORK, kind.framework(), "\n"]);
    Ok([before, FRAMEWORKS].into_iter().chain(list).chain(after).collect())
}

/// An API group in YAML.
fn in_quotes_if_empty(group: &str) -> &str {
    if group.is_empty() { "\"\"" } else { group }
}

/// The files of `config/crd`, as the chart carries them.
fn crds_of_the_chart(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let from = root.join("config/crd");
    let mut files = BTreeMap::new();
    for entry in
        fs::read_dir(&from).with_context(|| format!("{}: run `cargo xtask crds` first", from.display()))?
    {
        let name = entry?.file_name();
        if name == "kustomization.yaml" {
            continue;
        }
        let text = fs::read_to_string(from.join(&name))?;
        files.insert(Path::new("charts/sluice/files/crds").join(name), text);
    }
    if files.is_empty() {
        bail!("{} holds no CRDs: run `cargo xtask crds` first", from.display());
    }
    Ok(files)
}

/// Every file of `config/` that comes from the chart, with the kustomizations that tie them together.
fn plain_manifests(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let values = ["crds.enabled=false", "enablePrometheus=true", "enableVisibilityAPF=true"];
    let mut files = split_by_template(&render(root, &values)?);
    for (template, apart) in APART {
        let text =
            files.remove(Path::new(template)).with_context(|| format!("{template} is not rendered"))?;
        files.insert(apart.into(), text);
    }
    let mut kustomizations: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for path in files.keys() {
        if let (Some(folder), Some(name)) = (path.parent(), path.file_name()) {
            let names = kustomizations.entry(folder.to_path_buf()).or_default();
            names.push(name.to_string_lossy().into_owned());
        }
    }
    let default = Path::new("config/default");
    let resources = ["namespace.yaml", "../crd", "../manager", "../rbac", "../visibility", "../webhook"];
    kustomizations.insert(default.to_path_buf(), resources.map(str::to_owned).to_vec());
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n");
    files.insert(default.join("namespace.yaml"), format!("{HEADER}{namespace}"));
    for (folder, names) in kustomizations {
        let list = names.join("\n  - ");
        let text = format!(
            "{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - {list}\n"
        );
        files.insert(folder.join("kustomization.yaml"), text);
    }
    Ok(files)
}

/// The output of `helm template` for the chart with these values.
fn render(root: &Path, values: &[&str]) -> Result<String> {
    let helm = assets::path(Tool::Helm)?;
    let mut command = Command::new(&helm);
    command.args(["template", "sluice"]).arg(root.join("charts/sluice")).args(["--namespace", NAMESPACE]);
    for value in values {
        command.args(["--set", value]);
    }
    let output = command.output().with_context(|| format!("running {}", helm.display()))?;
    if !output.status.success() {
        bail!("helm template: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("helm template printed what is not UTF-8")
}

/// Helm's output as one file per template: `templates/rbac/x.yaml` becomes `config/rbac/x.yaml`. Lines that only matter to helm are left out.
fn split_by_template(rendered: &str) -> BTreeMap<PathBuf, String> {
    let mut files: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for document in rendered.split("\n---\n") {
        let document = document.trim_start_matches("---\n");
        let Some((first, rest)) = document.split_once('\n') else { continue };
        let Some(template) = first.strip_prefix("# Source: sluice/templates/") else { continue };
        let kept: Vec<&str> = rest
            .lines()
            .filter(|line| {
                let key = line.trim_start();
                !["helm.sh/chart:", "app.kubernetes.io/managed-by:", "checksum/config:"]
                    .iter()
                    .any(|prefix| key.starts_with(prefix))
            })
            .map(str::trim_end)
            .collect();
        let text = kept.join("\n");
        let text = text.trim_matches('\n');
        if !text.is_empty() {
            files.entry(Path::new("config").join(template)).or_default().push(format!("{text}\n"));
        }
    }
    files
        .into_iter()
        .map(|(path, documents)| (path, format!("{HEADER}{}", documents.join("---\n"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_one_template_end_up_in_one_file_without_helms_own_lines() {
        let rendered = "---\n# Source: sluice/templates/rbac/a.yaml\nkind: Role\nlabels:\n  helm.sh/chart: x\n---\n\
                        # Source: sluice/templates/webhook/b.yaml\nkind: Service\n\n\n---\n\
                        # Source: sluice/templates/rbac/a.yaml\nkind: RoleBinding\n";
        let files = split_by_template(rendered);
        assert_eq!(
            files[Path::new("config/rbac/a.yaml")],
            format!("{HEADER}kind: Role\nlabels:\n---\nkind: RoleBinding\n")
        );
        assert_eq!(files[Path::new("config/webhook/b.yaml")], format!("{HEADER}kind: Service\n"));
    }

    #[test]
    fn the_chart_lists_the_frameworks_whose_gate_is_on_by_default() {
        let is = fs::read_to_string(assets::workspace().join(VALUES)).unwrap();
        assert_eq!(with_frameworks(&is).unwrap(), is, "run `cargo xtask manifests`");
        let values = "a:\n      frameworks:\n        - pod\n        - old\n\nb: c\n";
        let written = with_frameworks(values).unwrap();
        let list = written.strip_prefix("a:\n      frameworks:\n").unwrap().strip_suffix("\nb: c\n").unwrap();
        for (framework, listed) in [
            ("pod", true),
            ("trainer.kubeflow.org/trainjob", true),
            ("sparkoperator.k8s.io/sparkapplication", false),
            ("old", false),
        ] {
            assert_eq!(list.lines().any(|line| line == format!("        - {framework}")), listed, "{list}");
        }
        for none in ["a: b\n".to_owned(), values.repeat(2)] {
            assert!(with_frameworks(&none).is_err(), "{none}");
        }
    }

    #[test]
    fn a_check_names_missing_changed_and_stale_files_and_touches_none() {
        let root = tempfile::tempdir().unwrap();
        let folder = Path::new("config/rbac");
        fs::create_dir_all(root.path().join(folder)).unwrap();
        for (name, text) in [("stale.yaml", "x"), ("changed.yaml", "old"), ("same.yaml", "same")] {
            fs::write(root.path().join(folder).join(name), text).unwrap();
        }
        let files = [("changed.yaml", "new"), ("missing.yaml", "m"), ("same.yaml", "same")]
            .map(|(name, text)| (folder.join(name), text.to_owned()))
            .into();
        let mut drift = Vec::new();
        reconcile(root.path(), folder, &files, true, &mut drift).unwrap();
        assert_eq!(
            drift,
            [
                "config/rbac/stale.yaml: not generated any more",
                "config/rbac/changed.yaml: differs",
                "config/rbac/missing.yaml: differs"
            ]
        );
        assert!(root.path().join(folder).join("stale.yaml").exists());

        reconcile(root.path(), folder, &files, false, &mut drift).unwrap();
        let mut again = Vec::new();
        reconcile(root.path(), folder, &files, true, &mut again).unwrap();
        assert!(again.is_empty(), "{again:?}");
    }
}
