//! The functions that expressions may call: CEL's own, and those of Kubernetes' libraries for strings, lists of numbers, patterns and quantities. The
//! largest result for a large text is known from the expression alone, so that it can be paid for before.

use cel::common::ast::{CallExpr, Expr, LiteralValue};
use cel::common::functions::Function;
use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelString, INT_TYPE, LIST_TYPE, STRING_TYPE};
use cel::common::value::{CowVal, Val};
use cel::{Env, ExecutionError, extensions};
use regex::{Regex, RegexBuilder};

/// Functions that an expression may call, besides operators and the macros `has`, `all`, `exists`, `exists_one`, `map` and `filter`.
pub(super) const NAMES: [&str; 52] = [
    "add",
    "asApproximateFloat",
    "asInteger",
    "bool",
    "charAt",
    "compareTo",
    "contains",
    "double",
    "duration",
    "endsWith",
    "find",
    "findAll",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "hasValue",
    "indexOf",
    "int",
    "isGreaterThan",
    "isInteger",
    "isLessThan",
    "isQuantity",
    "isSorted",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "max",
    "min",
    "or",
    "orValue",
    "quantity",
    "replace",
    "sign",
    "size",
    "split",
    "startsWith",
    "string",
    "sub",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "upperAscii",
    "value",
];

/// Longest pattern of `matches`, `find` and `findAll`, in bytes.
const MAX_PATTERN: usize = 128;
/// The largest compiled pattern, in bytes.
const MAX_PATTERN_PROGRAM: usize = 1 << 16;
/// Compiling a pattern, which is done each time, in steps.
const PATTERN_STEPS: u64 = 2_000;
/// The cost of searching for a pattern, relative to other uses of a text.
const PATTERN_FACTOR: i64 = 64;
/// The same for functions that split a text, character by character.
const SPLIT_FACTOR: i64 = 32;
/// The same for functions that read characters.
const CHARACTERS_FACTOR: i64 = 4;
/// Longest text that `join` puts between others, in bytes: what an item of a list costs.
const MAX_SEPARATOR: usize = 32;

/// The cost of a call: at least this number of steps, and for each use of its operands a factor relative to other uses. If the result is larger than
/// the operands, or takes longer than reading them, it depends on texts that are written in the expression.
pub(super) fn cost(call: &CallExpr) -> Result<(u64, i64), String> {
    let name = call.func_name.as_str();
    let written = |at: usize, what: &str| -> Result<Option<&str>, String> {
        let Some(text) = call.args.get(at) else { return Ok(None) };
        match &text.expr {
            Expr::Literal(LiteralValue::String(text)) => Ok(Some(text.inner())),
            _ => Err(format!("the {what} of {name} must be a string literal")),
        }
    };
    let longest = |text: Option<&str>| i64::try_from(text.map_or(0, str::len)).unwrap_or(i64::MAX);
    match name {
        "matches" => {
            // The last of them, in either way of calling it.
            let last = call.args.len().saturating_sub(1);
            pattern(name, written(last, "pattern")?.ok_or("matches needs a pattern")?)?;
            Ok((PATTERN_STEPS, PATTERN_FACTOR))
        }
        "find" | "findAll" => {
            pattern(name, written(0, "pattern")?.ok_or_else(|| format!("{name} needs a pattern"))?)?;
            Ok((PATTERN_STEPS, PATTERN_FACTOR))
        }
        "indexOf" | "lastIndexOf" => {
            let looked_for = longest(written(0, "text to look for")?);
            Ok((0, looked_for.max(CHARACTERS_FACTOR)))
        }
        "replace" => {
            if written(0, "text to replace")? == Some("") {
                return Err("the text to replace must not be empty".to_owned());
            }
            Ok((0, longest(written(1, "replacement")?).max(1)))
        }
        "split" => {
            written(0, "separator")?;
            Ok((0, SPLIT_FACTOR))
        }
        "join" => {
            let separator = written(0, "separator")?.unwrap_or_default();
            if separator.len() > MAX_SEPARATOR {
                return Err(format!("the separator of join must have at most {MAX_SEPARATOR} characters"));
            }
            Ok((0, 1))
        }
        "charAt" | "substring" => Ok((0, CHARACTERS_FACTOR)),
        _ => Ok((0, 1)),
    }
}

/// A pattern has to be known, so that no object's can be costly.
fn pattern(name: &str, text: &str) -> Result<(), String> {
    if text.len() > MAX_PATTERN {
        return Err(format!("the pattern of {name} must have at most {MAX_PATTERN} characters"));
    }
    compiled(text).map(drop).map_err(|error| format!("the pattern of {name}: {error}"))
}

fn compiled(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(MAX_PATTERN_PROGRAM).build()
}

/// CEL's own functions, and those of Kubernetes for strings, patterns and lists of numbers.
pub(super) fn environment() -> Env {
    let mut env = Env::stdlib();
    env.add_extension(extensions::strings).expect("they are no functions of CEL's own");
    let of_lists: [(&str, Function); 4] = [("sum", sum), ("min", min), ("max", max), ("isSorted", is_sorted)];
    for (name, function) in of_lists {
        let id = format!("list.{name}()");
        env.add_member_overload(name, &id, LIST_TYPE, Vec::new(), function)
            .expect("CEL has no such function");
    }
    let of_patterns: [(&str, usize, Function); 3] =
        [("find", 1, find), ("findAll", 1, find_all), ("findAll", 2, find_all)];
    for (name, operands, function) in of_patterns {
        let signature = [STRING_TYPE, INT_TYPE].into_iter().take(operands).collect();
        env.add_member_overload(
            name,
            &format!("string.{name}({operands})"),
            STRING_TYPE,
            signature,
            function,
        )
        .expect("CEL has no such function");
    }
    env
}

/// A text and the pattern to find in it.
fn searched<'a>(name: &str, args: &'a [CowVal<'_, '_>]) -> Result<(&'a str, Regex), ExecutionError> {
    let wrong = || ExecutionError::function_error(name, "is for a string and a pattern");
    let [text, pattern, ..] = args else { return Err(wrong()) };
    let text = text.downcast_ref::<CelString>().ok_or_else(wrong)?.inner();
    let pattern = compiled(pattern.downcast_ref::<CelString>().ok_or_else(wrong)?.inner());
    Ok((text, pattern.map_err(|error| ExecutionError::function_error(name, error))?))
}

/// The first match of a pattern; else an empty text.
#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn find<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (text, pattern) = searched("find", &args)?;
    let found = pattern.find(text).map_or("", |found| found.as_str());
    Ok(CowVal::owned(CelString::from(found.to_owned())))
}

/// All matches of a pattern, or up to a number of them.
#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn find_all<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (text, pattern) = searched("findAll", &args)?;
    let most = args.get(2).and_then(|most| most.downcast_ref::<CelInt>()).map_or(-1, |most| *most.inner());
    // As in Kubernetes, a negative number means all.
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let found = pattern.find_iter(text).take(most).map(|found| found.as_str().to_owned());
    let found: Vec<Box<dyn Val + 'v>> = found.map(|text| Box::new(CelString::from(text)) as _).collect();
    Ok(CowVal::owned(CelList::from(found)))
}

/// The numbers of a list.
enum Numbers {
    /// All are integers.
    Whole(Vec<i64>),
    /// Some are not.
    Any(Vec<f64>),
}

fn numbers(name: &str, args: &[CowVal<'_, '_>]) -> Result<Numbers, ExecutionError> {
    let wrong = || ExecutionError::function_error(name, "is for lists of numbers");
    let list = args.first().and_then(|list| list.downcast_ref::<CelList>()).ok_or_else(wrong)?;
    let whole = |item: &dyn Val| item.downcast_ref::<CelInt>().map(|number| *number.inner());
    let any = |item: &dyn Val| match whole(item) {
        #[expect(clippy::cast_precision_loss, reason = "as CEL's own `double`")]
        Some(number) => Some(number as f64),
        None => item.downcast_ref::<CelDouble>().map(|number| *number.inner()),
    };
    let items = || list.inner().iter().map(AsRef::as_ref);
    if let Some(all) = items().map(whole).collect() {
        return Ok(Numbers::Whole(all));
    }
    items().map(any).collect::<Option<_>>().map(Numbers::Any).ok_or_else(wrong)
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn sum<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    match numbers("sum", &args)? {
        Numbers::Whole(all) => {
            let sum = all.into_iter().try_fold(0_i64, i64::checked_add);
            let sum = sum.ok_or_else(|| ExecutionError::function_error("sum", "integer overflow"))?;
            Ok(CowVal::owned(CelInt::from(sum)))
        }
        Numbers::Any(all) => Ok(CowVal::owned(CelDouble::from(all.into_iter().sum::<f64>()))),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn min<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    extreme("min", &args, |all| all.into_iter().min(), f64::min)
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn max<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    extreme("max", &args, |all| all.into_iter().max(), f64::max)
}

fn extreme<'b, 'v>(
    name: &str,
    args: &[CowVal<'b, 'v>],
    whole: fn(Vec<i64>) -> Option<i64>,
    any: fn(f64, f64) -> f64,
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let found: Option<CowVal<'b, 'v>> = match numbers(name, args)? {
        Numbers::Whole(all) => whole(all).map(|number| CowVal::owned(CelInt::from(number))),
        Numbers::Any(all) => all.into_iter().reduce(any).map(|number| CowVal::owned(CelDouble::from(number))),
    };
    found.ok_or_else(|| ExecutionError::function_error(name, "called on an empty list"))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn is_sorted<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let sorted = match numbers("isSorted", &args)? {
        Numbers::Whole(all) => all.is_sorted(),
        Numbers::Any(all) => all.is_sorted(),
    };
    Ok(CowVal::owned(CelBool::from(sorted)))
}
