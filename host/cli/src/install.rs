//! `enrich completions` and `enrich man`

use std::fs;

use clap::CommandFactory;

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::output;

pub fn print_completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "enrich", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end())
}

pub fn write_man_pages(args: &ManArgs) -> Result<(), Failure> {
    fs::create_dir_all(&args.dir).map_err(|error| Failure::file("create", &args.dir, error))?;
    clap_mangen::generate_to(Args::command(), &args.dir)
        .map_err(|error| Failure::file("write to", &args.dir, error))
}
