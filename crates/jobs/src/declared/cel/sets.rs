//! Functions of Kubernetes' libraries that compare values of lists with one another: sets, and the position of an item in a list.
//!
//! Their time is the product of two sizes, so they receive the budget and pay themselves.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};
use cel::common::functions::Function;
use cel::common::types::{CelBool, CelInt, CelList, CelString, DYN_TYPE, LIST_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError};

use super::cost::{self, BUDGET, Budget};

/// The library of sets: `sets.contains(one, other)`.
const SETS: &str = "sets";
/// The functions that are called instead, with the budget as the first operand.
const FUNCTIONS: [(&str, usize, Function); 5] = [
    ("@contains", 2, contains),
    ("@equivalent", 2, equivalent),
    ("@intersects", 2, intersects),
    ("@indexOf", 2, index_of),
    ("@lastIndexOf", 2, last_index_of),
];

/// Functions of the library of sets.
pub(super) const NAMES: [&str; 3] = ["sets.contains", "sets.equivalent", "sets.intersects"];

/// Adds the functions.
pub(super) fn add_to(env: &mut Env) {
    for (name, operands, function) in FUNCTIONS {
        env.add_overload(name, name, (0..=operands).map(|_| DYN_TYPE).collect(), function)
            .expect("CEL has no function of this name");
    }
    // With a text that is written in the expression: the call has paid for the list.
    let of_lists: [(&str, Function); 2] = [("indexOf", index_in_list), ("lastIndexOf", last_index_in_list)];
    for (name, function) in of_lists {
        env.add_member_overload(name, &format!("list.{name}()"), LIST_TYPE, vec![DYN_TYPE], function)
            .expect("CEL has no such function");
    }
}

/// Adds the budget to a call of one of these functions: a call of the library of sets, or of `indexOf` and `lastIndexOf` with a text that is not
/// written in the expression. `is_variable` returns whether a name is a variable.
pub(super) fn rewritten(call: &mut CallExpr, is_variable: impl Fn(&str) -> bool) -> bool {
    let of_sets = match call.target.as_deref().map(|target| &target.expr) {
        Some(Expr::Ident(name)) => name == SETS && !is_variable(SETS),
        _ => false,
    };
    let name = call.func_name.as_str();
    let [operand] = call.args.as_slice() else {
        return of_sets && call.args.len() == 2 && NAMES.contains(&format!("{SETS}.{name}").as_str()) && {
            call.target = None;
            with_budget(call)
        };
    };
    let of_lists = matches!(name, "indexOf" | "lastIndexOf")
        && !matches!(operand.expr, Expr::Literal(LiteralValue::String(_)));
    match (of_lists && !of_sets, call.target.take()) {
        (true, Some(target)) => {
            call.args.insert(0, *target);
            with_budget(call)
        }
        (_, target) => {
            call.target = target;
            false
        }
    }
}

fn with_budget(call: &mut CallExpr) -> bool {
    call.func_name.insert(0, '@');
    call.args.insert(0, IdedExpr { id: 0, expr: Expr::Ident(BUDGET.to_owned()) });
    true
}

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn arguments<'b, 'v>(
    name: &str,
    args: Args<'b, 'v>,
) -> Result<(Budget, [CowVal<'b, 'v>; 2]), ExecutionError> {
    let wrong = || ExecutionError::function_error(name, "is called otherwise");
    let [budget, one, other] = <[_; 3]>::try_from(args).map_err(|_| wrong())?;
    let budget = budget.downcast_ref::<Budget>().ok_or_else(wrong)?.clone();
    Ok((budget, [one, other]))
}

fn list<'a, 'v>(name: &str, value: &'a CowVal<'_, 'v>) -> Result<&'a [Box<dyn Val + 'v>], ExecutionError> {
    let list = value.downcast_ref::<CelList>();
    list.map(CelList::inner).ok_or_else(|| ExecutionError::function_error(name, "is for lists"))
}

/// Whether a list has all items of another. Each of those may be compared with the whole list.
fn has_all(
    name: &str,
    one: &CowVal<'_, '_>,
    other: &CowVal<'_, '_>,
    budget: &Budget,
) -> Result<bool, ExecutionError> {
    let items = list(name, one)?;
    for wanted in list(name, other)? {
        cost::charge(one.as_ref(), 1, budget)?;
        if !items.iter().any(|item| item.equals(wanted.as_ref())) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (budget, [one, other]) = arguments("sets.contains", args)?;
    Ok(CowVal::owned(CelBool::from(has_all("sets.contains", &one, &other, &budget)?)))
}

fn equivalent<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    const NAME: &str = "sets.equivalent";
    let (budget, [one, other]) = arguments(NAME, args)?;
    let same = has_all(NAME, &one, &other, &budget)? && has_all(NAME, &other, &one, &budget)?;
    Ok(CowVal::owned(CelBool::from(same)))
}

fn intersects<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    const NAME: &str = "sets.intersects";
    let (budget, [one, other]) = arguments(NAME, args)?;
    let items = list(NAME, &one)?;
    for wanted in list(NAME, &other)? {
        cost::charge(one.as_ref(), 1, &budget)?;
        if items.iter().any(|item| item.equals(wanted.as_ref())) {
            return Ok(CowVal::owned(CelBool::from(true)));
        }
    }
    Ok(CowVal::owned(CelBool::from(false)))
}

/// The first or last position of an item in a list; else -1.
fn position<'b, 'v>(name: &str, among: &CowVal<'_, '_>, wanted: &dyn Val, last: bool) -> Answer<'b, 'v> {
    let items = list(name, among)?;
    let at = if last {
        items.iter().rposition(|item| item.equals(wanted))
    } else {
        items.iter().position(|item| item.equals(wanted))
    };
    Ok(index(at))
}

fn index<'b, 'v>(at: Option<usize>) -> CowVal<'b, 'v> {
    CowVal::owned(CelInt::from(at.map_or(-1, |at| i64::try_from(at).unwrap_or(i64::MAX))))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn index_in_list<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    in_list("indexOf", &args, false)
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn last_index_in_list<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    in_list("lastIndexOf", &args, true)
}

fn in_list<'b, 'v>(name: &str, args: &[CowVal<'_, '_>], last: bool) -> Answer<'b, 'v> {
    let [among, wanted] = args else {
        return Err(ExecutionError::function_error(name, "is called otherwise"));
    };
    position(name, among, wanted.as_ref(), last)
}

fn index_of<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    in_either("indexOf", args, false)
}

fn last_index_of<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    in_either("lastIndexOf", args, true)
}

/// The position of an item in a list, or of a text in a text, that is not written in the expression.
fn in_either<'b, 'v>(name: &str, args: Args<'b, 'v>, last: bool) -> Answer<'b, 'v> {
    let (budget, [among, wanted]) = arguments(name, args)?;
    let texts = (among.downcast_ref::<CelString>(), wanted.downcast_ref::<CelString>());
    let (Some(text), Some(part)) = texts else {
        cost::charge(among.as_ref(), 1, &budget)?;
        return position(name, &among, wanted.as_ref(), last);
    };
    let (text, part) = (text.inner(), part.inner());
    budget.take_text(text.len().saturating_mul(part.len().max(1)))?;
    let at = if last { text.rfind(part) } else { text.find(part) };
    Ok(index(at.map(|at| text[..at].chars().count())))
}
