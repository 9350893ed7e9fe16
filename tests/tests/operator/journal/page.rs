//! The commands of the pages about the journal and about traces, as an administrator types them.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_testkit::ControlPlane;
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_tests::book::{blocks, typed};
use sluice_tests::place::DEADLINE;

use crate::bucket::Bucket;

/// Stand-ins for the programs of the providers: they take the page's words, and the files are in the folder already.
const PROVIDERS: &str = r#"
gcloud() { test "$*" = 'storage cp -r gs://team-journal/prod .'; }
aws() { test "$*" = 's3 sync s3://journal/prod prod'; }
az() { test "$*" = 'storage copy --recursive -s https://team.blob.core.windows.net/journal/prod -d .'; }
"#;

/// The commands, with days around now for those of the page.
fn of_these_days(commands: &str) -> String {
    let day = |days: i64| {
        let at = Timestamp::now().checked_add(SignedDuration::from_hours(24 * days)).unwrap();
        at.strftime("%F").to_string()
    };
    let (yesterday, tomorrow) = (day(-1), day(1));
    let commands = commands.replace("2026-03-01", &yesterday);
    commands.replace("2026-03-02", &tomorrow).replace("2026-04-01", &tomorrow)
}

/// The page about the journal, where a team in the namespace `used` has used something.
pub async fn works_as_it_is_typed(plane: &ControlPlane, bucket: &Bucket) {
    let folder = plane.folder().join("reader");
    for copy in ["prod", "old-journals"] {
        bucket.copy(&folder.join(copy));
    }
    let page = blocks("docs/tasks/journal.md", "sh").unwrap();
    let [_, fetched, usage, report, lines] = &page[..] else { unreachable!("{page:?}") };
    let typed_here = async |commands: &str| typed(plane, &folder, &of_these_days(commands)).await.unwrap();

    let printed = typed_here(&format!("{PROVIDERS}{fetched}")).await;
    assert!(printed.contains("BORROWED") && printed.contains("used"), "{printed}");
    let printed = typed_here(usage).await;
    assert!(printed.contains("USED %") && printed.contains("\nused,"), "{printed}");
    let printed = typed_here(report).await;
    assert_eq!(printed.matches("<!doctype html>").count(), 2, "two pages: {printed}");
    assert!(printed.contains("\"timeline\""), "and a document: {printed}");
    let answer: Value = serde_json::from_str(&typed_here(lines).await).unwrap();
    let about_them = |line: &Value| line["namespace"] == "used";
    assert!(answer["lines"].as_array().unwrap().iter().any(about_them), "{answer}");
    fs::remove_dir_all(&folder).unwrap();
}

/// The page about traces: its commands name the trace of a job in the namespace `used`.
pub async fn finds_a_trace(plane: &ControlPlane, job: &str, trace: &str) {
    let page = blocks("docs/tasks/tracing.md", "sh").unwrap();
    let commands = page[1].replace("job train ", &format!("job {job} ")).replace("-n vision", "-n used");
    eventually("the commands of the page to name the trace", DEADLINE, || async {
        Ok(match typed(plane, plane.folder(), &commands).await {
            Ok(printed) => {
                let explained = printed.contains(&format!("trace: {trace}\n"));
                progress(explained && printed.matches(trace).count() > 1, printed)
            }
            Err(error) => Progress::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
}
