//! Gates and generators.

fn main() {}
