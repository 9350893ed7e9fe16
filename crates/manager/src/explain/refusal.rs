//! Why there is no explanation.

use axum::http::StatusCode;
use sluice_client::error_chain::Chain;
use sluice_sim::explain::ExplainError;
use tracing::warn;

use super::Refused;

/// Others are asked about now.
pub(super) fn busy(why: &str) -> Refused {
    Refused(StatusCode::TOO_MANY_REQUESTS, why.to_owned())
}

/// No explanation is possible now.
pub(super) fn unavailable(why: &str) -> Refused {
    Refused(StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
}

/// There is no object of that name.
pub(super) fn not_found(namespace: &str, name: &str) -> Refused {
    Refused(StatusCode::NOT_FOUND, format!("there is no Workload or job {namespace}/{name}"))
}

/// Why there is no explanation, as an answer to the user.
pub(super) fn refused(error: &ExplainError, (namespace, name): (&str, &str), all: bool) -> Refused {
    match error {
        ExplainError::Unread(why) => unavailable(why),
        ExplainError::NotFound(_) => Refused(StatusCode::CONFLICT, error.to_string()),
        // Only users who see the names of all namespaces learn which object is the cause, and its content.
        ExplainError::Manifests(_) | ExplainError::Simulation(_) => {
            warn!(namespace, name, error = %Chain(error), "objects around a job cannot be simulated");
            let why = "objects around the job cannot be simulated: the manager's log says why";
            Refused(StatusCode::CONFLICT, if all { error.to_string() } else { why.to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_sim::{ManifestError, Source};

    use super::*;

    #[test]
    fn an_object_that_is_to_blame_is_named_to_those_who_see_all_namespaces() {
        let (at, path) = (Source { file: "jobsets".to_owned(), document: 3 }, String::new());
        let message = "JobSet secret: too many pod sets".to_owned();
        let error = ExplainError::Manifests(vec![ManifestError { at, path, message }]);
        let said = |all: bool| refused(&error, ("a", "j"), all);
        assert!(said(true).1.contains("secret"), "{:?}", said(true));
        assert!(!said(false).1.contains("secret") && said(false).0 == StatusCode::CONFLICT);
    }
}
