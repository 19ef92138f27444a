//! Two observers as one.

use std::sync::Arc;
use std::time::Duration;

use super::{LookupEvent, Observer, catch_panic};
use crate::model::LookupId;
use crate::refusal::Rejection;

/// Calls both observers, also if the first one panics. The clock is that of the first one. Ports are timed if either
/// observer requires it.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        catch_panic(|| self.0.finished(event));
        self.1.finished(event);
    }

    fn rejected(&self, request_id: LookupId, rejection: Rejection) {
        catch_panic(|| self.0.rejected(request_id, rejection));
        self.1.rejected(request_id, rejection);
    }

    fn client_gone(&self, lookup_id: LookupId) {
        catch_panic(|| self.0.client_gone(lookup_id));
        self.1.client_gone(lookup_id);
    }

    fn times_ports(&self, started_at: Duration) -> bool {
        self.0.times_ports(started_at) || self.1.times_ports(started_at)
    }
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn now(&self) -> Duration {
        (**self).now()
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        (**self).finished(event);
    }

    fn rejected(&self, request_id: LookupId, rejection: Rejection) {
        (**self).rejected(request_id, rejection);
    }

    fn client_gone(&self, lookup_id: LookupId) {
        (**self).client_gone(lookup_id);
    }

    fn times_ports(&self, started_at: Duration) -> bool {
        (**self).times_ports(started_at)
    }
}
