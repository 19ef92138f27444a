//! The body of a response, from this layer or from the inner service.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response of [`Enrich`](crate::Enrich): its own, or the inner service's unchanged.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        whose: Whose<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = WhoseProjected]
    enum Whose<B> {
        Ours { #[pin] body: Full<Bytes> },
        Inner { #[pin] body: B },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn ours(body: Bytes) -> Self {
        Self { whose: Whose::Ours { body: Full::new(body) } }
    }

    pub(crate) fn inner(body: B) -> Self {
        Self { whose: Whose::Inner { body } }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().whose.project() {
            WhoseProjected::Ours { body } => body.poll_frame(cx).map_err(|never| match never {}),
            WhoseProjected::Inner { body } => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.whose {
            Whose::Ours { body } => body.is_end_stream(),
            Whose::Inner { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.whose {
            Whose::Ours { body } => body.size_hint(),
            Whose::Inner { body } => body.size_hint(),
        }
    }
}
