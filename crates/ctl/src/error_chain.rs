//! Error chains in one line, without the repeats.
//!
//! kube prints its sources inside `Display`; other crates leave them to the caller. [`Chain`] prints an error and its
//! sources joined by `: `, and drops a source whose text already stands at the end of what was printed.

use std::error::Error;
use std::fmt;

/// Displays an error with all its causes, each once.
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut source = self.0.source();
        while let Some(error) = source {
            let more = error.to_string();
            if !more.is_empty() && !text.contains(&more) {
                text.push_str(": ");
                text.push_str(&more);
            }
            source = error.source();
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error("connecting to the server: {0}")]
        Repeats(#[source] std::io::Error),
        #[error("reading the file")]
        Plain(#[source] std::io::Error),
    }

    #[test]
    fn a_source_that_display_already_holds_is_not_repeated() {
        let error = Outer::Repeats(std::io::Error::other("refused"));
        assert_eq!(Chain(&error).to_string(), "connecting to the server: refused");
    }

    #[test]
    fn a_source_that_display_leaves_out_is_appended() {
        let error = Outer::Plain(std::io::Error::other("no such file"));
        assert_eq!(Chain(&error).to_string(), "reading the file: no such file");
    }
}
