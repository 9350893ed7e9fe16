//! Pods that create other pods of their job, of kinds whose pods name their job by a label only: the webhooks have to know that the pod which a new
//! pod names as its controller exists.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_client::error_chain::Chain;
use sluice_engine::input::Kind;
use tracing::{debug, warn};

use super::failures::{Failures, Pauses};
use super::pump::Selector;
use super::source::{Event, Meta, Seen, Source};
use crate::shutdown::Stop;
use crate::webhook::facts::FactStore;
use crate::webhook::owners::Maker;

/// The selectors of such pods, where pods are queued themselves.
pub fn selectors(kinds: &[JobKind]) -> BTreeSet<&'static str> {
    let pods = kinds.iter().any(|kind| kind.integration().of_pods);
    kinds.iter().filter(|_| pods).filter_map(|kind| kind.integration().maker_pods).collect()
}

/// Watches those of one selector until stopped, and takes them to the webhooks' facts. What is not known yet belongs to no job.
pub async fn watch(
    client: Client,
    labels: &'static str,
    facts: Arc<FactStore>,
    pauses: Pauses,
    mut stop: Stop,
) {
    let selector = Selector { labels: Some(labels), metadata_only: true, ..Selector::default() };
    let path = Kind::Pod.collection("v1", None);
    let mut failures = Failures::new(&pauses);
    let answered = failures.answered();
    let mut source = Source::new(client, &path, selector).on_sign_of_life(move || answered.report());
    let mut present = BTreeSet::new();
    loop {
        let event = tokio::select! {
            event = source.next() => event,
            () = stop.stopped() => return,
        };
        match event {
            Ok(event) => {
                if event.is_success() {
                    failures.succeeded();
                }
                take_in(event, &facts, &mut present);
            }
            Err(error) => {
                if failures.failed() <= 2 && !error.is_desync() {
                    warn!(labels, error = %Chain(&error), "the watch of pods that make others failed; it is retried");
                }
                tokio::select! {
                    () = failures.pause() => {}
                    () = stop.stopped() => return,
                }
            }
        }
    }
}

fn take_in(event: Event, facts: &FactStore, present: &mut BTreeSet<(String, String)>) {
    match event {
        Event::Init => present.clear(),
        Event::InitApply(seen) => {
            apply(&seen, facts);
            present.insert(place(&seen.meta));
        }
        Event::InitDone(_) => facts.keep_makers(present),
        Event::Apply(seen) => apply(&seen, facts),
        Event::Delete(seen) => facts.note_maker(&seen.meta.namespace, &seen.meta.name, None),
    }
}

fn apply(seen: &Seen, facts: &FactStore) {
    let maker = match seen.read::<Value>() {
        Ok(pod) => Some(Maker::of(&pod)),
        Err(error) => {
            debug!(%error, "a pod cannot be read: it makes no others");
            None
        }
    };
    facts.note_maker(&seen.meta.namespace, &seen.meta.name, maker);
}

fn place(meta: &Meta) -> (String, String) {
    (meta.namespace.clone(), meta.name.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::watch::source::tests::seen;

    #[test]
    fn drivers_are_known_as_long_as_they_are_there() {
        let facts = FactStore::of(&[JobKind::POD, JobKind::SPARK_APPLICATION], BTreeSet::new());
        let pod = |name: &str, uid: &str| {
            seen(&json!({"metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "1",
                "ownerReferences": [{"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
                    "name": "pi", "uid": "u", "controller": true}]}}))
        };
        let mut present = BTreeSet::new();
        let mut read = |events: Vec<Event>| {
            for event in events {
                take_in(event, &facts, &mut present);
            }
            let facts = facts.now();
            facts
                .makers
                .iter()
                .map(|((_, name), maker)| (name.clone(), maker.uid.clone()))
                .collect::<Vec<_>>()
        };
        let of = |name: &str, uid: &str| (name.to_owned(), uid.to_owned());
        let listed = [
            Event::Init,
            Event::InitApply(pod("a", "1")),
            Event::InitApply(pod("b", "2")),
            Event::InitDone(9),
        ];
        assert_eq!(read(listed.into()), [of("a", "1"), of("b", "2")]);
        assert_eq!(
            read(vec![Event::Apply(pod("c", "3")), Event::Delete(pod("a", "1"))]),
            [of("b", "2"), of("c", "3")]
        );
        let again = [Event::Init, Event::InitApply(pod("c", "4")), Event::InitDone(9)];
        assert_eq!(read(again.into()), [of("c", "4")]);
        let maker = &facts.now().makers[&of("ns", "c")];
        assert_eq!(maker.job, Some((JobKind::SPARK_APPLICATION, "u".to_owned())));
    }

    #[test]
    fn they_are_watched_only_where_pods_are_queued() {
        let spark = JobKind::SPARK_APPLICATION;
        assert!(selectors(&[spark, JobKind::JOB]).is_empty() && selectors(&[JobKind::POD]).is_empty());
        assert_eq!(Vec::from_iter(selectors(&[JobKind::POD, spark])), ["spark-role=driver"]);
    }
}
