//! `[[vendors]]` in the settings: a vendor or the people directory. Missing settings default to the vendor's
//! description.

use std::path::PathBuf;

use enrich_lib::model::whole_ms;
use enrich_vendors::middleware::CircuitBreakerPolicy;
use enrich_vendors::provider::SecretSource;
use serde::Deserialize;

use super::range::{fraction, optional, whole};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VendorConfig {
    #[serde(rename = "use")]
    pub name: Option<String>,
    pub file: Option<PathBuf>,
    pub secret: Option<SecretSource>,
    #[serde(deserialize_with = "optional::<_, _, 0, 10_000>")]
    pub queue: Option<usize>,
    pub limits: Option<LimitsConfig>,
    pub breaker: Option<BreakerConfig>,
}

/// The description checks their ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    pub deadline_ms: Option<u64>,
    pub concurrency: Option<usize>,
    pub tries: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    #[serde(deserialize_with = "whole::<_, _, 1, 10_000>")]
    pub window_calls: usize,
    pub calls_min: usize,
    #[serde(deserialize_with = "fraction::<_, 1>")]
    pub failure_rate: f64,
    #[serde(deserialize_with = "whole::<_, _, 1, 3_600_000>")]
    pub pause_ms: u64,
    #[serde(deserialize_with = "whole::<_, _, 1, 100>")]
    pub probes: usize,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        let CircuitBreakerPolicy { window_calls, calls_min, failure_rate, pause, probes } =
            CircuitBreakerPolicy::default();
        Self { window_calls, calls_min, failure_rate, pause_ms: whole_ms(pause), probes }
    }
}
