//! Paths of `self` in an expression: `self.status.phase`, `self.spec.?count`, `has(self.status.phase)`.
//!
//! They are read from the object itself, so that the rest of the object costs nothing.

use std::fmt;

use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::CelOptional;
use cel::common::value::Val;
use serde_json::Value;

/// The variable.
pub(super) const SELF: &str = "self";

/// A step from a value into it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    /// A key that may be missing: so may all that come after it.
    MaybeKey(String),
    Item(usize),
}

/// A path from `self`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SelfPath {
    steps: Vec<Step>,
    /// The field whose presence is asked for, at the path.
    presence_of: Option<String>,
}

/// The value at a path.
pub(super) enum Found<'v> {
    /// Nothing, although the path requires a value.
    Absent,
    /// A value.
    Value(&'v Value),
    /// Nothing, as an optional value.
    None,
    /// Whether a field exists.
    Presence(bool),
}

impl SelfPath {
    /// The path that an expression spells, if it is one.
    pub fn of(expr: &IdedExpr) -> Option<Self> {
        match &expr.expr {
            Expr::Select(select) if select.test => {
                let steps = steps(&select.operand)?;
                // CEL decides whether the field of an optional value exists.
                let certain = steps.iter().all(|step| !matches!(step, Step::MaybeKey(_)));
                certain.then(|| Self { steps, presence_of: Some(select.field.clone()) })
            }
            _ => Some(Self { steps: steps(expr)?, presence_of: None }),
        }
    }

    /// The field of `self` that it leads into, or whose presence is asked for; none where all of `self` is read.
    pub fn first(&self) -> Option<&str> {
        match self.steps.first() {
            Some(Step::Key(key) | Step::MaybeKey(key)) => Some(key),
            Some(Step::Item(_)) => None,
            None => self.presence_of.as_deref(),
        }
    }

    /// The value of an object at this path.
    pub fn find<'v>(&self, object: &'v Value) -> Found<'v> {
        let mut at = object;
        let mut maybe = false;
        for step in &self.steps {
            maybe |= matches!(step, Step::MaybeKey(_));
            let next = match step {
                Step::Key(key) | Step::MaybeKey(key) => at.as_object().and_then(|fields| fields.get(key)),
                Step::Item(index) => at.as_array().and_then(|items| items.get(*index)),
            };
            match next {
                Some(next) => at = next,
                None if maybe => return Found::None,
                None => return Found::Absent,
            }
        }
        match &self.presence_of {
            Some(field) => Found::Presence(at.as_object().is_some_and(|fields| fields.contains_key(field))),
            None => Found::Value(at),
        }
    }

    /// A value that was found, as CEL has it: optional if a key on the way might have been missing.
    pub fn wrapped<'v>(&self, value: Option<Box<dyn Val + 'v>>) -> Box<dyn Val + 'v> {
        let maybe = self.steps.iter().any(|step| matches!(step, Step::MaybeKey(_)));
        match value {
            Some(value) if !maybe => value,
            Some(value) => Box::new(CelOptional::of(value)),
            None => Box::new(CelOptional::none()),
        }
    }
}

impl fmt::Display for SelfPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SELF)?;
        for step in &self.steps {
            match step {
                Step::Key(key) => write!(f, ".{key}")?,
                Step::MaybeKey(key) => write!(f, ".?{key}")?,
                Step::Item(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

fn steps(expr: &IdedExpr) -> Option<Vec<Step>> {
    match &expr.expr {
        Expr::Ident(name) => (name == SELF).then(Vec::new),
        Expr::Select(select) if !select.test => {
            let mut steps = steps(&select.operand)?;
            steps.push(Step::Key(select.field.clone()));
            Some(steps)
        }
        Expr::Call(call) => {
            let [inner, key] = call.args.as_slice() else { return None };
            let Expr::Literal(key) = &key.expr else { return None };
            let step = match (call.func_name.as_str(), key) {
                (operators::OPT_SELECT, LiteralValue::String(key)) => Step::MaybeKey(key.inner().to_owned()),
                (operators::INDEX, LiteralValue::String(key)) => Step::Key(key.inner().to_owned()),
                (operators::INDEX, LiteralValue::Int(index)) => {
                    Step::Item(usize::try_from(*index.inner()).ok()?)
                }
                _ => return None,
            };
            let mut steps = steps(inner)?;
            steps.push(step);
            Some(steps)
        }
        _ => None,
    }
}
