use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::http::Uri;

use super::*;
use crate::fake_api::{self, found};

const REMEMBER: Duration = Duration::from_mins(1);
const HERE: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));

fn headers(authorization: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(value) = authorization {
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
    }
    headers
}

#[test]
fn only_bearer_tokens_count() {
    let of = |value: &str| bearer(&headers(Some(value))).map(str::to_owned);
    assert_eq!(of("Bearer abc").as_deref(), Some("abc"));
    assert_eq!(of("bearer  abc").as_deref(), Some("abc"));
    assert_eq!(of("Basic abc"), None);
    assert_eq!(of("Bearer "), None);
    assert_eq!(bearer(&headers(None)), None);
    assert_eq!(of(&format!("Bearer {}", "x".repeat(LONGEST + 1))), None);
}

#[test]
fn the_review_asks_for_the_path_or_the_object_in_the_users_name() {
    let user = User {
        username: "prometheus".to_owned(),
        groups: vec!["system:authenticated".to_owned()],
        ..User::default()
    };
    let review = spec(&user, &Attributes::Path { verb: "get", path: "/metrics".to_owned() });
    assert_eq!(review["user"], "prometheus");
    assert_eq!(review["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
    assert!(review.get("extra").is_none());
    let object = Attributes::Object {
        verb: "get",
        group: "g",
        version: "v1",
        resource: "rs",
        subresource: "s",
        namespace: "ns".to_owned(),
        name: "n".to_owned(),
    };
    let user = User { extra: json!({"scopes": ["one"]}), ..user };
    let review = spec(&user, &object);
    assert_eq!(review["resourceAttributes"]["subresource"], "s");
    assert_eq!(review["resourceAttributes"]["namespace"], "ns");
    assert_eq!(review["extra"], json!({"scopes": ["one"]}));
}

/// An API server that knows the token `good` and allows what is at `/yes`; how often it was asked.
fn access() -> (Access, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let client = fake_api::client(move |_: Method, uri: Uri, body: Bytes| {
        counted.fetch_add(1, Ordering::Relaxed);
        let review: Value = serde_json::from_slice(&body).unwrap();
        async move {
            if uri.path().ends_with("/tokenreviews") {
                let good = review["spec"]["token"] == "good";
                return found(&json!({"status": {"authenticated": good, "user": {"username": "alice"}}}));
            }
            found(&json!({"status": {"allowed": review["spec"]["nonResourceAttributes"]["path"] == "/yes"}}))
        }
    });
    (Access::new(client, REMEMBER), asked)
}

#[tokio::test]
async fn answers_are_asked_for_once_and_yes_and_no_are_remembered() {
    let (access, asked) = access();
    for _ in 0..5 {
        assert_eq!(access.user_of("good", HERE).await.unwrap().unwrap().username, "alice");
        assert_eq!(access.user_of("bad", HERE).await.unwrap(), None);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let alice = access.user_of("good", HERE).await.unwrap().unwrap();
    let path = |path: &str| Attributes::Path { verb: "get", path: path.to_owned() };
    for _ in 0..5 {
        assert!(access.may(&alice, &path("/yes")).await.unwrap());
        assert!(!access.may(&alice, &path("/no")).await.unwrap());
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    // The answer for one is not that for another of the same name.
    let other = User { uid: "2".to_owned(), ..alice.clone() };
    assert!(access.may(&other, &path("/yes")).await.unwrap());
    assert_eq!(asked.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn a_token_that_was_good_is_renewed_while_strangers_use_up_their_turns() {
    let (access, _) = access();
    let now = Instant::now();
    assert!(access.user_at("good", HERE, now).await.unwrap().is_some());
    let flood = async |at: Instant| {
        let mut refused = false;
        for n in 0..=STRANGER.burst {
            refused |= access.user_at(&format!("{at:?} {n}"), HERE, at).await.is_err();
        }
        refused
    };
    for minute in 1..4 {
        let at = now + REMEMBER * minute;
        assert!(flood(at).await, "no stranger is left a turn");
        assert!(access.user_at("good", HERE, at).await.unwrap().is_some());
    }
    // One that turned out bad is a stranger's from then on.
    let at = now + REMEMBER * 5;
    assert_eq!(access.user_at("bad", HERE, at).await.unwrap(), None);
    assert!(flood(at + REMEMBER).await);
    assert!(matches!(access.user_at("bad", HERE, at + REMEMBER).await, Err(AccessError::TooMany)));
}

#[test]
fn rights_to_one_object_are_part_of_those_to_all_of_its_namespace_and_of_all() {
    let of = |namespace: &str, name: &str| Attributes::Object {
        verb: "get",
        group: "g",
        version: "v1",
        resource: "rs",
        subresource: "s",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    assert_eq!(of("ns", "n").broader(), [of("", ""), of("ns", "")]);
    assert_eq!((of("", "n").broader(), of("", "").broader()), (vec![of("", "")], Vec::new()));
    assert!(Attributes::Path { verb: "get", path: "/metrics".to_owned() }.broader().is_empty());
}

#[tokio::test]
async fn a_flood_of_questions_reaches_the_api_server_seldom() {
    let (access, asked) = access();
    let (mut refused, now) = (0, Instant::now());
    for n in 0..200 {
        let user = access.user_at(&format!("t{n}"), HERE, now).await;
        refused += usize::from(matches!(user, Err(AccessError::TooMany)));
    }
    assert!(refused > 150 && asked.load(Ordering::Relaxed) < 50);
    let (access, asked) = self::access();
    let mallory = User { username: "mallory".to_owned(), ..User::default() };
    for n in 0..500 {
        let path = Attributes::Path { verb: "get", path: format!("/{n}") };
        let _ = access.may_at(&mallory, &path, now).await;
    }
    assert!(asked.load(Ordering::Relaxed) < 100);
    assert!(
        access
            .may(&User::default(), &Attributes::Path { verb: "get", path: "/yes".to_owned() })
            .await
            .unwrap()
    );
}

/// How many of `count` made-up tokens from an address the API server is asked about.
async fn strangers(access: &Access, from: &str, count: usize, now: Instant) -> usize {
    let mut asked = 0;
    for n in 0..count {
        let token = format!("made up {from} {n} {now:?}");
        asked += usize::from(access.user_at(&token, Some(from.parse().unwrap()), now).await.is_ok());
    }
    asked
}

#[tokio::test]
async fn strangers_at_one_address_do_not_use_up_the_turns_of_the_others() {
    let (access, _) = access();
    let now = Instant::now();
    assert_eq!(strangers(&access, "10.0.0.1", 1_000, now).await, STRANGER.burst as usize);
    // A new token from elsewhere is asked about all the same: that of Prometheus after a rotation.
    let elsewhere = Some("10.0.0.2".parse().unwrap());
    assert_eq!(access.user_at("good", elsewhere, now).await.unwrap().unwrap().username, "alice");
    // All together ask seldom, too, and then each address gets its turns back.
    let mut asked = 0;
    for host in 3..200 {
        asked += strangers(&access, &format!("10.0.0.{host}"), 20, now).await;
    }
    assert_eq!(asked, (STRANGERS.burst - STRANGER.burst - 1) as usize);
    let later = now + Duration::from_secs(2);
    assert_eq!(strangers(&access, "10.0.0.1", 100, later).await, 2 * STRANGER.per_second as usize);
}

#[tokio::test]
async fn all_addresses_of_a_network_of_ipv6_are_one() {
    let (access, _) = access();
    let now = Instant::now();
    assert_eq!(strangers(&access, "2001:db8:1:2::1", 100, now).await, STRANGER.burst as usize);
    assert_eq!(strangers(&access, "2001:db8:1:2:3:4:5:6", 100, now).await, 0);
    assert_eq!(strangers(&access, "2001:db8:1:3::1", 1, now).await, 1);
    assert_eq!(network(Some("::ffff:10.0.0.1".parse().unwrap())), "10.0.0.1");
}
