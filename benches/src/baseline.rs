//! The accepted measurements, in a checked-in file with which `./test nightly` compares new ones.

use std::fmt;
use std::process::Command;
use std::str::FromStr;

/// The command that rewrites the baseline.
pub const ACCEPT_COMMAND: &str = "target/release/instructions --accept";

/// Maximum relative change before the baseline of a case must be accepted again. Instruction counts vary by
/// 0.5 % between runs; system calls vary more.
const INSTRUCTIONS_CHANGE_MAX: f64 = 0.03;
const SYSTEM_CALLS_CHANGE_MAX: f64 = 0.25;

/// The accepted measurements, and the toolchain with which they were made.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// The value of [`toolchain`].
    pub toolchain: String,
    /// One measurement per case.
    pub measurements: Vec<Measurement>,
}

/// The cost of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The name of the case.
    pub name: String,
    /// User instructions without those of SHA-256.
    pub instructions: f64,
    /// Instructions of SHA-256.
    pub sha256: f64,
    /// System calls, if the case is also measured as a server.
    pub system_calls: Option<f64>,
}

/// The change of a case's instructions, of those of SHA-256, or of its system calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// The cost has not changed significantly.
    Unchanged,
    /// The cost has increased by this fraction.
    Increased(f64),
    /// The cost has decreased by this fraction.
    Decreased(f64),
    /// The baseline does not contain the case.
    New,
}

impl Change {
    /// Compares `now` with `accepted`. Returns the largest increase, or else the largest decrease.
    pub fn between(now: &Measurement, accepted: Option<&Measurement>) -> Self {
        let Some(accepted) = accepted else { return Self::New };
        let calls = now.system_calls.zip(accepted.system_calls);
        let calls = calls.map(|(now, then)| Self::by(now / then, SYSTEM_CALLS_CHANGE_MAX));
        let instructions = [(now.instructions, accepted.instructions), (now.sha256, accepted.sha256)];
        let instructions = instructions.map(|(now, then)| match now.round() == then.round() {
            true => Self::Unchanged, // also without any
            false => Self::by(now / then, INSTRUCTIONS_CHANGE_MAX),
        });
        let increase = |change: &Self| match change {
            Self::Increased(part) => 1.0 + part,
            Self::Decreased(part) => *part,
            Self::Unchanged | Self::New => 0.0,
        };
        let changes = instructions.into_iter().chain(calls);
        changes.max_by(|one, other| increase(one).total_cmp(&increase(other))).unwrap_or(Self::Unchanged)
    }

    fn by(ratio: f64, change_max: f64) -> Self {
        match ratio - 1.0 {
            change if change > change_max => Self::Increased(change),
            change if change < -change_max => Self::Decreased(-change),
            _ => Self::Unchanged,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unchanged => Ok(()),
            Self::Increased(part) => write!(f, "increased by {:.1} %", part * 100.0),
            Self::Decreased(part) => write!(f, "decreased by {:.1} %", part * 100.0),
            Self::New => f.write_str("new"),
        }
    }
}

/// Returns the compiler version and its target. Baselines of different toolchains are not comparable.
pub fn toolchain() -> std::io::Result<String> {
    let out = Command::new("rustc").arg("-vV").output()?;
    let output = String::from_utf8_lossy(&out.stdout);
    let field = |name| output.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("unknown");
    Ok(format!("rustc {} {}", field("release: "), field("host: ")))
}

impl Baseline {
    /// The header line.
    pub const COLUMNS: &str = "case              instructions   SHA-256  system calls";

    /// Returns the measurements, with those in `new` replacing the ones with the same names.
    pub fn with(mut self, new: Vec<Measurement>) -> Vec<Measurement> {
        for measurement in new {
            match self.measurements.iter_mut().find(|old| old.name == measurement.name) {
                Some(old) => *old = measurement,
                None => self.measurements.push(measurement),
            }
        }
        self.measurements
    }

    /// Returns the measurement of this case.
    pub fn case(&self, name: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| measurement.name == name)
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# User instructions of a request and of its parts. SHA-256 is counted separately, because processors have"
        )?;
        writeln!(
            f,
            "# instructions for it that valgrind lacks. src/workload.rs describes the cases. Written by"
        )?;
        writeln!(f, "#     {ACCEPT_COMMAND}\n\n{}\n\n{}", self.toolchain, Self::COLUMNS)?;
        self.measurements.iter().try_for_each(|measurement| writeln!(f, "{measurement}"))
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16}{:>14.0}{:>10.0}", self.name, self.instructions, self.sha256)?;
        match self.system_calls {
            Some(calls) => write!(f, "{calls:>14.1}"),
            None => write!(f, "{:>14}", "-"),
        }
    }
}

/// A malformed line in the baseline file.
#[derive(Clone, Debug, thiserror::Error)]
#[error("instructions.txt: expected `CASE INSTRUCTIONS SHA-256 SYSTEM-CALLS`, found {0:?}")]
pub struct ParseError(String);

impl FromStr for Baseline {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let toolchain = lines.next().unwrap_or_default().to_owned();
        let measurements = lines.skip(1).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { toolchain, measurements })
    }
}

impl FromStr for Measurement {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Self, ParseError> {
        let error = || ParseError(line.to_owned());
        let words: Vec<_> = line.split_whitespace().collect();
        let [name, instructions, sha256, calls] = words[..] else { return Err(error()) };
        let number = |word: &str| word.parse::<f64>().map_err(|_| error());
        Ok(Self {
            name: name.to_owned(),
            instructions: number(instructions)?,
            sha256: number(sha256)?,
            system_calls: if calls == "-" { None } else { Some(number(calls)?) },
        })
    }
}
