//! ringside apps.
fn main() {}
