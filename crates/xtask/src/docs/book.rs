//! The pages of the book, with their links and headings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// One page.
#[derive(Debug, Default)]
pub struct Page {
    /// The text as it stands.
    pub text: String,
    /// Targets of links, each with its line.
    pub links: Vec<(usize, String)>,
    /// Code spans in prose, each with its line.
    pub code: Vec<(usize, String)>,
    /// HTML in the text, each with its line. Comments are none.
    pub html: Vec<(usize, String)>,
    /// The headings: depth, and text.
    pub headings: Vec<(u8, String)>,
}

/// The pages by their path from the root of the repository.
pub struct Book {
    /// Every page below `docs`, the README and the changelog.
    pub pages: BTreeMap<String, Page>,
}

impl Book {
    /// Reads all pages.
    pub fn read(root: &Path) -> Result<Self> {
        let mut files = vec![PathBuf::from("README.md"), PathBuf::from("CHANGELOG.md")];
        collect(root, Path::new("docs"), &mut files)?;
        let mut pages = BTreeMap::new();
        for file in files {
            let text = fs::read_to_string(root.join(&file)).with_context(|| file.display().to_string())?;
            pages.insert(file.display().to_string(), Page::parse(text));
        }
        Ok(Self { pages })
    }

    /// HTML in the text. `<name>` is a tag for a browser, which shows nothing of it.
    pub fn html(&self) -> Vec<String> {
        let of_page = |(path, page): (&String, &Page)| {
            let finding = |(line, html): &(usize, String)| {
                format!("{path}:{line}: {html} is HTML: write `{html}` or \\{html}")
            };
            page.html.iter().map(finding).collect::<Vec<_>>()
        };
        self.pages.iter().flat_map(of_page).collect()
    }

    /// Pages that the table of contents leaves out, and so the built book.
    pub fn unlisted(&self) -> Vec<String> {
        let Some(summary) = self.pages.get(SUMMARY) else {
            return vec![format!("{SUMMARY} is missing")];
        };
        let listed: BTreeSet<String> = summary.links.iter().map(|(_, link)| resolve(SUMMARY, link)).collect();
        let pages = self.pages.keys().filter(|page| page.starts_with("docs/") && *page != SUMMARY);
        pages
            .filter(|page| !listed.contains(*page))
            .map(|page| format!("{page}: is not in {SUMMARY}"))
            .collect()
    }
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(root.join(folder)).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = folder.join(entry?.file_name());
        if root.join(&path).is_dir() {
            collect(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    Ok(())
}

impl Page {
    /// Takes a page apart.
    pub fn parse(text: String) -> Self {
        let mut page = Self::default();
        let mut heading: Option<(u8, String)> = None;
        let line_of = |at: usize| text[..at].matches('\n').count() + 1;
        for (event, range) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. }) => {
                    page.links.push((line_of(range.start), dest_url.into_string()));
                }
                Event::Start(Tag::Heading { level, .. }) => heading = Some((level as u8, String::new())),
                Event::End(TagEnd::Heading(_)) => page.headings.extend(heading.take()),
                Event::Code(code) => {
                    if let Some((_, words)) = &mut heading {
                        words.push_str(&code);
                    }
                    page.code.push((line_of(range.start), code.into_string()));
                }
                Event::Html(html) | Event::InlineHtml(html) if !html.starts_with("<!--") => {
                    page.html.push((line_of(range.start), html.trim_end().to_owned()));
                }
                Event::Text(words) => {
                    if let Some((_, heading)) = &mut heading {
                        heading.push_str(&words);
                    }
                }
                _ => {}
            }
        }
        page.text = text;
        page
    }

    /// The anchors of the page, as mdBook and GitHub make them of headings.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut seen = BTreeMap::<String, usize>::new();
        let mut anchors = BTreeSet::new();
        for (_, heading) in &self.headings {
            let anchor = anchor(heading);
            let count = seen.entry(anchor.clone()).or_default();
            anchors.insert(if *count == 0 { anchor.clone() } else { format!("{anchor}-{count}") });
            *count += 1;
        }
        anchors
    }
}

fn anchor(heading: &str) -> String {
    let letter = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.trim().chars().filter_map(letter).collect()
}

/// The path from the root that a relative link of a page means.
pub fn resolve(page: &str, link: &str) -> String {
    let mut path = PathBuf::from(page);
    path.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir if path.pop() => {}
            Component::ParentDir => path.push(".."),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_taken_apart() {
        let text = "# One `two`\n\nSee [it](../a.md#b), `code`.\n\n```sh\nmake `x`\n```\n\n| a |\n|---|\n| [c](d) |\n\n## One two\n";
        let page = Page::parse(text.to_owned());
        assert_eq!(page.links, [(3, "../a.md#b".to_owned()), (11, "d".to_owned())]);
        assert_eq!(page.code.iter().map(|(_, code)| code.as_str()).collect::<Vec<_>>(), ["two", "code"]);
        assert_eq!(page.anchors().into_iter().collect::<Vec<_>>(), ["one-two", "one-two-1"]);
    }

    #[test]
    fn placeholders_that_a_browser_would_swallow_are_reported() {
        let text = "# A\n\nThe <name>, `<kind>`, \\<group>, <https://x.y>.\n\n<!-- generated: x -->\n";
        let book = Book { pages: [("docs/a.md".to_owned(), Page::parse(text.to_owned()))].into() };
        assert_eq!(book.html(), ["docs/a.md:3: <name> is HTML: write `<name>` or \\<name>"]);
    }

    #[test]
    fn anchors_are_those_of_mdbook() {
        assert_eq!(anchor("Why it waits (QuotaReserved=False)"), "why-it-waits-quotareservedfalse");
        assert_eq!(anchor("Certificates, and so_on"), "certificates-and-so_on");
    }

    #[test]
    fn a_link_is_relative_to_its_page() {
        assert_eq!(resolve("docs/tasks/a.md", "../start/b.md"), "docs/start/b.md");
        assert_eq!(resolve("README.md", "docs/a.md"), "docs/a.md");
        assert_eq!(resolve("docs/a.md", "../../x"), "../x");
    }

    #[test]
    fn a_page_that_the_table_of_contents_leaves_out_is_reported() {
        let page = |text: &str| Page::parse(text.to_owned());
        let pages = [
            (SUMMARY.to_owned(), page("- [A](a.md)\n")),
            ("docs/a.md".to_owned(), page("# A\n")),
            ("docs/b.md".to_owned(), page("# B\n")),
        ];
        let book = Book { pages: BTreeMap::from(pages) };
        assert_eq!(book.unlisted(), ["docs/b.md: is not in docs/SUMMARY.md"]);
    }
}
