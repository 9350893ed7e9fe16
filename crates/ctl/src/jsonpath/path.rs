//! One path of a template: its steps, how they are parsed, and their results.

use std::cmp::Ordering;

use serde_json::Value;

use super::JsonPathError;

/// Steps from a value to values within it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// A member of that name.
    Member(String),
    /// All members, or all elements.
    All,
    /// The value itself and all within it.
    Descend,
    /// A slice: start, end (exclusive) and step; negative numbers count from the end.
    Slice(Option<i64>, Option<i64>, i64),
    /// One element, from the end if negative.
    Element(i64),
    /// The results of several paths.
    Union(Vec<Path>),
    /// The elements for which the condition holds.
    Filter(Operand, Option<(Comparison, Operand)>),
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(Path),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longest first, so that `<=` is not read as `<`.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Path {
    /// The results of the path, in the order of the document.
    pub fn find(&self, value: &Value) -> Vec<Value> {
        let mut all = Vec::new();
        self.find_within(value, &mut all);
        all.into_iter().cloned().collect()
    }

    fn find_within<'a>(&self, value: &'a Value, all: &mut Vec<&'a Value>) {
        let mut found = vec![value];
        for step in &self.0 {
            let mut next = Vec::new();
            if let Step::Union(paths) = step {
                // All that the first path finds stands before what the second finds.
                for path in paths {
                    for value in &found {
                        path.find_within(value, &mut next);
                    }
                }
            } else {
                for value in &found {
                    step.take(value, &mut next);
                }
            }
            found = next;
        }
        all.extend(found);
    }
}

impl Step {
    fn take<'a>(&self, value: &'a Value, all: &mut Vec<&'a Value>) {
        match self {
            Self::Member(name) => all.extend(value.get(name)),
            Self::All => all.extend(inner(value)),
            Self::Descend => descend(value, all),
            Self::Element(at) => all.extend(elements(value).get(place(*at, value))),
            Self::Slice(from, to, every) => {
                let own = elements(value);
                let from = from.map_or(0, |at| place(at, value));
                let to = to.map_or(own.len(), |at| place(at, value)).min(own.len());
                let every = usize::try_from(*every).unwrap_or(1).max(1);
                all.extend(own.iter().take(to).skip(from).step_by(every));
            }
            Self::Union(paths) => {
                for path in paths {
                    path.find_within(value, all);
                }
            }
            Self::Filter(left, condition) => {
                all.extend(elements(value).iter().filter(|one| holds(one, left, condition.as_ref())));
            }
        }
    }
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn inner(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(elements) => elements.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

fn descend<'a>(value: &'a Value, all: &mut Vec<&'a Value>) {
    all.push(value);
    for inner in inner(value) {
        descend(inner, all);
    }
}

/// The index that a number means, beyond the end where there is none.
fn place(at: i64, value: &Value) -> usize {
    let length = elements(value).len();
    if at < 0 {
        let back = usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX);
        return length.checked_sub(back).unwrap_or(usize::MAX);
    }
    usize::try_from(at).unwrap_or(usize::MAX)
}

fn holds(value: &Value, left: &Operand, condition: Option<&(Comparison, Operand)>) -> bool {
    let resolve = |operand: &Operand| match operand {
        Operand::Path(path) => path.find(value).into_iter().next(),
        Operand::Literal(literal) => Some(literal.clone()),
    };
    let Some(left) = resolve(left) else { return false };
    let Some((comparison, right)) = condition else { return true };
    let Some(right) = resolve(right) else { return false };
    let order = match (&left, &right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) if a == b => Some(Ordering::Equal),
        _ => None,
    };
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

/// Reads a template, character by character.
pub struct Reader<'a> {
    all: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// At the beginning of a text.
    pub fn new(text: &'a str) -> Self {
        Self { all: text, rest: text }
    }

    /// The error that something else was expected here.
    pub fn wrong(&self, expected: &'static str) -> JsonPathError {
        JsonPathError { at: self.all.chars().count() - self.rest.chars().count(), expected }
    }

    /// Passes a text, if it stands here.
    pub fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Passes blanks.
    pub fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Passes all up to a character, or to the end.
    pub fn take_until(&mut self, end: char) -> String {
        let (text, rest) = self.rest.split_at(self.rest.find(end).unwrap_or(self.rest.len()));
        self.rest = rest;
        text.to_owned()
    }

    /// Passes the closing brace.
    pub fn close(&mut self) -> Result<(), JsonPathError> {
        self.skip_blanks();
        if self.eat("}") { Ok(()) } else { Err(self.wrong("}")) }
    }

    /// A quoted text, if one begins here.
    pub fn quoted(&mut self) -> Result<Option<String>, JsonPathError> {
        let Some(quote) = self.rest.chars().next().filter(|c| ['"', '\''].contains(c)) else {
            return Ok(None);
        };
        self.rest = &self.rest[1..];
        let mut text = String::new();
        loop {
            let Some(next) = self.next() else { return Err(self.wrong("a closing quote")) };
            match next {
                '\\' => match self.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(other) => text.push(other),
                    None => return Err(self.wrong("a closing quote")),
                },
                next if next == quote => return Ok(Some(text)),
                next => text.push(next),
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let next = characters.next();
        self.rest = characters.as_str();
        next
    }

    /// A path.
    pub fn path(&mut self) -> Result<Path, JsonPathError> {
        if !self.rest.starts_with(['.', '[', '@', '$']) {
            let closed = !self.rest.is_empty();
            return Err(self.wrong(if closed { "a path, which begins with a dot" } else { "}" }));
        }
        if !self.eat("@") {
            self.eat("$");
        }
        self.steps()
    }

    fn steps(&mut self) -> Result<Path, JsonPathError> {
        let mut steps = Vec::new();
        loop {
            if self.eat("..") {
                steps.push(Step::Descend);
                self.member(&mut steps);
            } else if self.eat(".") {
                self.member(&mut steps);
            } else if self.eat("[") {
                let step = self.brackets()?;
                self.skip_blanks();
                if !self.eat("]") {
                    return Err(self.wrong("]"));
                }
                steps.push(step);
            } else {
                return Ok(Path(steps));
            }
        }
    }

    /// A name after a dot, if there is one: `{.}` is the value itself.
    fn member(&mut self, steps: &mut Vec<Step>) {
        if self.eat("*") {
            return steps.push(Step::All);
        }
        let mut name = String::new();
        loop {
            if self.eat("\\") {
                name.extend(self.next());
                continue;
            }
            let ends = |c: char| c.is_whitespace() || ".[]{}()=!<>,".contains(c);
            match self.rest.chars().next().filter(|c| !ends(*c)) {
                Some(_) => name.extend(self.next()),
                None => break,
            }
        }
        if !name.is_empty() {
            steps.push(Step::Member(name));
        }
    }

    fn number(&mut self) -> Option<i64> {
        let end = self.rest.char_indices().find(|(at, c)| !(c.is_ascii_digit() || (*at == 0 && *c == '-')));
        let (text, rest) = self.rest.split_at(end.map_or(self.rest.len(), |(at, _)| at));
        let number = text.parse().ok()?;
        self.rest = rest;
        Some(number)
    }

    /// The content of brackets.
    fn brackets(&mut self) -> Result<Step, JsonPathError> {
        const EXPECTED: &str = "a number, *, a quoted name or ?(…)";
        self.skip_blanks();
        if self.eat("*") {
            return Ok(Step::All);
        }
        if self.eat("?(") {
            return self.filter();
        }
        let mut paths = Vec::new();
        loop {
            self.skip_blanks();
            if self.rest.starts_with(['"', '\'']) {
                paths.push(self.quoted_path()?);
            } else {
                let from = self.number();
                if self.eat(":") {
                    let to = self.number();
                    let every = if self.eat(":") { self.number() } else { None };
                    paths.push(Path(vec![Step::Slice(from, to, every.unwrap_or(1))]));
                } else {
                    let at = from.ok_or_else(|| self.wrong(EXPECTED))?;
                    paths.push(Path(vec![Step::Element(at)]));
                }
            }
            self.skip_blanks();
            if !self.eat(",") {
                return Ok(Step::Union(paths));
            }
        }
    }

    /// `'a.b'` in brackets: a path, whose dots are escaped where they belong to a name.
    fn quoted_path(&mut self) -> Result<Path, JsonPathError> {
        let quote = self.next();
        let mut steps = Vec::new();
        let mut name = String::new();
        loop {
            let Some(next) = self.next() else { return Err(self.wrong("a closing quote")) };
            match next {
                '\\' => name.extend(self.next()),
                '.' => steps.push(Step::Member(std::mem::take(&mut name))),
                next if Some(next) == quote => {
                    steps.push(Step::Member(name));
                    return Ok(Path(steps));
                }
                next => name.push(next),
            }
        }
    }

    fn filter(&mut self) -> Result<Step, JsonPathError> {
        self.skip_blanks();
        let left = self.operand()?;
        self.skip_blanks();
        let found = COMPARISONS.iter().find(|(sign, _)| self.rest.starts_with(sign));
        let condition = match found {
            Some((sign, comparison)) => {
                self.eat(sign);
                self.skip_blanks();
                Some((*comparison, self.operand()?))
            }
            None => None,
        };
        self.skip_blanks();
        if self.eat(")") { Ok(Step::Filter(left, condition)) } else { Err(self.wrong(")")) }
    }

    fn operand(&mut self) -> Result<Operand, JsonPathError> {
        if self.rest.starts_with(['@', '$']) {
            return Ok(Operand::Path(self.path()?));
        }
        if let Some(text) = self.quoted()? {
            return Ok(Operand::Literal(Value::String(text)));
        }
        for (word, value) in [("true", true), ("false", false)] {
            if self.eat(word) {
                return Ok(Operand::Literal(Value::Bool(value)));
            }
        }
        let end = self.rest.find(|c: char| !(c.is_ascii_digit() || "-.eE+".contains(c)));
        let (text, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let number = serde_json::from_str(text).ok().filter(Value::is_number);
        let number = number.ok_or_else(|| self.wrong("@, a quoted text, a number, true or false"))?;
        self.rest = rest;
        Ok(Operand::Literal(number))
    }
}
