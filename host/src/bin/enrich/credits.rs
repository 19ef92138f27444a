//! `enrich credits`

use std::path::PathBuf;

use enrich_host::SystemArrivals;
use enrich_lib::credit::Balance;
use serde_json::{Value, json};

use crate::args::{CreditsCommand, Format};
use crate::failure::Failure;
use crate::{admin, output};

pub fn run(data: PathBuf, command: CreditsCommand) -> Result<(), Failure> {
    let (balance, format) = match command {
        CreditsCommand::Grant { workspace, credits, format } => {
            (admin(data)?.grant(&workspace, credits, SystemArrivals::now())?, format)
        }
        CreditsCommand::Show { workspace, format } => (admin(data)?.balance(&workspace)?, format),
    };
    show(&balance, format)
}

fn show(balance: &Balance, format: Format) -> Result<(), Failure> {
    if format.json {
        return output::json(&to_json(balance));
    }
    let Balance { granted, available, held, spent } = *balance;
    output::table(
        ["GRANTED", "AVAILABLE", "HELD", "SPENT"],
        [[granted, available, held, spent].map(output::grouped)],
    );
    Ok(())
}

pub fn to_json(balance: &Balance) -> Value {
    let Balance { granted, available, held, spent } = balance;
    json!({ "granted": granted, "available": available, "held": held, "spent": spent })
}
