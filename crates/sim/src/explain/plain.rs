//! Makes texts of users safe for a terminal: a name or message never moves the cursor, changes colours, or begins a new line.

use std::fmt::Write as _;

/// The most characters of a line.
const MOST: usize = 1000;

/// Characters that a terminal acts on, or that turn the order of what is read.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A line that is safe to print, shortened if it is long.
pub fn line(text: &str) -> String {
    match text.char_indices().nth(MOST) {
        Some((end, _)) => whole(&text[..end]) + "…",
        None => whole(text),
    }
}

/// A line that is safe to print, at full length.
pub fn whole(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Lines that are safe to print.
pub fn lines(text: &str) -> String {
    text.split('\n').map(whole).collect::<Vec<_>>().join("\n")
}

/// The same JSON document, safe to print: outside its strings it has no such characters except line ends.
pub fn json(document: &str) -> String {
    let mut safe = String::with_capacity(document.len());
    for c in document.chars() {
        if c != '\n' && acts(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing into a String does not fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_acts_on_is_left() {
        let hostile = "a\u{1b}[2J\u{9b}31m\r\nadmitted\u{202e}x\u{7f}\u{0}";
        let safe = line(hostile);
        assert_eq!(safe, "a\\u{1b}[2J\\u{9b}31m\\r\\nadmitted\\u{202e}x\\u{7f}\\u{0}");
        assert_eq!(line("grün – 100 %"), "grün – 100 %");
        assert_eq!(line(&"ü".repeat(5000)).chars().count(), MOST + 1);
        assert_eq!((line(&"ü".repeat(MOST)), whole(&"x".repeat(5000)).len()), ("ü".repeat(MOST), 5000));
        assert_eq!(lines("a\r\n\u{1b}b\n"), "a\\r\n\\u{1b}b\n");
        let document = serde_json::to_string_pretty(&serde_json::json!({"text": hostile})).unwrap();
        let safe = json(&document);
        assert!(!safe.chars().any(|c| c != '\n' && acts(c)), "{safe:?}");
        let read: serde_json::Value = serde_json::from_str(&safe).unwrap();
        assert_eq!(read["text"], hostile);
    }
}
