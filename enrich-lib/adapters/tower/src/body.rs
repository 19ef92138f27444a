//! Reads a request's body within limits on size and time.

use std::pin::pin;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use enrich_lib::body::{BODY_BYTES_MAX, Body, BodyError};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::BoxError;

/// The limits on a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The maximum size of the body, in bytes.
    pub bytes_max: usize,
    /// The timeout for the body, counted from the end of the request's head.
    pub timeout: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { bytes_max: BODY_BYTES_MAX, timeout: Duration::from_secs(5) }
    }
}

/// Reads the whole body. Trailers are discarded.
pub(crate) async fn read<B>(body: B, limits: BodyLimits) -> Body
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    let length_min = body.size_hint().lower();
    // Does not read a body that is certain to be too large.
    if length_min > limits.bytes_max as u64 {
        return Err(BodyError::TooLarge);
    }
    let mut bytes = BytesMut::with_capacity(length_min as usize);
    let whole = async {
        let mut body = pin!(Limited::new(body, limits.bytes_max));
        while let Some(frame) = body.frame().await {
            // Copied, because a client that sends single bytes would otherwise occupy a buffer with each of them.
            if let Ok(data) = frame?.into_data() {
                bytes.put(data);
            }
        }
        Ok::<_, BoxError>(bytes.freeze())
    };
    match timeout(limits.timeout, whole).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
        Ok(Err(_)) => Err(BodyError::CutOff),
        Err(_) => Err(BodyError::TooSlow),
    }
}
