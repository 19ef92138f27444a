//! The output of a run: medians, and ratios within each round.

use std::fmt;
use std::time::Duration;

/// The result of one server in one round.
#[derive(Clone, Copy, Debug)]
pub struct RoundResult {
    /// Replies per second.
    pub per_second: f64,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile of the latency.
    pub p99: Duration,
    /// CPU time per request, in the server's processes.
    pub cpu: Duration,
    /// CPU time per request of the load generator.
    pub client_cpu: Duration,
    /// Utilization of the server's core, from 0 to 1, if it has its own core.
    pub busy: Option<f64>,
}

/// The rounds of all servers. Each server is compared with the first one.
#[derive(Clone, Debug)]
pub struct Table {
    names: Vec<String>,
    rounds: Vec<Vec<RoundResult>>,
}

impl Table {
    /// Creates a table of these servers, without rounds.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().collect(), rounds: Vec::new() }
    }

    /// Adds one round, with one result per server, in their order.
    pub fn add(&mut self, round: Vec<RoundResult>) {
        self.rounds.push(round);
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    fn sorted(&self, of: impl Fn(&[RoundResult]) -> f64) -> Vec<f64> {
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
            "| server | requests/s | ÷ {first} | CPU µs | {first} ÷ it | quartiles | client µs | p50 ms | p99 ms | busy |"
        )?;
        writeln!(f, "|---|---:|---:|---:|---:|---|---:|---:|---:|---:|")?;
        for (index, name) in self.names.iter().enumerate() {
            let median_of =
                |of: &dyn Fn(&RoundResult) -> f64| median(&self.sorted(|round| of(&round[index])));
            let ratios = self.sorted(|round| round[index].per_second / round[0].per_second);
            let cpu_ratios = self.sorted(|round| round[0].cpu.div_duration_f64(round[index].cpu));
            let busy = match median_of(&|result| result.busy.unwrap_or(f64::NAN)) {
                busy if busy.is_nan() => String::new(),
                busy => format!("{:.0} %", busy * 100.0),
            };
            writeln!(
                f,
                "| {name} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} to {:.2} | {:.2} | {:.2} | {:.2} | {busy} |",
                median_of(&|result| result.per_second),
                median(&ratios),
                median_of(&|result| result.cpu.as_secs_f64() * 1e6),
                median(&cpu_ratios),
                quantile(&cpu_ratios, 0.25),
                quantile(&cpu_ratios, 0.75),
                median_of(&|result| result.client_cpu.as_secs_f64() * 1e6),
                median_of(&|result| result.p50.as_secs_f64() * 1e3),
                median_of(&|result| result.p99.as_secs_f64() * 1e3),
            )?;
        }
        Ok(())
    }
}

/// Returns the median of sorted values.
pub fn median(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.5)
}

/// Returns the value below which this part of the sorted values lies.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    sorted.get((sorted.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}
