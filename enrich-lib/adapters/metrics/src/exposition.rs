//! Writes metrics that are read at scrape time.

use std::fmt;

use enrich_store::histogram::HistogramSnapshot;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;

/// The names and values of the labels of a sample.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// The labels of the only sample of a metric.
pub const UNLABELLED: Labels<'_> = &[];

/// Writes metrics in a [`Collector`](prometheus_client::collector::Collector).
#[derive(Debug)]
pub struct Exposition<'a>(DescriptorEncoder<'a>);

impl<'a> Exposition<'a> {
    /// Creates a writer.
    pub fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// Writes a counter. The encoder adds `_total` to the name.
    pub fn counter<'l, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'l>, V)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, samples, |mut encoder, value| {
            encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
        })
    }

    /// Writes a gauge.
    pub fn gauge<'l, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'l>, V)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, samples, |mut encoder, value| encoder.encode_gauge(&value))
    }

    /// Writes a histogram. `unit` is the number of recorded units in one unit of the metric, for example 10⁹
    /// if durations are recorded in nanoseconds.
    pub fn histogram<'l>(
        &mut self,
        name: &str,
        help: &str,
        unit: f64,
        samples: impl IntoIterator<Item = (Labels<'l>, HistogramSnapshot)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Histogram, samples, |mut encoder, snapshot| {
            let bound = |bound: Option<u64>| bound.map_or(f64::INFINITY, |bound| bound as f64 / unit);
            let buckets: Vec<_> = snapshot.buckets.iter().map(|(le, count)| (bound(*le), *count)).collect();
            let sum = snapshot.sum as f64 / unit;
            encoder.encode_histogram::<NoLabelSet>(sum, snapshot.count(), &buckets, None)
        })
    }

    fn family<'l, V>(
        &mut self,
        name: &str,
        help: &str,
        metric_type: MetricType,
        samples: impl IntoIterator<Item = (Labels<'l>, V)>,
        encode: impl Fn(MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        // A family without samples has no description either.
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut encoder = self.0.encode_descriptor(name, help, None, metric_type)?;
        for (labels, value) in samples {
            if labels.is_empty() {
                // The only sample of its family. As a family, it would have empty braces.
                return encode(encoder, value);
            }
            encode(encoder.encode_family(&labels)?, value)?;
        }
        Ok(())
    }
}
