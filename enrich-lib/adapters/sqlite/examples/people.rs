//! What a look-up in the people directory costs: `people DIRECTORY PEOPLE` makes a directory of so many invented people,
//! unless it is there, and looks them up from the disk and from memory.

#![allow(clippy::print_stdout, reason = "this is what it is for")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_sqlite::{DataDir, People};
use futures_executor::block_on;

const LOOKUPS: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(count)) = (args.next(), args.next()) else {
        return Err("usage: people DIRECTORY PEOPLE".into());
    };
    let (dir, count): (_, u64) = (DataDir::create(dir)?, count.parse()?);
    let people = People::open(&dir, People::CONFIDENCE_MIN, [7; 16])?;
    if people.stats()?.people < count {
        let start = Instant::now();
        let mut import = people.import()?;
        for n in 0..count {
            import.add(&email(n)?, &ProfileUrl::from_name(&format!("p-{n}"))?, 1.0)?;
        }
        import.finish()?;
        println!("imported in {:.1} s", start.elapsed().as_secs_f64());
    }
    // Spread over the directory, and in no order of it.
    let emails = (0..LOOKUPS).map(|n| email(n * 0x9e37_79b1 % count)).collect::<Result<Vec<_>, _>>()?;

    println!("disk: {:.0} ns", look_up(&people, &emails)?);
    let (start, kib) = (Instant::now(), resident_kib());
    let people = people.in_memory()?;
    println!("read in {:.3} s, {} MB", start.elapsed().as_secs_f64(), (resident_kib() - kib) / 1000);
    println!("memory: {:.0} ns", look_up(&people, &emails)?);
    Ok(())
}

fn email(n: u64) -> Result<Email, Box<dyn Error>> {
    Ok(Email::parse(&format!("p{n}@mail{}.com", n % 50))?)
}

/// Nanoseconds each, the best of three rounds.
fn look_up(people: &People, emails: &[Email]) -> Result<f64, Box<dyn Error>> {
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        for email in emails {
            black_box(block_on(people.find(email))?.ok_or("somebody is not found")?);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / emails.len() as f64);
    }
    Ok(best)
}

/// The memory that this process has, as Linux tells; 0 elsewhere.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}
