//! Quantities, as Kubernetes' library for CEL has them: `quantity(self.spec.memory).isGreaterThan(quantity('10Gi'))`.

use std::any::Any;
use std::cmp::Ordering;

use cel::common::functions::Function;
use cel::common::types::{CelBool, CelDouble, CelInt, CelString, DYN_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{Env, ExecutionError};
use sluice_quantity::{Format, Quantity};

/// A quantity as a value. In an object it is a text again.
#[derive(Clone, Copy, Debug)]
pub(super) struct CelQuantity(pub Quantity);

static QUANTITY_TYPE: Type = Type::new_unspecified_type("quantity");

impl Val for CelQuantity {
    fn get_type(&self) -> &Type {
        &QUANTITY_TYPE
    }

    fn cel_type() -> &'static Type {
        &QUANTITY_TYPE
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| other.0 == self.0)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(*self)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for CelQuantity {}

/// Adds the functions.
pub(super) fn add_to(env: &mut Env) {
    let free: [(&str, Function); 2] = [("quantity", quantity), ("isQuantity", is_quantity)];
    for (name, function) in free {
        env.add_overload(name, name, vec![DYN_TYPE], function).expect("CEL has no such function");
    }
    let of_one: [(&str, Function); 4] = [
        ("sign", sign),
        ("isInteger", is_integer),
        ("asInteger", as_integer),
        ("asApproximateFloat", as_approximate_float),
    ];
    let of_two: [(&str, Function); 5] = [
        ("add", add),
        ("sub", sub),
        ("compareTo", compare_to),
        ("isGreaterThan", is_greater_than),
        ("isLessThan", is_less_than),
    ];
    let others = of_one.map(|(name, function)| (name, 0, function));
    for (name, others, function) in
        others.into_iter().chain(of_two.map(|(name, function)| (name, 1, function)))
    {
        let id = format!("quantity.{name}()");
        env.add_member_overload(name, &id, DYN_TYPE, (0..others).map(|_| DYN_TYPE).collect(), function)
            .expect("CEL has no such function");
    }
}

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// The text that is to be a quantity.
fn text<'a>(name: &str, args: &'a [CowVal<'_, '_>]) -> Result<&'a str, ExecutionError> {
    let text = args.first().and_then(|text| text.downcast_ref::<CelString>());
    text.map(CelString::inner).ok_or_else(|| ExecutionError::function_error(name, "is for a string"))
}

fn of(name: &str, value: Option<&CowVal<'_, '_>>) -> Result<Quantity, ExecutionError> {
    let found = value.and_then(|value| value.downcast_ref::<CelQuantity>());
    found.map(|found| found.0).ok_or_else(|| ExecutionError::function_error(name, "is for quantities"))
}

/// The other operand: a quantity, or an integer.
fn or_integer(name: &str, value: Option<&CowVal<'_, '_>>) -> Result<Quantity, ExecutionError> {
    match value.and_then(|value| value.downcast_ref::<CelInt>()) {
        Some(number) => Ok(Quantity::from_units(*number.inner(), Format::DecimalSi)),
        None => of(name, value),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn quantity<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let parsed = Quantity::parse(text("quantity", &args)?);
    let found = parsed.map_err(|why| ExecutionError::function_error("quantity", why))?;
    Ok(CowVal::owned(CelQuantity(found)))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn is_quantity<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    Ok(CowVal::owned(CelBool::from(Quantity::parse(text("isQuantity", &args)?).is_ok())))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn sign<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let sign = of("sign", args.first())?.nano().signum();
    Ok(CowVal::owned(CelInt::from(i64::try_from(sign).unwrap_or_default())))
}

/// Its units, if they are an integer of 64 bits.
fn integer(quantity: &Quantity) -> Option<i64> {
    quantity.is_integer().then(|| i64::try_from(quantity.nano() / 1_000_000_000).ok()).flatten()
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn is_integer<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    Ok(CowVal::owned(CelBool::from(integer(&of("isInteger", args.first())?).is_some())))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn as_integer<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let found = integer(&of("asInteger", args.first())?);
    let found = found.ok_or_else(|| ExecutionError::function_error("asInteger", "is not an integer"))?;
    Ok(CowVal::owned(CelInt::from(found)))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
#[expect(clippy::cast_precision_loss, reason = "as its name says")]
fn as_approximate_float<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let nano = of("asApproximateFloat", args.first())?.nano();
    Ok(CowVal::owned(CelDouble::from(nano as f64 / 1e9)))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn add<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let sum = of("add", args.first())?.saturating_add(or_integer("add", args.get(1))?);
    Ok(CowVal::owned(CelQuantity(sum)))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn sub<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let rest = of("sub", args.first())?.saturating_sub(or_integer("sub", args.get(1))?);
    Ok(CowVal::owned(CelQuantity(rest)))
}

fn compared(name: &str, args: &[CowVal<'_, '_>]) -> Result<Ordering, ExecutionError> {
    Ok(of(name, args.first())?.cmp(&of(name, args.get(1))?))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn compare_to<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    Ok(CowVal::owned(CelInt::from(compared("compareTo", &args)? as i64)))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn is_greater_than<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    Ok(CowVal::owned(CelBool::from(compared("isGreaterThan", &args)?.is_gt())))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn is_less_than<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    Ok(CowVal::owned(CelBool::from(compared("isLessThan", &args)?.is_lt())))
}
