//! `[[vendors]]` in the settings: a vendor or the people directory.

use std::path::PathBuf;

use enrich_middleware::CircuitBreakerPolicy;
use enrich_provider::SecretSource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::order::in_order;
use super::text_source;
use crate::values::ms;

/// A `[[vendors]]` section: a vendor or the people directory. Missing settings default to the vendor's
/// description.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct VendorConfig {
    /// "people" for the people directory, which has no further settings, or a built-in description:
    /// contactout, enrich-layer, hunter, leadmagic or people-data-labs.
    #[serde(rename = "use")]
    #[schemars(example = "people-data-labs")]
    pub name: Option<String>,
    /// Your own description, instead of `use`.
    #[schemars(example = "vendor.toml")]
    pub file: Option<PathBuf>,
    /// The API key: { env = "NAME" } or { file = "PATH" }. Default: the variable or file that the description
    /// names.
    #[serde(serialize_with = "text_source::serialize_secret")]
    #[schemars(
        schema_with = "text_source::secret_schema",
        example = serde_json::json!({ "env": "PEOPLE_DATA_LABS_API_KEY" })
    )]
    pub secret: Option<SecretSource>,
    /// Maximum number of lookups that wait while `limits.concurrency` is exhausted. Default: 100.
    #[schemars(range(min = 0, max = 10_000), example = 100)]
    pub queue: Option<usize>,
    /// Limits of the requests. Default: those of the description.
    pub limits: Option<LimitsConfig>,
    /// The circuit breaker, which refuses calls to a vendor that fails.
    pub breaker: Option<BreakerConfig>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct LimitsConfig {
    /// Time for the vendor's part of a lookup, in milliseconds: at most `resolver.deadline_ms`.
    #[schemars(example = 8000)]
    pub deadline_ms: Option<u64>,
    /// Maximum number of concurrent requests.
    #[schemars(range(min = 1, max = 1_000), example = 16)]
    pub concurrency: Option<usize>,
    /// Maximum number of requests per lookup.
    #[schemars(range(min = 1, max = 5), example = 2)]
    pub tries: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
pub struct BreakerConfig {
    /// Number of the last calls that count.
    #[schemars(range(min = 1, max = 10_000))]
    pub window_calls: usize,
    /// Minimum number of calls before it opens: at most `window_calls`.
    pub calls_min: usize,
    /// Rate of failed calls at which it opens.
    #[schemars(range(min = 0.01, max = 1.0))]
    pub failure_rate: f64,
    /// Time for which it is open, in milliseconds.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub pause_ms: u64,
    /// Number of successful calls after which it closes.
    #[schemars(range(min = 1, max = 100))]
    pub probes: usize,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        let CircuitBreakerPolicy { window_calls, calls_min, failure_rate, pause, probes } =
            CircuitBreakerPolicy::default();
        Self { window_calls, calls_min, failure_rate, pause_ms: ms(pause), probes }
    }
}
