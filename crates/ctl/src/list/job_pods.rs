//! Which pods a job has: by the label of its controller, or by each pod's own metadata.

use std::collections::BTreeSet;

use anyhow::bail;
use kube::Client;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_api::labels;
use sluice_sim::resource::job_kind;

use super::resource_type;
use crate::made::{self, Made};

/// The label that ties a pod to one ReplicaSet of its Deployment.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// A job as its user names it: `TYPE[.GROUP]/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The type in lower case, singular if known.
    word: String,
    /// The group, where it was given or is known.
    group: Option<String>,
    /// The kind, if it is built in.
    kind: Option<JobKind>,
    /// The name.
    pub name: String,
    /// The jobs that it made, of an object of a kind that is none of jobs.
    made: Vec<Made>,
}

/// Which of the pods that the selectors select belong to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// All with this label selector.
    Labelled(String),
    /// The pods that name the job in their metadata.
    Said,
}

impl Named {
    /// Reads what a user wrote.
    ///
    /// # Errors
    /// If it has another form, or the group is not the kind's.
    pub fn parse(job: &str) -> anyhow::Result<Self> {
        let parts = job.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty());
        let Some((kind, name)) = parts.filter(|(_, name)| !name.contains('/')) else {
            bail!("expected TYPE[.GROUP]/NAME, for example job/train, found {job}");
        };
        crate::cluster::object("", name)?;
        let lower = kind.to_ascii_lowercase();
        let (word, group) =
            lower.split_once('.').map_or((&*lower, None), |(word, group)| (word, Some(group)));
        let known = job_kind(&lower);
        Ok(Self {
            word: known.map_or_else(|| word.to_owned(), |kind| kind.kind().to_ascii_lowercase()),
            group: known.map(|kind| kind.group().to_owned()).or_else(|| group.map(str::to_owned)),
            kind: known,
            name: name.to_owned(),
            made: Vec::new(),
        })
    }

    /// Asks the cluster about an object that is not a job: for the name of its kind, and for the jobs that it made in a namespace, or in all of them.
    ///
    /// # Errors
    /// If the cluster cannot be reached, or has no such kind.
    pub async fn with_made(mut self, client: &Client, namespace: Option<&str>) -> anyhow::Result<Self> {
        if self.kind.is_none() {
            if let Some(kind) = resource_type::kind_of(client, &self.word, self.group.as_deref()).await? {
                self.word = kind.to_ascii_lowercase();
            }
            self.made = made::in_cluster(client, namespace, &self).await?;
        }
        Ok(self)
    }

    /// How its pods are found.
    pub fn choice(&self) -> Choice {
        match self.kind.and_then(JobKind::label_of_pods) {
            Some(label) => Choice::Labelled(format!("{label}={}", self.name)),
            None => Choice::Said,
        }
    }

    /// Whether an owner reference names it.
    fn is_owner(&self, owner: &Value) -> bool {
        let kind = text(&owner["kind"]).to_ascii_lowercase();
        // For a kind that is not built in, the plural is accepted, too.
        let plural = self.kind.is_none() && self.word == format!("{kind}s");
        if !(kind == self.word || plural) || text(&owner["name"]) != self.name {
            return false;
        }
        let version = text(&owner["apiVersion"]);
        let own = version.split_once('/').map_or("", |(group, _)| group);
        let fits = |group: &String| {
            group == own || group.split_once('.').is_some_and(|(_, rest)| !rest.is_empty() && rest == own)
        };
        self.group.as_ref().is_none_or(fits)
    }

    /// Whether it is the controller of an object.
    pub fn controls(&self, object: &Value) -> bool {
        owners(object).any(|owner| owner["controller"] == true && self.is_owner(owner))
    }

    /// Whether an object has it for an owner, or a job that it made: a Workload, or a pod. The Workloads of a kind each of whose pods is a job are owned
    /// by the pods.
    pub fn owns(&self, object: &Value) -> bool {
        let is_made = |owner: &Value| {
            let (version, kind) = (text(&owner["apiVersion"]), text(&owner["kind"]));
            let kind = JobKind::from_owner(&version, &kind);
            let is = |made: &Made| {
                Some(made.kind) == kind
                    && made.name == text(&owner["name"])
                    && made.namespace == text(&object["metadata"]["namespace"])
            };
            self.made.iter().any(is)
        };
        owners(object).any(|owner| self.is_owner(owner) || self.has_pod(owner, object) || is_made(owner))
    }

    /// Whether the owner of a Workload is one of the job's pods, each of which is a job.
    fn has_pod(&self, owner: &Value, workload: &Value) -> bool {
        let name = text(&owner["name"]);
        let is_own = self.kind.is_some_and(|kind| kind.names_pod(&self.name, &name));
        let mut sets = workload["spec"]["podSets"].as_array().into_iter().flatten();
        let hash = sets.find_map(|set| set["template"]["metadata"]["labels"][TEMPLATE_HASH].as_str());
        let owner_kind = JobKind::from_owner(&text(&owner["apiVersion"]), &text(&owner["kind"]));
        is_own
            && owner_kind.is_some_and(|kind| kind.integration().of_pods)
            && hash.is_none_or(|hash| name.starts_with(&format!("{}-{hash}-", self.name)))
    }

    /// Whether a pod belongs to the job, whose Workloads (namespace and name) are these; `pod` has its metadata.
    pub fn has(&self, pod: &Value, workloads: &BTreeSet<(String, String)>) -> bool {
        let metadata = &pod["metadata"];
        let workload = text(&metadata["annotations"][labels::WORKLOAD]);
        if !workload.is_empty() && workloads.contains(&(text(&metadata["namespace"]), workload)) {
            return true;
        }
        let facts = self.kind.map(JobKind::integration);
        if facts.is_some_and(|facts| facts.of_pods) {
            let group = labels::POD_GROUP_NAME;
            let names = [&metadata["name"], &metadata["labels"][group], &metadata["annotations"][group]];
            return names.into_iter().any(|name| *name == self.name);
        }
        if facts.is_some_and(|facts| facts.pods_are_jobs) {
            // A ReplicaSet is between.
            let set = format!("{}-{}", self.name, text(&metadata["labels"][TEMPLATE_HASH]));
            return owners(pod).any(|owner| owner["kind"] == "ReplicaSet" && text(&owner["name"]) == set);
        }
        self.owns(pod)
    }
}

/// A text of a document, empty where there is none.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn named(job: &str) -> Named {
        Named::parse(job).unwrap()
    }

    #[test]
    fn a_job_goes_by_every_name_that_kubectl_takes() {
        for kind in JobKind::ALL {
            let (word, plural, group) = (kind.kind(), kind.plural(), kind.group());
            let full = |word: &str| [word, group].join(".").trim_end_matches('.').to_owned();
            let short =
                kind.integration().short_names.iter().flat_map(|short| [(*short).to_owned(), full(short)]);
            let words = [word.to_owned(), plural.to_owned(), full(word), full(plural)];
            for word in words.into_iter().chain(short) {
                assert_eq!(named(&format!("{word}/a")).kind, Some(kind), "{word}");
            }
            if !group.is_empty() {
                let versioned = format!("{plural}.{}.{group}/a", kind.version());
                assert_eq!(named(&versioned), named(&format!("{word}/a")), "{versioned}");
                assert_eq!(named(&format!("{word}.other.example/a")).kind, None);
            }
        }
        for wrong in ["job", "job/", "/a", "job/a/b", ""] {
            assert!(Named::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_pods_of_a_job_carry_its_name() {
        for (job, selector) in [
            ("Jobs/train", "batch.kubernetes.io/job-name=train"),
            ("jobset/train", "jobset.sigs.k8s.io/jobset-name=train"),
            ("trainjob/train", "jobset.sigs.k8s.io/jobset-name=train"),
            ("pytorchjob/train", "training.kubeflow.org/job-name=train"),
            ("mpijobs.kubeflow.org/train", "training.kubeflow.org/job-name=train"),
            ("raycluster/train", "ray.io/cluster=train"),
            ("leaderworkerset/train", "leaderworkerset.sigs.k8s.io/name=train"),
            ("sparkapplication/train", "sparkoperator.k8s.io/app-name=train"),
            ("appwrapper/train", "workload.codeflare.dev/appwrapper=train"),
        ] {
            assert_eq!(named(job).choice(), Choice::Labelled(selector.to_owned()), "{job}");
        }
    }

    #[test]
    fn the_workloads_of_a_deployment_are_those_of_its_pods() {
        let of = |pod: &str| json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod}]}});
        assert!(named("deployment/web").owns(&of("web-5d8c-x2k9p")));
        // Pods of the Deployment `web-a`, of no owner, and of a StatefulSet.
        for other in ["web-a-5d8c-x2k9p", "web", "web-0", "web-5d8c-", "webs-5d8c-x2k9p"] {
            assert!(!named("deployment/web").owns(&of(other)), "{other}");
        }
        assert!(named("deployment/web-a").owns(&of("web-a-5d8c-x2k9p")));
        assert!(!named("statefulset/web").owns(&of("web-5d8c-x2k9p")));
        let mut marked = of("web-5d8c-x2k9p");
        marked["spec"]["podSets"] = json!([{"template": {"metadata": {"labels": {TEMPLATE_HASH: "5d8c"}}}}]);
        assert!(named("deployment/web").owns(&marked));
        marked["spec"]["podSets"][0]["template"]["metadata"]["labels"][TEMPLATE_HASH] = json!("other");
        assert!(!named("deployment/web").owns(&marked));
    }

    #[test]
    fn a_pod_of_any_other_kind_says_whose_it_is() {
        let none = BTreeSet::new();
        let owned = |api: &str, kind: &str, name: &str| {
            json!({"metadata": {"namespace": "ns", "name": "p", "labels": {TEMPLATE_HASH: "5d"},
                "ownerReferences": [{"apiVersion": api, "kind": kind, "name": name}]}})
        };
        let set = owned("apps/v1", "StatefulSet", "db");
        assert!(named("statefulset/db").has(&set, &none) && !named("statefulset/d").has(&set, &none));
        let web = owned("apps/v1", "ReplicaSet", "web-5d");
        assert!(named("deployment/web").has(&web, &none));
        // The ReplicaSet of a Deployment `web-a`, whose name begins in the same way.
        assert!(!named("deployment/web").has(&owned("apps/v1", "ReplicaSet", "web-a-5d"), &none));
        // A kind that no integration knows.
        let flow = owned("argoproj.io/v1alpha1", "Workflow", "a");
        for job in ["workflow/a", "Workflows/a", "workflows.argoproj.io/a", "workflow.v1alpha1.argoproj.io/a"]
        {
            assert!(named(job).has(&flow, &none), "{job}");
        }
        for job in ["workflow/b", "workflow.example.com/a", "flow/a"] {
            assert!(!named(job).has(&flow, &none), "{job}");
        }
        // A job whose pods belong to objects that its controller makes.
        let admitted = json!({"metadata": {"namespace": "ns", "annotations": {labels::WORKLOAD: "w"}}});
        let workloads = |namespace: &str| BTreeSet::from([(namespace.to_owned(), "w".to_owned())]);
        assert!(named("rayjob/a").has(&admitted, &workloads("ns")));
        assert!(
            !named("rayjob/a").has(&admitted, &workloads("other"))
                && !named("rayjob/a").has(&admitted, &none)
        );
        // Pods by their own names, and by those of their groups.
        let pod = |key: &str| json!({"metadata": {"name": "p", key: {labels::POD_GROUP_NAME: "g"}}});
        for job in ["pod/p", "pods/g"] {
            assert!(named(job).has(&pod("labels"), &none) && named(job).has(&pod("annotations"), &none));
        }
        assert!(!named("pod/q").has(&pod("labels"), &none));
    }
}
