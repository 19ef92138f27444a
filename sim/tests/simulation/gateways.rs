//! Gateways with a server of their own: correct ones keep all invariants, and wrong ones violate one by its
//! name.

use std::convert::Infallible;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use enrich_lib::body::BodyError;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::drive::Service;
use enrich_lib::model::LookupId;
use enrich_lib::ports::{Credits, Resolver, Windows, async_trait};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::Window;
use enrich_lib::wire;
use enrich_sim::{
    DiskFault, FaultKind, Listener, Part, Plan, Ports, RequestKind, Run, VendorFault, World, each_seed, seeds,
};

use enrich_tower::EnrichLayer;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

const SEEDS: u64 = 20;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

async fn axum(listener: Listener, ports: Ports) -> Result {
    serve(listener, &ports, ports.service()).await
}

async fn serve(listener: Listener, ports: &Ports, service: Service) -> Result {
    let layer = EnrichLayer::new(service).arrivals(ports.arrivals()).observer(ports.observer());
    let gateway = Router::new().route("/health", get(async || "ok")).layer(layer.clone());
    listener.serve(gateway, ports.shutdown()).await?;
    layer.drain().await;
    Ok(())
}

#[test]
fn axum_gateway_keeps_all_invariants() {
    each_seed(seeds(SEEDS), |seed| drop(World::new(seed).with_service(axum).run().check()));
}

/// Returns what the first world violates in which the gateway is wrong.
fn first_violation(run: impl Fn(u64) -> Run) -> String {
    let violations = |seed| run(seed).violations().first().cloned();
    (1..200).find_map(violations).expect("no world finds the mistake")
}

#[test]
fn gateway_that_answers_before_it_has_settled_violates_billing() {
    /// Reports each spend as durable and commits it in the background.
    struct Hasty(Arc<dyn Credits>);

    #[async_trait]
    impl Credits for Hasty {
        async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
            self.0.hold(hold).await
        }

        async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
            let (credits, hold) = (self.0.clone(), hold.clone());
            tokio::spawn(async move { credits.settle(&hold, settlement).await });
            Ok(None)
        }

        fn keeps_receipts(&self) -> bool {
            self.0.keeps_receipts()
        }
    }

    async fn hasty(listener: Listener, ports: Ports) -> Result {
        let mut service = ports.service();
        service.credits = Arc::new(Hasty(service.credits));
        serve(listener, &ports, service).await
    }

    let violation = first_violation(|seed| World::new(seed).with_service(hasty).run());
    assert!(violation.contains("the result is sent if and only if it is spent"), "{violation}");
}

#[test]
fn gateway_that_repeats_a_count_violates_verification() {
    struct Repeating(Arc<dyn Windows>);

    #[async_trait]
    impl Windows for Repeating {
        async fn count(&self, window: &Window) -> Result<u64, PortError> {
            match self.0.count(window).await {
                Ok(count) => Ok(count),
                Err(_) => self.0.count(window).await,
            }
        }
    }

    async fn repeating(listener: Listener, ports: Ports) -> Result {
        let mut service = ports.service();
        service.windows = Arc::new(Repeating(service.windows));
        serve(listener, &ports, service).await
    }

    let run = |seed| World::with_plan(Plan::from_seed_on_servers(seed)).with_service(repeating).run();
    let violation = first_violation(run);
    assert!(violation.contains("no lookup is counted twice"), "{violation}");
}

#[test]
fn gateway_that_drops_a_lookup_with_its_client_violates_its_settlement_and_completion() {
    /// An accept loop that runs each lookup in the task of its connection.
    async fn dropping(mut listener: Listener, ports: Ports) -> Result {
        let accepting = async {
            while let Ok((stream, _)) = listener.accept().await {
                let ports = ports.clone();
                let service = service_fn(move |request| answer(ports.clone(), request));
                let connection = http1::Builder::new()
                    .auto_date_header(false)
                    .half_close(false)
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { drop(connection.await) });
            }
        };
        tokio::select! { biased;
            () = ports.shutdown() => {}
            () = accepting => {}
        }
        Ok(())
    }

    async fn answer(ports: Ports, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        let body = body.map_err(|_| BodyError::CutOff);
        let (arrival, observer) = (ports.arrivals().arrive(), ports.observer());
        let request = wire::request(&head.headers, body);
        let reply = ports.service().answer_with(arrival, request, &*observer).await;
        Ok(wire::response(&reply).map(Full::new))
    }

    let run = |seed| World::with_plan(Plan::from_seed(seed).on_http1()).with_service(dropping).run();
    let violations = (1..200).map(|seed| run(seed).violations()).find(|it| !it.is_empty()).expect("found");
    let violations = violations.join("\n");
    for name in ["settles its hold once", "every lookup ends with one line in the log"] {
        assert!(violations.contains(name), "{violations}");
    }
}

/// Only a request for a person with a profile during the vendor's failure shows the mistake.
#[test]
fn violation_is_shrunk_to_the_fault_and_the_request_that_it_needs() {
    struct Hiding(Arc<dyn Resolver>);

    #[async_trait]
    impl Resolver for Hiding {
        async fn find(&self, query: &Query) -> Result<Answer, PortError> {
            Ok(self.0.find(query).await.unwrap_or_default())
        }
    }

    async fn hiding(listener: Listener, ports: Ports) -> Result {
        let mut service = ports.service();
        service.resolver = Arc::new(Hiding(service.resolver));
        serve(listener, &ports, service).await
    }

    const SECOND: Duration = Duration::from_secs(1);
    let kinds = [RequestKind::Unknown, RequestKind::NoKey, RequestKind::Known, RequestKind::OptedOut];
    let mut plan = kinds.into_iter().fold(Plan::empty(1), Plan::request);
    plan.clients.extend([plan.clients[0].clone(), plan.clients[0].clone()]);
    plan.clocks[0].ahead_ms = 500;
    let plan = plan
        .fault(SECOND, 2 * SECOND, FaultKind::Reload(0))
        .fault(SECOND / 10, 2 * SECOND, FaultKind::Disk(0, DiskFault::Stall))
        .fault(Duration::ZERO, 30 * SECOND, FaultKind::Vendor(VendorFault::Error, 1.0))
        .fault(3 * SECOND, 4 * SECOND, FaultKind::Shutdown(0));
    let run = |plan: &Plan| World::with_plan(plan.clone()).with_service(hiding).run();
    let parts = run(&plan).shrink();
    assert!(matches!(parts[..], [Part::Fault(2), Part::Request(2 | 6 | 10)]), "{parts:?}");

    let report = catch_unwind(AssertUnwindSafe(|| run(&plan).check())).unwrap_err();
    let report = report.downcast_ref::<String>().expect("a text");
    let command = format!("SIM_SEED=1 SIM_PARTS={},{} cargo test", parts[0], parts[1]);
    assert!(report.contains(&command), "{report}");
    let printed = Part::parse_list(&format!("{},{}", parts[0], parts[1])).expect("parts");
    assert!(!run(&plan.only(&printed)).violations().is_empty());
}
