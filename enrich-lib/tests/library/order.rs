//! The order in which the conditions of a lookup are checked, as decided.
//!
//! It uses no code that checks conditions or creates replies, so that it cannot repeat a mistake of that code.

/// The conditions of one lookup, each as if it were checked. `None` if the port fails that would check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// The request has a key in the right format.
    pub(crate) has_key: bool,
    /// The key is that of a workspace.
    pub(crate) is_known: Option<bool>,
    /// The burst limit admits the request.
    pub(crate) is_admitted: Option<bool>,
    /// The content type is JSON, the body is one JSON object without a field other than `email`, and the
    /// idempotency key, if there is one, is well-formed.
    pub(crate) is_body_valid: bool,
    /// The field `email` is an email.
    pub(crate) is_email_valid: bool,
    /// The key is a test key. The email has no reply of its own.
    pub(crate) is_test: bool,
    /// The email is supported.
    pub(crate) is_email_supported: bool,
    /// The workspace has enough credits.
    pub(crate) is_held: Option<bool>,
    /// The resolver finds the person.
    pub(crate) is_found: Option<bool>,
    /// The result is free, or its credits are spent.
    pub(crate) is_settled: bool,
}

/// The consequence of the first condition that is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The `status` of a result, or the code of an error.
    pub(crate) outcome: &'static str,
    /// The number of port calls. Their order is: key, window, hold, resolver, settlement. A granted hold is
    /// always settled.
    pub(crate) ports_called: usize,
}

impl Conditions {
    /// Returns the reply that the first unmet condition determines.
    pub(crate) fn expected(&self) -> Expected {
        let in_order = [
            (!self.has_key, "unauthorized", 0),
            (self.is_known == Some(false), "unauthorized", 1),
            (self.is_known.is_none(), "server_error", 1),
            (self.is_admitted == Some(false), "rate_limited", 2),
            (self.is_admitted.is_none(), "rate_limit_unavailable", 2),
            (!self.is_body_valid, "invalid_request", 2),
            (!self.is_email_valid, "invalid_email", 2),
            (self.is_test, "not_found", 2),
            (!self.is_email_supported, "unsupported_email", 2),
            (self.is_held == Some(false), "insufficient_credits", 3),
            (self.is_held.is_none(), "server_error", 3),
            (self.is_found.is_none(), "lookup_error", 5),
            (!self.is_settled, "server_error", 5),
            (self.is_found == Some(false), "not_found", 5),
        ];
        let unmet = in_order.into_iter().find(|(is_unmet, ..)| *is_unmet);
        let (_, outcome, ports_called) = unmet.unwrap_or((true, "found", 5));
        Expected { outcome, ports_called }
    }
}
