//! Seeded randomness: the same seed and name give the same draws on every machine.
//!
//! Each thing draws from its own stream, which is named after it, so a change in one place does not shift the draws of others: what-if compares two
//! futures with the same draws.

use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::Value;

use crate::duration;

/// A stream of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    /// The stream of a name.
    pub fn new(seed: u64, name: &str) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut stream = Self(hash);
        stream.next();
        stream
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number in (0, 1).
    #[expect(clippy::cast_precision_loss, reason = "52 bits are exact in a double")]
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) / 4_503_599_627_370_496.0
    }

    /// The next number of the standard normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit(), self.unit());
        libm::sqrt(-2.0 * libm::log(radius)) * libm::cos(2.0 * std::f64::consts::PI * angle)
    }
}

/// How long something takes: always the same, or drawn. Times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Distribution {
    /// Always the same.
    Fixed(SignedDuration),
    /// Each value between the two equally likely.
    Uniform {
        /// The least.
        min: SignedDuration,
        /// The most.
        max: SignedDuration,
    },
    /// Memoryless, like independent arrivals.
    Exponential {
        /// The mean.
        mean: SignedDuration,
    },
    /// Many short ones and a few very long ones.
    LogNormal {
        /// Half are shorter.
        p50: SignedDuration,
        /// Nine of ten are shorter.
        p90: SignedDuration,
    },
}

/// The 90 % point of the standard normal distribution.
const P90: f64 = 1.281_551_565_544_600_4;

impl TryFrom<Value> for Distribution {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let Value::Object(object) = &value else { return duration::from_value(&value).map(Self::Fixed) };
        let expected =
            "expected a duration, or one of uniform {min, max}, exponential {mean}, lognormal {p50, p90}";
        let mut entries = object.iter();
        let (Some((kind, parameters)), None) = (entries.next(), entries.next()) else {
            return Err(format!("{expected}; found {value}"));
        };
        let get = |key: &str| match parameters.get(key) {
            Some(value) => duration::from_value(value).map_err(|why| format!("{kind}.{key}: {why}")),
            None => Err(format!("{kind}.{key} is missing")),
        };
        match kind.as_str() {
            "uniform" => {
                let (min, max) = (get("min")?, get("max")?);
                if min > max {
                    Err("uniform.min is above uniform.max".to_owned())
                } else {
                    Ok(Self::Uniform { min, max })
                }
            }
            "exponential" => Ok(Self::Exponential { mean: get("mean")? }),
            "lognormal" => {
                let (p50, p90) = (get("p50")?, get("p90")?);
                if p50.is_zero() || p50 > p90 {
                    return Err("lognormal needs 0 < p50 <= p90".to_owned());
                }
                Ok(Self::LogNormal { p50, p90 })
            }
            _ => Err(format!("{expected}; found {kind}")),
        }
    }
}

fn millis(duration: SignedDuration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A number of milliseconds as a duration, at most a hundred years.
fn from_millis(millis: f64) -> SignedDuration {
    #[expect(clippy::cast_possible_truncation, reason = "bounded right here")]
    let whole = libm::round(millis).clamp(0.0, 3.2e12) as i64;
    SignedDuration::from_millis(whole)
}

impl Distribution {
    /// The next draw.
    pub(crate) fn draw(&self, stream: &mut Stream) -> SignedDuration {
        match self {
            Self::Fixed(duration) => *duration,
            Self::Uniform { min, max } => {
                from_millis(millis(*min) + (millis(*max) - millis(*min)) * stream.unit())
            }
            Self::Exponential { mean } => from_millis(-millis(*mean) * libm::log(stream.unit())),
            Self::LogNormal { p50, p90 } => {
                let sigma = libm::log(millis(*p90) / millis(*p50)) / P90;
                from_millis(millis(*p50) * libm::exp(sigma * stream.normal()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn draws(distribution: &Value, n: usize) -> Vec<i64> {
        let distribution = Distribution::try_from(distribution.clone()).unwrap();
        let mut stream = Stream::new(7, "test");
        let mut drawn: Vec<_> =
            (0..n).map(|_| i64::try_from(distribution.draw(&mut stream).as_millis()).unwrap()).collect();
        drawn.sort_unstable();
        drawn
    }

    #[test]
    fn quantiles_are_those_asked_for() {
        let drawn = draws(&json!({"lognormal": {"p50": "10m", "p90": "1h"}}), 10_000);
        assert!((560_000..640_000).contains(&drawn[5000]), "{}", drawn[5000]);
        assert!((3_300_000..3_900_000).contains(&drawn[9000]), "{}", drawn[9000]);
        let drawn = draws(&json!({"exponential": {"mean": "1m"}}), 10_000);
        assert!((40_000..43_500).contains(&drawn[5000]), "{}", drawn[5000]);
        let drawn = draws(&json!({"uniform": {"min": "1s", "max": "2s"}}), 1000);
        assert!(drawn[0] >= 1000 && drawn[999] <= 2000);
    }

    #[test]
    fn streams_of_other_names_or_seeds_differ_and_the_same_repeats() {
        let first = |seed, name| Stream::new(seed, name).next();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = |value: Value| Distribution::try_from(value).unwrap_err();
        assert_eq!(wrong(json!({"exponential": {}})), "exponential.mean is missing");
        assert!(wrong(json!({"gamma": {}})).ends_with("found gamma"));
        assert!(wrong(json!({"uniform": {"min": "2s", "max": "1s"}})).contains("above"));
    }
}
