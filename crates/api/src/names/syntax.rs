//! Kubernetes' rules for names, label keys and label values; each check returns Kubernetes' message.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
    with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PATH: &str = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";

/// The error of a DNS-1123 subdomain: the form of most object names.
pub fn dns1123_subdomain_error(name: &str) -> Option<String> {
    if name.len() > 253 {
        return Some("must be no more than 253 characters".to_owned());
    }
    (!name.split('.').all(is_label)).then(|| SUBDOMAIN.to_owned())
}

/// The error of a DNS-1123 label: the form of the names of pod sets.
pub fn dns1123_label_error(name: &str) -> Option<String> {
    if name.len() > 63 {
        return Some("must be no more than 63 characters".to_owned());
    }
    (!is_label(name)).then(|| LABEL.to_owned())
}

fn is_label(part: &str) -> bool {
    ends_alphanumeric(part, lower_alphanumeric) && part.bytes().all(lower_or_dash)
}

/// The error of the key of a label or annotation.
pub fn qualified_name_error(key: &str) -> Option<String> {
    let name = match key.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            return Some("a qualified name must consist of a name and an optional DNS prefix".to_owned());
        }
        Some(("", _)) => return Some("prefix part must be non-empty".to_owned()),
        Some((prefix, name)) => {
            if let Some(error) = dns1123_subdomain_error(prefix) {
                return Some(format!("prefix part {error}"));
            }
            name
        }
        None => key,
    };
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 characters".to_owned());
    }
    (!word(name)).then(|| QUALIFIED.to_owned())
}

/// The error of a path below a domain, such as `example.com/a/b`.
pub fn domain_path_error(path: &str) -> Option<String> {
    let Some((domain, path)) =
        path.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        return Some("must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned());
    };
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    dns1123_subdomain_error(domain).or_else(|| (!path.bytes().all(legal)).then(|| PATH.to_owned()))
}

/// The error of the value of a label.
pub fn label_value_error(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 characters".to_owned());
    }
    (!value.is_empty() && !word(value)).then(|| LABEL_VALUE.to_owned())
}

fn word(text: &str) -> bool {
    ends_alphanumeric(text, |byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn ends_alphanumeric(text: &str, alphanumeric: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| alphanumeric(*byte))
        && bytes.last().is_some_and(|byte| alphanumeric(*byte))
}

fn lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn lower_or_dash(byte: u8) -> bool {
    lower_alphanumeric(byte) || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_are_subdomains() {
        for good in ["a", "user-queue", "a.b-c.1", "0"] {
            assert_eq!(dns1123_subdomain_error(good), None, "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b", ".a", "a.-b", &"a".repeat(254)] {
            assert!(dns1123_subdomain_error(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn label_keys_have_an_optional_prefix() {
        for good in ["a", "A_b.c-9", "example.com/a", "kueue.x-k8s.io/queue-name"] {
            assert_eq!(qualified_name_error(good), None, "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "Example/a", "-a", "a-", &"a".repeat(64)] {
            assert!(qualified_name_error(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_path_below_a_domain_may_have_more_slashes() {
        for good in ["example.com/a", "a/b", "example.com/team/approval", "example.com/~a:b%20c/", "a.io//"] {
            assert_eq!(domain_path_error(good), None, "{good}");
        }
        for bad in ["", "a", "/a", "a/", "Example/a", "a b/c", "a/b c", "a/b?c", "a/ä"] {
            assert!(domain_path_error(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn label_values_may_be_empty() {
        for good in ["", "a", "A_b.c-9", &"a".repeat(63)] {
            assert_eq!(label_value_error(good), None, "{good}");
        }
        for bad in ["-", "a-", "a b", "ä", &"a".repeat(64)] {
            assert!(label_value_error(bad).is_some(), "{bad}");
        }
    }
}
