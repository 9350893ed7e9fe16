//! Rust source as words and signs, without comments, literals and tests: enough to find the paths in a file.

/// One word or sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// A name or a keyword.
    Word(&'a str),
    /// `::`
    Separator,
    /// Any other sign.
    Sign(char),
}

/// The words and signs of a file, without what is only compiled for tests.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    without_tests(&all(source))
}

/// The names and keywords of a file, with what is only compiled for tests.
pub fn names(source: &str) -> impl Iterator<Item = &str> {
    all(source).into_iter().filter_map(|token| match token {
        Token::Word(word) => Some(word),
        Token::Separator | Token::Sign(_) => None,
    })
}

fn all(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = if first == '_' || first.is_alphanumeric() {
            let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            if let Some(literal) = raw_literal(word, after) {
                end + literal
            } else {
                tokens.push(Token::Word(word));
                end
            }
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' {
            character_or_lifetime(rest)
        } else if rest.starts_with("::") {
            tokens.push(Token::Separator);
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Sign(first));
            }
            first.len_utf8()
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    tokens
}

/// The length of the literal that begins after a prefix: `r"…"`, `br#"…"#`; `b"…"` and `b'x'` are read as what follows the prefix.
fn raw_literal(prefix: &str, after: &str) -> Option<usize> {
    if !matches!(prefix, "r" | "br" | "cr") {
        return None;
    }
    let hashes = after.bytes().take_while(|&byte| byte == b'#').count();
    let text = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(hashes + 1 + text.find(&end).map_or(text.len(), |at| at + end.len()))
}

/// The length of a block comment; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let here = &text.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The length of a literal between two equal quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = true;
    for (at, c) in text.char_indices() {
        if escaped {
            // The first quote counts as escaped.
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    text.len()
}

/// The length of `'x'`, or of `'name` of a lifetime or a label.
fn character_or_lifetime(text: &str) -> usize {
    let mut after = text[1..].chars();
    let (first, second) = (after.next(), after.next());
    if first == Some('\\') || second == Some('\'') {
        return quoted(text, '\'');
    }
    let name = |c: char| c == '_' || c.is_alphanumeric();
    1 + text[1..].find(|c| !name(c)).unwrap_or(text.len() - 1)
}

/// Leaves out each item with `#[cfg(test)]` before it.
fn without_tests<'a>(all: &[Token<'a>]) -> Vec<Token<'a>> {
    const MARK: [Token<'_>; 7] = [
        Token::Sign('#'),
        Token::Sign('['),
        Token::Word("cfg"),
        Token::Sign('('),
        Token::Word("test"),
        Token::Sign(')'),
        Token::Sign(']'),
    ];
    let mut kept = Vec::with_capacity(all.len());
    let mut at = 0;
    while at < all.len() {
        if all[at..].starts_with(&MARK) {
            at += MARK.len();
            at += item(&all[at..]);
        } else {
            kept.push(all[at]);
            at += 1;
        }
    }
    kept
}

/// The length of an item: up to a semicolon, or to the end of its braces.
fn item(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_i32;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']') => depth -= 1,
            Token::Sign('}') => {
                depth -= 1;
                if depth <= 0 {
                    return at + 1;
                }
            }
            Token::Sign(';') if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<&str> {
        let word = |token| if let Token::Word(word) = token { Some(word) } else { None };
        tokens(source).into_iter().filter_map(word).collect()
    }

    #[test]
    fn comments_and_literals_are_left_out() {
        assert_eq!(words("a // b\n/* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(words(r##"a("b \" c", r#"d " e"#, br"f", 'g', '\'', '"') h"##), ["a", "h"]);
        assert_eq!(
            words("fn a<'b>(c: &'b str, d: char) -> e { 'f' }"),
            ["fn", "a", "c", "str", "d", "char", "e"]
        );
    }

    #[test]
    fn what_is_only_compiled_for_tests_is_left_out() {
        assert_eq!(words("a; #[cfg(test)] mod b { fn c() {} } d"), ["a", "d"]);
        assert_eq!(words("#[cfg(test)]\n#[expect(x)]\nmod tests;\nd"), ["d"]);
        assert_eq!(words("#[cfg(test)] use a::{b, c}; d"), ["d"]);
        assert_eq!(words("#[cfg(not(test))] fn a() {}"), ["cfg", "not", "test", "fn", "a"]);
    }

    #[test]
    fn paths_have_separators() {
        let found = tokens("a::b");
        assert_eq!(found, [Token::Word("a"), Token::Separator, Token::Word("b")]);
    }
}
