//! How many reviews are answered, and how long each takes: the API server asks for conversions by itself, for what others do.

use std::sync::Arc;
use std::time::Instant;

use super::bounds::Refusal;
use super::server::Reviewer;
use crate::metrics::REVIEW_SECONDS;
use crate::metrics::registry::Registry;

/// A reviewer whose answers are measured.
pub struct Measured<R> {
    reviewer: R,
    registry: Arc<Registry>,
}

impl<R: Reviewer> Measured<R> {
    /// Measures into this registry.
    pub const fn new(reviewer: R, registry: Arc<Registry>) -> Self {
        Self { reviewer, registry }
    }
}

/// What is done at a path: the word with which it begins (`convert`, `mutate`, `validate`).
fn webhook(path: &str) -> &str {
    path.trim_start_matches('/').split('-').next().unwrap_or_default()
}

impl<R: Reviewer> Reviewer for Measured<R> {
    fn has(&self, path: &str) -> bool {
        self.reviewer.has(path)
    }

    fn max_answer(&self, path: &str) -> usize {
        self.reviewer.max_answer(path)
    }

    fn reads_heads(&self, path: &str) -> bool {
        self.reviewer.reads_heads(path)
    }

    fn turned_away(&self, path: &str, head: &[u8], why: Refusal) -> Option<Vec<u8>> {
        self.reviewer.turned_away(path, head, why)
    }

    fn review(&self, path: &str, body: &[u8]) -> Option<Result<Vec<u8>, serde_json::Error>> {
        let began = Instant::now();
        let answer = self.reviewer.review(path, body)?;
        self.registry.record(REVIEW_SECONDS.sample([webhook(path)], began.elapsed().as_secs_f64()));
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::definitions;
    use crate::metrics::registry::Role;

    /// Answers with what it was asked, at all paths but one.
    struct Echo;

    impl Reviewer for Echo {
        fn has(&self, path: &str) -> bool {
            path != "/nope"
        }

        fn max_answer(&self, _: &str) -> usize {
            7
        }

        fn reads_heads(&self, path: &str) -> bool {
            path == "/validate-a"
        }

        fn turned_away(&self, _: &str, head: &[u8], _: Refusal) -> Option<Vec<u8>> {
            Some(head.to_vec())
        }

        fn review(&self, path: &str, body: &[u8]) -> Option<Result<Vec<u8>, serde_json::Error>> {
            self.has(path).then(|| Ok(body.to_vec()))
        }
    }

    #[test]
    fn what_is_answered_is_counted_by_what_is_done_there() {
        let registry = Arc::new(Registry::new(definitions(&[]), Role::Leader).unwrap());
        let measured = Measured::new(Echo, Arc::clone(&registry));
        for path in ["/convert", "/convert", "/mutate-batch-v1-job", "/validate-batch-v1-job"] {
            assert_eq!(measured.review(path, b"asked").unwrap().unwrap(), b"asked");
        }
        assert!(measured.review("/nope", b"asked").is_none());
        assert!(measured.has("/convert") && !measured.has("/nope"));
        assert!(measured.reads_heads("/validate-a") && !measured.reads_heads("/convert"));
        assert_eq!(
            (measured.max_answer("/convert"), measured.turned_away("/a", b"head", Refusal::Busy)),
            (7, Some(b"head".to_vec()))
        );
        let text = registry.text();
        for (webhook, count) in [("convert", 2), ("mutate", 1), ("validate", 1)] {
            let line = format!("{}_count{{webhook=\"{webhook}\"}} {count}", REVIEW_SECONDS.name);
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
