//! The results of a deployment.

use std::fmt;

/// The results of all exchanges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conformance {
    /// The exchanges in the order of the transcripts.
    pub cases: Vec<Case>,
    /// The number of matches received, each of which costs the workspace a price.
    pub matches: u64,
}

/// The result of an exchange: requests that are sent together, and their replies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Case {
    /// The name of the transcript.
    pub transcript: String,
    /// The line of the first request in the transcript.
    pub line: usize,
    /// The result.
    pub outcome: Outcome,
}

/// How an exchange ended. Exhaustive: a report must not count a further result as another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All replies conform.
    Passed,
    /// The exchange was not played, for this reason.
    Skipped(String),
    /// The difference.
    Failed(String),
}

impl Conformance {
    /// Returns the number of exchanges that passed, were skipped, and failed.
    pub fn counts(&self) -> [usize; 3] {
        let count = |is: fn(&Outcome) -> bool| self.cases.iter().filter(|case| is(&case.outcome)).count();
        [
            count(|outcome| *outcome == Outcome::Passed),
            count(|outcome| matches!(outcome, Outcome::Skipped(_))),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
        ]
    }
}

/// One line for each transcript and outcome, then the differences, then the sums.
impl fmt::Display for Conformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in self.cases.chunk_by(|one, next| one.transcript == next.transcript) {
            let name = &group[0].transcript;
            let passed = group.iter().filter(|case| case.outcome == Outcome::Passed).count();
            if passed > 0 {
                writeln!(f, "ok       {name}: {passed}")?;
            }
            let mut reasons: Vec<(&str, usize)> = Vec::new();
            for case in group {
                if let Outcome::Skipped(reason) = &case.outcome {
                    match reasons.iter_mut().find(|(other, _)| other == reason) {
                        Some((_, count)) => *count += 1,
                        None => reasons.push((reason, 1)),
                    }
                }
            }
            reasons
                .iter()
                .try_for_each(|(reason, count)| writeln!(f, "skipped  {name}: {count}: {reason}"))?;
            for Case { line, outcome, .. } in group {
                if let Outcome::Failed(what) = outcome {
                    writeln!(f, "FAILED   {name}, line {line}: {what}")?;
                }
            }
        }
        let [passed, skipped, failed] = self.counts();
        let matches = self.matches;
        write!(f, "{passed} ok, {skipped} skipped, {failed} failed; {matches} matches received")
    }
}
