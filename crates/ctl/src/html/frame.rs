//! The document around the pictures. Its policy allows only its own script, and no requests.

use std::fmt::Write as _;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::schedule::Schedule;

/// A file that the dashboard's page uses, too.
macro_rules! shared {
    ($name:literal) => {
        include_str!(concat!("../../../manager/src/dashboard/assets/", $name))
    };
}

const STYLE: &str = concat!("\n", shared!("theme.css"), include_str!("style.css"));
/// Modules, each after the ones that it needs.
const MODULES: [&str; 8] = [
    shared!("time.js"),
    shared!("dom.js"),
    shared!("signs.js"),
    shared!("visible.js"),
    shared!("gantt.js"),
    shared!("heat.js"),
    shared!("places.js"),
    include_str!("page.js"),
];
static SCRIPT: LazyLock<String> = LazyLock::new(|| bundled(&MODULES));

/// Modules as one script: a single-file page cannot import.
fn bundled(modules: &[&str]) -> String {
    let mut script = String::from("\n(() => {\n\"use strict\";\n");
    for line in modules.iter().flat_map(|module| module.lines()) {
        if !line.starts_with("import ") {
            script.push_str(line.strip_prefix("export ").unwrap_or(line));
            script.push('\n');
        }
    }
    script.push_str("})();\n");
    script
}

/// What the page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A simulation.
    Simulation,
    /// A past period, from the journal.
    Recorded,
}

impl Subject {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Simulation => "Simulation",
            Self::Recorded => "Recorded",
        }
    }
}

/// The page with this body, and these schedules for its elements with `data-schedule`.
pub(super) fn document(subject: Subject, body: &str, schedules: &[Schedule]) -> serde_json::Result<String> {
    let mut text = String::with_capacity(body.len() + 65_536);
    // Writing into a String does not fail.
    let _ = write!(
        text,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; form-action 'none'; \
         style-src '{}'; script-src '{}'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Sluice: {}</title>\n\
         <style>{STYLE}</style></head>\n<body>\n",
        source(STYLE),
        source(&SCRIPT),
        subject.title().to_lowercase()
    );
    text.push_str(body);
    // Within the element, "<" could end it; as an escape it is the same text.
    let data = serde_json::to_string(&serde_json::json!({"schedules": schedules}))?.replace('<', "\\u003c");
    let _ = writeln!(
        text,
        "<div id=\"tip\" aria-hidden=\"true\"></div><script type=\"application/json\" id=\"schedules\">{data}</script>\n<script>{}</script></body></html>",
        *SCRIPT
    );
    Ok(text)
}

/// How a Content-Security-Policy names an inline style or script: by the hash of all between its tags.
fn source(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_knows_exactly_what_stands_in_the_page() {
        let page = document(Subject::Simulation, "<p>body</p>", &[]).unwrap();
        let between = |from: &str, to: &str| {
            let (_, rest) = page.split_once(from).unwrap();
            rest.split_once(to).unwrap().0.to_owned()
        };
        for inside in [between("<style>", "</style>"), between("<script>", "</script>")] {
            assert!(page.contains(&format!("'{}'", source(&inside))));
        }
        assert!(!page.contains("unsafe-inline") && !page.contains(" style=\""));
    }

    #[test]
    fn modules_become_one_script_in_which_no_name_is_declared_twice() {
        assert!(!SCRIPT.lines().any(|line| line.starts_with("import ") || line.starts_with("export ")));
        let mut names = std::collections::BTreeSet::new();
        for line in SCRIPT.lines() {
            let kinds = ["const ", "let ", "function ", "class "];
            let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(name.is_empty() || names.insert(name.clone()), "{name} is listed twice");
        }
        assert!(names.contains("Gantt") && names.contains("show"));
    }
}
