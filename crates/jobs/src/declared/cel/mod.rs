//! Expressions of declarations: compiled once, evaluated over objects that any user may have written.
//!
//! The crate `cel` parses and evaluates. It has no cost limit, so the parsed expression is changed before it is used: operations that take longer
//! with larger data pay for it first ([`cost`]), and paths of `self` are read directly from the object ([`path`]). An evaluation depends on nothing
//! but the expression and the object: maps are visited in the order of their keys.

mod check;
mod cost;
mod failure;
mod functions;
mod path;
mod quantity;
mod sets;
mod time;
mod value;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cel::common::value::CowVal;
use cel::{Context, Env, ExecutionError, IdedExpr, Value as Outcome};
use serde_json::Value;

pub(super) use self::cost::Budget;
pub(super) use self::failure::Failure;
use self::path::{Found, SelfPath};

/// Longest expression, in bytes.
const MAX_LENGTH: usize = 1024;
/// The stack for parsing, in bytes: more than the longest expression needs.
const PARSER_STACK: usize = 64 << 20;

/// The functions that expressions may call.
static FUNCTIONS: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = functions::environment();
    for add_to in [cost::add_to, quantity::add_to, sets::add_to, time::add_to] {
        add_to(&mut env);
    }
    Arc::new(env)
});

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Expression {
    expr: IdedExpr,
    /// The paths of `self` that it reads, by the variables that replace them.
    reads: BTreeMap<String, SelfPath>,
    /// The least cost of one evaluation.
    base: u64,
}

impl Expression {
    /// Compiles an expression; an error describes the problem.
    #[expect(clippy::disallowed_methods, reason = "one thread, whose result is waited for")]
    pub fn compile(source: &str) -> Result<Self, String> {
        if source.trim().is_empty() || source.len() > MAX_LENGTH {
            return Err(format!("must have 1 to {MAX_LENGTH} characters"));
        }
        // The parser recurses for every operator. How deep the result may be is checked there, too.
        let result = std::thread::scope(|scope| {
            let parser = std::thread::Builder::new().stack_size(PARSER_STACK);
            parser.spawn_scoped(scope, || Self::parsed(source)).map(std::thread::ScopedJoinHandle::join)
        });
        match result {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("cannot be parsed".to_owned()),
            Err(error) => Err(format!("no thread to parse it: {error}")),
        }
    }

    fn parsed(source: &str) -> Result<Self, String> {
        let parsed = FUNCTIONS.parser().parse(source).map_err(|errors| {
            let first = errors.errors.into_iter().next();
            first.map_or_else(String::new, |error| format!("column {}: {}", error.pos.1, error.msg))
        })?;
        let check::Checked { expr, reads, steps } = check::check(parsed)?;
        Ok(Self { expr, reads, base: steps })
    }

    /// Whether it reads of `self` what is not in the spec.
    pub fn reads_beside_spec(&self) -> bool {
        self.reads.values().any(|path| path.first() != Some("spec"))
    }

    /// Its value, if that is `true` or `false`.
    pub fn truth(&self, object: &Value, budget: &Budget) -> Result<bool, Failure> {
        match self.value(object, budget)? {
            Value::Bool(value) => Ok(value),
            other => Err(wrong_type("true or false", &other)),
        }
    }

    /// Its value, if that is an integer; beyond the bounds of 32 bits, the nearest. A number without a fraction is one.
    pub fn count(&self, object: &Value, budget: &Budget) -> Result<i32, Failure> {
        let value = self.value(object, budget)?;
        crate::object::int(&value).ok_or_else(|| wrong_type("an integer", &value))
    }

    /// Its value, if that is a string.
    pub fn text(&self, object: &Value, budget: &Budget) -> Result<String, Failure> {
        match self.value(object, budget)? {
            Value::String(text) => Ok(text),
            other => Err(wrong_type("a string", &other)),
        }
    }

    /// Its value.
    pub fn value(&self, object: &Value, budget: &Budget) -> Result<Value, Failure> {
        budget.take(self.base).map_err(|_| Failure::TooCostly)?;
        let mut context = Context::with_env(Arc::clone(&FUNCTIONS));
        context.add_variable_as_val(cost::BUDGET, Box::new(budget.clone()));
        for (name, path) in &self.reads {
            match path.find(object) {
                // An expression that does read it fails then.
                Found::Absent => {}
                Found::Value(found) => {
                    let read = value::read(found, budget).ok_or(Failure::TooCostly)?;
                    context.add_variable_as_val(name.as_str(), path.wrapped(Some(read)));
                }
                Found::None => context.add_variable_as_val(name.as_str(), path.wrapped(None)),
                Found::Presence(there) => {
                    context.add_variable_as_val(
                        name.as_str(),
                        Box::new(cel::common::types::CelBool::from(there)),
                    );
                }
            }
        }
        let result = Outcome::resolve_val(&self.expr, &context);
        // An error inside of a comprehension may have been outweighed by what came after it.
        if budget.is_spent() {
            return Err(Failure::TooCostly);
        }
        let result: CowVal<'_, '_> = result.map_err(|error| self.failure(&error))?;
        value::written(result.as_ref(), budget)
    }

    fn failure(&self, error: &ExecutionError) -> Failure {
        match error {
            ExecutionError::UndeclaredReference(name) => match self.reads.get(name.as_str()) {
                Some(path) => Failure::Absent(path.to_string()),
                None => Failure::Wrong(error.to_string()),
            },
            ExecutionError::NoSuchKey(key) => Failure::Absent(key.to_string()),
            other => Failure::Wrong(shortened(&other.to_string())),
        }
    }
}

fn wrong_type(wanted: &str, found: &Value) -> Failure {
    Failure::Wrong(format!("must be {wanted}, but is {}", shortened(&found.to_string())))
}

/// A message that quotes an object, of a length that an event can have.
fn shortened(text: &str) -> String {
    const MOST: usize = 120;
    if text.chars().count() <= MOST {
        text.to_owned()
    } else {
        text.chars().take(MOST).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests;
