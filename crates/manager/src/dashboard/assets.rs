//! The page's files, which are part of the program: nothing is loaded from elsewhere at run time.

/// A file of the page.
struct Asset {
    /// Its path below the page, without a slash in front.
    path: &'static str,
    /// Its media type, as in the header Content-Type.
    kind: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($path:literal, $kind:expr) => {
        Asset { path: $path, kind: $kind, text: include_str!(concat!("assets/", $path)) }
    };
}

const ASSETS: [Asset; 22] = [
    asset!("index.html", HTML),
    asset!("theme.css", CSS),
    asset!("style.css", CSS),
    asset!("amounts.js", SCRIPT),
    asset!("api.js", SCRIPT),
    asset!("app.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("gantt.js", SCRIPT),
    asset!("heat.js", SCRIPT),
    asset!("nodes.js", SCRIPT),
    asset!("now.js", SCRIPT),
    asset!("places.js", SCRIPT),
    asset!("queue.js", SCRIPT),
    asset!("rows.js", SCRIPT),
    asset!("journal.js", SCRIPT),
    asset!("schedule.js", SCRIPT),
    asset!("signs.js", SCRIPT),
    asset!("time.js", SCRIPT),
    asset!("tomorrow.js", SCRIPT),
    asset!("topology.js", SCRIPT),
    asset!("visible.js", SCRIPT),
    asset!("workload.js", SCRIPT),
];

/// The media type and the bytes of the file at a path of the URL; `/` is the page itself.
pub fn asset(path: &str) -> Option<(&'static str, &'static [u8])> {
    let path = match path.strip_prefix('/')? {
        "" => "index.html",
        path => path,
    };
    let found = ASSETS.iter().find(|asset| asset.path == path)?;
    Some((found.kind, found.text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> &'static str {
        ASSETS.iter().find(|asset| asset.path == "index.html").unwrap().text
    }

    #[test]
    fn every_file_that_another_names_is_served() {
        for asset in &ASSETS {
            for line in asset.text.lines().filter(|line| line.starts_with("import ")) {
                let (_, name) = line.split_once("from \"./").expect("an import of a file beside it");
                let path = format!("/{}", name.trim_end_matches("\";"));
                assert!(self::asset(&path).is_some_and(|(kind, _)| kind == SCRIPT), "{}: {line}", asset.path);
            }
        }
        for name in ["theme.css", "style.css", "app.js"] {
            assert!(index().contains(&format!("\"{name}\"")) && self::asset(&format!("/{name}")).is_some());
        }
        assert_eq!(self::asset("/").unwrap().1, self::asset("/index.html").unwrap().1);
        for nothing in ["", "index.html", "//index.html", "/../assets.rs", "/none.js"] {
            assert!(self::asset(nothing).is_none(), "{nothing}");
        }
    }

    #[test]
    fn no_file_makes_elements_out_of_text_or_reaches_outside() {
        let forbidden = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "http://",
            "https://",
            "localStorage",
            "sessionStorage",
            "document.cookie",
            "@import",
            "url(",
        ];
        for asset in &ASSETS {
            for word in forbidden {
                assert!(!asset.text.contains(word), "{}: {word}", asset.path);
            }
        }
        let page = index();
        assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick="));
        assert_eq!(
            page.matches("<script").count(),
            page.matches("<script type=\"module\" src=\"app.js\">").count()
        );
    }
}
