//! The program `enrich`. The library of this package contains the commands.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// The allocator. A lookup makes dozens of small allocations, for which the system's allocator is a few times
/// slower.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    enrich::main()
}
