//! One path of a template: its steps, how they are parsed, and their results.

use std::cmp::Ordering;

use serde_json::Value;

use super::{JsonPathError, TemplateError};

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
    ///
    /// # Errors
    /// If a step does not fit the value it is applied to. Members that are missing are no error.
    pub fn find(&self, value: &Value) -> Result<Vec<Value>, TemplateError> {
        let mut all = Vec::new();
        self.find_within(value, &mut all)?;
        Ok(all.into_iter().cloned().collect())
    }

    fn find_within<'a>(&self, value: &'a Value, all: &mut Vec<&'a Value>) -> Result<(), TemplateError> {
        let mut found = vec![value];
        for step in &self.0 {
            let mut next = Vec::new();
            if let Step::Union(paths) = step {
                // All that the first path finds stands before what the second finds.
                for path in paths {
                    for value in &found {
                        path.find_within(value, &mut next)?;
                    }
                }
            } else {
                for value in &found {
                    step.take(value, &mut next)?;
                }
            }
            found = next;
        }
        all.extend(found);
        Ok(())
    }
}

impl Step {
    /// A single element, from the end if the number is negative.
    fn element(at: i64) -> Self {
        Self::Slice(Some(at), (at != -1).then(|| at.saturating_add(1)), 1)
    }

    fn take<'a>(&self, value: &'a Value, all: &mut Vec<&'a Value>) -> Result<(), TemplateError> {
        match self {
            Self::Member(name) => all.extend(value.get(name)),
            Self::All => all.extend(inner(value)),
            Self::Descend => descend(value, all),
            Self::Slice(from, to, every) => slice(value, (*from, *to, *every), all)?,
            Self::Union(paths) => {
                for path in paths {
                    path.find_within(value, all)?;
                }
            }
            Self::Filter(left, condition) => {
                let own = value.as_array().ok_or_else(|| TemplateError::NotFiltered(type_of(value)))?;
                for one in own {
                    if holds(one, left, condition.as_ref())? {
                        all.push(one);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The elements of a list from one index up to another, every so many. An index beyond the list is an error, unless no element is asked for.
fn slice<'a>(
    value: &'a Value,
    (from, to, every): (Option<i64>, Option<i64>, i64),
    all: &mut Vec<&'a Value>,
) -> Result<(), TemplateError> {
    if value.is_null() {
        return Ok(());
    }
    let own = value.as_array().ok_or_else(|| TemplateError::NoList(type_of(value)))?;
    let length = i64::try_from(own.len()).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { at + length } else { at };
    let (from, to) = (from.map_or(0, place), to.map_or(length, place));
    if from == to {
        return Ok(());
    }
    if !(0..length).contains(&from) {
        return Err(TemplateError::OutOfBounds { index: from, length });
    }
    if !(0..=length).contains(&to) {
        return Err(TemplateError::OutOfBounds { index: to.saturating_sub(1), length });
    }
    if from > to {
        return Err(TemplateError::Backwards { from, to });
    }
    let every = usize::try_from(every).ok().filter(|every| *every > 0).ok_or(TemplateError::NoStep)?;
    // Both are indexes of the list.
    let [from, to] = [from, to].map(|at| usize::try_from(at).unwrap_or(own.len()));
    all.extend(own.iter().take(to).skip(from).step_by(every));
    Ok(())
}

/// What kubectl, which is written in Go, calls the type of a value.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
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

impl Operand {
    /// Its value for an element; nothing if there is none.
    fn of(&self, element: &Value) -> Result<Option<Value>, TemplateError> {
        let path = match self {
            Self::Path(path) => path,
            Self::Literal(literal) => return Ok(Some(literal.clone())),
        };
        let mut found = path.find(element)?.into_iter();
        let first = found.next();
        if found.next().is_some() { Err(TemplateError::SeveralCompared) } else { Ok(first) }
    }
}

fn holds(
    element: &Value,
    left: &Operand,
    condition: Option<&(Comparison, Operand)>,
) -> Result<bool, TemplateError> {
    let Some((comparison, right)) = condition else {
        return Ok(match left {
            // What cannot be found does not exist.
            Operand::Path(path) => path.find(element).is_ok_and(|found| !found.is_empty()),
            Operand::Literal(_) => true,
        });
    };
    let Some(left) = left.of(element)? else { return Ok(false) };
    let Some(right) = right.of(element)? else { return Ok(false) };
    let order = order(&left, &right, *comparison)?;
    Ok(match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    })
}

/// The order of two values, if their types can be compared in this way.
fn order(left: &Value, right: &Value, comparison: Comparison) -> Result<Option<Ordering>, TemplateError> {
    let is_compound = |value: &&Value| value.is_null() || value.is_array() || value.is_object();
    if [left, right].iter().any(is_compound) {
        return Err(TemplateError::NotComparable);
    }
    let orders = !matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    match (left, right) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() == b.is_f64() => {
            Ok(a.as_f64().partial_cmp(&b.as_f64()))
        }
        (Value::String(a), Value::String(b)) => Ok(Some(a.cmp(b))),
        (Value::Bool(_), Value::Bool(_)) if orders => Err(TemplateError::NotComparable),
        (Value::Bool(a), Value::Bool(b)) => Ok(Some(a.cmp(b))),
        _ => Err(TemplateError::Incompatible),
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
                    Some('u') => text.push(self.code_point()?),
                    Some(other) => text.push(other),
                    None => return Err(self.wrong("a closing quote")),
                },
                next if next == quote => return Ok(Some(text)),
                next => text.push(next),
            }
        }
    }

    /// The character of `\u` and four digits.
    fn code_point(&mut self) -> Result<char, JsonPathError> {
        let wrong = || self.wrong("four hexadecimal digits");
        let digits = self.rest.get(..4).ok_or_else(wrong)?;
        let number = u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
        let found = number.and_then(char::from_u32).ok_or_else(wrong)?;
        self.rest = &self.rest[4..];
        Ok(found)
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
                    paths.push(Path(vec![Step::element(at)]));
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
