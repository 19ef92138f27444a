//! The text formats of metrics, and the choice between them.

use std::collections::HashSet;

/// A format that a scraper reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics, which Prometheus reads since version 2.5.
    OpenMetrics,
    /// The format of Prometheus before, which other scrapers read.
    Prometheus,
}

impl TextFormat {
    /// Chooses the format that the header `Accept` prefers: OpenMetrics, unless it prefers `text/plain`.
    pub fn accepted(accept: &str) -> Self {
        let quality = |media_type: &str| {
            let mut ranges = accept.split(',').map(|range| range.split(';').map(str::trim));
            let mut parameters = ranges
                .find_map(|mut range| range.next()?.eq_ignore_ascii_case(media_type).then_some(range))?;
            let quality = parameters.find_map(|parameter| parameter.strip_prefix("q="));
            Some(quality.map_or(1.0, |quality| quality.parse::<f32>().unwrap_or(1.0)))
        };
        match (quality("application/openmetrics-text"), quality("text/plain")) {
            (open, Some(plain)) if plain > open.unwrap_or(0.0) => Self::Prometheus,
            _ => Self::OpenMetrics,
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts OpenMetrics text. In the older format, a counter has the name of its samples, and the end is not
    /// marked.
    pub fn convert(self, text: String) -> String {
        if self == Self::OpenMetrics {
            return text;
        }
        let counters: HashSet<_> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
        let lines = text.lines().filter(|line| !line.starts_with("# EOF") && !line.starts_with("# UNIT"));
        lines.fold(String::with_capacity(text.len()), |mut converted, line| {
            let mut words = line.splitn(4, ' ');
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some("#"), Some(kind), Some(name), Some(rest)) if counters.contains(name) => {
                    converted += &format!("# {kind} {name}_total {rest}");
                }
                _ => converted += line,
            }
            converted + "\n"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_preference_of_the_scraper() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            ("", TextFormat::OpenMetrics),
            ("*/*", TextFormat::OpenMetrics),
            (prometheus, TextFormat::OpenMetrics),
            ("application/openmetrics-text, text/plain", TextFormat::OpenMetrics),
            ("text/plain;version=0.0.4", TextFormat::Prometheus),
            ("Text/Plain", TextFormat::Prometheus),
            ("text/plain; q=0.9, application/openmetrics-text; q=0.1", TextFormat::Prometheus),
            ("text/plain;q=0", TextFormat::OpenMetrics),
        ] {
            assert_eq!(TextFormat::accepted(accept), format, "{accept}");
        }
    }
}
