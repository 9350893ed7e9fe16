//! Jobs of batch/v1: what is read of them, and how they start, stop, end and change their size.

mod elastic;
mod ending;
mod numbers;
mod observe;
mod start_stop;
