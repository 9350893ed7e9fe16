//! The list of Workloads, with their positions in their queues.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use sluice_client::error_chain::Chain;
use sluice_sim::Kind;

use super::job_pods::Named;
use super::{Listing, Table, is_true, maybe, since, text};
use crate::cluster;
use crate::complete;
use crate::connection::ClusterArgs;
use crate::print::{age, lasted, say};

/// Places that are asked for at a time.
const PAGE: usize = 1000;
/// Pages that are asked for.
const MOST_PAGES: usize = 100;

/// The status of a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Status {
    /// Every status
    All,
    /// No quota is reserved
    Pending,
    /// Quota is reserved, and admission checks are not ready
    Quotareserved,
    /// Admitted
    Admitted,
    /// Finished
    Finished,
}

/// `kubectl kueue list workload`.
#[derive(Clone, Debug, Default, Args)]
pub struct Workloads {
    /// What and how.
    #[command(flatten)]
    pub listing: Listing,
    /// In all namespaces
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Only Workloads of this ClusterQueue
    #[arg(long, short, value_name = "NAME", add = complete::names(Kind::ClusterQueue))]
    pub clusterqueue: Option<String>,
    /// Only Workloads of this LocalQueue
    #[arg(long, short = 'q', value_name = "NAME", add = complete::names(Kind::LocalQueue))]
    pub localqueue: Option<String>,
    /// Only Workloads with this status (may be repeated)
    #[arg(long, value_enum, ignore_case = true, value_delimiter = ',')]
    pub status: Vec<Status>,
    /// Only the Workload of this job: TYPE[.GROUP]/NAME, for example job/train
    #[arg(long = "for", value_name = "TYPE/NAME", add = complete::jobs())]
    pub of: Option<String>,
}

/// Data of Workloads from outside their objects.
#[derive(Debug, Default)]
struct Around {
    /// The ClusterQueue of each LocalQueue, by namespace and name.
    targets: BTreeMap<(String, String), String>,
    /// The place of each waiting Workload, by namespace and name.
    places: BTreeMap<(String, String), i64>,
    /// The number of queues whose positions are unknown although they exist, and the reason for the first.
    unknown: Option<(usize, String)>,
}

fn status(workload: &Value) -> Status {
    if is_true(workload, "Finished") {
        Status::Finished
    } else if is_true(workload, "Admitted") {
        Status::Admitted
    } else if is_true(workload, "QuotaReserved") {
        Status::Quotareserved
    } else {
        Status::Pending
    }
}

fn word(status: Status) -> &'static str {
    match status {
        Status::All | Status::Pending => "PENDING",
        Status::Quotareserved => "QUOTARESERVED",
        Status::Admitted => "ADMITTED",
        Status::Finished => "FINISHED",
    }
}

fn key(workload: &Value, name: &Value) -> (String, String) {
    (text(&workload["metadata"]["namespace"]), text(name))
}

/// Kind and name of the job, empty without one.
pub(crate) fn job(workload: &Value) -> (String, String) {
    let owners = workload["metadata"]["ownerReferences"].as_array();
    let owner = owners.and_then(|all| all.iter().find(|o| o["controller"] == true).or_else(|| all.first()));
    owner.map(|o| (text(&o["kind"]).to_ascii_lowercase(), text(&o["name"]))).unwrap_or_default()
}

/// How long it has been admitted, to its end if it has ended.
fn ran(workload: &Value, now: Timestamp) -> String {
    if !is_true(workload, "Admitted") {
        return String::new();
    }
    let Some(from) = since(workload, "Admitted") else { return String::new() };
    let to = if is_true(workload, "Finished") { since(workload, "Finished") } else { None };
    lasted(to.unwrap_or(now).duration_since(from))
}

impl Around {
    /// `must`: the rows are chosen by the ClusterQueues of LocalQueues.
    async fn of(client: &Client, workloads: &[Value], must: bool) -> anyhow::Result<Self> {
        let mut around = Self::default();
        let mut refused = None;
        let namespaces: BTreeSet<String> =
            workloads.iter().map(|w| text(&w["metadata"]["namespace"])).collect();
        for namespace in namespaces {
            let place = cluster::collection(Kind::LocalQueue, Some(&namespace));
            let target =
                |queue: Value| Some((text(&queue["metadata"]["name"]), text(&queue["spec"]["clusterQueue"])));
            let queues = match cluster::list(client, &place, "", target).await {
                Err(error) if !must && cluster::refusal(&error).is_some_and(|status| status.code == 403) => {
                    refused.get_or_insert(error);
                    continue;
                }
                queues => queues?,
            };
            around.targets.extend(queues.into_iter().map(|(name, queue)| ((namespace.clone(), name), queue)));
        }
        if let Some(error) = refused {
            say(&format!("warning: ClusterQueues of what waits are missing: {}", Chain(error.as_ref())));
        }
        let waiting: BTreeSet<_> = workloads
            .iter()
            .filter(|w| status(w) == Status::Pending)
            .map(|w| key(w, &w["spec"]["queueName"]))
            .collect();
        for (at, (namespace, queue)) in waiting.iter().enumerate() {
            // A tenant writes the name of the queue into a Workload.
            let of_namespace = format!("/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/{namespace}");
            let Ok(place) = cluster::object(&format!("{of_namespace}/localqueues"), queue) else {
                continue;
            };
            let place = format!("{place}/pendingworkloads");
            // Without the visibility API, or the right to read it, no position is shown.
            around.note_places(async |query| maybe(client, &format!("{place}?{query}")).await).await;
            if let Some((queues, _)) = &mut around.unknown {
                // If the API does not answer for one queue it does not answer for the next.
                *queues = waiting.len() - at;
                break;
            }
        }
        Ok(around)
    }

    /// Takes in the places in a queue, page by page; `ask` asks with a query.
    async fn note_places(&mut self, ask: impl AsyncFn(String) -> Result<Option<Value>, String>) {
        for page in 0..MOST_PAGES {
            let answer = match ask(format!("limit={PAGE}&offset={}", page * PAGE)).await {
                Ok(answer) => answer.unwrap_or_default(),
                Err(why) => {
                    self.unknown = Some((1, why));
                    return;
                }
            };
            let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            for item in items {
                let place = item["positionInLocalQueue"].as_i64().unwrap_or(0);
                self.places.insert(key(item, &item["metadata"]["name"]), place);
            }
            if items.len() < PAGE {
                return;
            }
        }
    }

    /// The warning that positions are missing, if so.
    fn warning(&self) -> Option<String> {
        let (queues, why) = self.unknown.as_ref()?;
        Some(format!("warning: positions in {queues} queue(s) are missing: {why}"))
    }

    fn cluster_queue(&self, workload: &Value) -> String {
        match workload["status"]["admission"]["clusterQueue"].as_str() {
            Some(admitted) => admitted.to_owned(),
            None => {
                self.targets.get(&key(workload, &workload["spec"]["queueName"])).cloned().unwrap_or_default()
            }
        }
    }

    fn row(&self, workload: &Value, now: Timestamp) -> Vec<String> {
        let (job_type, job_name) = job(workload);
        let place = self.places.get(&key(workload, &workload["metadata"]["name"]));
        vec![
            text(&workload["metadata"]["name"]),
            job_type,
            job_name,
            text(&workload["spec"]["queueName"]),
            self.cluster_queue(workload),
            word(status(workload)).to_owned(),
            place.map(ToString::to_string).unwrap_or_default(),
            ran(workload, now),
            age(&workload["metadata"]["creationTimestamp"], now),
        ]
    }
}

impl Workloads {
    fn wants(&self, workload: &Value) -> bool {
        let queue = self.localqueue.as_deref().is_none_or(|q| workload["spec"]["queueName"] == *q);
        let standing = self.status.is_empty()
            || self.status.contains(&Status::All)
            || self.status.contains(&status(workload));
        queue && standing
    }

    /// The filters that were given.
    fn filters(&self) -> Vec<&'static str> {
        let all = [
            ("--clusterqueue", self.clusterqueue.is_some()),
            ("--localqueue", self.localqueue.is_some()),
            ("--status", !self.status.is_empty()),
            ("--for", self.of.is_some()),
        ];
        all.into_iter().filter_map(|(flag, given)| given.then_some(flag)).collect()
    }

    /// Prints them.
    ///
    /// # Errors
    /// When the cluster cannot be reached, or refuses.
    pub async fn run(self, cluster: &ClusterArgs) -> anyhow::Result<u8> {
        let filters = self.filters();
        let job = self.of.as_deref().map(Named::parse).transpose()?;
        let printing =
            match self.listing.begin(cluster, Kind::Workload, self.all_namespaces, &filters).await? {
                Ok(printing) => printing,
                Err(code) => return Ok(code),
            };
        let job = match job {
            Some(job) => Some(job.with_made(&printing.person.client, printing.namespace()).await?),
            None => None,
        };
        let used = ["/spec/queueName", "/status/conditions", "/status/admission/clusterQueue"];
        let mut found = printing.fetch(&used).await?;
        found.retain(|workload| self.wants(workload) && job.as_ref().is_none_or(|job| job.owns(workload)));
        let around = if printing.is_table() || self.clusterqueue.is_some() {
            Around::of(&printing.person.client, &found, self.clusterqueue.is_some()).await?
        } else {
            Around::default()
        };
        if let Some(wanted) = &self.clusterqueue {
            found.retain(|workload| around.cluster_queue(workload) == *wanted);
        }
        let row = |workload: &Value, now| {
            let mut row = around.row(workload, now);
            if self.all_namespaces {
                row.insert(0, text(&workload["metadata"]["namespace"]));
            }
            row
        };
        let mut headings = vec![
            "NAME",
            "JOB TYPE",
            "JOB NAME",
            "LOCALQUEUE",
            "CLUSTERQUEUE",
            "STATUS",
            "POSITION IN QUEUE",
            "EXEC TIME",
            "AGE",
        ];
        if self.all_namespaces {
            headings.insert(0, "NAMESPACE");
        }
        let code = printing.show(found, &Table { headings, row: &row })?;
        if let Some(warning) = around.warning().filter(|_| printing.is_table()) {
            say(&warning);
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workload(conditions: &[&str]) -> Value {
        let condition = |type_: &&str| json!({"type": type_, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({
            "metadata": {
                "name": "job-a-1", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "controller": true}],
            },
            "spec": {"queueName": "main"},
            "status": {"conditions": conditions.iter().map(condition).collect::<Vec<_>>()},
        })
    }

    #[test]
    fn a_row_says_where_a_workload_stands() {
        let now: Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
        let mut around = Around::default();
        around.targets.insert(("ns".to_owned(), "main".to_owned()), "cq".to_owned());
        around.places.insert(("ns".to_owned(), "job-a-1".to_owned()), 3);
        let waiting = around.row(&workload(&[]), now);
        assert_eq!(waiting, ["job-a-1", "job", "a", "main", "cq", "PENDING", "3", "", "2m"]);
        let admitted = around.row(&workload(&["QuotaReserved", "Admitted"]), now);
        assert_eq!((admitted[5].as_str(), admitted[7].as_str()), ("ADMITTED", "2m"));
        assert_eq!(around.row(&workload(&["QuotaReserved"]), now)[5], "QUOTARESERVED");
    }

    #[tokio::test]
    async fn places_of_long_queues_are_asked_for_page_by_page() {
        let mut around = Around::default();
        let all = 2 * PAGE + 5;
        let ask = async |query: String| {
            let offset: usize = query.rsplit('=').next().unwrap().parse().unwrap();
            let item = |at: usize| json!({"metadata": {"namespace": "ns", "name": format!("w{at}")}, "positionInLocalQueue": at});
            let items: Vec<Value> = (offset..all.min(offset + PAGE)).map(item).collect();
            Ok(Some(json!({"items": items})))
        };
        around.note_places(ask).await;
        assert_eq!(around.places.len(), all);
        assert_eq!(around.places[&("ns".to_owned(), "w2003".to_owned())], 2003);
        let mut around = Around::default();
        around.note_places(async |_| Ok(None)).await;
        assert!(around.places.is_empty() && around.warning().is_none());
        // Positions that exist and cannot be read cause a warning.
        around.note_places(async |_| Err("slowly".to_owned())).await;
        let warning = "warning: positions in 1 queue(s) are missing: slowly";
        assert_eq!(around.warning().as_deref(), Some(warning));
    }

    #[test]
    fn filters_choose_by_standing_queue_and_job() {
        let args = Workloads { status: vec![Status::Pending], ..Workloads::default() };
        assert!(args.wants(&workload(&[])) && !args.wants(&workload(&["Finished"])));
        let of = |job: &str| Named::parse(job).unwrap().owns(&workload(&[]));
        assert!(of("job/a") && of("jobs.batch/a"));
        assert!(!of("jobset/a") && !of("job/b"));
        let queue = Workloads { localqueue: Some("other".to_owned()), ..Workloads::default() };
        assert!(!queue.wants(&workload(&[])));
    }
}
