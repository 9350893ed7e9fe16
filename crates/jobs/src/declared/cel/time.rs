//! Timestamps and durations, as CEL has them: `timestamp(self.status.end) - timestamp(self.status.start) > duration('5m')`.
//!
//! There is no current time: an expression depends on nothing but the object. Zones are `UTC` and offsets such as `-08:00`, so that it does not
//! depend on a table of zones either.

use std::any::Any;
use std::cmp::Ordering;

use cel::common::functions::Function;
use cel::common::traits::{Adder, Comparer, Subtractor};
use cel::common::types::{CelInt, CelString, DURATION_TYPE, INT_TYPE, STRING_TYPE, TIMESTAMP_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{Env, ExecutionError};
use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use sluice_api::config::Duration;

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// A point in time between the years 1 and 9999. In an object it is a text again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CelTimestamp(pub Timestamp);

/// A length of time that 64 bits hold in nanoseconds. In an object it is a text again: its seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CelDuration(pub SignedDuration);

impl CelTimestamp {
    fn new(at: Timestamp) -> Option<Self> {
        (1..=9999).contains(&Offset::UTC.to_datetime(at).year()).then_some(Self(at))
    }
}

impl CelDuration {
    fn new(length: SignedDuration) -> Option<Self> {
        i64::try_from(length.as_nanos()).is_ok().then_some(Self(length))
    }

    /// Its seconds: `90s`, `-1.5s`.
    pub fn text(self) -> String {
        let nanos = self.0.as_nanos();
        let sign = if nanos < 0 { "-" } else { "" };
        let (whole, rest) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
        if rest == 0 {
            return format!("{sign}{whole}s");
        }
        format!("{sign}{whole}.{}s", format!("{rest:09}").trim_end_matches('0'))
    }
}

macro_rules! value {
    ($name:ident, $cel_type:ident) => {
        impl Val for $name {
            fn get_type(&self) -> &Type {
                Self::cel_type()
            }

            fn cel_type() -> &'static Type {
                static TYPE: Type = $cel_type;
                &TYPE
            }

            fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
            where
                Self: 'v,
            {
                Some(self)
            }

            fn as_comparer(&self) -> Option<&dyn Comparer> {
                Some(self)
            }

            fn as_subtractor<'b, 'v>(&'b self) -> Option<&'b (dyn Subtractor + 'v)>
            where
                Self: 'v,
            {
                Some(self)
            }

            fn equals(&self, other: &dyn Val) -> bool {
                other.downcast_ref::<Self>() == Some(self)
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

        impl StaticVal for $name {}

        impl Comparer for $name {
            fn compare(&self, other: &dyn Val) -> Result<Ordering, ExecutionError> {
                let other = other.downcast_ref::<Self>().ok_or_else(|| wrong("compare", self, other))?;
                Ok(self.0.cmp(&other.0))
            }
        }
    };
}

value!(CelTimestamp, TIMESTAMP_TYPE);
value!(CelDuration, DURATION_TYPE);

fn wrong(what: &str, one: &dyn Val, other: &dyn Val) -> ExecutionError {
    let (one, other) = (one.get_type().name(), other.get_type().name());
    ExecutionError::function_error(what, format!("is not for a {one} and a {other}"))
}

/// A result within its bounds.
fn bounded<'b, 'v>(what: &str, found: Option<impl StaticVal + 'v>) -> Answer<'b, 'v> {
    let found = found.ok_or_else(|| ExecutionError::function_error(what, "the result is out of range"))?;
    Ok(CowVal::owned(found))
}

impl Adder for CelTimestamp {
    fn add<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Answer<'b, 'v>
    where
        Self: 'v,
    {
        let length = other.downcast_ref::<CelDuration>().ok_or_else(|| wrong("add", self, other))?;
        bounded("add", self.0.checked_add(length.0).ok().and_then(Self::new))
    }
}

impl Subtractor for CelTimestamp {
    fn sub<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Answer<'b, 'v>
    where
        Self: 'v,
    {
        if let Some(other) = other.downcast_ref::<Self>() {
            return bounded("sub", CelDuration::new(self.0.duration_since(other.0)));
        }
        let length = other.downcast_ref::<CelDuration>().ok_or_else(|| wrong("sub", self, other))?;
        bounded("sub", self.0.checked_sub(length.0).ok().and_then(Self::new))
    }
}

impl Adder for CelDuration {
    fn add<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Answer<'b, 'v>
    where
        Self: 'v,
    {
        if let Some(at) = other.downcast_ref::<CelTimestamp>() {
            return bounded("add", at.0.checked_add(self.0).ok().and_then(CelTimestamp::new));
        }
        let other = other.downcast_ref::<Self>().ok_or_else(|| wrong("add", self, other))?;
        bounded("add", self.0.checked_add(other.0).and_then(Self::new))
    }
}

impl Subtractor for CelDuration {
    fn sub<'b, 'v>(&'b self, other: &(dyn Val + 'v)) -> Answer<'b, 'v>
    where
        Self: 'v,
    {
        let other = other.downcast_ref::<Self>().ok_or_else(|| wrong("sub", self, other))?;
        bounded("sub", self.0.checked_sub(other.0).and_then(Self::new))
    }
}

/// Adds the functions.
pub(super) fn add_to(env: &mut Env) {
    let free: [(&str, &str, Type, Function); 8] = [
        ("timestamp", "string_to_timestamp", STRING_TYPE, timestamp),
        ("timestamp", "int64_to_timestamp", INT_TYPE, timestamp_of_seconds),
        ("timestamp", "timestamp_to_timestamp", TIMESTAMP_TYPE, same),
        ("duration", "string_to_duration", STRING_TYPE, duration),
        ("duration", "duration_to_duration", DURATION_TYPE, same),
        ("int", "timestamp_to_int64", TIMESTAMP_TYPE, seconds_of_timestamp),
        ("string", "timestamp_to_string", TIMESTAMP_TYPE, text),
        ("string", "duration_to_string", DURATION_TYPE, text),
    ];
    for (name, id, of, function) in free {
        env.add_overload(name, id, vec![of], function)
            .expect("CEL has no such function without its own times");
    }
    let lengths: [(&str, Function); 4] = [
        ("getHours", length::<3_600_000>),
        ("getMinutes", length::<60_000>),
        ("getSeconds", length::<1_000>),
        ("getMilliseconds", length::<1>),
    ];
    for (name, function) in lengths {
        env.add_member_overload(name, &format!("duration.{name}()"), DURATION_TYPE, Vec::new(), function)
            .expect("CEL has no such function without its own times");
    }
    for (name, function) in FIELDS {
        for zone in [Vec::new(), vec![STRING_TYPE]] {
            let id = format!("timestamp.{name}({})", if zone.is_empty() { "" } else { "string" });
            env.add_member_overload(name, &id, TIMESTAMP_TYPE, zone, function)
                .expect("CEL has no such function without its own times");
        }
    }
}

/// The fields of a timestamp, in a zone. Months and days of the year, the month and the week are counted from 0, the date from 1.
const FIELDS: [(&str, Function); 10] = [
    ("getFullYear", |args| field("getFullYear", &args, |at| at.year().into())),
    ("getMonth", |args| field("getMonth", &args, |at| i64::from(at.month()) - 1)),
    ("getDayOfYear", |args| field("getDayOfYear", &args, |at| i64::from(at.day_of_year()) - 1)),
    ("getDayOfMonth", |args| field("getDayOfMonth", &args, |at| i64::from(at.day()) - 1)),
    ("getDate", |args| field("getDate", &args, |at| at.day().into())),
    ("getDayOfWeek", |args| field("getDayOfWeek", &args, |at| at.weekday().to_sunday_zero_offset().into())),
    ("getHours", |args| field("getHours", &args, |at| at.hour().into())),
    ("getMinutes", |args| field("getMinutes", &args, |at| at.minute().into())),
    ("getSeconds", |args| field("getSeconds", &args, |at| at.second().into())),
    ("getMilliseconds", |args| field("getMilliseconds", &args, |at| at.millisecond().into())),
];

fn field<'b, 'v>(name: &str, args: &[CowVal<'b, 'v>], read: fn(DateTime) -> i64) -> Answer<'b, 'v> {
    let at: &CelTimestamp = of(name, args)?;
    let zone = match args.get(1).and_then(|zone| zone.downcast_ref::<CelString>()) {
        Some(zone) => offset(zone.inner()).ok_or_else(|| {
            ExecutionError::function_error(name, "a zone is UTC, or an offset such as -08:00")
        })?,
        None => Offset::UTC,
    };
    Ok(CowVal::owned(CelInt::from(read(zone.to_datetime(at.0)))))
}

/// An offset from UTC: `+05:30`, `05:30`, `-08:00`.
fn offset(zone: &str) -> Option<Offset> {
    if matches!(zone, "" | "UTC") {
        return Some(Offset::UTC);
    }
    let (hours, minutes) = zone.split_once(':')?;
    let (sign, hours) = match hours.strip_prefix('-') {
        Some(hours) => (-1, hours),
        None => (1, hours.strip_prefix('+').unwrap_or(hours)),
    };
    let number = |text: &str, below: i32| {
        let digits = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<i32>().ok()).flatten().filter(|number| *number < below)
    };
    Offset::from_seconds(sign * (number(hours, 24)? * 3600 + number(minutes, 60)? * 60)).ok()
}

/// The first operand.
fn of<'a, T: StaticVal>(name: &str, args: &'a [CowVal<'_, '_>]) -> Result<&'a T, ExecutionError> {
    let found = args.first().and_then(|value| value.downcast_ref::<T>());
    found.ok_or_else(|| ExecutionError::function_error(name, "is not for such a value"))
}

fn string<'a>(name: &str, args: &'a [CowVal<'_, '_>]) -> Result<&'a str, ExecutionError> {
    let text = args.first().and_then(|text| text.downcast_ref::<CelString>());
    text.map(CelString::inner).ok_or_else(|| ExecutionError::function_error(name, "is for a string"))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn timestamp<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let text = string("timestamp", &args)?;
    // The last day of all is beyond what is counted here: it stands for "never", and is the last moment that can be counted.
    let last = text.get(..11).is_some_and(|day| day.eq_ignore_ascii_case("9999-12-31T"));
    let at = || if last { Some(Timestamp::MAX) } else { text.parse().ok() };
    let found = is_rfc3339(text).then(|| at().and_then(CelTimestamp::new)).flatten();
    let found = found.ok_or_else(|| {
        ExecutionError::function_error("timestamp", "must be a time such as 2026-01-31T12:00:00Z")
    })?;
    Ok(CowVal::owned(found))
}

/// Whether a text has the form of RFC 3339: the parser takes others, too.
fn is_rfc3339(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let like = |text: &[u8], form: &[u8]| {
        let same = |(byte, wanted): (&u8, &u8)| {
            if *wanted == b'0' { byte.is_ascii_digit() } else { byte.eq_ignore_ascii_case(wanted) }
        };
        text.len() == form.len() && text.iter().zip(form).all(same)
    };
    let Some((time, rest)) = text.as_bytes().split_at_checked(FORM.len()) else { return false };
    let rest = match rest.strip_prefix(b".") {
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return false;
            }
            &fraction[digits..]
        }
        None => rest,
    };
    like(time, FORM) && [&b"Z"[..], b"+00:00", b"-00:00"].iter().any(|form| like(rest, form))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn timestamp_of_seconds<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let seconds: &CelInt = of("timestamp", &args)?;
    bounded("timestamp", Timestamp::from_second(*seconds.inner()).ok().and_then(CelTimestamp::new))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn seconds_of_timestamp<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let at: &CelTimestamp = of("int", &args)?;
    // Whole seconds since 1970, those before it as well.
    let seconds = i64::try_from(at.0.as_nanosecond().div_euclid(1_000_000_000));
    bounded("int", seconds.ok().map(CelInt::from))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn duration<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let found = Duration::parse(string("duration", &args)?).ok_or_else(|| {
        ExecutionError::function_error("duration", "must be a length of time such as 1h30m or 90s")
    })?;
    Ok(CowVal::owned(CelDuration(SignedDuration::from_nanos(found.as_nanos()))))
}

/// The length of a duration, in units of this number of milliseconds.
#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn length<'b, 'v, const MILLIS: i128>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let length: &CelDuration = of("a length of time", &args)?;
    let whole = i64::try_from(length.0.as_millis() / MILLIS);
    bounded("a length of time", whole.ok().map(CelInt::from))
}

#[expect(clippy::needless_pass_by_value, reason = "as the library calls it")]
fn text<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let text = match of::<CelDuration>("string", &args) {
        Ok(length) => length.text(),
        Err(_) => of::<CelTimestamp>("string", &args)?.0.to_string(),
    };
    Ok(CowVal::owned(CelString::from(text)))
}

fn same<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let value = args.into_iter().next();
    value.ok_or_else(|| ExecutionError::function_error("timestamp", "needs a value"))
}
