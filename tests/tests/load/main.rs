//! Load tests, each on its own plane, one after the other: the measurements need the machine exclusively.

mod flood;
mod race;
mod rate;
mod reviews;
mod strangers;
