//! What the cluster calls its kinds: they go by singular, plural and short names, which discovery lists.

use anyhow::{Context as _, bail};
use kube::Client;
use serde_json::Value;

use crate::cluster::{ask, refusal};

/// All kinds in one answer, instead of an answer for each version of each API group.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                          application/json";

/// The kind that goes by a word in lower case, of this group (`apps`, or `v1.apps`) if there is one; nothing if the cluster does not list its kinds.
///
/// # Errors
///
/// If the cluster lists its kinds and none goes by the word, or it cannot be reached.
pub async fn kind_of(client: &Client, word: &str, group: Option<&str>) -> anyhow::Result<Option<String>> {
    let mut answers = Vec::new();
    for root in ["/api", "/apis"] {
        let request = http::Request::get(root).header("accept", AGGREGATED).body(Vec::new());
        match ask(client, request.context("making a request")?).await {
            Err(error) if refusal(&error).is_some_and(|status| [403, 404, 406].contains(&status.code)) => {
                return Ok(None);
            }
            answer => answers.push(answer?),
        }
    }
    chosen(&answers, word, group)
}

fn chosen(answers: &[Value], word: &str, group: Option<&str>) -> anyhow::Result<Option<String>> {
    // An old API server answers in another form; an aggregated API that does not answer is listed without its kinds.
    let mut complete = true;
    for answer in answers {
        complete &= answer["kind"] == "APIGroupDiscoveryList";
        for found in all(&answer["items"]) {
            let own = found["metadata"]["name"].as_str().unwrap_or_default();
            let versioned = |group: &str| group.split_once('.').is_some_and(|(_, group)| group == own);
            let is_meant = group.is_none_or(|group| group == own || versioned(group));
            for version in all(&found["versions"]) {
                complete &= version["freshness"] != "Stale";
                let mut kinds = all(&version["resources"]).filter(|_| is_meant);
                if let Some(kind) = kinds.find_map(|resource| kind_named(resource, word)) {
                    return Ok(Some(kind.to_owned()));
                }
            }
        }
    }
    if complete {
        let group = group.map(|group| format!(".{group}")).unwrap_or_default();
        bail!("the server doesn't have a resource type \"{word}{group}\"");
    }
    Ok(None)
}

/// The kind of a resource that goes by a word.
fn kind_named<'a>(resource: &'a Value, word: &str) -> Option<&'a str> {
    let kind = resource["responseKind"]["kind"].as_str()?;
    let mut names = [&resource["resource"], &resource["singularResource"]]
        .into_iter()
        .chain(all(&resource["shortNames"]));
    (kind.eq_ignore_ascii_case(word) || names.any(|name| name == word)).then_some(kind)
}

fn all(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answers(freshness: &str) -> [Value; 2] {
        let resource = |plural: &str, kind: &str, short: &[&str]| {
            json!({"resource": plural, "singularResource": kind.to_lowercase(), "shortNames": short,
                "responseKind": {"group": "", "version": "", "kind": kind}})
        };
        let list = |items: Value| json!({"kind": "APIGroupDiscoveryList", "items": items});
        let version =
            |resources: Value| json!([{"version": "v1", "freshness": freshness, "resources": resources}]);
        let core = json!([{"metadata": {}, "versions": version(json!([resource("pods", "Pod", &["po"])]))}]);
        let flows = version(json!([resource("workflows", "Workflow", &["wf"])]));
        [list(core), list(json!([{"metadata": {"name": "argoproj.io"}, "versions": flows}]))]
    }

    #[test]
    fn a_kind_goes_by_every_name_that_the_cluster_has_for_it() {
        let of = |word: &str, group| chosen(&answers("Current"), word, group).unwrap().unwrap();
        for word in ["wf", "workflow", "workflows"] {
            assert_eq!(of(word, None), "Workflow", "{word}");
            assert_eq!(of(word, Some("argoproj.io")), "Workflow", "{word}");
            assert_eq!(of(word, Some("v1alpha1.argoproj.io")), "Workflow", "{word}");
        }
        assert_eq!((of("po", None), of("pods", Some("v1."))), ("Pod".to_owned(), "Pod".to_owned()));
    }

    #[test]
    fn a_word_that_no_kind_goes_by_is_refused_as_by_kubectl() {
        let refused = |word: &str, group| chosen(&answers("Current"), word, group).unwrap_err().to_string();
        assert_eq!(refused("jbo", None), "the server doesn't have a resource type \"jbo\"");
        assert_eq!(refused("wf", Some("a.b")), "the server doesn't have a resource type \"wf.a.b\"");
    }

    #[test]
    fn a_cluster_that_lists_only_a_part_of_its_kinds_refuses_none() {
        assert_eq!(chosen(&answers("Stale"), "jbo", None).unwrap(), None);
        assert_eq!(chosen(&answers("Stale"), "wf", None).unwrap().as_deref(), Some("Workflow"));
        let old = json!({"kind": "APIGroupList", "groups": []});
        assert_eq!(chosen(&[old], "jbo", None).unwrap(), None);
    }
}
