//! Which form of answer a request accepts.

use axum::http::{HeaderMap, header};

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// JSON.
    Json,
    /// YAML, in which every JSON document is valid.
    Yaml,
    /// The discovery of all groups in one document, of this version of `apidiscovery.k8s.io`.
    Discovery(&'static str),
}

impl Form {
    pub(super) fn media_type(self) -> String {
        match self {
            Self::Json => "application/json".to_owned(),
            Self::Yaml => "application/yaml".to_owned(),
            Self::Discovery(version) => {
                format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList")
            }
        }
    }
}

/// The first accepted form that is supported; JSON, if the request names none.
pub(super) fn form(headers: &HeaderMap, discovers: bool) -> Option<Form> {
    let mut named = false;
    for value in headers.get_all(header::ACCEPT) {
        let Ok(text) = value.to_str() else { continue };
        for clause in text.split(',').map(str::trim).filter(|clause| !clause.is_empty()) {
            named = true;
            if let Some(form) = of_clause(clause, discovers) {
                return Some(form);
            }
        }
    }
    (!named).then_some(Form::Json)
}

fn of_clause(clause: &str, discovers: bool) -> Option<Form> {
    let mut parts = clause.split(';').map(str::trim);
    let media = parts.next()?.to_ascii_lowercase();
    let (mut as_kind, mut version) = (None, None);
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name.trim() {
            "as" => as_kind = Some(value.trim()),
            "v" => version = Some(value.trim()),
            "q" if value.trim().parse() == Ok(0.0) => return None,
            _ => {}
        }
    }
    match (media.as_str(), as_kind) {
        ("application/json" | "application/*" | "*/*", None) => Some(Form::Json),
        ("application/yaml" | "application/x-yaml", None) => Some(Form::Yaml),
        ("application/json", Some("APIGroupDiscoveryList")) if discovers => {
            ["v2", "v2beta1"].into_iter().find(|known| version == Some(known)).map(Form::Discovery)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(accept: &[&str], discovers: bool) -> Option<Form> {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(header::ACCEPT, value.parse().unwrap());
        }
        form(&headers, discovers)
    }

    #[test]
    fn json_is_the_usual_form_and_what_is_not_there_is_refused() {
        for accept in [&[][..], &["application/json, */*"], &["*/*"], &[""], &["application/*;q=0.5"]] {
            assert_eq!(of(accept, false), Some(Form::Json), "{accept:?}");
        }
        assert_eq!(of(&["application/yaml"], false), Some(Form::Yaml));
        for refused in [
            "application/vnd.kubernetes.protobuf",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "text/html",
            "application/json;q=0",
            ";;;",
        ] {
            assert_eq!(of(&[refused], true), None, "{refused}");
        }
        // A generated client's header: the first supported form is used.
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(of(&[table], false), Some(Form::Json));
        assert_eq!(of(&["application/vnd.kubernetes.protobuf,application/json"], false), Some(Form::Json));
    }

    #[test]
    fn aggregated_discovery_is_given_where_there_is_some() {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(of(&[accept], true), Some(Form::Discovery("v2")));
        assert_eq!(of(&[accept], false), Some(Form::Json));
        let unknown = "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList";
        assert_eq!(of(&[unknown], true), None);
    }
}
