//! The invariants at each moment of a history.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use sluice_testkit::workloads::holds;

use super::{Account, Kind, Moment};
use crate::amounts::{amount, of_pod};

#[derive(Default)]
struct Replay {
    /// The Workloads at this moment, by UID.
    workloads: BTreeMap<String, Value>,
    running: BTreeSet<String>,
    account: Account,
}

/// Goes through a history, and fails at the first moment at which
/// * a Job without an admitted Workload is unsuspended,
/// * a Workload is admitted while another one of the same Job holds quota,
/// * a Workload is admitted again without an eviction,
/// * a Workload loses its quota or admission while its Job runs and no other Workload of that Job covers it,
/// * the charge of a Workload's admission differs from the needs of its pods,
/// * the Workloads of a ClusterQueue hold more quota than it has.
pub(super) fn check(moments: &BTreeMap<u64, Moment>, quota: &BTreeMap<String, u64>) -> Result<Account> {
    let mut replay = Replay::default();
    for (at, moment) in moments {
        match moment.kind {
            Kind::Job | Kind::JobSet => replay.job(moment),
            Kind::Workload => replay.workload(moment, quota),
        }
        .with_context(|| format!("at version {at}, {}", name(&moment.object)))?;
    }
    Ok(replay.account)
}

fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

fn owner(workload: &Value) -> Option<&str> {
    let owners = workload["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}

fn holds_quota(workload: &Value) -> bool {
    holds(workload, "QuotaReserved") && !holds(workload, "Finished")
}

/// Its job may run.
fn covers(workload: &Value) -> bool {
    holds(workload, "Admitted") && holds_quota(workload)
}

/// The ClusterQueue whose quota a Workload holds, and the amount in thousandths of a processor: the needs of its pods by its own spec.
fn held(workload: &Value) -> Result<Option<(String, i128)>> {
    if !holds_quota(workload) {
        return Ok(None);
    }
    let admission = &workload["status"]["admission"];
    let queue = admission["clusterQueue"].as_str().context("quota is held without an admission")?;
    let mut cpu = 0;
    for set in admission["podSetAssignments"].as_array().into_iter().flatten() {
        let name = set["name"].as_str().unwrap_or("main");
        let mut asked = workload["spec"]["podSets"].as_array().into_iter().flatten();
        let asked = asked.find(|asked| asked["name"].as_str().unwrap_or("main") == name);
        let asked = asked.with_context(|| format!("there is no pod set {name}"))?;
        let each = of_pod(&asked["template"]["spec"])?.get("cpu").copied().unwrap_or_default();
        let needs = each * i128::from(set["count"].as_u64().unwrap_or(1));
        let charged = &set["resourceUsage"]["cpu"];
        let charged = if charged.is_null() { 0 } else { amount(charged)? };
        ensure!(
            charged == needs,
            "the pod set {name} is charged {charged} thousandths of cpu, and needs {needs}"
        );
        cpu += needs;
    }
    Ok(Some((queue.to_owned(), cpu)))
}

impl Replay {
    fn job(&mut self, moment: &Moment) -> Result<()> {
        let uid = moment.object["metadata"]["uid"].as_str().unwrap_or_default();
        let object = &moment.object;
        let over = ["Complete", "Completed", "Failed"].iter().any(|kind| holds(object, kind));
        let deleting = moment.deleted || object["metadata"]["deletionTimestamp"].is_string();
        let runs = !deleting && !over && object["spec"]["suspend"] != true;
        if !runs {
            self.running.remove(uid);
            return Ok(());
        }
        if !self.running.insert(uid.to_owned()) {
            return Ok(());
        }
        self.account.started += 1;
        let admitted = self.workloads.values().any(|workload| {
            owner(workload) == Some(uid) && holds(workload, "Admitted") && !holds(workload, "Evicted")
        });
        ensure!(admitted, "it runs, and has no admitted Workload");
        Ok(())
    }

    fn workload(&mut self, moment: &Moment, quota: &BTreeMap<String, u64>) -> Result<()> {
        let object = &moment.object;
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        if moment.deleted {
            let before = self.workloads.remove(uid).unwrap_or_default();
            return self.is_not_freed(&before);
        }
        let before = self.workloads.insert(uid.to_owned(), object.clone()).unwrap_or_default();
        if holds(object, "Evicted") && !holds(&before, "Evicted") {
            self.account.evictions += 1;
        }
        if holds(object, "Admitted") && !holds(&before, "Admitted") {
            self.account.admissions += 1;
            ensure!(!holds(object, "Finished"), "it is admitted after it finished");
            let job = owner(object);
            let others = self.workloads.iter().filter(|(other, workload)| {
                *other != uid && job.is_some() && owner(workload) == job && holds_quota(workload)
            });
            let others: Vec<_> = others.map(|(_, workload)| name(workload)).collect();
            ensure!(others.is_empty(), "its job is admitted twice: {others:?} holds quota, too");
        }
        let admission = |workload: &Value| workload["status"]["admission"].clone();
        if holds(object, "Admitted") && holds(&before, "Admitted") && admission(object) != admission(&before)
        {
            bail!("it is admitted again without having been evicted");
        }
        self.is_not_freed(&before)?;
        let mut used = BTreeMap::<String, i128>::new();
        for workload in self.workloads.values() {
            if let Some((queue, cpu)) = held(workload)? {
                *used.entry(queue).or_default() += cpu;
            }
        }
        for (queue, cpu) in used {
            let most = quota.get(&queue).with_context(|| format!("what {queue} has is not known"))?;
            let most = i128::from(*most) * 1_000;
            ensure!(cpu <= most, "{queue} gives {cpu} thousandths of a processor and has {most}");
        }
        Ok(())
    }

    /// A running job that a Workload covered before is still covered.
    fn is_not_freed(&self, before: &Value) -> Result<()> {
        let Some(job) = owner(before).filter(|job| covers(before) && self.running.contains(*job)) else {
            return Ok(());
        };
        let covered =
            self.workloads.values().any(|workload| owner(workload) == Some(job) && covers(workload));
        ensure!(covered, "its quota is free, and its job runs");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(suspend: bool) -> Moment {
        let object = json!({"metadata": {"uid": "j", "name": "j"}, "spec": {"suspend": suspend}});
        Moment { kind: Kind::Job, deleted: false, object }
    }

    fn workload(uid: &str, conditions: &[&str], cpu: u64) -> Moment {
        let conditions: Vec<_> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let container = json!({"resources": {"requests": {"cpu": "1"}}});
        let object = json!({
            "metadata": {"uid": uid, "name": uid, "ownerReferences": [{"uid": "j", "controller": true}]},
            "status": {
                "conditions": conditions,
                "admission": {
                    "clusterQueue": "cq",
                    "podSetAssignments": [{"count": cpu, "resourceUsage": {"cpu": cpu.to_string()}}],
                },
            },
            "spec": {"podSets": [{"count": cpu, "template": {"spec": {"containers": [container]}}}]},
        });
        Moment { kind: Kind::Workload, deleted: false, object }
    }

    fn outcome(moments: Vec<Moment>) -> Result<Account, String> {
        let quota = BTreeMap::from([("cq".to_owned(), 2)]);
        check(&(1_u64..).zip(moments).collect(), &quota).map_err(|error| format!("{error:#}"))
    }

    const ADMITTED: &[&str] = &["QuotaReserved", "Admitted"];

    #[test]
    fn a_quiet_life_is_accounted_for() {
        let evicted = &["QuotaReserved", "Admitted", "Evicted"];
        let account = outcome(vec![
            job(true),
            workload("w", &[], 0),
            workload("w", ADMITTED, 2),
            job(false),
            workload("w", evicted, 2),
            job(true),
            workload("w", &["Evicted"], 0),
            workload("w", ADMITTED, 1),
            job(false),
        ]);
        assert_eq!(account, Ok(Account { started: 2, admissions: 2, evictions: 1 }));
    }

    #[test]
    fn what_must_not_happen_is_noticed() {
        let early = outcome(vec![workload("w", &["QuotaReserved"], 1), job(false)]).unwrap_err();
        assert!(early.contains("no admitted Workload"), "{early}");
        let twice = outcome(vec![workload("w", ADMITTED, 1), workload("x", ADMITTED, 1)]).unwrap_err();
        assert!(twice.contains("admitted twice"), "{twice}");
        let much = outcome(vec![workload("w", ADMITTED, 3)]).unwrap_err();
        assert!(much.contains("gives 3000 thousandths of a processor and has 2000"), "{much}");
        let again = outcome(vec![workload("w", ADMITTED, 1), workload("w", ADMITTED, 2)]).unwrap_err();
        assert!(again.contains("again"), "{again}");
    }

    #[test]
    fn quota_that_is_free_while_the_job_runs_is_noticed() {
        let running = || vec![job(true), workload("w", ADMITTED, 1), job(false)];
        let then = |moment: Moment| outcome(running().into_iter().chain([moment]).collect());
        let text = "its quota is free, and its job runs";
        let deleted = || Moment { deleted: true, ..workload("w", ADMITTED, 1) };
        for freed in [
            workload("w", &[], 0),
            workload("w", &["QuotaReserved"], 1),
            workload("w", &["QuotaReserved", "Admitted", "Finished"], 1),
            deleted(),
        ] {
            let broken = then(freed).unwrap_err();
            assert!(broken.contains(text), "{broken}");
        }
        let after = |stop: Moment| outcome(running().into_iter().chain([stop, deleted()]).collect());
        let mut ended = job(false);
        ended.object["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
        let gone = Moment { deleted: true, ..job(false) };
        for stop in [job(true), ended, gone] {
            assert!(after(stop).is_ok());
        }
    }

    #[test]
    fn a_charge_that_is_not_what_the_pods_need_is_noticed() {
        let mut less = workload("w", ADMITTED, 2);
        less.object["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"] = json!("1");
        let less = outcome(vec![less]).unwrap_err();
        assert!(less.contains("is charged 1000 thousandths of cpu, and needs 2000"), "{less}");
        let mut elsewhere = workload("w", ADMITTED, 1);
        elsewhere.object["status"]["admission"]["clusterQueue"] = json!("other");
        let elsewhere = outcome(vec![elsewhere]).unwrap_err();
        assert!(elsewhere.contains("what other has is not known"), "{elsewhere}");
    }
}
