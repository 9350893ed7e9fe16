//! The Sluice manager: watches, writes, webhooks, certificates, leases, metrics; the only I/O.
