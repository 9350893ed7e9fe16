//! The programs of the control plane: found in `KUBEBUILDER_ASSETS`, else in the cache, else built from the pinned Go
//! modules of `tests/control-plane/`.

mod companions;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

/// How often a long build says that it is still at work.
const PROGRESS_EVERY: Duration = Duration::from_secs(15);

/// The linker drops the debug information (`-w`), so the compiler need not make it: that takes a tenth of its time.
const WITHOUT_DWARF: &str = "-gcflags=all=-dwarf=false";

/// The CustomResourceDefinition of JobSets, beside the program of their controller.
const JOBSET_CRD: &str = "jobset-crd.yaml";

/// The Go module with the controllers of MPIJobs.
const MPI_OPERATOR: &str = "github.com/kubeflow/mpi-operator";
/// The Go module with the controllers of Kubeflow's other jobs.
const TRAINING_OPERATOR: &str = "github.com/kubeflow/training-operator";
/// The Go module with KubeRay.
const RAY_OPERATOR: &str = "github.com/ray-project/kuberay/ray-operator";
/// The Go module with the controller of AppWrappers.
const APP_WRAPPER: &str = "github.com/project-codeflare/appwrapper";
/// The Go module with the Spark operator.
const SPARK_OPERATOR: &str = "github.com/kubeflow/spark-operator/v2";
/// The Go module with the controllers of LeaderWorkerSets.
const LWS: &str = "sigs.k8s.io/lws";
/// The Go module with OpenTelemetry's collector.
const COLLECTOR: &str = "go.opentelemetry.io/collector/otelcol";
/// The Go module with a server that speaks S3's protocol.
const S3: &str = "github.com/versity/versitygw";
/// The Go module with Kueue's own command line.
const KUEUE: &str = "sigs.k8s.io/kueue";
/// The Go module with the trainer, which looks after TrainJobs.
const TRAINER: &str = "github.com/kubeflow/trainer/v2";

/// One program of the test bed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// The store behind the API server.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The command line client.
    Kubectl,
    /// Jobs, service accounts, garbage collection, namespaces.
    KubeControllerManager,
    /// Puts pods on nodes.
    KubeScheduler,
    /// Fake nodes whose pods run.
    Kwok,
    /// Installs charts.
    Helm,
    /// The controller of JobSets.
    JobSetController,
    /// The controllers of Kubeflow's jobs, in one program.
    KubeflowControllers,
    /// KubeRay.
    KubeRayOperator,
    /// The controller of AppWrappers.
    AppWrapperController,
    /// The Spark operator, and a stand-in for spark-submit.
    SparkOperator,
    /// The trainer's controllers.
    TrainerControllers,
    /// The controllers of LeaderWorkerSets.
    LwsControllers,
    /// OpenTelemetry's collector.
    OtelCollector,
    /// Kueue's own command line.
    Kueuectl,
    /// A server that speaks S3's protocol.
    S3Gateway,
}

/// Where a program comes from.
struct Source {
    /// The folder of its Go module in `tests/control-plane`.
    folder: &'static str,
    /// The Go module whose version is its own.
    module: &'static str,
    /// Its package.
    package: String,
    /// Sources of its own in the folder, besides go.mod and go.sum.
    own: &'static [&'static str],
}

impl Tool {
    /// All programs, in the order in which they are built.
    pub const ALL: [Tool; 17] = [
        Tool::Etcd,
        Tool::KubeApiserver,
        Tool::Kubectl,
        Tool::KubeScheduler,
        Tool::KubeControllerManager,
        Tool::Kwok,
        Tool::Helm,
        Tool::JobSetController,
        Tool::KubeflowControllers,
        Tool::KubeRayOperator,
        Tool::AppWrapperController,
        Tool::SparkOperator,
        Tool::TrainerControllers,
        Tool::LwsControllers,
        Tool::OtelCollector,
        Tool::Kueuectl,
        Tool::S3Gateway,
    ];

    /// The name of the program's file, as in `KUBEBUILDER_ASSETS`.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Etcd => "etcd",
            Tool::KubeApiserver => "kube-apiserver",
            Tool::Kubectl => "kubectl",
            Tool::KubeControllerManager => "kube-controller-manager",
            Tool::KubeScheduler => "kube-scheduler",
            Tool::Kwok => "kwok",
            Tool::Helm => "helm",
            Tool::JobSetController => "jobset-controller",
            Tool::KubeflowControllers => "kubeflow-controllers",
            Tool::KubeRayOperator => "kuberay-operator",
            Tool::AppWrapperController => "appwrapper-controller",
            Tool::SparkOperator => "spark-operator",
            Tool::TrainerControllers => "trainer-controllers",
            Tool::LwsControllers => "lws-controllers",
            Tool::OtelCollector => "otel-collector",
            Tool::Kueuectl => "kueuectl",
            Tool::S3Gateway => "s3-gateway",
        }
    }

    /// Where it comes from.
    fn source(self) -> Source {
        let of =
            |folder, module, package: &str| Source { folder, module, package: package.to_owned(), own: &[] };
        match self {
            Tool::Etcd => of("etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
            Tool::Kwok => of("kwok", "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwok"),
            Tool::Helm => of("helm", "helm.sh/helm/v4", "helm.sh/helm/v4/cmd/helm"),
            Tool::Kueuectl => of("kueuectl", KUEUE, "sigs.k8s.io/kueue/cmd/kueuectl"),
            Tool::JobSetController => of("jobset", "sigs.k8s.io/jobset", "sigs.k8s.io/jobset"),
            Tool::KubeflowControllers => {
                let package = "sluice.test/control-plane/kubeflow";
                Source { own: &["main.go"], ..of("kubeflow", TRAINING_OPERATOR, package) }
            }
            Tool::KubeRayOperator => of("ray", RAY_OPERATOR, RAY_OPERATOR),
            Tool::AppWrapperController => {
                let package = "sluice.test/control-plane/appwrapper";
                Source { own: &["main.go"], ..of("appwrapper", APP_WRAPPER, package) }
            }
            Tool::SparkOperator => {
                let package = "sluice.test/control-plane/spark";
                Source {
                    own: &["main.go", "submit.go", "drivers.go"],
                    ..of("spark", SPARK_OPERATOR, package)
                }
            }
            Tool::TrainerControllers => {
                let package = "sluice.test/control-plane/trainer";
                Source { own: &["main.go"], ..of("trainer", TRAINER, package) }
            }
            Tool::LwsControllers => {
                let package = "sluice.test/control-plane/lws";
                Source { own: &["main.go"], ..of("lws", LWS, package) }
            }
            Tool::OtelCollector => {
                let package = "sluice.test/control-plane/opentelemetry";
                Source { own: &["main.go"], ..of("opentelemetry", COLLECTOR, package) }
            }
            Tool::S3Gateway => Source { own: &["main.go"], ..of("s3", S3, "sluice.test/control-plane/s3") },
            _ => of("kubernetes", "k8s.io/kubernetes", &format!("k8s.io/kubernetes/cmd/{}", self.name())),
        }
    }

    /// The linker flags that set the program's version; without them Kubernetes says v0.0.0 and clients mind.
    fn version_flags(self, version: &str) -> String {
        match self {
            Tool::Etcd
            | Tool::KubeflowControllers
            | Tool::KubeRayOperator
            | Tool::AppWrapperController
            | Tool::SparkOperator
            | Tool::TrainerControllers
            | Tool::LwsControllers
            | Tool::OtelCollector
            | Tool::S3Gateway => String::new(),
            Tool::Kwok => format!("-X sigs.k8s.io/kwok/pkg/consts.Version={version}"),
            Tool::Helm => format!("-X helm.sh/helm/v4/internal/version.version={version}"),
            Tool::Kueuectl => format!("-X sigs.k8s.io/kueue/pkg/version.GitVersion={version}"),
            Tool::JobSetController => format!("-X sigs.k8s.io/jobset/pkg/version.GitVersion={version}"),
            _ => {
                let mut parts = version.trim_start_matches('v').split('.');
                let (major, minor) = (parts.next().unwrap_or("0"), parts.next().unwrap_or("0"));
                let base = "k8s.io/component-base/version";
                format!(
                    "-X {base}.gitVersion={version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor}"
                )
            }
        }
    }
}

/// The root of the workspace that this crate belongs to.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map_or_else(|| here.to_path_buf(), Path::to_path_buf)
}

fn modules() -> PathBuf {
    workspace().join("tests/control-plane")
}

/// The folder for what is built of `tool`'s module: it changes with the pinned versions, so an old program is never taken for a
/// new one, and a new pin builds nothing but its own module again.
///
/// # Errors
///
/// If a go.mod, go.sum or source file of the tool's module cannot be read.
pub fn bin_folder(tool: Tool) -> Result<PathBuf> {
    let Source { folder, own, .. } = tool.source();
    let mut hash = Sha256::new();
    for file in ["go.mod", "go.sum"].iter().chain(own) {
        let path = modules().join(folder).join(file);
        hash.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    let mut key = format!("{:x}", hash.finalize());
    key.truncate(16);
    Ok(workspace().join(".cache/control-plane").join(format!("{folder}-{key}")))
}

/// The program in the folder that `KUBEBUILDER_ASSETS` names, if it is there.
fn given(assets: Option<&OsStr>, tool: Tool) -> Option<PathBuf> {
    let folder = assets.filter(|folder| !folder.is_empty())?;
    Some(Path::new(folder).join(tool.name())).filter(|path| path.is_file())
}

/// Whether the program is there, so that nothing is to be built.
pub fn is_there(tool: Tool) -> bool {
    let built = || bin_folder(tool).is_ok_and(|bin| bin.join(tool.name()).is_file());
    given(std::env::var_os("KUBEBUILDER_ASSETS").as_deref(), tool).is_some() || built()
}

/// The program's path; built first where it is missing. Blocks, minutes for a cold build: lines on stderr show the progress.
///
/// # Errors
///
/// If the program is missing and cannot be built: Go is not installed, a module cannot be downloaded or compiled, or the cache folder cannot be
/// written.
pub fn path(tool: Tool) -> Result<PathBuf> {
    if let Some(found) = given(std::env::var_os("KUBEBUILDER_ASSETS").as_deref(), tool) {
        return Ok(found);
    }
    let bin = bin_folder(tool)?;
    let path = bin.join(tool.name());
    if path.is_file() {
        return Ok(path);
    }
    fs::create_dir_all(&bin).with_context(|| format!("making {}", bin.display()))?;
    // One build of a module at a time: a second process waits here and then finds the program.
    let lock_path = bin.join(".lock");
    let lock = File::create(&lock_path).with_context(|| format!("opening {}", lock_path.display()))?;
    if lock.try_lock().is_err() {
        progress(&format!("waiting for another process that builds into {}", bin.display()));
        lock.lock().with_context(|| format!("locking {}", lock_path.display()))?;
    }
    if !path.is_file() {
        build(tool, &bin)?;
    }
    Ok(path)
}

/// The CustomResourceDefinition of JobSets that belongs to [`Tool::JobSetController`]. Blocks, like [`path`].
///
/// # Errors
///
/// As [`path`].
pub fn jobset_crd() -> Result<PathBuf> {
    Ok(path(Tool::JobSetController)?.with_file_name(JOBSET_CRD))
}

/// The CustomResourceDefinitions that belong to a program with controllers. Blocks, like [`path`].
///
/// # Errors
///
/// As [`path`].
pub fn crds(tool: Tool) -> Result<Vec<PathBuf>> {
    let program = path(tool)?;
    let crds = tool.companions().iter();
    Ok(crds.map(|companion| program.with_file_name(companion.name)).collect())
}

/// Makes sure that every one of `tools` is there.
///
/// # Errors
///
/// As [`path`], of the first tool that cannot be had; those after it are not tried.
pub fn ensure(tools: &[Tool]) -> Result<()> {
    tools.iter().try_for_each(|tool| path(*tool).map(drop))
}

fn progress(line: &str) {
    // A line that cannot be written must not stop a build.
    let _ = writeln!(std::io::stderr(), "control plane: {line}");
}

/// The version of `module` that the `require` of this go.mod pins.
fn pinned_version(go_mod: &str, module: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        let version = (words.next() == Some(module)).then(|| words.next()).flatten()?;
        version.starts_with('v').then(|| version.to_owned())
    })
}

fn build(tool: Tool, bin: &Path) -> Result<()> {
    let Source { folder, module, package, .. } = tool.source();
    let folder = modules().join(folder);
    let go_mod = folder.join("go.mod");
    let text = fs::read_to_string(&go_mod).with_context(|| format!("reading {}", go_mod.display()))?;
    let version = pinned_version(&text, module)
        .with_context(|| format!("{} does not pin {module}", go_mod.display()))?;
    // A half-written program must never be found: build aside, then rename.
    let partial = bin.join(format!(".{}.partial", tool.name()));
    progress(&format!(
        "building {} {version} (a cold build of everything takes several minutes)",
        tool.name()
    ));
    let started = Instant::now();
    let mut child = Command::new("go")
        .current_dir(&folder)
        .args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath", WITHOUT_DWARF, "-ldflags"])
        .arg(format!("-s -w {}", tool.version_flags(&version)))
        .arg("-o")
        .arg(&partial)
        .arg(&package)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        // The compiler then takes 750 MB at most instead of 480 MB, and less time.
        .env("GOGC", "400")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("running go: install Go, or point KUBEBUILDER_ASSETS at a folder with the programs")?;
    let mut last = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for go")? {
            break status;
        }
        if last.elapsed() >= PROGRESS_EVERY {
            last = Instant::now();
            progress(&format!("still building {}, {} s", tool.name(), started.elapsed().as_secs()));
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    if !status.success() {
        bail!("building {} in {} failed: {status}", tool.name(), folder.display());
    }
    // The program comes last: where it is, its companions are, too.
    for companion in tool.companions() {
        let source = module_folder(&folder, companion.module)?.join(companion.source);
        let text = fs::read(&source).with_context(|| format!("reading {}", source.display()))?;
        let target = bin.join(companion.name);
        fs::write(&target, text).with_context(|| format!("writing {}", target.display()))?;
    }
    let path = bin.join(tool.name());
    fs::rename(&partial, &path).with_context(|| format!("moving the built {}", path.display()))?;
    progress(&format!("built {} in {} s", tool.name(), started.elapsed().as_secs()));
    Ok(())
}

/// Where Go keeps the sources of `module`, at the version that the go.mod in `folder` pins.
fn module_folder(folder: &Path, module: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .current_dir(folder)
        .args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module])
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running go list")?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || found.is_empty() {
        bail!("go list in {} does not know the folder of {module}", folder.display());
    }
    Ok(PathBuf::from(found))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn every_tool_is_pinned_and_has_a_version() {
        for tool in Tool::ALL {
            let Source { folder, module, package, own } = tool.source();
            let text = fs::read_to_string(modules().join(folder).join("go.mod")).unwrap();
            let version = pinned_version(&text, module);
            assert!(version.is_some_and(|version| version.split('.').count() == 3), "{module}");
            // One with sources of its own is a package of this repository.
            assert_eq!(package.starts_with(module), own.is_empty(), "{package}");
            for companion in tool.companions() {
                assert!(pinned_version(&text, companion.module).is_some(), "{}", companion.name);
            }
        }
    }

    /// Folders whose programs are made of the same libraries: a library is compiled once for all that have the same version of it and of what
    /// it needs.
    const ALIKE: [&[&str]; 4] = [
        &["kubernetes", "kwok", "helm", "etcd", "opentelemetry"],
        &["trainer", "jobset", "kubeflow", "ray", "appwrapper", "spark", "lws"],
        // Its libraries are newer than those of the controllers, and do not build with Kubernetes' own.
        &["kueuectl"],
        // It has next to nothing in common with Kubernetes.
        &["s3"],
    ];
    /// Controllers, and what they must have of one version.
    const THEIR_OWN: [&str; 5] = [
        "github.com/kubeflow/training-operator",
        "sigs.k8s.io/controller-runtime",
        "sigs.k8s.io/jobset",
        "sigs.k8s.io/scheduler-plugins",
        "volcano.sh/apis",
    ];

    /// The modules that a go.mod requires, with their versions; those that it replaces have none.
    fn required(go_mod: &str) -> BTreeMap<&str, &str> {
        let lines = go_mod.lines().filter(|line| !line.contains("=>"));
        let pairs = lines.filter_map(|line| {
            let mut words = line.trim().trim_start_matches("require ").split_whitespace();
            Some((words.next()?, words.next()?))
        });
        pairs.filter(|(_, version)| version.starts_with('v') && *version != "v0.0.0").collect()
    }

    #[test]
    fn what_programs_are_made_of_has_one_version_among_those_that_are_alike() {
        for folders in ALIKE {
            let texts = folders
                .iter()
                .map(|folder| fs::read_to_string(modules().join(folder).join("go.mod")).unwrap());
            let texts: Vec<_> = texts.collect();
            let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            for (module, version) in texts.iter().flat_map(|text| required(text)) {
                versions.entry(module).or_default().insert(version);
            }
            versions.retain(|module, versions| versions.len() > 1 && !THEIR_OWN.contains(module));
            assert_eq!(versions, BTreeMap::new(), "of {folders:?}");
            assert!(texts.iter().all(|text| required(text).len() > 20));
        }
        let all: BTreeSet<_> = Tool::ALL.iter().map(|tool| tool.source().folder).collect();
        assert_eq!(all, ALIKE.concat().into_iter().collect());
    }

    #[test]
    fn a_program_that_the_environment_gives_is_taken_and_only_that() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("etcd"), "").unwrap();
        let assets = Some(folder.path().as_os_str());
        assert_eq!(given(assets, Tool::Etcd), Some(folder.path().join("etcd")));
        assert_eq!(given(assets, Tool::Kwok), None);
        assert_eq!(given(Some(OsStr::new("")), Tool::Etcd), None);
        assert_eq!(given(None, Tool::Etcd), None);
    }

    #[test]
    fn a_pin_is_read_from_both_forms_of_require() {
        assert_eq!(pinned_version("require a/b v1.2.3", "a/b").as_deref(), Some("v1.2.3"));
        assert_eq!(
            pinned_version("require (\n\ta/b v1.2.3 // indirect\n)", "a/b").as_deref(),
            Some("v1.2.3")
        );
        assert_eq!(pinned_version("tool a/b\nmodule a/b", "a/b"), None);
    }

    #[test]
    fn kubernetes_is_told_its_version() {
        let flags = Tool::Kubectl.version_flags("v1.36.3");
        assert!(flags.contains("gitVersion=v1.36.3") && flags.contains("gitMajor=1 "), "{flags}");
        assert!(flags.ends_with("gitMinor=36"), "{flags}");
    }
}
