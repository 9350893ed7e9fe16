//! Exact Kubernetes quantities: parse, canonical form, rounding as Kubernetes does; no floats.
