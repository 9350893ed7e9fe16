//! What would let a job start. Each remedy is tried in the engine before it is shown.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use json_patch::merge;
use serde::Serialize;
use serde_json::{Value, json};
use sluice_core::{Detail, Refusal, Unadmitted};
use sluice_engine::{Kind, ObjectRef};
use sluice_selector::Operator;

use super::advice::Advice;
use super::finding::{Code, Finding, Help};
use super::patch::{Patch, difference, patch_of};
use super::raised;
use super::target::Target;
use super::too_large::{Largest, says_a_size};
use super::topology::TopologyFit;
use super::wishes;
use super::{ExplainError, Forecast, MOST_LISTED, Question};
use crate::duration::show;
use crate::json::text;
use crate::nodes::{requests, tolerated};
use crate::record::HoldEnd;
use crate::simulation::Simulation;

/// The most remedies that are shown, of those from the engine and of those from findings.
const MOST: usize = 3;
/// "Now" leaves time for the pods of victims to end.
pub(super) const NOW: SignedDuration = SignedDuration::from_secs(90);

/// Something that lets a job start.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Remedy {
    /// In words.
    pub text: String,
    /// Its effect.
    pub effect: Effect,
    /// A command that carries it out, if there is one.
    pub command: Option<String>,
    /// The merge patches that were tried, each with its object. Empty if only time must pass.
    pub patches: Vec<Patch>,
    /// The jobs that are preempted by it.
    pub preempts: Vec<String>,
    /// Which advice it is; several if they help only together.
    #[serde(skip)]
    pub advice: Vec<Advice>,
}

/// The effect of a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// Tried in the engine: the job starts.
    Starts,
    /// Tried in the engine: the job gets quota. Its admission checks follow; they are not tried.
    GetsQuota,
    /// Tried in the engine: it removes one obstacle, but the job does not start by it alone.
    NotEnough,
    /// Not tried, because it depends on a choice of people or on other programs.
    Untried,
    /// Not tried, because time was over.
    TimeOver,
}

/// How a remedy begins with which the job starts.
const STARTS: &str = "starts now";
/// The word for a remedy with which the job gets quota, if admission checks follow.
const GETS_QUOTA: &str = "gets quota now";

impl Remedy {
    /// What was tried, if the job starts with it, or if there was no time to try it.
    pub(super) fn of(advice: Advice, text: String, patches: Vec<Patch>, tried: Tried) -> Option<Self> {
        let (text, effect, preempts) = match tried {
            Tried::Starts(preempts, _) => (text, Effect::Starts, preempts),
            Tried::Waits => return None,
            Tried::NotInTime => {
                let without = text.strip_prefix(STARTS).unwrap_or(&text);
                let without = without.trim_start_matches(": ").trim_start().to_owned();
                (without, Effect::TimeOver, Vec::new())
            }
        };
        Some(Self { text, effect, command: None, patches, preempts, advice: vec![advice] })
    }

    /// The same in a queue with admission checks: their controllers do not run here, so only the quota is certain.
    fn before_checks(mut self) -> Self {
        if self.effect == Effect::Starts {
            self.effect = Effect::GetsQuota;
            if let Some(rest) = self.text.strip_prefix(STARTS) {
                self.text = format!("{GETS_QUOTA}{rest} (its admission checks follow)");
            }
        }
        self
    }
}

impl Help {
    /// As a remedy, by what came of it where it was tried.
    fn remedy(&self, tried: Option<Tried>) -> Remedy {
        let (effect, text) = match &tried {
            Some(Tried::Starts(..)) => (Effect::Starts, format!("{STARTS}: {}", self.text)),
            Some(Tried::Waits) => {
                (Effect::NotEnough, format!("necessary, but not sufficient: {}", self.text))
            }
            Some(Tried::NotInTime) => (Effect::TimeOver, self.text.clone()),
            None => (Effect::Untried, self.text.clone()),
        };
        let preempts = match tried {
            Some(Tried::Starts(preempts, _)) => preempts,
            _ => Vec::new(),
        };
        let (command, patches) = (self.command.clone(), self.patches.clone());
        Remedy { text, effect, command, patches, preempts, advice: vec![self.advice] }
    }

    /// As a remedy of a job that starts without it: what it changes is not shown, since it is not what lets the job start.
    fn needless(&self) -> Remedy {
        Remedy { command: None, patches: Vec::new(), ..self.untried() }
    }

    /// As a remedy that was not tried.
    pub(super) fn untried(&self) -> Remedy {
        self.remedy(None)
    }
}

/// The result of trying patches.
pub(super) enum Tried {
    /// The job starts this many milliseconds later, and these jobs are preempted for it.
    Starts(Vec<String>, i64),
    /// The job does not start at once.
    Waits,
    /// Time was over before that was known.
    NotInTime,
}

impl Question<'_> {
    /// The remedies of the findings, and up to three tried remedies for the engine's refusals.
    pub(super) fn remedies(
        &self,
        simulation: &Simulation,
        target: &Target,
        decision: Option<&Unadmitted>,
        forecast: Option<&Forecast>,
        (findings, fits): (&[Finding], &[TopologyFit]),
    ) -> Result<Vec<Remedy>, ExplainError> {
        let job = &target.job;
        let helps = findings.iter().flat_map(|finding| finding.helps.clone());
        // How large all of a job may be at most is said where no trial says more.
        let (bounds, helps): (Vec<Help>, Vec<Help>) =
            helps.partition(|help| help.advice == Advice::SmallerInAll);
        // With a change it would start, too: that shows nothing.
        let starts_anyway = matches!(self.starts_with(simulation, job, &[])?, Tried::Starts(..));
        let mut found = if starts_anyway {
            let needless =
                |help: &Help| if help.patches.is_empty() { help.untried() } else { help.needless() };
            helps.iter().map(needless).collect()
        } else {
            self.helping(simulation, job, &helps)?
        };
        let ready = found.len();
        let refusals = decision.map(refusals_of).unwrap_or_default();
        let mut sizes = Vec::new();
        if !starts_anyway {
            found.extend(self.for_refusals(simulation, target, (&refusals, fits), &mut sizes)?);
        }
        if let Some(after) =
            forecast.and_then(|f| Some((f.after.clone()?, f.p50?))).filter(|_| found.len() < ready + MOST)
        {
            let (who, seconds) = after;
            let text = format!("starts when {who} finishes, in about {}", show(seconds.saturating_mul(1000)));
            let (effect, advice) = (Effect::Starts, vec![Advice::AwaitJob]);
            let (patches, preempts) = (Vec::new(), Vec::new());
            found.push(Remedy { text, effect, command: None, patches, preempts, advice });
        }
        // More quota of another flavor is the same advice again, and comes after everything else.
        let others = raised::short_flavors(&refusals).into_iter().skip(1).filter(|_| !starts_anyway);
        for flavor in others {
            if found.len() < ready + MOST {
                let more = self.more_quota(simulation, target, (flavor, &refusals), &mut sizes)?;
                // What was advised for a flavor before may have been more of this one.
                let is_new = |more: &Remedy| found.iter().all(|known| known.patches != more.patches);
                let more = more.filter(is_new);
                found.extend(more);
            }
        }
        let is_unsized = |finding: &Finding| finding.code == Code::TooLarge && !says_a_size(finding);
        if findings.iter().any(is_unsized) {
            let helps = Largest::of_all(sizes).map_or(bounds, |size| size.helps);
            found.extend(helps.iter().map(Help::untried));
        }
        let queue = simulation.record().job(job).and_then(|record| record.cluster_queue.clone());
        if queue.is_some_and(|queue| self.unknown_checks(simulation, &queue).is_some()) {
            found = found.into_iter().map(Remedy::before_checks).collect();
        }
        found.sort_by_key(|remedy| remedy.effect);
        Ok(found)
    }

    /// Up to [`MOST`] remedies for the engine's refusals, the smallest change first. Adds how large a job may be that is too large.
    fn for_refusals(
        &self,
        simulation: &Simulation,
        target: &Target,
        (refusals, fits): (&[&Refusal], &[TopologyFit]),
        sizes: &mut Vec<Largest>,
    ) -> Result<Vec<Remedy>, ExplainError> {
        let (job, objects) = (&target.job, &target.objects);
        let mut found: Vec<_> = self.fewer_pods(simulation, job)?.into_iter().collect();
        let laxer = wishes::laxer(simulation, objects, fits);
        let laxer = laxer.into_iter().map(|(text, patches)| (format!("{STARTS}: {text}"), patches));
        let allowed = flavors_allowed(simulation, objects, refusals).into_iter();
        let meeting = wishes::meeting(simulation, objects, refusals).into_iter();
        let candidates = laxer.map(|one| (Advice::LaxerTopology, one));
        let candidates = candidates.chain(allowed.map(|one| (Advice::AllowFlavor, one)));
        for (advice, (text, patches)) in candidates.chain(meeting.map(|one| (Advice::OtherTopology, one))) {
            if found.len() >= MOST {
                return Ok(found);
            }
            let tried = self.starts_with(simulation, job, &patches)?;
            found.extend(Remedy::of(advice, text, patches, tried));
        }
        if let Some(flavor) = raised::short_flavors(refusals).first().filter(|_| found.len() < MOST) {
            found.extend(self.more_quota(simulation, target, (flavor, refusals), sizes)?);
        }
        if found.len() < MOST {
            found.extend(self.higher_priority(simulation, target)?);
        }
        Ok(found)
    }

    /// The remedies of each finding: patches are tried alone, and together if none is enough.
    fn helping(
        &self,
        simulation: &Simulation,
        job: &ObjectRef,
        helps: &[Help],
    ) -> Result<Vec<Remedy>, ExplainError> {
        let mut found = Vec::new();
        let mut alone = false;
        for help in helps {
            let tried = if help.patches.is_empty() {
                None
            } else {
                Some(self.starts_with(simulation, job, &help.patches)?)
            };
            alone |= matches!(tried, Some(Tried::Starts(..) | Tried::NotInTime));
            found.push(help.remedy(tried));
        }
        let ready_made: Vec<&Help> = helps.iter().filter(|help| !help.patches.is_empty()).collect();
        if alone || ready_made.len() < 2 || ready_made.len() != helps.len() {
            return Ok(found);
        }
        let patches: Vec<Patch> = ready_made.iter().flat_map(|help| help.patches.clone()).collect();
        let Tried::Starts(preempts, _) = self.starts_with(simulation, job, &patches)? else {
            return Ok(found);
        };
        let words: Vec<&str> = ready_made.iter().map(|help| help.text.as_str()).collect();
        let commands: Option<Vec<&str>> = ready_made.iter().map(|help| help.command.as_deref()).collect();
        let text = format!("{STARTS}: {}", words.join(", and "));
        let command = commands.map(|all| all.join(" && "));
        let advice = ready_made.iter().map(|help| help.advice).collect();
        Ok(vec![Remedy { text, effect: Effect::Starts, command, patches, preempts, advice }])
    }

    /// Whether the job starts within [`NOW`] with these patches, and which Workloads it preempts.
    pub(super) fn starts_with(
        &self,
        present: &Simulation,
        job: &ObjectRef,
        patches: &[Patch],
    ) -> Result<Tried, ExplainError> {
        Ok(self.attempt(present, job, patches)?.0)
    }

    /// The same, with the virtual cluster as it is then; without it if nothing was played.
    pub(super) fn attempt(
        &self,
        present: &Simulation,
        job: &ObjectRef,
        patches: &[Patch],
    ) -> Result<(Tried, Option<Simulation>), ExplainError> {
        if self.patience.is_over() {
            return Ok((Tried::NotInTime, None));
        }
        // A short job may have ended by then.
        let Some(index) = present.record().index(job) else { return Ok((Tried::Waits, None)) };
        let Ok(mut simulation) = self.patched(present, patches) else { return Ok((Tried::Waits, None)) };
        let before: BTreeMap<_, _> =
            simulation.record().jobs.iter().map(|j| (j.key(), j.preempted)).collect();
        simulation.advance_while(NOW, || !self.patience.is_over())?;
        let record = simulation.record();
        let mut lasting =
            record.jobs[index].holds.iter().filter(|h| h.to.is_none() || h.end == HoldEnd::Finished);
        let Some(started) = lasting.find_map(|hold| hold.admitted) else {
            let tried = if self.patience.is_over() { Tried::NotInTime } else { Tried::Waits };
            return Ok((tried, Some(simulation)));
        };
        let wait = started - record.millis(present.now());
        let victims = record.jobs.iter().filter(|j| before.get(&j.key()).is_some_and(|n| j.preempted > *n));
        let tried = Tried::Starts(victims.map(|j| self.shown(&j.namespace, &j.name)).collect(), wait);
        Ok((tried, Some(simulation)))
    }

    /// The largest number of pods with which a batch Job starts.
    fn fewer_pods(&self, simulation: &Simulation, job: &ObjectRef) -> Result<Option<Remedy>, ExplainError> {
        let (Some(value), Kind::Job(kind)) = (simulation.world.get(job), job.kind) else { return Ok(None) };
        let parallel = sluice_jobs::pod_groups(kind, value).first().map_or(0, sluice_jobs::PodGroup::count);
        let gates = self.options.configuration.gates;
        if parallel < 2 || sluice_jobs::with_pods(kind, value, 1, gates).is_none() {
            return Ok(None);
        }
        let merge = |pods: i32| sluice_jobs::with_pods(kind, value, pods, gates).unwrap_or_default();
        let patch = |pods: i32| patch_of(job, merge(pods));
        let (mut works, mut fails) = (0, parallel);
        while works + 1 < fails {
            let middle = i32::midpoint(works, fails);
            match self.starts_with(simulation, job, &[patch(middle)])? {
                Tried::Starts(..) => works = middle,
                Tried::Waits => fails = middle,
                Tried::NotInTime => break,
            }
        }
        if works == 0 && self.patience.is_over() {
            let (text, patches) = ("fewer pods at a time (parallelism)".to_owned(), Vec::new());
            return Ok(Remedy::of(Advice::FewerPods, text, patches, Tried::NotInTime));
        }
        if works == 0 {
            return Ok(None);
        }
        let text = format!("{STARTS} with parallelism {works}{}", beside_parallelism(&merge(works)));
        let patches = vec![patch(works)];
        let tried = self.starts_with(simulation, job, &patches)?;
        Ok(Remedy::of(Advice::FewerPods, text, patches, tried))
    }
}

/// What a change of parallelism changes besides, in words.
fn beside_parallelism(merge: &Value) -> String {
    let completions = merge["spec"]["completions"].as_i64().map(|pods| format!(", completions {pods}"));
    let annotations = merge["metadata"]["annotations"].as_object();
    let gone = annotations.into_iter().flatten().map(|(key, _)| format!(", without the annotation {key}"));
    completions.into_iter().chain(gone).collect()
}

/// Why flavors are refused, over all pod sets of a decision.
pub(super) fn refusals_of(decision: &Unadmitted) -> Vec<&Refusal> {
    match &decision.detail {
        Detail::Flavors { pod_sets, .. } | Detail::PreemptionLoop { pod_sets, .. } => {
            pod_sets.iter().flat_map(|set| &set.refusals).collect()
        }
        _ => Vec::new(),
    }
}

/// Flavors that the pods themselves keep out: with tolerations for the taints that keep them off its nodes, without the node selectors that its labels
/// contradict.
fn flavors_allowed(
    simulation: &Simulation,
    objects: &[ObjectRef],
    refusals: &[&Refusal],
) -> Vec<(String, Vec<Patch>)> {
    let mut flavors: Vec<&str> = Vec::new();
    for refusal in refusals {
        if let Refusal::UntoleratedTaint { flavor, .. } | Refusal::NodeAffinity { flavor } = refusal
            && !flavors.contains(&&**flavor)
        {
            flavors.push(flavor);
        }
    }
    flavors.into_iter().filter_map(|flavor| flavor_allowed(simulation, objects, flavor)).collect()
}

fn flavor_allowed(
    simulation: &Simulation,
    objects: &[ObjectRef],
    flavor: &str,
) -> Option<(String, Vec<Patch>)> {
    let object = simulation.world.get(&ObjectRef::cluster(Kind::ResourceFlavor, flavor))?;
    let list = |field: &str| object["spec"][field].as_array().map(Vec::as_slice).unwrap_or_default();
    // Pods get the tolerations of the flavor when they start.
    let (taints, given) = (list("nodeTaints"), list("tolerations"));
    let labels = &object["spec"]["nodeLabels"];
    let mut words = Vec::new();
    let mut allow = |pod: &mut Value| {
        let mut tolerations = pod["tolerations"].as_array().cloned().unwrap_or_default();
        let mut change = json!({});
        let requests = requests(pod);
        for taint in taints {
            if tolerated(tolerations.iter().chain(given), &requests, taint) {
                continue;
            }
            let key = text(&taint["key"]);
            words.push(format!("tolerate the taint {key}"));
            tolerations.push(json!({"key": key, "operator": "Exists"}));
            change["tolerations"] = json!(tolerations);
        }
        for (key, value) in pod["nodeSelector"].as_object().into_iter().flatten() {
            if labels.get(key).is_some_and(|label| label != value) {
                words.push(format!("without the node selector {key}={}", text(value)));
                change["nodeSelector"][key] = Value::Null;
            }
        }
        merge(pod, &change);
        words.extend(without_affinity(pod, labels));
    };
    let mut jobs = Vec::new();
    for job in objects {
        let Kind::Job(kind) = job.kind else { return None };
        let value = simulation.world.get(job)?;
        let mut changed = value.clone();
        for group in sluice_jobs::pod_groups(kind, value) {
            if let Some(template) = changed.pointer_mut(&group.pointer) {
                allow(&mut template["spec"]);
            }
        }
        jobs.push(patch_of(job, difference(value, &changed)));
    }
    words.sort();
    words.dedup();
    if words.is_empty() {
        return None;
    }
    let text = format!("starts now if flavor {flavor} is allowed: {}", words.join(", "));
    Some((text, jobs))
}

/// Takes out of the required node affinity of a pod what the labels contradict; each in words.
fn without_affinity(pod: &mut Value, labels: &Value) -> Vec<String> {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let mut words = Vec::new();
    let Some(affinity) = pod.pointer_mut("/affinity/nodeAffinity") else { return words };
    let terms = affinity.get_mut(REQUIRED).and_then(|required| required.get_mut("nodeSelectorTerms"));
    let Some(terms) = terms.and_then(Value::as_array_mut) else { return words };
    for wishes in terms.iter_mut().filter_map(|term| term.get_mut("matchExpressions")?.as_array_mut()) {
        wishes.retain(|wish| {
            let (key, operator) = (text(&wish["key"]), text(&wish["operator"]));
            let values = || wish["values"].as_array().into_iter().flatten().map(text);
            let Some(label) = labels[key].as_str() else { return true };
            let met = Operator::of_nodes(operator).is_some_and(|o| o.holds(Some(label), values()));
            if !met {
                let values = values().take(MOST_LISTED).collect::<Vec<_>>().join(", ");
                words.push(format!("without the node affinity {key} {operator} [{values}]"));
            }
            met
        });
    }
    // A term that asks for nothing would match no node.
    let asks = |term: &Value| {
        ["matchExpressions", "matchFields"]
            .iter()
            .any(|list| term[*list].as_array().is_some_and(|l| !l.is_empty()))
    };
    if !words.is_empty()
        && !terms.iter().all(asks)
        && let Some(affinity) = affinity.as_object_mut()
    {
        affinity.remove(REQUIRED);
    }
    words
}
