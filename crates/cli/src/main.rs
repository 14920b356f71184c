//! The `konverge` command.

fn main() {}
