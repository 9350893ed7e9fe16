//! `sluice simulate`: files in, virtual cluster, report out. The simulation itself is in `sluice-sim`; this module does its I/O.

mod unplayed;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use sluice_api::config::Configuration;
use sluice_client::{list, settings as files};
use sluice_sim::live::{self, Extent};
use sluice_sim::replay::Sink;
use sluice_sim::{
    Distribution, File, LeftOut, Manifests, Options, Record, Report, Simulation, duration, parts,
    prepare_with_log, settings, whatif,
};

use crate::connection::ClusterArgs;
use crate::print::{is_read, say};
use crate::{html, table};
use unplayed::{kinds_of_cluster, not_played, only_simulated};

pub(crate) use unplayed::only_simulated_kind;

/// How the outcome is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Plain text: the timeline, then figures per queue and flavor
    #[default]
    Table,
    /// Everything, for programs
    Json,
    /// Everything, for programs and people
    Yaml,
    /// One self-contained page with pictures
    Html,
}

/// What a simulation is made from; `explain` takes the same.
#[derive(Clone, Debug, Args)]
pub struct WorldArgs {
    /// Manifests and scenarios: files, or folders whose *.yaml, *.yml and *.json files are read
    #[arg(value_name = "FILE|FOLDER")]
    pub paths: Vec<PathBuf>,
    /// Configuration file of the manager; without one, the defaults with every framework on
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates: A=true,B=false; not together with featureGates in the file
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Option<String>,
    /// Seed of the random numbers; without it the scenario's, else 0
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run time of jobs without the annotation sluice.dev/run-seconds; without it the scenario's, else 10m
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub run_time: Option<jiff::SignedDuration>,
    /// Start from the objects of a cluster (read only), chosen by the kubeconfig or the connection flags
    #[arg(long)]
    pub from_cluster: bool,
}

/// `sluice simulate`.
#[derive(Clone, Debug, Args)]
pub struct SimulateArgs {
    /// What to simulate.
    #[command(flatten)]
    pub world: WorldArgs,
    /// The format of the outcome
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// When the simulation ends; without it the scenario's end, else when nothing is left to happen
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub until: Option<jiff::SignedDuration>,
    /// Show events as they happen, at this many simulated seconds per second (60 without a number)
    #[arg(long, value_name = "SPEED", num_args = 0..=1, default_missing_value = "60", value_parser = clap::value_parser!(u32).range(1..))]
    pub watch: Option<u32>,
    /// Print the whole timeline, without a limit
    #[arg(long)]
    pub timeline: bool,
    /// Simulate again with these manifests and scenarios on top, and print what differs
    #[arg(long, value_name = "FILE")]
    pub change: Vec<PathBuf>,
    /// Write the engine's inputs and effects to a file, for `sluice replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Check the engine's state against its objects after each step (slow)
    #[arg(long)]
    pub audit: bool,
    /// Do not show progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// Everything that was read.
#[derive(Debug)]
pub struct Loaded {
    /// The documents.
    pub manifests: Manifests,
    /// The files that scenarios apply.
    pub files: BTreeMap<String, String>,
}

/// The files below a path, in order of their names. A folder's sub-folders are not read, as with kubectl.
fn files_of(path: &Path) -> anyhow::Result<Vec<(PathBuf, bool)>> {
    if !path.is_dir() {
        return Ok(vec![(path.to_owned(), true)]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("reading {}", path.display()))? {
        let path = entry.with_context(|| format!("reading {}", path.display()))?.path();
        let wanted = path.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|w| e == *w));
        if wanted && path.is_file() {
            found.push((path, false));
        }
    }
    found.sort();
    if found.is_empty() {
        bail!("{} has no *.yaml, *.yml or *.json file", path.display());
    }
    Ok(found)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Reads manifests, scenarios, and the files that these apply.
///
/// # Errors
///
/// If a file or folder cannot be read, a folder has no manifests, a document is wrong, or a file that a scenario applies cannot be read.
pub fn load(paths: &[PathBuf]) -> anyhow::Result<Loaded> {
    let mut read_files = Vec::new();
    for path in paths {
        for (file, named) in files_of(path)? {
            read_files.push(File { name: file.display().to_string(), text: read(&file)?, named });
        }
    }
    let manifests = Manifests::read(&read_files).map_err(|errors| anyhow::anyhow!(lines(&errors)))?;
    let mut files = BTreeMap::new();
    for (source, scenario) in &manifests.scenarios {
        let folder = Path::new(&source.file).parent().unwrap_or(Path::new("")).to_owned();
        for name in scenario.files() {
            let path = folder.join(name);
            files.insert(path.display().to_string(), read(&path)?);
        }
    }
    Ok(Loaded { manifests, files })
}

fn lines<T: ToString>(errors: &[T]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The configuration that the arguments name. The kinds that it declares are known from then on.
pub(crate) fn configured(args: &WorldArgs) -> anyhow::Result<Configuration> {
    let environment = files::environment(args.feature_gates.clone());
    let (configuration, _) = files::load(args.config.as_deref(), &environment)?;
    Ok(if args.config.is_none() { Options::with_every_kind(configuration) } else { configuration })
}

/// The options that the arguments and the scenarios ask for.
fn options(args: &WorldArgs, configuration: Configuration, loaded: &Loaded) -> Options {
    let mut options = Options::new(configuration);
    options.seed = args.seed.unwrap_or(0);
    options.run_time = args.run_time.map(Distribution::Fixed);
    settings(&mut options, &loaded.manifests.scenarios, args.seed.is_some());
    options
}

/// A simulation that can run.
///
/// # Errors
///
/// If an object or a scenario is refused (see [`prepare_with_log`]); every mistake is a line of the message.
pub fn begin(loaded: &Loaded, options: Options, log: Option<Box<Sink>>) -> anyhow::Result<Simulation> {
    prepare_with_log(&loaded.manifests, &loaded.files, options, log)
        .map_err(|errors| anyhow::anyhow!(lines(&errors)))
}

/// Shows how far a simulation is, about once a second.
struct Progress {
    began: Instant,
    shown: Mutex<Instant>,
    on: bool,
}

impl Progress {
    fn new(on: bool) -> Self {
        Self { began: Instant::now(), shown: Mutex::new(Instant::now()), on }
    }

    fn show(&self, progress: parts::Progress) {
        if !self.on {
            return;
        }
        // One thread at a time shows the progress.
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if shown.elapsed() < Duration::from_secs(1) {
            return;
        }
        *shown = Instant::now();
        let seconds = self.began.elapsed().as_secs_f64();
        let parts::Progress { done, parts, jobs, at } = progress;
        let at = duration::show(at);
        if parts == 1 {
            aside(&format!("\r{at} simulated in {seconds:.0} s: {jobs} jobs submitted   "));
        } else {
            aside(&format!(
                "\r{done} of {parts} parts simulated in {seconds:.0} s, the next up to {at}: {jobs} jobs submitted   "
            ));
        }
    }

    fn end(&self) {
        if self.on && self.began.elapsed() > Duration::from_secs(1) {
            aside("\n");
        }
    }
}

/// Writes progress to standard error; errors are ignored.
fn aside(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Reads what the arguments name: files, and the cluster if they say so.
///
/// # Errors
/// When a file or the cluster cannot be read, or a setting is wrong.
pub async fn world(args: &WorldArgs, cluster: &ClusterArgs) -> anyhow::Result<(Loaded, Options)> {
    if args.paths.is_empty() && !args.from_cluster {
        bail!("name files or folders with manifests, or --from-cluster");
    }
    let configuration = configured(args)?;
    let mut loaded = load(&args.paths)?;
    only_simulated(&loaded.manifests)?;
    let mut options = options(args, configuration, &loaded);
    if args.from_cluster {
        let client = &cluster.connect().await?.client;
        let declared_in = args.config.as_deref().unwrap_or(Path::new(""));
        let (kinds, left) = kinds_of_cluster(options.configuration.job_kinds(), declared_in);
        let live = live::read(Extent::All, &kinds, |place, query, keep| async move {
            list::objects(client, &place, query, |object| keep(object)).await.map(live::Listed::from)
        })
        .await?;
        loaded.manifests.observed = live.observed;
        loaded.manifests.skipped.extend(left);
        options.start = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())?;
        // Objects in files replace those of the cluster.
        loaded.manifests.objects = whatif::overlay(live.objects, loaded.manifests.objects);
    }
    Ok((loaded, options))
}

/// Runs `sluice simulate`.
///
/// # Errors
/// If an input cannot be read, or the result cannot be written.
pub async fn run(args: SimulateArgs, cluster: &ClusterArgs) -> anyhow::Result<u8> {
    let (loaded, mut options) = world(&args.world, cluster).await?;
    options.until = args.until.or(options.until);
    options.audit = args.audit;
    let seed = options.seed;
    let on = !args.quiet && args.watch.is_none() && std::io::stderr().is_terminal();
    if args.watch.is_none() && args.record.is_none() && args.change.is_empty() {
        let progress = Progress::new(on);
        let played = parts::play(&loaded.manifests, &loaded.files, &options, &|p| progress.show(p));
        progress.end();
        let played = played?;
        return show((&played.record, played.lasted), seed, (loaded, &played.left_out), &args);
    }
    let log = args.record.as_deref().map(log_to).transpose()?;
    let (sink, log) = log.unzip();
    let mut simulation = begin(&loaded, options.clone(), sink)?;
    // Events must not be mixed with the documents.
    let aside = args.output != Output::Table;
    let watch = args.watch.map(|speed| Watch { speed, aside });
    if !play(&mut simulation, watch, on)? {
        if !aside && args.record.is_none() {
            return Ok(0);
        }
        // No reader is left for the events, but other output is still due.
        play(&mut simulation, None, false)?;
    }
    if let Some(log) = log {
        simulation.close_log();
        log.finish()?;
    }
    let end = simulation.lasted();
    if !args.change.is_empty() {
        let change = load(&args.change)?;
        only_simulated(&change.manifests)?;
        let mut changed = begin_changed(&loaded, change, options)?;
        play(&mut changed, None, on)?;
        let changed_end = changed.lasted();
        let futures = [(simulation.record(), end), (changed.record(), changed_end)];
        return write(&compared(futures, seed, args.output)?);
    }
    show((simulation.record(), end), seed, (loaded, simulation.left_out()), &args)
}

/// Prints what happened, up to an end.
fn show(
    (record, end): (&Record, i64),
    seed: u64,
    (loaded, left_out): (Loaded, &LeftOut),
    args: &SimulateArgs,
) -> anyhow::Result<u8> {
    let mut skipped = loaded.manifests.skipped;
    skipped.extend(not_played(left_out));
    let report = Report::new(record, end, seed, skipped);
    let timeline = if args.watch.is_some() { Some(false) } else { args.timeline.then_some(true) };
    write(&match args.output {
        Output::Table => table::report(&report, timeline),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&report)?,
        Output::Html => html::page(html::Subject::Simulation, record, &report, end)?,
    })
}

fn write(text: &str) -> anyhow::Result<u8> {
    crate::print::print(text)?;
    Ok(0)
}

/// The effects of a change: two records, each with its end in milliseconds from the beginning.
fn compared(futures: [(&Record, i64); 2], seed: u64, output: Output) -> anyhow::Result<String> {
    let [(before, before_end), (after, after_end)] = futures;
    let difference = whatif::Difference::new(before, before_end, after, after_end, seed);
    Ok(match output {
        Output::Table => table::difference(&difference),
        Output::Json => serde_json::to_string_pretty(&difference)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&difference)?,
        Output::Html => html::compared(futures, &difference, seed)?,
    })
}

/// The same world with changes on top: an object replaces the existing one of the same name.
fn begin_changed(loaded: &Loaded, change: Loaded, options: Options) -> anyhow::Result<Simulation> {
    let mut manifests = loaded.manifests.clone();
    let mut files = loaded.files.clone();
    manifests.objects = whatif::overlay(manifests.objects, change.manifests.objects);
    manifests.scenarios.extend(change.manifests.scenarios);
    files.extend(change.files);
    begin(&Loaded { manifests, files }, options, None)
}

/// How events are shown while they happen.
#[derive(Clone, Copy)]
struct Watch {
    /// Simulated seconds per second.
    speed: u32,
    /// On standard error, because a document goes to standard output.
    aside: bool,
}

/// Runs a simulation to its end, as fast as possible, or at a given speed with its events shown as long as they are read. Returns whether it ended.
fn play(simulation: &mut Simulation, watch: Option<Watch>, on: bool) -> anyhow::Result<bool> {
    let Some(Watch { speed, aside }) = watch else {
        let progress = Progress::new(on);
        let outcome = simulation.run(|s| progress.show(parts::Progress::of(s)));
        progress.end();
        return Ok(outcome.map(|()| true)?);
    };
    let mut shown = 0;
    let mut before = simulation.now();
    simulation.settle()?;
    loop {
        let record = simulation.record();
        for entry in &record.entries[shown..] {
            let line = table::line(&record.line(entry));
            let goes_on = if aside { say(&line) } else { is_read(&format!("{line}\n"))? };
            if !goes_on {
                return Ok(false);
            }
        }
        shown = record.entries.len();
        if let Some(next) = simulation.next_step() {
            let wait = next.as_millisecond().saturating_sub(before.as_millisecond());
            let wait = u64::try_from(wait).unwrap_or(0) / u64::from(speed);
            before = next;
            std::thread::sleep(Duration::from_millis(wait));
        }
        if !simulation.step()? {
            return Ok(true);
        }
    }
}

/// A decision log in progress, with the error of its writer.
struct Log {
    troubles: Receiver<std::io::Error>,
    file: PathBuf,
}

impl Log {
    /// Whether all of it was written.
    fn finish(&self) -> anyhow::Result<()> {
        match self.troubles.try_iter().next() {
            Some(error) => Err(error).with_context(|| format!("writing {}", self.file.display())),
            None => Ok(()),
        }
    }
}

/// The file of a decision log.
struct LogFile {
    target: std::io::BufWriter<std::fs::File>,
    failures: Sender<std::io::Error>,
}

impl LogFile {
    /// Reports an I/O error. The receiver lives as long as the simulation.
    fn check(&self, outcome: std::io::Result<()>) {
        if let Err(error) = outcome {
            let _ = self.failures.send(error);
        }
    }

    fn line(&mut self, line: &str) {
        let outcome = self.target.write_all(line.as_bytes()).and_then(|()| self.target.write_all(b"\n"));
        self.check(outcome);
    }
}

impl Drop for LogFile {
    /// Writing the buffered rest may fail, too.
    fn drop(&mut self) {
        let outcome = self.target.flush();
        self.check(outcome);
    }
}

/// A file that takes a decision log, and where its errors are reported.
fn log_to(file: &Path) -> anyhow::Result<(Box<Sink>, Log)> {
    let target = std::fs::File::create(file).with_context(|| format!("creating {}", file.display()))?;
    let (failures, troubles) = std::sync::mpsc::channel();
    let mut log = LogFile { target: std::io::BufWriter::new(target), failures };
    Ok((Box::new(move |line: &str| log.line(line)), Log { troubles, file: file.to_owned() }))
}
