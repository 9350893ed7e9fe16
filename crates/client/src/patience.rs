//! Repeats reads when the API server says when to. Only reads are repeated: a write may have been carried out although its answer was lost.

use std::time::Duration;

use kube::Client;
use serde_json::Value;
use sluice_api::slim::AnyJson;

/// A question is asked so often at most.
const TRIES: usize = 10;
/// All waits between its answers together.
const PATIENCE: Duration = Duration::from_mins(1);

/// Reads a document. An answer that says after how many seconds to ask again is waited for: at most 10 times, and 60 s in all. That there are too
/// many requests says so, too. Of what is nested very deeply, the lowest levels are not read.
///
/// # Errors
/// When the API server does not answer, or refuses and does not want to be asked again, or still does after that.
pub async fn get(client: &Client, request: http::Request<Vec<u8>>) -> kube::Result<Value> {
    let ask = async || client.request(request.clone()).await.map(|AnyJson(document)| document);
    patiently(ask, async |wait| tokio::time::sleep(wait).await).await
}

/// Runs `ask`, and repeats it if the answer says when.
async fn patiently(
    ask: impl AsyncFn() -> kube::Result<Value>,
    wait: impl AsyncFn(Duration),
) -> kube::Result<Value> {
    let mut left = PATIENCE;
    for _ in 1..TRIES {
        let error = match ask().await {
            Err(kube::Error::Api(status)) => status,
            answer => return answer,
        };
        let said = error.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        // The API server's own refusal of too many requests has its time in a header alone, which the client does not keep.
        let seconds = if error.code == 429 { said.max(1) } else { said };
        let pause = Duration::from_secs(seconds.into());
        match left.checked_sub(pause).filter(|_| seconds > 0) {
            Some(rest) => left = rest,
            None => return Err(kube::Error::Api(error)),
        }
        wait(pause).await;
    }
    ask().await
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use serde_json::json;

    /// An answer with this status that requests a repeat after this many seconds.
    fn status(code: u16, seconds: u32) -> kube::Error {
        let details = json!({"retryAfterSeconds": seconds});
        let status = json!({"kind": "Status", "code": code, "message": "slowly", "details": details});
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    /// The outcome if all answers say these seconds, or a document follows them; and the waiting times.
    async fn asked(answers: &[(u16, u32)], then: Option<(u16, u32)>) -> (Option<u16>, Vec<u64>) {
        let (asked, waited) = (Cell::new(0), RefCell::new(Vec::new()));
        let ask = async || {
            let at = asked.replace(asked.get() + 1);
            match answers.get(at).copied().or(then) {
                Some((code, seconds)) => Err(status(code, seconds)),
                None => Ok(json!({})),
            }
        };
        let answer = patiently(ask, async |wait| waited.borrow_mut().push(wait.as_secs())).await;
        let code = match answer {
            Ok(_) => None,
            Err(kube::Error::Api(status)) => Some(status.code),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(asked.get(), waited.borrow().len() + 1);
        (code, waited.into_inner())
    }

    #[tokio::test]
    async fn a_server_that_says_when_to_ask_again_is_asked_then() {
        assert_eq!(asked(&[(429, 3), (503, 1), (429, 0)], None).await, (None, vec![3, 1, 1]));
        // Repeats are limited in number and time.
        assert_eq!(asked(&[], Some((429, 1))).await, (Some(429), vec![1; TRIES - 1]));
        assert_eq!(asked(&[(429, 50)], Some((429, 11))).await, (Some(429), vec![50]));
    }

    #[tokio::test]
    async fn an_answer_that_does_not_say_when_to_ask_again_is_the_last() {
        for code in [403, 404, 500, 503, 504] {
            assert_eq!(asked(&[], Some((code, 0))).await, (Some(code), vec![]), "{code}");
        }
    }
}
