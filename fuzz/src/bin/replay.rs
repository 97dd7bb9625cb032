//! Runs inputs through a target without the fuzzer: `replay TARGET FILE...`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let Some((_, target)) = ringside_fuzz::TARGETS
        .iter()
        .find(|(known, _)| *known == name)
    else {
        eprintln!("no target {name:?}; fuzz/run --list names them");
        return ExitCode::FAILURE;
    };
    for file in arguments {
        match std::fs::read(&file) {
            Ok(bytes) => target(&bytes),
            Err(error) => {
                eprintln!("{file}: {error}");
                return ExitCode::FAILURE;
            }
        }
        println!("{file}: passed");
    }
    ExitCode::SUCCESS
}
