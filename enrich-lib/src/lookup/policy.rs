//! The operator's settings.

use std::time::Duration;

use crate::credit::{HOLD_TTL, Price};
use crate::email::EmailPolicy;
use crate::receipt::ReceiptKey;

/// The operator's settings for all lookups.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// The price of a lookup.
    pub price: Price,
    /// How long credits are held before the hold expires. Must be longer than a lookup can take.
    pub hold_ttl: Duration,
    /// The supported emails.
    pub emails: EmailPolicy,
    /// The key of receipts. With `None`, the default, a request with an idempotency key is a 400.
    pub receipts: Option<ReceiptKey>,
    /// Whether results and 402 replies have the header `Credits-Available`. The default is `false`.
    pub shows_credits: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            price: Price::default(),
            hold_ttl: HOLD_TTL,
            emails: EmailPolicy::default(),
            receipts: None,
            shows_credits: false,
        }
    }
}

impl Policy {
    /// Accepts idempotency keys, if the store of credits
    /// [keeps receipts](crate::ports::Credits::keeps_receipts).
    #[must_use]
    pub fn with_receipts(self, key: ReceiptKey) -> Self {
        Self { receipts: Some(key), ..self }
    }
}
