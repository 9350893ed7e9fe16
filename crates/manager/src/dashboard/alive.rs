//! Whether the manager's watches are up to date.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use sluice_engine::input::Kind;

use super::store::Store;
use crate::api_call::Call;
use crate::shutdown::Stop;
use crate::watch::sync::SyncTracker;

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
    let mut reached = Timestamp::now();
    while stop.sleep(LOOK).await {
        let asked = Timestamp::now();
        if answers(client).await {
            reached = asked;
        }
        let now = Timestamp::now();
        judge(store, reached, sync.cut_off(&WATCHED, now), now);
    }
}

/// Whether the API server answers anything: a refusal is an answer, too.
async fn answers(client: &Client) -> bool {
    match Call::get("/version").send_as::<Value>(client, ANSWER).await {
        Ok(_) => true,
        Err(error) => error.code().is_some_and(|code| code < 500),
    }
}

fn judge(store: &Store, reached: Timestamp, watches: Option<Timestamp>, now: Timestamp) {
    let is_late = now.duration_since(reached).unsigned_abs() > LATE;
    match watches.into_iter().chain(is_late.then_some(reached)).min() {
        Some(at) => store.cut_off_since(at),
        None => store.alive(now),
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
        let (store, now) = (Store::default(), Timestamp::now());
        let ago = |seconds: u64| now - Duration::from_secs(seconds);
        judge(&store, ago(6), None, now);
        assert_eq!(store.old(), None);
        judge(&store, ago(20), None, now);
        assert_eq!(store.old(), Some(ago(20)));
        judge(&store, now, None, now);
        assert_eq!(store.old(), None);
        judge(&store, ago(20), Some(ago(40)), now);
        assert_eq!(store.old(), Some(ago(40)));
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
