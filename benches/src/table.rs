//! The table that a run ends with: medians, and ratios within a round.

use std::fmt;
use std::time::Duration;

/// What one contender did in one round.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Replies in a second.
    pub per_second: f64,
    /// The median latency.
    pub p50: Duration,
    /// The latency that one request of a hundred exceeds.
    pub p99: Duration,
    /// The processor time of a request, in the server's processes.
    pub cpu: Duration,
    /// How busy the server's core was, from 0 to 1, if it had one of its own.
    pub busy: Option<f64>,
}

/// The rounds of each contender. The first is what the others are compared with.
#[derive(Clone, Debug)]
pub struct Table {
    names: Vec<String>,
    rounds: Vec<Vec<Entry>>,
}

impl Table {
    /// A table of these contenders, without a round yet.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().collect(), rounds: Vec::new() }
    }

    /// One round: an entry of each contender, in their order.
    pub fn add(&mut self, round: Vec<Entry>) {
        self.rounds.push(round);
    }

    /// How many rounds there are.
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    fn sorted(&self, of: impl Fn(&[Entry]) -> f64) -> Vec<f64> {
        let mut values: Vec<_> = self.rounds.iter().map(|round| of(round)).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = &self.names[0];
        writeln!(
            f,
            "| server | requests/s | ÷ {first} | lowest to highest | CPU µs | p50 ms | p99 ms | busy |"
        )?;
        writeln!(f, "|---|---:|---:|---|---:|---:|---:|---:|")?;
        for (at, name) in self.names.iter().enumerate() {
            let median = |of: &dyn Fn(&Entry) -> f64| middle(&self.sorted(|round| of(&round[at])));
            let ratios = self.sorted(|round| round[at].per_second / round[0].per_second);
            let (Some(lowest), Some(highest)) = (ratios.first(), ratios.last()) else { continue };
            let busy = match median(&|entry| entry.busy.unwrap_or(f64::NAN)) {
                busy if busy.is_nan() => String::new(),
                busy => format!("{:.0} %", busy * 100.0),
            };
            writeln!(
                f,
                "| {name} | {:.0} | {:.2} | {lowest:.2} to {highest:.2} | {:.2} | {:.2} | {:.2} | {busy} |",
                median(&|entry| entry.per_second),
                middle(&ratios),
                median(&|entry| entry.cpu.as_secs_f64() * 1e6),
                median(&|entry| entry.p50.as_secs_f64() * 1e3),
                median(&|entry| entry.p99.as_secs_f64() * 1e3),
            )?;
        }
        Ok(())
    }
}

/// The median of sorted values.
pub fn middle(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
