//! Faults of some requests for a while: several at the same time, each with its own share.

use std::time::{Duration, Instant};

use http::{Method, Response, StatusCode, header};
use kube::client::Body;

/// The fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// The request is refused with this status, and not carried out.
    Refuse(u16),
    /// The request is carried out after this time.
    Slow(Duration),
    /// The request is carried out, and the connection breaks before the answer.
    LoseAnswer,
    /// The connection breaks, and it is not carried out.
    LoseRequest,
    /// A watch begins, and says at once that its version is too old.
    ExpireWatch,
}

impl Harm {
    /// Whether it affects only watches.
    pub fn is_for_watches(self) -> bool {
        matches!(self, Self::Refuse(410) | Self::ExpireWatch)
    }

    /// Whether it is for a request like this. Leases are left alone by all that answers wrongly: a test that wants to end a leadership does
    /// it with a delay, or by a cut.
    fn is_for(self, method: &Method, path: &str, query: &str) -> bool {
        let watch = query.split('&').any(|part| part == "watch=true" || part == "watch=1");
        let lease = path.contains("/leases/");
        match self {
            // A list that is refused as too old is repeated at once, so this fault only makes sense for watches.
            _ if self.is_for_watches() => watch,
            // The answer to a creation is that the name is taken, never a conflict.
            Self::Refuse(409) => !lease && (method == Method::PUT || method == Method::PATCH),
            Self::Refuse(_) | Self::LoseAnswer | Self::LoseRequest => !lease && !watch,
            Self::Slow(_) => !watch,
            Self::ExpireWatch => watch,
        }
    }
}

/// A fault of one in n requests, for a while.
#[derive(Clone, Copy, Debug)]
pub struct Disruption {
    /// The fault.
    pub harm: Harm,
    /// One of this many of the affected requests.
    pub one_in: u64,
    /// For how long.
    pub period: Duration,
}

#[derive(Debug)]
struct Running {
    disruption: Disruption,
    until: Instant,
    seen: u64,
}

/// The disruptions that continue.
#[derive(Debug, Default)]
pub(super) struct Disruptions {
    running: Vec<Running>,
    /// How many requests were harmed so far.
    pub(super) harmed: usize,
}

impl Disruptions {
    pub(super) fn begin(&mut self, disruption: Disruption) {
        let until = Instant::now() + disruption.period;
        self.running.push(Running { disruption, until, seen: 0 });
    }

    pub(super) fn end(&mut self) {
        self.running.clear();
    }

    /// The fault of this request, if any. Every n-th request is affected, so the share holds for few requests, too.
    pub(super) fn judge(&mut self, method: &Method, path: &str, query: &str) -> Option<Harm> {
        let now = Instant::now();
        self.running.retain(|running| running.until > now);
        let mut verdict = None;
        for running in &mut self.running {
            if running.disruption.harm.is_for(method, path, query) {
                running.seen += 1;
                if running.seen.is_multiple_of(running.disruption.one_in) {
                    verdict = verdict.or(Some(running.disruption.harm));
                }
            }
        }
        self.harmed += usize::from(verdict.is_some());
        verdict
    }
}

fn status(code: StatusCode, reason: &str) -> String {
    serde_json::json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "refused by the fault proxy",
        "reason": reason,
        "code": code.as_u16(),
    })
    .to_string()
}

fn answer(code: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into_bytes()));
    *response.status_mut() = code;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// A refusal as the API server sends it.
pub(super) fn refuse(code: StatusCode) -> Response<Body> {
    let reason = match code {
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::GONE => "Expired",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalError",
    };
    let mut response = answer(code, status(code, reason));
    if code == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    }
    response
}

/// A watch whose only event is that its version is too old.
pub(super) fn expired_watch() -> Response<Body> {
    let error = status(StatusCode::GONE, "Expired");
    answer(StatusCode::OK, format!("{{\"type\":\"ERROR\",\"object\":{error}}}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "/apis/batch/v1/namespaces/a/jobs/b";
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/a/leases/b";

    fn begun(harm: Harm, one_in: u64) -> Disruptions {
        let mut disruptions = Disruptions::default();
        disruptions.begin(Disruption { harm, one_in, period: Duration::from_mins(1) });
        disruptions
    }

    #[test]
    fn every_nth_request_is_harmed_until_the_end() {
        let mut disruptions = begun(Harm::LoseAnswer, 2);
        let mut judge = || disruptions.judge(&Method::PATCH, JOB, "");
        assert_eq!([judge(), judge(), judge(), judge()], [None, Some(Harm::LoseAnswer)].repeat(2)[..]);
        assert_eq!(disruptions.harmed, 2);
        disruptions.end();
        assert_eq!([(); 2].map(|()| disruptions.judge(&Method::PATCH, JOB, "")), [None; 2]);
    }

    #[test]
    fn a_harm_is_for_its_requests_only() {
        let mut conflicts = begun(Harm::Refuse(409), 1);
        assert!(conflicts.judge(&Method::PATCH, JOB, "").is_some());
        assert!(conflicts.judge(&Method::POST, JOB, "").is_none());
        assert!(conflicts.judge(&Method::PUT, LEASE, "").is_none());
        for harm in [Harm::Refuse(410), Harm::ExpireWatch] {
            let mut expired = begun(harm, 1);
            assert!(expired.judge(&Method::GET, "/apis/batch/v1/jobs", "limit=5").is_none());
            assert!(expired.judge(&Method::GET, "/apis/batch/v1/jobs", "a=b&watch=true").is_some());
        }
    }
}
