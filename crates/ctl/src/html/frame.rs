//! The document around the pictures. Its policy lets nothing run but the one script that is in it, and nothing be fetched.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

const STYLE: &str = concat!("\n", include_str!("style.css"));
const SCRIPT: &str = concat!("\n", include_str!("tip.js"));

/// The page with this in its middle.
pub(super) fn document(body: &str) -> String {
    let mut text = String::with_capacity(body.len() + 8192);
    // Writing into a String does not fail.
    let _ = write!(
        text,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; base-uri 'none'; form-action 'none'; \
         style-src '{}'; script-src '{}'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Sluice: simulation</title>\n\
         <style>{STYLE}</style></head>\n<body><main>\n",
        source(STYLE),
        source(SCRIPT)
    );
    text.push_str(body);
    let _ = writeln!(text, "</main><div id=\"tip\"></div><script>{SCRIPT}</script></body></html>");
    text
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
        let page = document("<p>body</p>");
        let between = |from: &str, to: &str| {
            let (_, rest) = page.split_once(from).unwrap();
            rest.split_once(to).unwrap().0.to_owned()
        };
        for inside in [between("<style>", "</style>"), between("<script>", "</script>")] {
            assert!(page.contains(&format!("'{}'", source(&inside))));
        }
        assert!(!page.contains("unsafe-inline") && !page.contains(" style=\""));
    }
}
