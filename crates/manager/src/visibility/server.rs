//! The HTTPS side: authentication, authorization, and answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Extension, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sluice_api::journal::Line;
use sluice_client::error_chain::Chain;
use sluice_client::version;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tracing::{error, warn};

use super::board::Order;
use super::discovery::{self, EXPLANATION, JOURNAL, WHAT_IF};
use super::negotiate::{Form, form};
use super::publish::{Found, Published};
use super::route::{ALL, EXPLAIN_GROUP, EXPLAIN_VERSION, Route, Wishes, asked, change, page, wishes};
use super::status::Refusal;
use super::{openapi, summary::summary};
use crate::access::front_proxy::{ClientCertificate, FrontProxy};
use crate::access::{Access, AccessError, Asking, Attributes, OneEach, Rate, User, address, bearer};
use crate::explain::{Asked, Explains, Format};
use crate::journal::{self, JournalError, Page};
use crate::serve::body::Keep;
use crate::serve::{self, Bounds, Tls};
use crate::shutdown::Stop;
use crate::supervise::blocking;

/// Items from which on an answer counts as large.
const LARGE: usize = 5000;
/// Large answers at once, until they are sent: each may have thirty megabytes.
const LARGE_AT_ONCE: usize = 2;
/// Pages of the journal at once, until they are sent. A volume that does not answer holds up these alone.
const JOURNALS_AT_ONCE: usize = 2;
/// Other answers at once.
const SMALL_AT_ONCE: usize = 32;
/// How long an answer waits for its turn.
const TURN: Duration = Duration::from_secs(5);
/// Explanations for one user, and for all.
const EXPLANATIONS: Rate = Rate { burst: 5, per_second: 1 };
const ALL_EXPLANATIONS: Rate = Rate { burst: 20, per_second: 5 };
/// Users of this group may do everything, as the API server has it.
pub(crate) const MASTERS: &str = "system:masters";

/// The sources of answers.
pub struct Server {
    published: Arc<Published>,
    access: Access,
    proxy: FrontProxy,
    explains: Arc<dyn Explains>,
    /// The journal, if there is one.
    journal: Option<journal::Reader>,
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    journals: Arc<Semaphore>,
    explanations: OneEach,
}

impl Server {
    /// A server of what is published.
    pub fn new(
        published: Arc<Published>,
        access: Access,
        proxy: FrontProxy,
        explains: Arc<dyn Explains>,
        journal: Option<journal::Reader>,
    ) -> Self {
        Self {
            published,
            access,
            proxy,
            explains,
            journal,
            small: Arc::new(Semaphore::new(SMALL_AT_ONCE)),
            large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            journals: Arc::new(Semaphore::new(JOURNALS_AT_ONCE)),
            explanations: OneEach::new("explanations", EXPLANATIONS, ALL_EXPLANATIONS),
        }
    }

    /// The user of a request: the one that the API server's proxy names, or the owner of a token.
    async fn user(
        &self,
        certificate: Option<&ClientCertificate>,
        Asking { headers, from }: Asking<'_>,
    ) -> Result<User, Refusal> {
        if let Some(user) = self.proxy.user(certificate, headers) {
            return Ok(user);
        }
        let Some(token) = bearer(headers) else { return Err(Refusal::Unauthorized) };
        self.access.user_of(token, from).await.map_err(refused)?.ok_or(Refusal::Unauthorized)
    }

    async fn may(&self, user: &User, what: &Attributes) -> Result<bool, Refusal> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(true);
        }
        self.access.may(user, what).await.map_err(refused)
    }

    /// Whether a user may do something with an object. The right to all such objects is checked first, so that a user who has it costs one question.
    async fn may_one_of_many(&self, user: &User, what: &Attributes) -> Result<bool, Refusal> {
        for all in what.broader() {
            if self.may(user, &all).await? {
                return Ok(true);
            }
        }
        self.may(user, what).await
    }

    async fn answer(
        self: &Arc<Self>,
        method: &Method,
        uri: &Uri,
        certificate: Option<&ClientCertificate>,
        asking: Asking<'_>,
    ) -> Result<Response, Refusal> {
        let route = Route::of(uri.path());
        if route == Some(Route::Health) {
            return Ok("ok".into_response());
        }
        let user = self.user(certificate, asking).await?;
        let route = route.ok_or(Refusal::NoPath)?;
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Refusal::Method);
        }
        if let Some(what) = route.attributes()
            && !self.may_one_of_many(&user, &what).await?
        {
            return Err(forbidden(&user, &what));
        }
        let form = form(asking.headers, route.discovers()).ok_or(Refusal::Accept)?;
        let query = uri.query().unwrap_or_default();
        let journal = self.journal.is_some();
        let documents = format!("{}{}", version::VERSION, if journal { "-journal" } else { "" });
        let document = match route {
            Route::Health | Route::Groups => match form {
                Form::Discovery(version) => discovery::aggregated(version, journal),
                _ => discovery::groups(),
            },
            Route::Group(group) => discovery::group(group),
            Route::Resources(group, version) => discovery::list(group, version, journal),
            Route::OpenApi2 => openapi::v2(journal),
            Route::OpenApi3Index => openapi::v3_index(&documents),
            Route::OpenApi3(group, version) => openapi::v3(group, version, journal),
            Route::ClusterQueue(..) | Route::LocalQueue(..) => return self.pending(route, query, form).await,
            Route::Explain(namespace, name) => self.explain(&user, namespace, name, query, None).await?,
            Route::WhatIf(namespace, name) => {
                let change = change(query).map_err(Refusal::BadRequest)?;
                self.explain(&user, namespace, name, query, Some(change)).await?
            }
            Route::Journal(queue) => return self.journal(queue, query, form).await,
        };
        Ok(written(form, document.to_string().into_bytes()))
    }

    /// The Workloads that wait in a queue.
    async fn pending(self: &Arc<Self>, route: Route, query: &str, form: Form) -> Result<Response, Refusal> {
        let page = page(query).map_err(Refusal::BadRequest)?;
        let turn = turn(if page.limit > LARGE { &self.large } else { &self.small }).await?;
        let server = Arc::clone(self);
        // A long queue is put in order here.
        let making = made(&turn, move || match route {
            Route::LocalQueue(version, namespace, name) => {
                let key = (namespace.into(), name.as_str().into());
                let order = found(server.published.local_queue(&key), "localqueue", &name)?;
                Ok(summary(version, order.page_of(&key, page)))
            }
            Route::ClusterQueue(version, name) => {
                let order = found(server.published.cluster_queue(&name), "clusterqueue", &name)?;
                Ok(summary(version, order.page(page)))
            }
            _ => Err(Refusal::NoPath),
        });
        let body = making.await.unwrap_or_else(|panic| {
            error!(%panic, "an answer could not be made");
            Err(Refusal::Other(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made".to_owned()))
        })?;
        let mut response = written(form, body);
        response.extensions_mut().insert(Keep(turn));
        Ok(response)
    }

    /// Lines of the journal.
    async fn journal(&self, queue: String, query: &str, form: Form) -> Result<Response, Refusal> {
        let Some(reader) = self.journal.clone() else { return Err(Refusal::NoPath) };
        let asked = asked(query).map_err(Refusal::BadRequest)?;
        let turn = turn(&self.journals).await?;
        let read = made(&turn, move || {
            let page = reader.page(&asked)?;
            Ok(journal_page(&queue, page).to_string().into_bytes())
        });
        let read: Result<Vec<u8>, JournalError> = read.await.unwrap_or_else(|panic| {
            error!(%panic, "the journal could not be read");
            Err(JournalError::Files(std::io::Error::other("reading it failed")))
        });
        let body = read.map_err(|error| match error {
            JournalError::Token => Refusal::BadRequest(error.to_string()),
            JournalError::Files(_) => {
                warn!(error = %Chain(&error), "the journal could not be read");
                Refusal::Unavailable(error.to_string())
            }
        })?;
        let mut response = written(form, body);
        response.extensions_mut().insert(Keep(turn));
        Ok(response)
    }

    /// Why a Workload waits, or the effect of a change of its job. Names of other namespaces are shown to users who may read explanations in all of
    /// them.
    async fn explain(
        &self,
        user: &User,
        namespace: String,
        name: String,
        query: &str,
        change: Option<Value>,
    ) -> Result<Value, Refusal> {
        let (subresource, kind_of_answer, field) = match change {
            None => ("explain", EXPLANATION, "explanation"),
            Some(_) => ("whatif", WHAT_IF, "whatIf"),
        };
        let everywhere = Attributes::Object {
            verb: "get",
            group: EXPLAIN_GROUP,
            version: EXPLAIN_VERSION,
            resource: "workloads",
            subresource,
            namespace: String::new(),
            name: String::new(),
        };
        let Wishes { all, output, kind } = wishes(query).map_err(Refusal::BadRequest)?;
        let all = all && self.may(user, &everywhere).await?;
        let _one = self.explanations.take(&user.username)?;
        // Without an answer nodes and other teams' queues are counted, not named.
        let nodes = self.may(user, &Attributes::list_nodes()).await.unwrap_or(false);
        let queues = self.may(user, &Attributes::list_cluster_queues()).await.unwrap_or(false);
        let user = user.username.clone();
        let asked = Asked { output, all, nodes, user, kind, change, any_replica: true };
        let answer = self.explains.explain_to(namespace.clone(), name.clone(), asked, queues).await;
        let text = answer.map_err(|refused| match refused.0 {
            StatusCode::BAD_REQUEST => Refusal::BadRequest(refused.1),
            StatusCode::NOT_FOUND => Refusal::NoObject("workloads", EXPLAIN_GROUP, name.clone()),
            StatusCode::TOO_MANY_REQUESTS => Refusal::TooMany(refused.1),
            StatusCode::SERVICE_UNAVAILABLE => Refusal::Unavailable(refused.1),
            code => Refusal::Other(code, refused.1),
        })?;
        let mut document = json!({
            "kind": kind_of_answer, "apiVersion": format!("{EXPLAIN_GROUP}/{EXPLAIN_VERSION}"),
            "metadata": {"name": name, "namespace": namespace},
        });
        match output {
            Format::Text => document["text"] = json!(text),
            Format::Json => document[field] = serde_json::from_str(&text).unwrap_or_default(),
            Format::Both => {
                let both: Value = serde_json::from_str(&text).unwrap_or_default();
                (document["text"], document[field]) = (both["text"].clone(), both["explanation"].clone());
            }
        }
        Ok(document)
    }
}

/// A turn to make an answer, and to send it.
async fn turn(turns: &Arc<Semaphore>) -> Result<Arc<OwnedSemaphorePermit>, Refusal> {
    match tokio::time::timeout(TURN, Arc::clone(turns).acquire_owned()).await {
        Ok(Ok(turn)) => Ok(Arc::new(turn)),
        _ => Err(Refusal::TooMany("too many answers are being made: try again".to_owned())),
    }
}

/// Makes something on a thread of its own, not on those that serve the others. The thread keeps the turn until it is done: it goes on when the caller
/// is gone.
async fn made<T: Send + 'static>(
    turn: &Arc<OwnedSemaphorePermit>,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let turn = Arc::clone(turn);
    let making = move || {
        let _turn = turn;
        make()
    };
    blocking("an answer of the aggregated APIs", making).await
}

/// A page of the journal, with the lines about one ClusterQueue, or all.
fn journal_page(queue: &str, page: Page) -> Value {
    let is_wanted = |line: &Line| queue == ALL || line.cluster_queue().is_none_or(|of| of == queue);
    let lines: Vec<_> = page.lines.into_iter().filter(is_wanted).collect();
    let mut metadata = json!({"name": queue, "continue": page.token.unwrap_or_default()});
    if let Some(oldest) = page.oldest {
        metadata["oldest"] = json!(oldest.to_string());
    }
    json!({
        "kind": JOURNAL, "apiVersion": format!("{EXPLAIN_GROUP}/{EXPLAIN_VERSION}"),
        "metadata": metadata, "lines": lines,
    })
}

fn found(found: Found<Arc<Order>>, resource: &'static str, name: &str) -> Result<Arc<Order>, Refusal> {
    match found {
        Found::Found(order) => Ok(order),
        Found::Nothing => Err(Refusal::NoObject(resource, sluice_api::visibility::GROUP, name.to_owned())),
        Found::NotYet => Err(Refusal::Unavailable("not everything has been listed yet".to_owned())),
    }
}

/// Why a question about a caller has no answer.
pub(crate) fn refused(error: AccessError) -> Refusal {
    match error {
        AccessError::TooMany => Refusal::TooMany("too many questions: try again".to_owned()),
        AccessError::Call(error) => {
            warn!(error = %Chain(&error), "a caller could not be checked");
            Refusal::Other(StatusCode::INTERNAL_SERVER_ERROR, "the API server cannot be asked".to_owned())
        }
    }
}

fn forbidden(user: &User, what: &Attributes) -> Refusal {
    let name = &user.username;
    Refusal::Forbidden(match what {
        Attributes::Path { verb, path } => format!("User {name:?} cannot {verb} path {path:?}"),
        Attributes::Object { verb, group, resource, subresource, namespace, name: object, .. } => {
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            format!(
                "{resource}.{group} {object:?} is forbidden: User {name:?} cannot {verb} resource \"{resource}/{subresource}\" in API \
                 group {group:?} {place}"
            )
        }
    })
}

fn written(form: Form, body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, form.media_type())], body).into_response()
}

/// Serves until stopped.
pub async fn serve(listener: TcpListener, tls: Tls, server: Server, bounds: Bounds, stop: Stop) {
    serve::serve(listener, Some(tls), router(server), bounds, stop).await;
}

fn router(server: Server) -> Router {
    Router::new().fallback(answer).with_state(Arc::new(server))
}

async fn answer(
    State(server): State<Arc<Server>>,
    certificate: Option<Extension<ClientCertificate>>,
    connection: Option<Extension<ConnectInfo<SocketAddr>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let certificate = certificate.map(|Extension(certificate)| certificate);
    let asking = Asking { headers: &headers, from: address(connection.as_deref()) };
    let answered = server.answer(&method, &uri, certificate.as_ref(), asking).await;
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    if response.status() == StatusCode::UNAUTHORIZED {
        // The proxy may have connected before its certificate was asked for: the next connection proves it.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests;
