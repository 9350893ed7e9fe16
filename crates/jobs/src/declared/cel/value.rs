//! Between JSON and CEL's values.

#![expect(
    clippy::disallowed_types,
    reason = "CEL's maps are such; they are gone through in the order of their keys"
)]

use std::collections::HashMap;

use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelOptional, CelString, CelUInt,
};
use cel::common::value::Val;
use serde_json::{Map, Value};

use super::cost::Budget;
use super::failure::Failure;
use super::quantity::CelQuantity;
use super::time::{CelDuration, CelTimestamp};

/// A part of an object, whose texts are borrowed; none if it is too large for the budget.
pub(super) fn read<'v>(value: &'v Value, budget: &Budget) -> Option<Box<dyn Val + 'v>> {
    budget.take(1).ok()?;
    Some(match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Box::new(CelInt::from(number)),
            None => Box::new(CelDouble::from(number.as_f64()?)),
        },
        Value::String(text) => {
            budget.take_text(text.len()).ok()?;
            Box::new(CelString::from(text.as_str()))
        }
        Value::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(|item| read(item, budget)).collect();
            Box::new(CelList::from(items?))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&'v String, &'v Value)| {
                budget.take_text(key.len()).ok()?;
                Some((CelMapKey::String(CelString::from(key.as_str())), read(value, budget)?))
            };
            let fields: Option<HashMap<_, _>> = fields.iter().map(field).collect();
            Box::new(CelMap::from(fields?))
        }
    })
}

/// The value of an expression, as JSON.
pub(super) fn written(value: &dyn Val, budget: &Budget) -> Result<Value, Failure> {
    budget.take(1).map_err(|_| Failure::TooCostly)?;
    if let Some(value) = value.downcast_ref::<CelBool>() {
        return Ok(Value::Bool(*value.inner()));
    }
    if let Some(number) = value.downcast_ref::<CelInt>() {
        return Ok(Value::from(*number.inner()));
    }
    if let Some(number) = value.downcast_ref::<CelUInt>() {
        return Ok(Value::from(*number.inner()));
    }
    if let Some(number) = value.downcast_ref::<CelDouble>() {
        return Ok(number_of(*number.inner()));
    }
    if let Some(text) = value.downcast_ref::<CelString>() {
        budget.take_text(text.inner().len()).map_err(|_| Failure::TooCostly)?;
        return Ok(Value::from(text.inner()));
    }
    if let Some(quantity) = value.downcast_ref::<CelQuantity>() {
        return Ok(Value::from(quantity.0.to_string()));
    }
    if let Some(at) = value.downcast_ref::<CelTimestamp>() {
        return Ok(Value::from(at.0.to_string()));
    }
    if let Some(length) = value.downcast_ref::<CelDuration>() {
        return Ok(Value::from(length.text()));
    }
    if value.downcast_ref::<CelNull>().is_some() {
        return Ok(Value::Null);
    }
    if let Some(list) = value.downcast_ref::<CelList>() {
        return list.inner().iter().map(|item| written(item.as_ref(), budget)).collect();
    }
    if let Some(map) = value.downcast_ref::<CelMap>() {
        let mut fields = Map::new();
        let mut entries: Vec<_> = map.inner().iter().collect();
        entries.sort_unstable_by(|one, other| one.0.cmp(other.0));
        for (key, item) in entries {
            let CelMapKey::String(key) = key else {
                return Err(Failure::Wrong("a key of a map is not a string".to_owned()));
            };
            fields.insert(key.inner().to_owned(), written(item.as_ref(), budget)?);
        }
        return Ok(Value::Object(fields));
    }
    if let Some(optional) = value.downcast_ref::<CelOptional>() {
        let absent = || Failure::Absent("the optional value is not there".to_owned());
        return written(optional.option().ok_or_else(absent)?, budget);
    }
    Err(Failure::Wrong(format!("has a value of the type {}", value.get_type().name())))
}

/// A number without a fraction is an integer, as in an object.
fn number_of(number: f64) -> Value {
    // Exact in both directions.
    const MOST: f64 = 9_007_199_254_740_992.0;
    if number.trunc().to_bits() == number.to_bits() && number.abs() <= MOST {
        return format!("{number:.0}").parse::<i64>().map_or(Value::Null, Value::from);
    }
    Value::from(number)
}
