//! The user of a request, from the headers of the API server's proxy (requestheader authentication). They count only if the proxy has authenticated:
//! see [`super::front_proxy`].

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use serde_json::json;

use super::User;
use crate::percent::decoded;

/// The names of the headers, as the cluster is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderNames {
    /// The headers with the user's name: the first that is present counts.
    pub user: Vec<String>,
    /// The user's UID.
    pub uid: Vec<String>,
    /// The groups: all values of all of them.
    pub group: Vec<String>,
    /// The prefixes of headers with further attributes.
    pub extra_prefix: Vec<String>,
}

impl HeaderNames {
    /// The user that the headers name.
    pub fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| names.iter().find_map(|name| values(headers, name).next());
        let username = first(&self.user).filter(|name| !name.is_empty())?;
        let groups = self.group.iter().flat_map(|name| values(headers, name)).collect();
        let mut extra = BTreeMap::<String, Vec<String>>::new();
        for prefix in &self.extra_prefix {
            let prefix = prefix.to_ascii_lowercase();
            for (name, value) in headers {
                let Some(key) = name.as_str().strip_prefix(&prefix) else { continue };
                let key = decoded(key).unwrap_or_else(|| key.to_owned()).to_ascii_lowercase();
                extra.entry(key).or_default().push(String::from_utf8_lossy(value.as_bytes()).into_owned());
            }
        }
        let extra = if extra.is_empty() { serde_json::Value::Null } else { json!(extra) };
        Some(User { username, uid: first(&self.uid).unwrap_or_default(), groups, extra })
    }
}

fn values<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = String> + 'a {
    // An invalid header name has no values.
    headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> HeaderNames {
        let one = |name: &str| vec![name.to_owned()];
        HeaderNames {
            user: one("X-Remote-User"),
            uid: one("X-Remote-Uid"),
            group: one("X-Remote-Group"),
            extra_prefix: one("X-Remote-Extra-"),
        }
    }

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_user_is_read_with_groups_and_decoded_extras() {
        let user = names().user(&headers(&[
            ("x-remote-user", "alice"),
            ("x-remote-uid", "u1"),
            ("x-remote-group", "dev"),
            ("x-remote-group", "system:authenticated"),
            ("x-remote-extra-example.com%2fscopes", "one"),
            ("x-remote-extra-example.com%2fscopes", "two"),
        ]));
        let user = user.unwrap();
        assert_eq!((user.username.as_str(), user.uid.as_str()), ("alice", "u1"));
        assert_eq!(user.groups, ["dev", "system:authenticated"]);
        assert_eq!(user.extra, json!({"example.com/scopes": ["one", "two"]}));
    }

    #[test]
    fn without_a_name_there_is_no_user() {
        assert_eq!(names().user(&headers(&[("x-remote-group", "system:masters")])), None);
        assert_eq!(names().user(&headers(&[("x-remote-user", "")])), None);
        // Without configuration nothing counts.
        assert_eq!(HeaderNames::default().user(&headers(&[("x-remote-user", "alice")])), None);
        let odd = HeaderNames { user: vec!["no header's name".to_owned()], ..names() };
        assert_eq!(odd.user(&headers(&[("x-remote-user", "alice")])), None);
    }
}
