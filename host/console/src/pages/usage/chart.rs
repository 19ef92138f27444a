//! The chart of lookups by day: stacked bars, drawn as SVG on the server.

use enrich_store::grouped;
use enrich_store::usage::Day;

use crate::pages::usage::sums::Sums;
use crate::view::{date, short_date};

/// The size of the drawing, in units of its `viewBox`. The page scales it.
pub(crate) const WIDTH: u64 = 900;
pub(crate) const HEIGHT: u64 = 240;

/// The space below the bars, for dates.
const BELOW: u64 = 24;

/// The right end of the bars, before the numbers. A narrow screen shows the newest days, which are beside the
/// numbers.
pub(crate) const RIGHT: u64 = WIDTH - 56;

/// The chart.
pub(crate) struct Chart {
    pub(crate) bars: Vec<Bar>,
    pub(crate) lines: Vec<GridLine>,
    pub(crate) dates: Vec<DateLabel>,
}

/// One outcome of one day.
pub(crate) struct Bar {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) class: &'static str,
    pub(crate) title: String,
}

/// A horizontal line with its number.
pub(crate) struct GridLine {
    pub(crate) y: u64,
    pub(crate) label: String,
}

/// A date below the bars.
pub(crate) struct DateLabel {
    pub(crate) x: u64,
    pub(crate) text: String,
}

impl Chart {
    /// Draws the days, oldest first.
    pub(crate) fn of(days: &[(Day, Sums)]) -> Self {
        let most = days.iter().map(|(_, sums)| sums.lookups()).max().unwrap_or(0);
        let top = rounded_up(most);
        let plot = HEIGHT - BELOW;
        let y = |lookups: u64| plot - scaled(lookups, plot - 12, top);
        let step = RIGHT / (days.len().max(1) as u64);
        let left = |index: usize| RIGHT - (days.len() - index) as u64 * step;
        let width = (step * 3 / 4).max(1);
        let mut bars = Vec::new();
        for (index, (day, sums)) in days.iter().enumerate() {
            let x = left(index) + (step - width) / 2;
            let mut below = 0;
            for (class, name, lookups) in [
                ("billed", "billed", sums.billed),
                ("found-free", "found for free", sums.found_free),
                ("not-found", "not found", sums.not_found),
                ("refused", "refused", sums.refused),
            ] {
                if lookups > 0 {
                    let (from, to) = (y(below), y(below + lookups));
                    let title = format!("{}: {} {name}", date(*day), grouped(lookups));
                    bars.push(Bar { x, y: to, width, height: (from - to).max(1), class, title });
                    below += lookups;
                }
            }
        }
        let lines = [0, top / 2, top].map(|lookups| GridLine { y: y(lookups), label: short(lookups) });
        // At most seven dates, so that they do not overlap on a narrow screen.
        let every = days.len().div_ceil(7).max(1);
        let dates = days
            .iter()
            .enumerate()
            .rev()
            .step_by(every)
            .map(|(index, (day, _))| DateLabel { x: left(index) + step / 2, text: short_date(*day) });
        Self { bars, lines: lines.into(), dates: dates.collect() }
    }
}

/// Returns the smallest of 2, 4, 10, 20, 40, 100 and so on that is not below `most`.
fn rounded_up(most: u64) -> u64 {
    let mut scale = 1_u64;
    loop {
        for factor in [2, 4, 10] {
            let top = scale.saturating_mul(factor);
            if top >= most {
                return top;
            }
        }
        scale = scale.saturating_mul(10);
    }
}

/// Returns a number of the axis, such as `200 k`, that is not cut off beside the bars.
fn short(lookups: u64) -> String {
    let units = [(1_000_000_000, " G"), (1_000_000, " M"), (1_000, " k"), (1, "")];
    let (unit, name) = units.into_iter().find(|(unit, _)| lookups >= *unit).unwrap_or((1, ""));
    format!("{}{name}", grouped(lookups / unit))
}

fn scaled(value: u64, length: u64, top: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(length) / u128::from(top)).unwrap_or(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_a_day_are_stacked_within_the_drawing() {
        let sums = Sums { billed: 30, found_free: 1, not_found: 6, refused: 1, credits: 30 };
        let days: Vec<_> = (0..30).map(|n| (Day::from_number(19_000 + n), sums)).collect();
        let chart = Chart::of(&days);
        assert_eq!(chart.bars.len(), 120);
        for bars in chart.bars.chunks(4) {
            assert_eq!(bars[0].y + bars[0].height, HEIGHT - BELOW);
            assert!(bars.windows(2).all(|bars| bars[1].y + bars[1].height == bars[0].y));
            assert!(bars[3].x + bars[3].width <= RIGHT);
        }
        assert!(chart.dates[0].x < RIGHT, "the last date is not clipped");
        assert_eq!(chart.lines[2].label, "40");
        assert_eq!(chart.bars[0].title, "2022-01-08: 30 billed");
    }

    #[test]
    fn axis_is_a_round_number_not_below_the_most() {
        let tops = [0, 2, 3, 5, 11, 99, 12_345, u64::MAX].map(rounded_up);
        assert_eq!(tops, [2, 2, 4, 10, 20, 100, 20_000, u64::MAX]);
        let labels = [0, 500, 5_000, 100_000, 10_000_000, 2_000_000_000].map(short);
        assert_eq!(labels, ["0", "500", "5 k", "100 k", "10 M", "2 G"]);
    }

    #[test]
    fn chart_without_days_or_lookups_has_no_bars() {
        assert!(Chart::of(&[]).bars.is_empty());
        assert!(Chart::of(&[(Day::default(), Sums::default())]).bars.is_empty());
    }
}
