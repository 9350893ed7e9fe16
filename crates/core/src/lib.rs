//! The admission algorithm: a pure, deterministic library without I/O, clock or randomness.
