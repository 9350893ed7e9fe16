//! Error chains in one line, without the repeats.
//!
//! kube prints its sources inside `Display`; other crates leave them to the caller. [`Chain`] prints an error and its sources joined by `: `, and
//! drops a source whose text is already at the end of the output. Of the API server's answer only the message is printed.

use std::error::Error;
use std::fmt;

use kube::core::Status;

/// The reason that kube gives answers that are no status: a page of a proxy, or the text for an API group that the API server does not have.
const NO_STATUS: &str = "Failed to parse error data";
/// The longest part of such an answer that is shown, in characters.
const LONGEST: usize = 200;

/// Displays an error with all its causes, each once.
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut text, mut source) = said(self.0);
        while let Some(error) = source {
            let (more, next) = said(error);
            if !more.is_empty() && !text.contains(&more) {
                text.push_str(": ");
                text.push_str(&more);
            }
            source = next;
        }
        f.write_str(&text)
    }
}

/// An error as kubectl prints it. What the API server answered is shown as its answer, unless something was added to it. If an API group is not there,
/// the most frequent reason is named: it is another cluster.
pub fn complaint(program: &str, error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) if !status.reason.is_empty() && status.reason != NO_STATUS => {
            format!("Error from server ({}): {}", status.reason, status.message)
        }
        _ => {
            let advice = if lacks_group(error) { " (is Sluice installed in this cluster?)" } else { "" };
            format!("{program}: {}{advice}", Chain(error))
        }
    }
}

/// Whether the cause is that the API server does not have an API group.
fn lacks_group(error: &(dyn Error + 'static)) -> bool {
    let is = |error: &(dyn Error + 'static)| match error.downcast_ref() {
        Some(kube::Error::Api(status)) => status.code == 404 && status.reason == NO_STATUS,
        _ => false,
    };
    std::iter::successors(Some(error), |&error| error.source()).any(is)
}

/// What an answer of the API server says, for people.
pub fn message(status: &Status) -> String {
    let answered = || format!("the API server answered {}", status.code);
    if status.reason != NO_STATUS {
        let text = [&status.message, &status.reason].into_iter().find(|text| !text.is_empty());
        return text.cloned().unwrap_or_else(answered);
    }
    if status.code == 404 {
        return "the server could not find the requested resource".to_owned();
    }
    match status.message.lines().next() {
        Some(line) => format!("{}: {}", answered(), line.chars().take(LONGEST).collect::<String>()),
        None => answered(),
    }
}

/// The error's own message, and its cause. The API server's status is the last cause.
fn said<'a>(error: &'a (dyn Error + 'static)) -> (String, Option<&'a (dyn Error + 'static)>) {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
    let Some(kube::Error::Api(status)) = error.downcast_ref().or_else(boxed) else {
        return (error.to_string(), error.source());
    };
    (message(status), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(message: &str, reason: &str) -> String {
        let status = Status::failure(message, reason).with_code(404);
        let error = anyhow::Error::new(kube::Error::Api(status.boxed())).context("reading the queue");
        Chain(error.as_ref()).to_string()
    }

    #[test]
    fn an_answer_of_the_api_server_is_its_message_alone() {
        assert_eq!(
            answered("queues \"a\" not found", "NotFound"),
            "reading the queue: queues \"a\" not found"
        );
        assert_eq!(answered("", "NotFound"), "reading the queue: NotFound");
        assert_eq!(answered("", ""), "reading the queue: the API server answered 404");
    }

    #[test]
    fn an_answer_in_a_box_is_its_message_too() {
        #[derive(Debug, thiserror::Error)]
        #[error("reading a list")]
        struct Reading(#[source] Box<kube::Error>);
        let status = Status::failure("pods is forbidden", "Forbidden").with_code(403);
        let error = Reading(Box::new(kube::Error::Api(status.boxed())));
        assert_eq!(Chain(&error).to_string(), "reading a list: pods is forbidden");
    }

    #[test]
    fn an_answer_alone_is_printed_as_by_kubectl() {
        let answer = || {
            let status = Status::failure("queues \"a\" not found", "NotFound").with_code(404);
            anyhow::Error::new(kube::Error::Api(status.boxed()))
        };
        assert_eq!(
            complaint("kubectl kueue", answer().as_ref()),
            "Error from server (NotFound): queues \"a\" not found"
        );
        let with_context = complaint("kubectl kueue", answer().context("reading the queue").as_ref());
        assert_eq!(with_context, "kubectl kueue: reading the queue: queues \"a\" not found");
    }

    #[test]
    fn an_answer_that_is_no_status_is_said_in_kubectl_s_words() {
        // kube makes this of answers that are no JSON.
        let answer = |code: u16, body: &str| {
            let status = Status::failure(body, "Failed to parse error data").with_code(code);
            anyhow::Error::new(kube::Error::Api(status.boxed()))
        };
        let said = |error: &anyhow::Error| complaint("kubectl kueue", error.as_ref());
        let missing = "the server could not find the requested resource";
        let advice = "(is Sluice installed in this cluster?)";
        let absent = answer(404, "404 page not found");
        assert_eq!(said(&absent), format!("kubectl kueue: {missing} {advice}"));
        assert_eq!(Chain(absent.as_ref()).to_string(), missing);
        let absent = absent.context("reading the queue");
        assert_eq!(said(&absent), format!("kubectl kueue: reading the queue: {missing} {advice}"));
        let page = answer(502, "<html>\n<body>Bad Gateway</body>");
        assert_eq!(said(&page), "kubectl kueue: the API server answered 502: <html>");
        assert_eq!(said(&answer(401, "")), "kubectl kueue: the API server answered 401");
        assert_eq!(said(&answer(500, &"x".repeat(9000))).chars().filter(|c| *c == 'x').count(), LONGEST);
    }

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
