//! The parameters of a query: the page of a list, and the text to search for.

use crate::visibility::route::parameter;
use crate::visibility::status::Refusal;

use super::rows::State;

/// Items without a limit in the query.
const USUAL: usize = 100;
/// The highest number of items in one answer.
pub const MOST: usize = 1000;
/// The longest text to search for, in bytes.
const LONGEST: usize = 256;

/// Which part of a list is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// How many to skip.
    pub offset: usize,
    /// How many to return at most.
    pub limit: usize,
}

fn number(query: &str, name: &str) -> Result<Option<usize>, Refusal> {
    let Some(text) = parameter(query, name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = || Refusal::BadRequest(format!("{name}: expected a whole number that is not negative"));
    text.parse().map(Some).map_err(|_| wrong())
}

/// The requested page.
///
/// # Errors
///
/// If `limit` or `offset` is not a whole number, is negative, or is too large.
pub fn page(query: &str) -> Result<Page, Refusal> {
    let limit = number(query, "limit")?.unwrap_or(USUAL).min(MOST);
    Ok(Page { offset: number(query, "offset")?.unwrap_or(0), limit })
}

/// The requested state, if there is one.
///
/// # Errors
///
/// If `state` is none of pending, reserved, admitted, inactive and finished.
pub fn state(query: &str) -> Result<Option<State>, Refusal> {
    let Some(text) = parameter(query, "state").filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = || {
        Refusal::BadRequest("state: expected pending, reserved, admitted, inactive or finished".to_owned())
    };
    State::parse(&text).map(Some).ok_or_else(wrong)
}

/// The text to search for, if there is one.
///
/// # Errors
///
/// If the text is longer than 256 bytes.
pub fn text(query: &str, name: &str) -> Result<Option<String>, Refusal> {
    let text = parameter(query, name).filter(|text| !text.is_empty());
    if text.as_ref().is_some_and(|text| text.len() > LONGEST) {
        return Err(Refusal::BadRequest(format!("{name}: expected at most {LONGEST} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_bounds_and_nonsense_is_refused() {
        assert_eq!(page("").unwrap(), Page { offset: 0, limit: 100 });
        assert_eq!(page("limit=5000000&offset=7").unwrap(), Page { offset: 7, limit: MOST });
        for query in ["limit=-1", "offset=1e3", "limit=99999999999999999999999"] {
            assert!(matches!(page(query), Err(Refusal::BadRequest(_))), "{query}");
        }
        assert_eq!(state("state=reserved").unwrap(), Some(State::Reserved));
        assert!(state("state=<script>").is_err());
        assert_eq!(text("search=%3Cscript%3E", "search").unwrap().as_deref(), Some("<script>"));
        assert!(text(&format!("search={}", "x".repeat(300)), "search").is_err());
    }
}
