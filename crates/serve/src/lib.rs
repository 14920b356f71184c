//! HTTPS listener.
