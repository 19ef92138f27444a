//! The accepted figures, in a readable file with which `./test` compares new measurements.

use std::fmt;
use std::process::Command;
use std::str::FromStr;

/// The command that rewrites the figures.
pub const ACCEPT: &str = "./test instructions -- --accept";

/// Maximum relative change before a case's figures must be accepted again. Instruction counts vary by 0.5 % between runs;
/// system calls vary more.
const INSTRUCTIONS_CHANGE_MAX: f64 = 0.03;
const SYSTEM_CALLS_CHANGE_MAX: f64 = 0.25;

/// The accepted figures, and the toolchain with which they were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The value of [`toolchain`].
    pub toolchain: String,
    /// One line per case.
    pub lines: Vec<Line>,
}

/// The figures of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The name of the case.
    pub name: String,
    /// User instructions without those of SHA-256.
    pub instructions: f64,
    /// Instructions of SHA-256.
    pub sha256: f64,
    /// System calls, if the case is also measured as a server.
    pub system_calls: Option<f64>,
}

/// The change of a case's instructions, or of its system calls if its instructions have not changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The cost has not changed significantly.
    Same,
    /// The cost has increased by this fraction.
    Dearer(f64),
    /// The cost has decreased by this fraction.
    Cheaper(f64),
    /// There are no accepted figures yet.
    New,
}

impl Verdict {
    /// Compares `now` with `accepted`.
    pub fn of(now: &Line, accepted: Option<&Line>) -> Self {
        let Some(accepted) = accepted else { return Self::New };
        let calls = now.system_calls.zip(accepted.system_calls);
        match Self::by(now.instructions / accepted.instructions, INSTRUCTIONS_CHANGE_MAX) {
            Self::Same => {
                calls.map_or(Self::Same, |(now, then)| Self::by(now / then, SYSTEM_CALLS_CHANGE_MAX))
            }
            changed => changed,
        }
    }

    fn by(ratio: f64, change_max: f64) -> Self {
        match ratio - 1.0 {
            change if change > change_max => Self::Dearer(change),
            change if change < -change_max => Self::Cheaper(-change),
            _ => Self::Same,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => Ok(()),
            Self::Dearer(part) => write!(f, "{:.1} % dearer", part * 100.0),
            Self::Cheaper(part) => write!(f, "{:.1} % cheaper", part * 100.0),
            Self::New => f.write_str("new"),
        }
    }
}

/// Returns the compiler version and its target. Figures of different toolchains are not comparable.
pub fn toolchain() -> std::io::Result<String> {
    let out = Command::new("rustc").arg("-vV").output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    let field = |name| said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("unknown");
    Ok(format!("rustc {} {}", field("release: "), field("host: ")))
}

impl Figures {
    /// The header line.
    pub const COLUMNS: &str = "case              instructions   SHA-256  system calls";

    /// Returns the lines, with those in `lines` replacing the ones with the same names.
    pub fn with(mut self, lines: Vec<Line>) -> Vec<Line> {
        for line in lines {
            match self.lines.iter_mut().find(|old| old.name == line.name) {
                Some(old) => *old = line,
                None => self.lines.push(line),
            }
        }
        self.lines
    }

    /// Returns the line of this case.
    pub fn of(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.name == name)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# User instructions of a request and of its parts. SHA-256 is counted separately, because processors have"
        )?;
        writeln!(
            f,
            "# instructions for it that valgrind lacks. src/counted.rs describes the cases. Written by"
        )?;
        writeln!(f, "#     {ACCEPT}\n\n{}\n\n{}", self.toolchain, Self::COLUMNS)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16}{:>14.0}{:>10.0}", self.name, self.instructions, self.sha256)?;
        match self.system_calls {
            Some(calls) => write!(f, "{calls:>14.1}"),
            None => write!(f, "{:>14}", "-"),
        }
    }
}

/// A malformed line in the file of figures.
#[derive(Clone, Debug, thiserror::Error)]
#[error("instructions.txt: there is no case and its figures in the line: {0}")]
pub struct FiguresError(String);

impl FromStr for Figures {
    type Err = FiguresError;

    fn from_str(text: &str) -> Result<Self, FiguresError> {
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let toolchain = lines.next().unwrap_or_default().to_owned();
        let lines = lines.skip(1).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { toolchain, lines })
    }
}

impl FromStr for Line {
    type Err = FiguresError;

    fn from_str(line: &str) -> Result<Self, FiguresError> {
        let fault = || FiguresError(line.to_owned());
        let words: Vec<_> = line.split_whitespace().collect();
        let [name, instructions, sha256, calls] = words[..] else { return Err(fault()) };
        let number = |word: &str| word.parse::<f64>().map_err(|_| fault());
        Ok(Self {
            name: name.to_owned(),
            instructions: number(instructions)?,
            sha256: number(sha256)?,
            system_calls: if calls == "-" { None } else { Some(number(calls)?) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(instructions: f64) -> Line {
        Line { name: "found".to_owned(), instructions, sha256: 4_000.0, system_calls: Some(3.5) }
    }

    #[test]
    fn figures_are_read_as_they_are_written() {
        let figures = Figures {
            toolchain: "rustc 1.2.3 x86_64".to_owned(),
            lines: vec![line(12_345.0), Line { system_calls: None, ..line(1.0) }],
        };
        assert_eq!(figures.to_string().parse::<Figures>().unwrap(), figures);
    }

    #[test]
    fn a_case_that_is_three_percent_dearer_or_cheaper_has_changed() {
        let of = |now, accepted| Verdict::of(&line(now), Some(&line(accepted)));
        assert_eq!(of(1_029.0, 1_000.0), Verdict::Same);
        assert!(matches!(of(1_031.0, 1_000.0), Verdict::Dearer(_)));
        assert!(matches!(of(969.0, 1_000.0), Verdict::Cheaper(_)));
        assert_eq!(Verdict::of(&line(1.0), None), Verdict::New);
    }

    #[test]
    fn so_has_one_that_makes_a_system_call_more() {
        let calls = |calls| Line { system_calls: Some(calls), ..line(1_000.0) };
        assert_eq!(Verdict::of(&calls(4.0), Some(&calls(3.5))), Verdict::Same);
        assert!(matches!(Verdict::of(&calls(4.5), Some(&calls(3.5))), Verdict::Dearer(_)));
    }
}
