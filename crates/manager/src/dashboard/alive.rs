//! Whether the manager's watches are up to date.

use std::time::Duration;

use kube::Client;
use serde_json::Value;
use sluice_engine::input::Kind;

use super::store::Store;
use crate::api_call::Call;
use crate::shutdown::Stop;
use crate::watch::sync::{Moment, SyncTracker};

/// The interval of checks, and the timeout of a request. A watch does not notice for minutes that the network is down.
const LOOK: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(5);
/// After this time without an answer the API server counts as unreachable.
const LATE: Duration = Duration::from_secs(12);
/// The kinds that the views show.
const WATCHED: [Kind; 7] = [
    Kind::Workload,
    Kind::ClusterQueue,
    Kind::Cohort,
    Kind::LocalQueue,
    Kind::ResourceFlavor,
    Kind::Topology,
    Kind::Node,
];

/// Notes what the watches and the API server say of themselves, until stopped.
pub async fn follow(store: &Store, sync: &SyncTracker, client: &Client, mut stop: Stop) {
    let mut reached = Moment::now();
    while stop.sleep(LOOK).await {
        let asked = Moment::now();
        if answers(client).await {
            reached = asked;
        }
        let now = Moment::now();
        judge(store, reached, sync.cut_off(&WATCHED, now.at), now);
    }
}

/// Whether the API server answers anything: a refusal is an answer, too.
async fn answers(client: &Client) -> bool {
    match Call::get("/version").send_as::<Value>(client, ANSWER).await {
        Ok(_) => true,
        Err(error) => error.code().is_some_and(|code| code < 500),
    }
}

fn judge(store: &Store, reached: Moment, watches: Option<Moment>, now: Moment) {
    let is_late = now.at.saturating_duration_since(reached.at) > LATE;
    match watches.into_iter().chain(is_late.then_some(reached)).min() {
        Some(since) => store.cut_off_since(since.shown),
        None => store.alive(now.shown),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use axum::http::{Method, Uri};
    use serde_json::json;

    use super::*;
    use crate::fake_api::{client, failed, found};

    #[test]
    fn what_is_shown_is_as_old_as_the_oldest_sign_of_life() {
        let (store, began) = (Store::default(), Moment::now());
        let at = |seconds: u64| {
            let passed = Duration::from_secs(seconds);
            Moment { at: began.at + passed, shown: began.shown + passed }
        };
        let now = at(60);
        judge(&store, at(54), None, now);
        assert_eq!(store.old(), None);
        judge(&store, at(40), None, now);
        assert_eq!(store.old(), Some(at(40).shown));
        judge(&store, now, None, now);
        assert_eq!(store.old(), None);
        judge(&store, at(40), Some(at(20)), now);
        assert_eq!(store.old(), Some(at(20).shown));
        // The machine's clock was set back meanwhile.
        judge(&store, at(54), None, Moment { shown: began.shown - Duration::from_hours(1), ..now });
        assert_eq!(store.old(), None);
    }

    #[tokio::test]
    async fn an_api_server_that_refuses_answers_and_one_that_fails_does_not() {
        let of = |code: u16| {
            client(move |_: Method, _: Uri, _: Bytes| async move {
                if code == 200 { found(&json!({"major": "1"})) } else { failed(code, "no") }
            })
        };
        assert!(answers(&of(200)).await && answers(&of(403)).await && !answers(&of(503)).await);
    }
}
