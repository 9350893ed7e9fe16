//! Refuses expressions that can be parsed and are not allowed, and changes parsed ones.

use std::collections::BTreeMap;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use cel::common::types::CelInt;

use super::cost;
use super::functions::{self, NAMES};
use super::path::{SELF, SelfPath};
use super::sets;

/// The deepest expression: evaluation uses the stack.
const MAX_DEPTH: usize = 40;
/// Operators whose costs do not depend on how large their operands are.
const CHEAP: [&str; 11] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::NOT_STRICTLY_FALSE,
    operators::INDEX,
    operators::SUBSTRACT,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::NEGATE,
];

/// The other operators.
const OPERATORS: [&str; 10] = [
    operators::ADD,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::IN,
    operators::OPT_INDEX,
    operators::OPT_SELECT,
];

/// An expression that can be evaluated.
pub(super) struct Checked {
    pub expr: IdedExpr,
    /// The paths of `self` that it reads, by the variables that replace them.
    pub reads: BTreeMap<String, SelfPath>,
    /// The least cost of one evaluation.
    pub steps: u64,
}

/// Checks a parsed expression and makes it ready.
pub(super) fn check(mut expr: IdedExpr) -> Result<Checked, String> {
    let mut checker = Checker::default();
    checker.expression(&mut expr, 0)?;
    Ok(Checked { expr, reads: checker.reads, steps: checker.steps })
}

#[derive(Default)]
struct Checker {
    reads: BTreeMap<String, SelfPath>,
    /// Variables of the comprehensions around.
    variables: Vec<String>,
    /// Nodes so far, in steps.
    steps: u64,
}

impl Checker {
    fn expression(&mut self, expr: &mut IdedExpr, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} deep"));
        }
        self.steps += 1;
        if let Some(path) = SelfPath::of(expr) {
            // A name that no key equals: a key may be any text.
            let name = format!("{path:?}");
            expr.expr = Expr::Ident(name.clone());
            self.reads.insert(name, path);
            return Ok(());
        }
        match &mut expr.expr {
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) if self.variables.contains(name) => Ok(()),
            Expr::Ident(name) => Err(format!("there is no variable {name:?}: the object is {SELF:?}")),
            Expr::Select(select) => self.expression(&mut select.operand, depth + 1),
            Expr::Call(call) => self.call(call, depth),
            Expr::List(list) => list.elements.iter_mut().try_for_each(|item| self.paid(item, 1, depth)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.paid(&mut entry.key, 1, depth)?;
                    self.paid(&mut entry.value, 1, depth)
                }
                EntryExpr::StructField(_) => Err("a message cannot be made".to_owned()),
            }),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, depth),
            Expr::Struct(_) | Expr::Unspecified => Err("a message cannot be made".to_owned()),
        }
    }

    fn call(&mut self, call: &mut CallExpr, depth: usize) -> Result<(), String> {
        if sets::rewritten(call, |name| self.variables.iter().any(|variable| variable == name)) {
            return call.args.iter_mut().skip(1).try_for_each(|operand| self.expression(operand, depth + 1));
        }
        let name = call.func_name.as_str();
        let cheap = CHEAP.contains(&name);
        if !cheap && !OPERATORS.contains(&name) && !NAMES.contains(&name) {
            let names = [&NAMES[..], &sets::NAMES].concat().join(", ");
            return Err(format!("there is no function {name:?}: there are {names}"));
        }
        let (steps, factor) = functions::cost(call)?;
        self.steps += steps;
        for operand in call.target.as_deref_mut().into_iter().chain(&mut call.args) {
            if cheap {
                self.expression(operand, depth + 1)?;
            } else {
                self.paid(operand, factor, depth)?;
            }
        }
        Ok(())
    }

    fn comprehension(&mut self, parts: &mut ComprehensionExpr, depth: usize) -> Result<(), String> {
        let names = [Some(&parts.iter_var), parts.iter_var2.as_ref(), Some(&parts.accu_var)];
        let names: Vec<_> = names.into_iter().flatten().cloned().collect();
        if names.iter().any(|name| name == SELF) {
            return Err(format!("the variable of a macro cannot be called {SELF:?}"));
        }
        self.expression(&mut parts.iter_range, depth + 1)?;
        self.expression(&mut parts.accu_init, depth + 1)?;
        let before = (self.variables.len(), self.steps);
        self.variables.extend(names);
        for part in [&mut parts.loop_cond, &mut parts.loop_step, &mut parts.result] {
            self.expression(part, depth + 1)?;
        }
        self.variables.truncate(before.0);
        let each = i64::try_from(self.steps - before.1).unwrap_or(i64::MAX);
        call_around(&mut parts.iter_range, cost::RANGE, each);
        Ok(())
    }

    /// Charges for an operand before its use.
    fn paid(&mut self, operand: &mut IdedExpr, factor: i64, depth: usize) -> Result<(), String> {
        self.expression(operand, depth + 1)?;
        match &operand.expr {
            // Its content was paid for when it was added. What a macro collects is extended in place.
            Expr::Literal(_) | Expr::List(_) if factor == 1 => {}
            Expr::Ident(name) if name.starts_with('@') => {}
            _ => call_around(operand, cost::PAY, factor),
        }
        Ok(())
    }
}

/// `function(budget, expr, number)` instead of `expr`.
fn call_around(expr: &mut IdedExpr, function: &str, number: i64) {
    let node = |expr| IdedExpr { id: 0, expr };
    let inner = std::mem::take(expr);
    let budget = node(Expr::Ident(cost::BUDGET.to_owned()));
    let number = node(Expr::Literal(LiteralValue::Int(CelInt::from(number))));
    let call = CallExpr { func_name: function.to_owned(), target: None, args: vec![budget, inner, number] };
    *expr = node(Expr::Call(call));
}
