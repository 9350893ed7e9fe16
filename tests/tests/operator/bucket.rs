//! The journal's files in a bucket: the files of the folder, each once and identical.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use sluice_testkit::metrics::{self, Scraper};
use sluice_testkit::s3::{KEY, S3Gateway, SECRET};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup};
use sluice_tests::place::DEADLINE;

/// What the folder is in the bucket.
const PATH: &str = "team/prod";
/// A key that the server does not take.
pub const WRONG: &str = "the-key-of-someone-else";

/// An S3 server with a bucket that the journal goes to.
pub struct Bucket {
    /// The server.
    pub gateway: S3Gateway,
    folder: PathBuf,
}

impl Bucket {
    /// Starts the server. The journal is written to `folder`, which all replicas share.
    pub async fn start(plane: &ControlPlane, folder: PathBuf) -> Self {
        Self { gateway: S3Gateway::start(plane, "journal").await.unwrap(), folder }
    }

    /// A manager that sends its files there.
    pub fn for_manager(&self, plane: &ControlPlane, setup: Setup) -> Setup {
        let url = format!("s3://journal/{PATH}");
        let (endpoint, ca) = (self.gateway.url(), plane.ca_path());
        let store =
            json!({"url": url, "endpoint": endpoint, "region": "us-east-1", "caFile": ca, "every": "5s"});
        let setup = setup.with(&json!({"journal": {"directory": self.folder, "store": store}}));
        setup.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET)
    }

    /// The objects, by name.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        files(&self.gateway.bucket().join(PATH))
    }

    /// How many processes have sent something.
    pub fn processes(&self) -> usize {
        let objects = self.objects();
        let process = |name: &String| name.split('.').next().unwrap_or_default().to_owned();
        objects.keys().map(process).collect::<BTreeSet<_>>().len()
    }

    /// Files of the folder that are not in the bucket as they are.
    pub fn missing(&self) -> Vec<String> {
        let objects = self.objects();
        let files = files(&self.folder).into_iter().filter(|(_, text)| !text.is_empty());
        files.filter(|(name, text)| objects.get(name) != Some(text)).map(|(name, _)| name).collect()
    }

    /// Waits until these processes, and not fewer, have sent something.
    pub async fn wait_for_processes(&self, count: usize) {
        eventually(&format!("files of {count} processes in the bucket"), DEADLINE, || async {
            Ok(progress(self.processes() >= count, format!("{:?}", self.objects().keys())))
        })
        .await
        .unwrap();
    }

    /// Waits until the bucket has all that the folder has.
    pub async fn wait_for_everything(&self) {
        eventually("everything to be in the bucket", DEADLINE, || async {
            let missing = self.missing();
            Ok(progress(missing.is_empty(), format!("{missing:?}")))
        })
        .await
        .unwrap();
    }

    /// A copy, as `aws s3 sync` makes one.
    pub fn copy(&self, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for (name, text) in self.objects() {
            fs::write(to.join(name), text).unwrap();
        }
    }
}

/// The files with lines of a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let lines = entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    // One may be deleted meanwhile.
    let read = |path: PathBuf| Some((path.file_name()?.to_str()?.to_owned(), fs::read(&path).ok()?));
    lines.filter_map(read).collect()
}

/// Waits until a manager has counted failures of this kind to send its files.
pub async fn wait_for_failure(plane: &ControlPlane, manager: &Manager, reason: &str) {
    let scraper = Scraper::new(plane);
    let label = format!("reason=\"{reason}\"");
    eventually(&format!("failures, {label}"), DEADLINE, || async {
        let text = scraper.scrape(manager).await?;
        let count = metrics::sum(&text, "sluice_journal_store_failures_total", &[&label]);
        Ok(progress(count.is_some_and(|count| count >= 1.0), text))
    })
    .await
    .unwrap();
}

/// How often the log of a manager says this of the store. No key is in it.
pub fn said(manager: &Manager, what: &str) -> usize {
    let log = manager.log().unwrap();
    assert!(!log.contains(SECRET) && !log.contains(WRONG), "a key is in the log");
    log.lines().filter(|line| line.contains(what)).count()
}
