//! `kubectl kueue explain`: asks by the aggregated API or, without one, the leading manager, through a port-forward to its loopback port.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::client::UpgradeConnectionError;
use serde_json::Value;
use sluice_client::error_chain::message;
use sluice_client::patience;
use sluice_sim::explain::plain;
use sluice_sim::resource::NOT_EXPLAINED;

use crate::ask::{self, Reply};
use crate::cluster::{object, selector};
use crate::complete;
use crate::connection::{ClusterArgs, Person, checked};
use crate::explain::Output;
use crate::leader;
use crate::list::Named;
use crate::made;
use crate::print::print;

/// How long to wait for the error of a forwarded port after the port has closed.
const SOON: Duration = Duration::from_secs(1);

/// `kubectl kueue explain`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  kubectl kueue explain job train -n team-a\n  \
                        kubectl kueue explain workload/job-train-1a2b3 -n team-a -o json\n  \
                        kubectl kueue explain job train -n team-a --what-if '{\"spec\":{\"parallelism\":2}}'")]
pub struct AskExplainArgs {
    /// workload, job, jobset or another kind of jobs; or KIND/NAME
    #[arg(value_name = "KIND", add = complete::explained_kinds())]
    pub kind: String,
    /// The name
    #[arg(add = complete::names_of_explained())]
    pub name: Option<String>,
    /// Show names from other namespaces too
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Say what this merge patch of the job would do, for example '{"spec":{"parallelism":2}}'
    #[arg(long, value_name = "PATCH", conflicts_with = "manager_url")]
    pub what_if: Option<String>,
    /// How to write the answer
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// Ask the manager at this address, for example http://127.0.0.1:8081, instead of the leader
    #[arg(long, value_name = "URL")]
    pub manager_url: Option<String>,
    /// The namespace of the manager
    #[arg(long, value_name = "NAMESPACE", default_value = "kueue-system", add = complete::namespaces())]
    pub manager_namespace: String,
    /// The health port of the manager
    #[arg(long, value_name = "PORT", default_value_t = 8081)]
    pub manager_port: u16,
    /// The name of the manager's leader election lease
    #[arg(long, value_name = "NAME", default_value = "c1f6bfd2.kueue.x-k8s.io")]
    pub lease: String,
}

impl AskExplainArgs {
    /// Kind and name that are meant.
    fn target(&self) -> anyhow::Result<(&str, &str)> {
        let (word, name) = match (self.kind.split_once('/'), &self.name) {
            (Some((word, name)), None) => (word, name),
            (None, Some(name)) => (self.kind.as_str(), name.as_str()),
            (Some(_), Some(_)) => bail!("expected KIND/NAME or KIND NAME, not both"),
            (None, None) => bail!("expected a name: kubectl kueue explain KIND NAME"),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        // Which kinds there are its manager knows: its configuration may declare some.
        if word.is_empty() || !word.chars().all(plain) {
            bail!("{word:?} is not a name of a kind");
        }
        object("", name)?;
        Ok((word, name))
    }

    /// The path of the request.
    fn path(&self, namespace: &str) -> anyhow::Result<String> {
        let namespace = checked(namespace)?;
        let (word, name) = self.target()?;
        let output = self.output.word();
        let all = self.all_namespaces;
        Ok(format!("/debug/explain/{namespace}/{name}?kind={word}&output={output}&all={all}"))
    }
}

/// Runs `kubectl kueue explain`.
///
/// # Errors
/// When the target is none, or the manager cannot be reached or does not know it.
pub async fn run(args: AskExplainArgs, cluster: &ClusterArgs) -> anyhow::Result<u8> {
    args.target()?;
    let mut reply = asked(&args, cluster).await?;
    // Which kinds there are the manager knows: it is asked first.
    if reply.status == 400
        && reply.body.starts_with(NOT_EXPLAINED)
        && let Some(job) = made(&args, cluster).await?
    {
        reply = asked(&job, cluster).await?;
    }
    if reply.status != 200 {
        bail!("{}", reply.body.trim_end());
    }
    print(&reply.body)?;
    Ok(0)
}

/// The same question of the job that the object made which is asked about, if there is one.
async fn made(args: &AskExplainArgs, cluster: &ClusterArgs) -> anyhow::Result<Option<AskExplainArgs>> {
    // Who asks at an address may have no way to the cluster.
    let Ok(person) = cluster.connect().await else { return Ok(None) };
    let (word, name) = args.target()?;
    let maker = Named::parse(&format!("{word}/{name}"))?;
    let jobs = made::in_cluster(&person.client, Some(&person.namespace), &maker).await?;
    let Some(job) = made::the_one(jobs)? else { return Ok(None) };
    let kind = job.kind.kind().to_ascii_lowercase();
    // A patch that is meant for the maker is none for the job.
    if args.what_if.is_some() {
        bail!("--what-if changes a job: ask for {kind}/{}, which {word}/{name} made", job.name);
    }
    Ok(Some(AskExplainArgs { kind, name: Some(job.name), ..args.clone() }))
}

/// The answer of the manager.
async fn asked(args: &AskExplainArgs, cluster: &ClusterArgs) -> anyhow::Result<Reply> {
    Ok(match (&args.manager_url, &cluster.namespace) {
        // Then the cluster itself is not needed.
        (Some(url), Some(namespace)) => {
            let path = args.path(namespace)?;
            let (stream, host) = ask::connect(url).await?;
            ask::get(stream, &host, &path).await?
        }
        (url, _) => {
            let person = cluster.connect().await?;
            let path = args.path(&person.namespace)?;
            if let Some(url) = url {
                let (stream, host) = ask::connect(url).await?;
                ask::get(stream, &host, &path).await?
            } else if let Some(reply) = by_api(args, &person).await? {
                reply
            } else if args.what_if.is_some() {
                bail!(
                    "--what-if asks by the API visibility.sluice.dev, which the cluster does not serve now"
                );
            } else {
                forwarded(args, person.client, &path).await?
            }
        }
    })
}

/// Asks by the API `visibility.sluice.dev`, which every user with the role may do; nothing if the cluster does not serve it now.
async fn by_api(args: &AskExplainArgs, person: &Person) -> anyhow::Result<Option<Reply>> {
    let (word, name) = args.target()?;
    let output = args.output.word();
    let (namespace, all) = (&person.namespace, args.all_namespaces);
    let (subresource, change) = match &args.what_if {
        None => ("explain", String::new()),
        Some(patch) => ("whatif", selector("change", Some(patch))),
    };
    let uri = format!(
        "/apis/visibility.sluice.dev/v1alpha1/namespaces/{namespace}/workloads/{name}/{subresource}?kind={word}&output={output}&all={all}{change}"
    );
    let request = http::Request::get(uri).body(Vec::new()).context("making a request")?;
    let found = match patience::get(&person.client, request).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if is_not_served(&status) => return Ok(None),
        Err(kube::Error::Api(status)) => {
            return Ok(Some(Reply { status: status.code, body: message(&status) }));
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Some(Reply { status: 200, body: body(&found, args.what_if.is_some())? }))
}

/// The text to print for an answer of the API.
fn body(found: &Value, is_what_if: bool) -> anyhow::Result<String> {
    if let Some(text) = found["text"].as_str() {
        return Ok(plain::lines(text));
    }
    let field = if is_what_if { "whatIf" } else { "explanation" };
    Ok(plain::json(&serde_json::to_string_pretty(&found[field])?) + "\n")
}

/// Whether an answer comes from the API server and means that the API is not served. An answer of the manager names a missing Workload, or says when
/// to ask again.
fn is_not_served(status: &kube::core::Status) -> bool {
    let details = status.details.as_ref();
    let names_it = details.is_some_and(|details| !details.name.is_empty());
    let asks_back = details.is_some_and(|details| details.retry_after_seconds > 0);
    (status.code == 503 && !asks_back) || (status.code == 404 && !names_it)
}

async fn forwarded(args: &AskExplainArgs, client: kube::Client, path: &str) -> anyhow::Result<Reply> {
    let namespace = args.manager_namespace.as_str();
    let pod = leader::pod(&client, namespace, &args.lease).await?;
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let port = args.manager_port;
    let failed = || format!("forwarding port {port} of pod {namespace}/{pod}");
    let forwarder = pods.portforward(&pod, &[port]).await;
    let mut forwarder = forwarder.map_err(|error| advised(error, namespace)).with_context(failed)?;
    let stream = forwarder.take_stream(port).with_context(failed)?;
    let trouble = forwarder.take_error(port);
    let reply = ask::get(stream, "localhost", path).await;
    let reply = match (reply, trouble) {
        // The message of the pod's node explains more than the missing answer.
        (Err(error), Some(trouble)) => match tokio::time::timeout(SOON, trouble).await {
            Ok(Some(said)) => Err(anyhow::anyhow!("{}", said.trim())),
            _ => Err(error),
        },
        (reply, _) => reply,
    };
    forwarder.abort();
    reply.with_context(failed)
}

/// Why no port is forwarded, in terms of what to do. A refused upgrade may come without the server's words.
fn advised(error: kube::Error, namespace: &str) -> anyhow::Error {
    let (refused, words) = match &error {
        kube::Error::Api(status) => (status.code, format!(" ({})", message(status))),
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) => {
            (status.as_u16(), String::new())
        }
        _ => (0, String::new()),
    };
    match refused {
        403 => anyhow::anyhow!(
            "forbidden{words}: you need the right to create pods/portforward in the namespace {namespace}; \
             administrators have it, or ask the manager where it is reachable: --manager-url"
        ),
        404 => anyhow::anyhow!(
            "the pod is gone, and no other manager leads yet{words}: its lease runs out within seconds, so try again"
        ),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, Plugin};
    use clap::Parser as _;

    fn args(line: &str) -> AskExplainArgs {
        let plugin = Plugin::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Explain(args) = plugin.command else { unreachable!("the line says explain") };
        args
    }

    #[test]
    fn both_ways_of_naming_ask_for_the_same_page() {
        let wanted = "/debug/explain/team-a/train?kind=job&output=json&all=false";
        for line in ["kubectl-kueue explain job train -o json", "kubectl-kueue explain job/train -o json"] {
            assert_eq!(args(line).path("team-a").unwrap(), wanted);
        }
        // A kind that only the manager's configuration declares.
        let path = args("kubectl-kueue explain workflow.argoproj.io/a").path("x").unwrap();
        assert!(path.contains("/x/a?kind=workflow.argoproj.io&"), "{path}");
        assert!(args("kubectl-kueue explain workload a -A").path("x").unwrap().ends_with("&all=true"));
    }

    #[test]
    fn an_api_that_is_not_served_is_distinguished_from_a_missing_workload() {
        let status = |code: u16, details: serde_json::Value| {
            let status = serde_json::json!({"kind": "Status", "code": code, "details": details});
            serde_json::from_value::<kube::core::Status>(status).unwrap()
        };
        let (none, named) = (serde_json::json!(null), serde_json::json!({"name": "train"}));
        assert!(is_not_served(&status(404, none.clone())) && is_not_served(&status(503, none.clone())));
        assert!(!is_not_served(&status(404, named)) && !is_not_served(&status(403, none)));
        // The manager's own word that it cannot answer now.
        assert!(!is_not_served(&status(503, serde_json::json!({"retryAfterSeconds": 1}))));
    }

    #[test]
    fn what_an_answer_contains_does_not_act_on_a_terminal() {
        let name = "\u{1b}[2J\u{9b}\r\u{202e}";
        let document = body(&serde_json::json!({"explanation": {"name": name}}), false).unwrap();
        assert!(document.is_ascii() && !document.contains(['\u{1b}', '\r']), "{document:?}");
        assert_eq!(serde_json::from_str::<Value>(&document).unwrap()["name"], name);
        let text = body(&serde_json::json!({"text": format!("a\n{name}\n")}), false).unwrap();
        assert_eq!(text, "a\n\\u{1b}[2J\\u{9b}\\r\\u{202e}\n");
    }

    #[test]
    fn nonsense_is_reported_before_a_request_is_made() {
        for line in [
            "explain no_de a",
            "explain job",
            "explain job/a b",
            "explain job a/../b",
            "explain job ..",
            "explain job a,metadata.namespace=x",
            "explain job %2e",
        ] {
            assert!(args(&format!("kubectl-kueue {line}")).path("ns").is_err(), "{line}");
        }
        let good = args("kubectl-kueue explain job a");
        for namespace in ["", "..", "a/../b", "a,metadata.namespace=x", "%2e", "a.b", "a?x"] {
            assert!(good.path(namespace).is_err(), "{namespace}");
        }
    }
}
