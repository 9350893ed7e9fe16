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

/// One program of the test control planes.
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
    /// The controllers of Kubeflow's jobs, as one program.
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

/// A file of a Go module that belongs beside a program.
#[derive(Clone, Copy)]
struct Companion {
    /// The Go module.
    module: &'static str,
    /// Its path there.
    source: &'static str,
    /// Its name beside the program.
    name: &'static str,
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

/// The folder for what is built from `tool`'s module. It depends on the pinned versions, the sources and the companions, so an old program is never
/// used as a new one, and a new pin rebuilds only its own module.
///
/// # Errors
///
/// If a go.mod, go.sum or source file of the tool's module cannot be read.
pub fn bin_folder(tool: Tool) -> Result<PathBuf> {
    let Source { folder, own, .. } = tool.source();
    let key = key(&modules().join(folder), own, tool.companions())?;
    Ok(workspace().join(".cache/control-plane").join(format!("{folder}-{key}")))
}

/// Identifies what is built from a module's folder: the content of its files, and its companions.
fn key(folder: &Path, own: &[&str], companions: &[Companion]) -> Result<String> {
    let mut hash = Sha256::new();
    for file in ["go.mod", "go.sum"].iter().chain(own) {
        let path = folder.join(file);
        hash.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    for Companion { module, source, name } in companions {
        for text in [module, source, name] {
            hash.update(text);
            hash.update([0]);
        }
    }
    let mut key = format!("{:x}", hash.finalize());
    key.truncate(16);
    Ok(key)
}

/// The program in the folder of `KUBEBUILDER_ASSETS`, if it exists there.
fn given(assets: Option<&OsStr>, tool: Tool) -> Option<PathBuf> {
    let folder = assets.filter(|folder| !folder.is_empty())?;
    Some(Path::new(folder).join(tool.name())).filter(|path| path.is_file())
}

/// Whether the program exists, so that nothing must be built.
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
    path_with(&bin, tool.name(), |partial| build(tool, &bin, partial))
}

/// The program of this name in a folder; where it is missing, what `build` makes at the path that it is given.
fn path_with(bin: &Path, name: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let path = bin.join(name);
    if path.is_file() {
        return Ok(path);
    }
    fs::create_dir_all(bin).with_context(|| format!("making {}", bin.display()))?;
    // One build of a module at a time: a second process waits here and then finds the program.
    let lock_path = bin.join(".lock");
    let lock = File::create(&lock_path).with_context(|| format!("opening {}", lock_path.display()))?;
    if lock.try_lock().is_err() {
        progress(&format!("waiting for another process that builds into {}", bin.display()));
        lock.lock().with_context(|| format!("locking {}", lock_path.display()))?;
    }
    if !path.is_file() {
        // A half-written program must never be found: build aside, then rename.
        let partial = bin.join(format!(".{name}.partial"));
        build(&partial)?;
        fs::rename(&partial, &path).with_context(|| format!("moving the built {}", path.display()))?;
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

/// Finds or builds each of `tools`.
///
/// # Errors
///
/// As [`path`], for the first tool that cannot be provided; later ones are not tried.
pub fn ensure(tools: &[Tool]) -> Result<()> {
    tools.iter().try_for_each(|tool| path(*tool).map(drop))
}

fn progress(line: &str) {
    // A line that cannot be written must not stop a build.
    let _ = writeln!(std::io::stderr(), "control plane: {line}");
}

/// The version of `module` that the `require` of this go.mod pins.
fn pinned_version(pins: &str, module: &str) -> Option<String> {
    pins.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        let version = (words.next() == Some(module)).then(|| words.next()).flatten()?;
        version.starts_with('v').then(|| version.to_owned())
    })
}

/// Builds a program at a path, and puts its companions into its folder.
fn build(tool: Tool, bin: &Path, partial: &Path) -> Result<()> {
    let Source { folder, module, package, .. } = tool.source();
    let folder = modules().join(folder);
    let pins = folder.join("go.mod");
    let text = fs::read_to_string(&pins).with_context(|| format!("reading {}", pins.display()))?;
    let version =
        pinned_version(&text, module).with_context(|| format!("{} does not pin {module}", pins.display()))?;
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
        .arg(partial)
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
mod tests;
