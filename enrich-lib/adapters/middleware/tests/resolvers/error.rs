//! Vendor errors and their classification.

use std::time::Duration;

use enrich_lib::refusal::PortError;
use enrich_middleware::VendorError;
use enrich_middleware::VendorErrorKind::*;

/// An adapter's own error type with the error as its source.
#[derive(Debug, thiserror::Error)]
#[error("acme: page 3")]
struct Detailed(#[source] VendorError);

#[test]
fn a_fault_is_found_in_a_port_error_as_itself_and_as_a_source() {
    let error = VendorError::new(SlowDown).with_retry_after(Duration::from_secs(7));
    assert_eq!(VendorError::of(&error.into()), Some(&error));
    assert_eq!(VendorError::of(&PortError::new(Detailed(error))), Some(&error));
    assert_eq!(VendorError::of(&PortError::new("another error")), None);
}

#[test]
fn only_what_did_nothing_and_may_pass_is_safe_to_repeat() {
    let is_safe = |kind| VendorError::new(kind).is_safe_to_repeat();
    assert!([SlowDown, Unavailable, TooManyOpenFiles].into_iter().all(is_safe));
    let never = [KeyRefused, OutOfCredits, TimedOut, BadAnswer, BadRequest, BreakerOpen, QueueFull];
    assert!(!never.into_iter().any(is_safe));
}

#[test]
fn what_the_caller_did_wrong_and_what_was_not_asked_is_not_the_vendors() {
    let is_the_vendors = |kind| VendorError::new(kind).is_the_vendors();
    let theirs = [KeyRefused, OutOfCredits, SlowDown, Unavailable, TimedOut, BadAnswer];
    assert!(theirs.into_iter().all(is_the_vendors));
    assert!(![BadRequest, BreakerOpen, QueueFull, TooManyOpenFiles].into_iter().any(is_the_vendors));
}
