//! The state machine between Kubernetes objects and the admission core: inputs in, effects out.
