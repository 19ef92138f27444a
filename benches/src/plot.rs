//! SVG line charts, readable on light and dark pages.

use std::fmt::Write as _;

const WIDTH: f64 = 260.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 48.0;
const TOP: f64 = 40.0;
const GAP: f64 = 132.0;
const LABEL_HEIGHT: f64 = 15.0;

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .title { font-weight: 600 } .tick { fill: #59636e }
.grid { stroke: #d1d9e0 } .line { fill: none; stroke-width: 2 }
.s0 { stroke: #0969da } .s1 { stroke: #bc4c00 } circle.s0, text.s0 { fill: #0969da } circle.s1, text.s1 { fill: #bc4c00 }
text.s0, text.s1 { stroke: none } .paper { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .tick { fill: #9198a1 } .grid { stroke: #3d444d } .paper { fill: #0d1117 }
.s0 { stroke: #58a6ff } .s1 { stroke: #f0883e } circle.s0, text.s0 { fill: #58a6ff } circle.s1, text.s1 { fill: #f0883e }
}";

/// A chart of several series over a logarithmic axis.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The quantity and its unit.
    pub title: &'static str,
    /// At most two series.
    pub series: Vec<Series>,
}

/// A data series.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name in the chart.
    pub name: &'static str,
    /// The count and the measured value of each point.
    pub points: Vec<(f64, f64)>,
}

/// Draws the panels side by side.
pub fn svg(panels: &[Panel]) -> String {
    let (width, height) = (panels.len() as f64 * (LEFT + WIDTH + GAP), TOP + HEIGHT + 40.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\">\n<style>\n{STYLE}\n</style>\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for (nth, panel) in panels.iter().enumerate() {
        let left = nth as f64 * (LEFT + WIDTH + GAP) + LEFT;
        let _ = writeln!(out, "<g transform=\"translate({left} {TOP})\">");
        panel.draw(&mut out);
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

impl Panel {
    fn draw(&self, out: &mut String) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let decades = points().map(|(count, _)| count.log10().ceil()).fold(1.0, f64::max);
        let step = axis_step(points().map(|(_, value)| *value).fold(0.0, f64::max) / 4.0);
        let top = (points().map(|(_, value)| *value).fold(0.0, f64::max) / step).ceil().max(1.0) * step;
        let x = |count: f64| count.log10() / decades * WIDTH;
        let y = |value: f64| HEIGHT - value / top * HEIGHT;

        let _ = writeln!(out, "<text class=\"title\" y=\"-18\">{}</text>", self.title);
        for tick in 0..=(top / step).round() as u32 {
            let value = f64::from(tick) * step;
            let at = y(value);
            let _ = writeln!(out, "<line class=\"grid\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
            let baseline = at + 4.0;
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"-8\" y=\"{baseline:.1}\" text-anchor=\"end\">{value}</text>"
            );
        }
        for decade in 0..=decades as u32 {
            let (at, below) = (x(10_f64.powi(decade as i32)), HEIGHT + 20.0);
            let name = ["1", "10", "100", "1k", "10k", "100k", "1M", "10M", "100M"]
                .get(decade as usize)
                .unwrap_or(&"");
            let _ = writeln!(
                out,
                "<text class=\"tick\" x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{name}</text>"
            );
        }
        for (nth, series) in self.series.iter().enumerate() {
            let at: Vec<_> = series.points.iter().map(|(count, value)| (x(*count), y(*value))).collect();
            let path: Vec<_> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(out, "<polyline class=\"line s{nth}\" points=\"{}\"/>", path.join(" "));
            for (x, y) in &at {
                let _ = writeln!(out, "<circle class=\"s{nth}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
            }
        }
        self.name_curves(out, x, y);
    }

    /// Labels the series at their ends, and moves labels that would overlap.
    fn name_curves(&self, out: &mut String, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) {
        let end =
            |series: &Series| series.points.last().map(|(count, value)| (x(*count) + 9.0, y(*value) + 4.0));
        let mut ends: Vec<_> = self
            .series
            .iter()
            .enumerate()
            .filter_map(|(nth, series)| Some((nth, series.name, end(series)?)))
            .collect();
        ends.sort_by(|(.., (_, a)), (.., (_, b))| a.total_cmp(b));
        let mut free_from = f64::NEG_INFINITY;
        for (nth, name, (x, y)) in ends {
            let y = y.max(free_from);
            free_from = y + LABEL_HEIGHT;
            let _ = writeln!(out, "<text class=\"s{nth}\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>");
        }
    }
}

/// Returns the smallest of 1, 2, 5, 10, 20 … that is at least `min`.
fn axis_step(min: f64) -> f64 {
    let decade = 10_f64.powf(min.max(1.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade).into_iter().find(|step| *step >= min).unwrap_or(decade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_steps_are_round_numbers() {
        assert_eq!([0.3, 1.0, 3.0, 7.2, 130.0].map(axis_step), [1.0, 1.0, 5.0, 10.0, 200.0]);
    }

    #[test]
    fn drawing_contains_points_and_names_of_all_series() {
        let points = vec![(1.0, 10.0), (1_000.0, 12.0)];
        let drawn = svg(&[Panel { title: "cost", series: vec![Series { name: "people", points }] }]);
        assert_eq!(drawn.matches("<circle").count(), 2);
        assert!(drawn.contains(">people</text>") && drawn.contains(">1k</text>"), "{drawn}");
    }
}
