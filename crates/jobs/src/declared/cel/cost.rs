//! What an evaluation may cost: it is counted in steps, not in time, so that it ends the same way everywhere.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cel::common::types::{self, CelInt, CelList, CelMap, CelOptional, CelString, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{Env, ExecutionError};

/// The variable that holds the budget. No expression can name it.
pub(super) const BUDGET: &str = "@budget";
/// The function that pays for a value before it is used: `(budget, value, factor)`.
pub(super) const PAY: &str = "@pay";
/// The function that pays for a comprehension before it begins: `(budget, what it goes through, steps for each)`. It makes the list of its keys
/// of a map: these alone are copied, so that what the map holds costs no more than reading it did.
pub(super) const RANGE: &str = "@range";

/// How many bytes of a string are one step.
const BYTES_PER_STEP: u64 = 32;

/// The remaining steps for one object.
#[derive(Clone)]
pub(in crate::declared) struct Budget(Arc<AtomicU64>);

impl Budget {
    /// The steps for all expressions of a kind together, over one object: some ten milliseconds at worst.
    pub const STEPS: u64 = 200_000;

    /// All of them.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(Self::STEPS)))
    }

    /// Takes some. If not enough are left, none are left from then on.
    pub fn take(&self, steps: u64) -> Result<(), ExecutionError> {
        let left = self.0.load(Ordering::Relaxed);
        if steps >= left {
            self.0.store(0, Ordering::Relaxed);
            return Err(ExecutionError::function_error(PAY, "costs too much"));
        }
        self.0.store(left - steps, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the steps for a string.
    pub fn take_text(&self, bytes: usize) -> Result<(), ExecutionError> {
        self.take(1 + u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_PER_STEP)
    }

    /// Whether there are none left.
    pub fn is_spent(&self) -> bool {
        self.left() == 0
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps left", self.left())
    }
}

static BUDGET_TYPE: Type = Type::simple_type(types::Kind::Unspecified, "budget");

impl Val for Budget {
    fn get_type(&self) -> &Type {
        &BUDGET_TYPE
    }

    fn cel_type() -> &'static Type {
        &BUDGET_TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

impl StaticVal for Budget {}

/// Adds the functions that pay.
pub(super) fn add_to(env: &mut Env) {
    let signature = || vec![types::DYN_TYPE, types::DYN_TYPE, types::INT_TYPE];
    env.add_overload(PAY, PAY, signature(), pay).expect("CEL has no function of this name");
    env.add_overload(RANGE, RANGE, signature(), range).expect("CEL has no function of this name");
}

fn pay<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (budget, value, factor) = arguments(args)?;
    charge(value.as_ref(), factor, &budget)?;
    Ok(value)
}

fn range<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (budget, value, each) = arguments(args)?;
    let length = value.as_sizer().map_or(0, |sizer| u64::try_from(*sizer.size().inner()).unwrap_or(0));
    budget.take(length.saturating_mul(each))?;
    let Some(map) = value.downcast_ref::<CelMap>() else {
        charge(value.as_ref(), 1, &budget)?;
        return Ok(value);
    };
    budget.take(1)?;
    map.inner().keys().try_for_each(|key| charge(key.inner(), 1, &budget))?;
    let mut keys: Vec<_> = map.inner().keys().collect();
    keys.sort_unstable();
    let keys: Vec<Box<dyn Val + 'v>> = keys.into_iter().map(|key| key.inner().clone_as_boxed()).collect();
    Ok(CowVal::owned(CelList::from(keys)))
}

fn arguments<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<(Budget, CowVal<'b, 'v>, u64), ExecutionError> {
    let wrong = || ExecutionError::function_error(PAY, "is called otherwise");
    let [budget, value, factor] = <[_; 3]>::try_from(args).map_err(|_| wrong())?;
    let budget = budget.downcast_ref::<Budget>().ok_or_else(wrong)?.clone();
    let factor = factor.downcast_ref::<CelInt>().and_then(|factor| u64::try_from(*factor.inner()).ok());
    Ok((budget, value, factor.ok_or_else(wrong)?))
}

/// Pays for every value inside of a value.
pub(super) fn charge(value: &dyn Val, factor: u64, budget: &Budget) -> Result<(), ExecutionError> {
    let text = |text: &CelString<'_>| {
        let bytes = u64::try_from(text.inner().len()).unwrap_or(u64::MAX);
        budget.take(1 + bytes.saturating_mul(factor) / BYTES_PER_STEP)
    };
    if let Some(found) = value.downcast_ref::<CelString>() {
        return text(found);
    }
    budget.take(1)?;
    if let Some(list) = value.downcast_ref::<CelList>() {
        return list.inner().iter().try_for_each(|item| charge(item.as_ref(), factor, budget));
    }
    if let Some(map) = value.downcast_ref::<CelMap>() {
        return map.inner().iter().try_for_each(|(key, item)| {
            charge(key.inner(), factor, budget)?;
            charge(item.as_ref(), factor, budget)
        });
    }
    match value.downcast_ref::<CelOptional>().and_then(|optional| optional.option()) {
        Some(inner) => charge(inner, factor, budget),
        None => Ok(()),
    }
}
