//! Errors of a URL or of the path of a file. No message repeats a URL that may contain a password.

use super::reader::Reader;

/// The longest URL, in bytes.
const MOST_URL: usize = 2048;

/// The absolute path of a file, or nothing.
pub(super) fn absolute_path(reader: &mut Reader<'_>, key: &'static str) -> String {
    let path = reader.string(key).unwrap_or_default();
    if !path.is_empty() && !path.starts_with('/') {
        reader.error(key, format!("expected an absolute path, found {path:?}"));
    }
    path
}

/// The error of any URL: its length, a password, a query, its characters. `instead` says where passwords belong.
pub(super) fn unusual(url: &str, instead: &str) -> Option<String> {
    if url.len() > MOST_URL {
        return Some(format!("must have at most {MOST_URL} bytes"));
    }
    // A password may have a slash in it: then its @ stands behind what looks like the host.
    if url.contains('@') {
        return Some(format!("must not have a user or password: {instead}"));
    }
    // A signed URL has its signature in the query.
    if url.contains(['?', '#']) {
        return Some("must have neither query nor fragment".to_owned());
    }
    let is_visible = url.bytes().all(|byte| byte.is_ascii_graphic());
    (!is_visible).then(|| "must consist of visible ASCII characters".to_owned())
}

/// The error of a server's URL.
pub(super) fn wrong_url(url: &str, instead: &str) -> Option<String> {
    let wrong = |why: &str| Some(format!("invalid value {url:?}: {why}"));
    if let Some(why) = unusual(url, instead) {
        return Some(why);
    }
    let Some(rest) = ["http://", "https://"].into_iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        return wrong("expected a URL that begins with http:// or https://");
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_ip6 = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
    };
    if host.is_empty() || !(host.bytes().all(usual) || is_ip6(host)) {
        return wrong("expected a host");
    }
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0) && !port.starts_with('+');
    if port.is_some_and(|port| !is_port(port)) {
        return wrong("expected a port from 1 to 65535");
    }
    None
}
