use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use axum::http::{Method, Uri};
use serde_json::Value;
use sluice_engine::input::Input;

use super::*;
use crate::dashboard::store::tests::{local_queue, workload};
use crate::fake_api::{client, found};

/// Namespaces of the large cluster.
const NAMESPACES: usize = 1000;

/// A cluster of `namespaces` namespaces with a LocalQueue each.
fn store(namespaces: usize) -> Arc<Store> {
    let store = Arc::<Store>::default();
    for number in 0..namespaces {
        store.note(&Input::Applied(local_queue(&format!("ns-{number:04}"), "lq", "cq")));
    }
    store.synced();
    store
}

/// Callers of whom `may` says in which namespaces they may get Workloads; how many questions there were, and the time, which passes while they wait.
fn tokens(
    store: &Arc<Store>,
    may: impl Fn(&str, &str) -> bool + Clone + Send + Sync + 'static,
) -> (Arc<Tokens>, Arc<AtomicU64>, Arc<AtomicU64>) {
    let (asked, passed) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let count = Arc::clone(&asked);
    let api = client(move |_: Method, _: Uri, body: Bytes| {
        let (may, count) = (may.clone(), Arc::clone(&count));
        async move {
            count.fetch_add(1, Ordering::Relaxed);
            let review: Value = serde_json::from_slice(&body).unwrap();
            let (user, object) = (&review["spec"]["user"], &review["spec"]["resourceAttributes"]);
            let namespace = object["namespace"].as_str().unwrap();
            let allowed = object["resource"] == "workloads" && may(user.as_str().unwrap(), namespace);
            found(&json!({"status": {"allowed": allowed}}))
        }
    });
    let mut tokens = Tokens::new(api, Arc::clone(store));
    let (began, now) = (Instant::now(), Arc::clone(&passed));
    let rested = Arc::clone(&passed);
    tokens.clock = Clock {
        now: Arc::new(move || began + Duration::from_millis(now.load(Ordering::Relaxed))),
        rest: Arc::new(move || {
            // Of the callers that wait each rests for itself, all at the same time.
            rested.fetch_add(5, Ordering::Relaxed);
            Box::pin(tokio::task::yield_now())
        }),
    };
    (Arc::new(tokens), asked, passed)
}

fn user(name: &str) -> User {
    User { username: name.to_owned(), ..User::default() }
}

#[tokio::test]
async fn many_users_of_many_namespaces_are_answered_for_as_long_as_they_look() {
    let store = store(NAMESPACES);
    // Each has two namespaces, one of which comes last.
    let (tokens, asked, passed) = tokens(&store, |user, namespace| {
        ["ns-0500", "ns-0999"].contains(&namespace) && user.starts_with("user-")
    });
    let users: Vec<User> = (0..20).map(|number| user(&format!("user-{number}"))).collect();
    for second in (0..=120).step_by(5) {
        passed.fetch_max(second * 1000, Ordering::Relaxed);
        let answers = users.iter().map(|user| tokens.of_user(user, None));
        for caller in futures::future::join_all(answers).await {
            let Caller { viewer, unasked } = caller.unwrap();
            assert!(viewer.sees_any(), "after {second} s: {viewer:?}");
            // In the first minute there are more questions than turns.
            let whole = viewer.namespaces.len() == 2 && unasked == 0;
            assert!(whole || second < 60, "after {second} s: {viewer:?}");
        }
    }
    // All namespaces once, and then those of each user, every quarter of a minute at most.
    let asked = asked.load(Ordering::Relaxed);
    assert!((20_000..21_200).contains(&asked), "{asked} questions");
}

#[tokio::test]
async fn a_user_who_may_see_each_of_many_namespaces_is_asked_about_them_bit_by_bit() {
    let store = store(NAMESPACES);
    let (tokens, asked, passed) = tokens(&store, |_, namespace| !namespace.is_empty());
    let mut before = 0;
    for second in 0..120 {
        passed.fetch_max(second * 1000, Ordering::Relaxed);
        let viewer = tokens.of_user(&user("eve"), None).await.unwrap().viewer;
        assert_eq!(viewer.namespaces.len(), NAMESPACES, "after {second} s");
        let asked = asked.load(Ordering::Relaxed);
        assert!(second == 0 || asked - before <= 103, "{} questions in second {second}", asked - before);
        before = asked;
    }
}

#[tokio::test]
async fn a_right_that_is_withdrawn_ends_within_half_a_minute() {
    let store = store(3);
    let granted = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let still = Arc::clone(&granted);
    let (tokens, _, passed) =
        tokens(&store, move |_, namespace| namespace == "ns-0001" && still.load(Ordering::Relaxed));
    assert!(tokens.of_user(&user("eve"), None).await.unwrap().viewer.sees("ns-0001"));
    granted.store(false, Ordering::Relaxed);
    // The answer was there a moment after the beginning.
    passed.fetch_add(30_000, Ordering::Relaxed);
    assert!(!tokens.of_user(&user("eve"), None).await.unwrap().viewer.sees_any());
}

#[tokio::test]
async fn namespaces_beyond_the_first_thousand_and_those_without_a_queue_are_asked_about() {
    let store = store(1200);
    store.note(&Input::Applied(workload("zz-lost", "w", &[])));
    store.fresh();
    let (tokens, ..) = tokens(&store, |user, namespace| match user {
        "z" => namespace == "ns-1199",
        "lost" => namespace == "zz-lost",
        "empty" => namespace == "not-seen-yet",
        _ => false,
    });
    assert!(tokens.of_user(&user("z"), None).await.unwrap().viewer.sees("ns-1199"));
    assert!(tokens.of_user(&user("lost"), None).await.unwrap().viewer.sees("zz-lost"));
    // Of a namespace in which nothing is known it is asked when it is named.
    assert!(!tokens.of_user(&user("empty"), None).await.unwrap().viewer.sees_any());
    assert!(tokens.of_user(&user("empty"), Some("not-seen-yet")).await.unwrap().viewer.sees("not-seen-yet"));
    assert!(
        !tokens.of_user(&user("empty"), Some("")).await.unwrap().viewer.all,
        "no name is not all of them"
    );
}
