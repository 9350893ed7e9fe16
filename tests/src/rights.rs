//! What an account may do.

use anyhow::Result;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use sluice_testkit::wait::{eventually, progress};

use crate::place::DEADLINE;

/// Waits until the account of a client may do this (`create`, …) with a resource (`jobs`, …) of a group in a namespace, or in all: the API server learns
/// of a role and its binding a moment after they were made.
///
/// # Errors
///
/// If the API server does not allow it within three minutes ([`DEADLINE`]).
pub async fn wait_until_allowed(
    client: &Client,
    namespace: Option<&str>,
    verb: &str,
    (group, resource): (&str, &str),
) -> Result<()> {
    let attributes = ResourceAttributes {
        namespace: namespace.map(str::to_owned),
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let question = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    eventually(&format!("to be allowed to {verb} {resource}"), DEADLINE, || async {
        let status = reviews.create(&PostParams::default(), &question).await?.status.unwrap_or_default();
        Ok(progress(status.allowed, format!("{status:?}")))
    })
    .await
}
