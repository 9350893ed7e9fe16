//! One run from its beginning to its check.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::Client;
use sluice_testkit::etcd::STORE_JSON;
use sluice_testkit::wait::{Progress, eventually};
use sluice_testkit::{ControlPlane, jobset};

use super::fleet::Fleet;
use super::load::Users;
use super::recorder::Recorder;
use super::report::{Report, Size};
use super::{faults, plan, pods, world};

/// How long no job may end, with faults over and jobs open, before those are lost.
const STANDSTILL: Duration = Duration::from_mins(4);
/// How long it may take until everything that was deleted is gone.
const CLEAN_UP: Duration = Duration::from_mins(5);
/// How long the status of Workloads may lag behind that of their jobs.
const REST: Duration = Duration::from_mins(5);

/// Plays a day. What it leaves for people (the recording, the logs) is in the folder.
///
/// # Errors
///
/// If the plane, the JobSet controller or a manager does not start, a job is refused, an answer or a leader is waited for too long, the recording
/// breaks off, or a file in `folder` cannot be written. A broken rule is no error: it is in the [`Report`].
pub async fn run(size: Size, folder: &Path) -> Result<Report> {
    let began = Instant::now();
    std::fs::create_dir_all(folder).context("making the folder of the recording")?;
    let plane = ControlPlane::builder().complete().api_server_flag(STORE_JSON).start().await?;
    let plane = Arc::new(plane);
    let mut jobsets = Some(jobset::Controller::start(&plane).await?);
    let recorder = Recorder::start(&plane, &folder.join("recording.jsonl"))?;
    let fleet = Fleet::start(Arc::clone(&plane)).await?;
    let client = plane.client().await?;
    world::make(&plane, &client, size.scale).await?;
    fleet.settle().await?;
    fleet.load_begins();

    let ttl = (size.jobs > 500).then_some(20);
    let nudging = client.clone();
    let users =
        Users { client, recorder: &recorder, window: size.window, ttl, attempts: AtomicUsize::default() };
    let (over, played) = (AtomicBool::new(false), Mutex::new(faults::Played::default()));
    let deadline = Instant::now() + size.at_most;
    let load = async {
        let all = (0..size.users).map(|user| {
            let (all, number) = (size.users as usize, user as usize);
            let jobs = size.jobs / all + usize::from(number < size.jobs % all);
            users.work(plan::acts(size.seed, user, jobs), deadline)
        });
        let mut made = futures::future::try_join_all(all).await?.concat();
        made.extend(users.stop_enough_partly().await?);
        println!("all jobs are made");
        over.store(true, Ordering::Relaxed);
        anyhow::Ok(made)
    };
    let troubles = faults::play(size, &plane, &fleet, recorder.faults(), &over, &played);
    let day = async { tokio::try_join!(load, troubles) };
    let end = async {
        let (made, ()) = day.await?;
        fleet.proxies.iter().for_each(sluice_testkit::FaultProxy::heal);
        let mut overlooked = wait_for_the_end(&recorder).await?;
        if overlooked > 0 {
            // What there is room for waits for Sluice, whatever others wait for.
            recorder.checker(super::checker::Checker::judge_waiting);
        }
        // What waits although nothing runs waits for Sluice.
        if overlooked > 0 && recorder.checker(|checker| checker.something_runs()) {
            recorder.checker(super::checker::Checker::judge_oversights);
            // One that is killed releases its port and its webhooks, and reads all objects again.
            jobsets.take();
            jobsets = Some(jobset::Controller::start(&plane).await?);
            overlooked -= wait_for_the_end(&recorder).await?.min(overlooked);
        }
        fleet.settle().await?;
        recorder.catch_up().await?;
        wait_for_rest(&recorder).await?;
        recorder.checker(super::checker::Checker::rest);
        users.delete_all().await?;
        wait_until_gone(&recorder).await?;
        recorder.catch_up().await?;
        recorder.checker(super::checker::Checker::nothing_left);
        let queues = delete_queues(&users.client).await?;
        recorder.checker(|checker| checker.still_there(&queues));
        anyhow::Ok((made, overlooked))
    };
    let made = tokio::select! {
        made = end => made,
        never = pods::keep_moving(nudging) => match never {},
    };
    drop(jobsets);
    keep_logs(&plane, &fleet, folder)?;
    let (account, violations) =
        recorder.checker(|checker| (checker.account(), checker.violations().to_vec()));
    let (made, overlooked) = match made {
        Ok((made, overlooked)) => (made.len(), overlooked),
        Err(error) => bail!("{error:#}; broken until then: {violations:#?}"),
    };
    let played = played.into_inner().unwrap_or_default();
    Ok(Report {
        size,
        account,
        violations,
        played,
        ended: fleet.ended(),
        panics: fleet.panics()?,
        memory: fleet.memory(),
        made,
        overlooked,
        took: began.elapsed(),
    })
}

/// Waits until every job has ended, as long as some do. Gives how many have not.
async fn wait_for_the_end(recorder: &Recorder) -> Result<usize> {
    let (mut last, mut since) = (usize::MAX, Instant::now());
    loop {
        recorder.check()?;
        let open = recorder.checker(|checker| checker.open().len());
        if open == 0 || since.elapsed() > STANDSTILL {
            return Ok(open);
        }
        if open != last {
            (last, since) = (open, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Quota is given back a moment after the job has ended, and so are the nodes of a JobSet that failed. What is still held then is judged by the
/// checker.
async fn wait_for_rest(recorder: &Recorder) -> Result<()> {
    let waited = eventually("no quota to be in use, and no pod to run", REST, || async {
        let (used, runs) = recorder.checker(|checker| (checker.in_use(), checker.some_pod_goes_on()));
        let rests = used.is_empty() && !runs;
        Ok(if rests { Progress::Done(()) } else { Progress::NotYet(used.join(", ")) })
    });
    // The checker names what is in use.
    let _ = waited.await;
    recorder.check()
}

async fn wait_until_gone(recorder: &Recorder) -> Result<()> {
    let waited = eventually("everything to be gone", CLEAN_UP, || async {
        let left = recorder.checker(|checker| checker.objects());
        Ok(if left == 0 { Progress::Done(()) } else { Progress::NotYet(left.to_string()) })
    });
    // The checker names what is left.
    let _ = waited.await;
    recorder.check()
}

/// Deletes all queues and what they use. Gives what is held nevertheless, and by which finalizers.
async fn delete_queues(client: &Client) -> Result<Vec<(String, String)>> {
    world::delete(client).await?;
    let waited = eventually("all queues to be gone", CLEAN_UP, || async {
        let left = world::left(client).await?;
        Ok(if left.is_empty() { Progress::Done(()) } else { Progress::NotYet(format!("{left:?}")) })
    });
    // The checker names what is left.
    let _ = waited.await;
    world::left(client).await
}

/// The logs of the managers and of the controllers of jobs, beside the recording.
fn keep_logs(plane: &ControlPlane, fleet: &Fleet, folder: &Path) -> Result<()> {
    for program in ["jobset-controller", "kube-controller-manager"] {
        let to = folder.join(format!("{program}.log"));
        std::fs::copy(plane.log_path(program), &to).with_context(|| format!("keeping {}", to.display()))?;
    }
    for (number, log) in fleet.logs().into_iter().enumerate() {
        let to: PathBuf = folder.join(format!("manager-{number}.log"));
        std::fs::copy(&log, &to).context("keeping a log")?;
    }
    let mut note = String::new();
    writeln!(
        note,
        "recording.jsonl has every change that etcd stored, what users were about to delete, and the faults; revisions are those of the findings."
    )?;
    std::fs::write(folder.join("README"), note).context("writing a note")
}
