//! How many requests were made of the API server, and what it answered.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{Method, Request, Response, StatusCode};
use kube::Config;
use tower::Service;

/// The methods of requests to an API server.
static METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// The usual codes of answers; 0 stands for no answer.
const CODES: [u16; 16] = [0, 200, 201, 202, 400, 401, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504];

/// Counts requests to one API server. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    host: Arc<str>,
    counts: Arc<Counts>,
}

/// Each request is counted, so the usual ones cost one addition.
#[derive(Debug, Default)]
struct Counts {
    usual: [[AtomicU64; CODES.len()]; 5],
    others: Mutex<Totals>,
}

/// Numbers of requests by the code of the answer, `None` if there was none, and by method. They are exact up to 2^53.
type Totals = BTreeMap<(Option<u16>, String), f64>;

impl Requests {
    /// A counter for the API server of a connection.
    pub fn of(config: &Config) -> Self {
        let host = config.cluster_url.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        // Without the name and password that may stand before it.
        let host = host.rsplit('@').next().unwrap_or_default();
        Self { host: Arc::from(host), counts: Arc::default() }
    }

    /// The API server's host, with its port if the connection names one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Counts one request, by the code of its answer, if there was one.
    pub fn count(&self, method: &Method, code: Option<StatusCode>) {
        let code = code.map(|code| code.as_u16());
        let row = METHODS.iter().position(|usual| usual == method);
        let column = CODES.iter().position(|usual| *usual == code.unwrap_or(0));
        match row.zip(column) {
            Some((row, column)) => {
                self.counts.usual[row][column].fetch_add(1, Ordering::Relaxed);
            }
            None => *self.others().entry((code, method.as_str().to_owned())).or_default() += 1.0,
        }
    }

    /// The numbers of requests so far, by the code of the answer, `None` if there was none, and by method.
    pub fn totals(&self) -> Totals {
        let mut totals = self.others().clone();
        for (method, counts) in METHODS.iter().zip(&self.counts.usual) {
            for (code, count) in CODES.iter().zip(counts) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let code = Some(*code).filter(|code| *code != 0);
                    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53")]
                    totals.insert((code, method.as_str().to_owned()), count as f64);
                }
            }
        }
        totals
    }

    fn others(&self) -> MutexGuard<'_, Totals> {
        self.counts.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service whose requests are counted.
pub(crate) struct Counted<S> {
    inner: S,
    requests: Requests,
}

impl<S> Counted<S> {
    pub(crate) fn new(inner: S, requests: Requests) -> Self {
        Self { inner, requests }
    }
}

impl<S, B, A> Service<Request<B>> for Counted<S>
where
    S: Service<Request<B>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let open = Open { requests: self.requests.clone(), method: request.method().clone(), code: None };
        let answer = self.inner.call(request);
        Box::pin(async move {
            // As a whole: it ends with the answer.
            let mut open = open;
            let answer = answer.await;
            open.code = answer.as_ref().ok().map(Response::status);
            answer
        })
    }
}

/// A request under way. It is counted at its end, also if its sender stops waiting for the answer.
struct Open {
    requests: Requests,
    method: Method,
    code: Option<StatusCode>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.requests.count(&self.method, self.code);
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test]
    async fn requests_count_by_what_came_of_them_and_those_without_an_answer_too() {
        let requests = Requests::of(&Config::new("https://eve:secret@10.0.0.1:443/base".parse().unwrap()));
        let server = service_fn(|request: Request<u16>| {
            let code = StatusCode::from_u16(*request.body());
            ready(code.map(|code| Response::builder().status(code).body(()).unwrap()))
        });
        let ask = |method: Method, answer: u16| {
            let request = Request::builder().method(method).body(answer).unwrap();
            Counted::new(server, requests.clone()).oneshot(request)
        };
        for (method, answer) in [(Method::GET, 200), (Method::GET, 200), (Method::PATCH, 409)] {
            assert_eq!(ask(method, answer).await.unwrap().status(), answer);
        }
        ask(Method::GET, 0).await.unwrap_err();
        let silent = service_fn(|_: Request<()>| std::future::pending::<Result<Response<()>, ()>>());
        let call = Counted::new(silent, requests.clone()).call(Request::new(()));
        assert_eq!(requests.totals().values().sum::<f64>().to_string(), "4");
        drop(call);
        let totals: Vec<_> = requests
            .totals()
            .into_iter()
            .map(|((code, method), n)| format!("{code:?} {method} {n}"))
            .collect();
        assert_eq!(totals, ["None GET 2", "Some(200) GET 2", "Some(409) PATCH 1"]);
        assert_eq!(requests.host(), "10.0.0.1:443");
    }

    #[test]
    fn unusual_requests_are_counted_like_the_usual_ones_which_wait_for_nothing() {
        let requests = Requests::default();
        let held = requests.others();
        requests.count(&Method::PATCH, Some(StatusCode::OK));
        drop(held);
        requests.clone().count(&Method::PATCH, Some(StatusCode::OK));
        for method in [Method::HEAD, Method::PATCH, Method::HEAD] {
            requests.count(&method, Some(StatusCode::IM_A_TEAPOT));
        }
        requests.count(&Method::DELETE, None);
        let totals = requests.totals().into_iter();
        let totals: Vec<_> = totals.map(|((code, method), n)| format!("{code:?} {method} {n}")).collect();
        assert_eq!(totals, ["None DELETE 1", "Some(200) PATCH 2", "Some(418) HEAD 2", "Some(418) PATCH 1"]);
    }
}
