//! Pure adapters between job kinds and Workloads: observe, start, stop.
