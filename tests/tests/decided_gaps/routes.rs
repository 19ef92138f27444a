//! Unknown paths and wrong methods.

use enrich_tests::blackbox::{Client, KNOWN, Payload, Reply, World};
use http::Method;

use crate::body;

async fn ask(client: &Client, method: Method, path: &str) -> Reply {
    let mut request = client.request().method(method).body(Payload::from(body(KNOWN))).unwrap();
    *request.uri_mut() = format!("{}{path}", client.base).parse().unwrap();
    client.send(request).await
}

/// 404 with the body `{"error":"invalid_request"}`. It cannot be mistaken for `not_found`, which has the field `status`.
#[tokio::test]
async fn an_unknown_path_is_404_with_an_error() {
    let world = World::open().await;
    for client in world.clients(1).await {
        for path in [
            "/",
            "/api/v1/person",
            "/api/v1/person/enrich/",
            "/api/v1/person//enrich",
            "/api/v1/Person/enrich",
            "/api/v1/person/%65nrich",
            "/api/v2/person/enrich",
            "/x/../api/v1/person/enrich",
        ] {
            for method in [Method::POST, Method::GET, Method::DELETE] {
                let reply = ask(&client, method, path).await;
                reply.assert_error(404, "invalid_request");
                assert_eq!(reply.header("allow"), None);
            }
        }
        assert_eq!(world.totals(&client.tenant), (1, 0, 0));
    }
}

/// 405 with `Allow: POST`.
#[tokio::test]
async fn a_wrong_method_is_405_and_names_the_right_one() {
    let world = World::open().await;
    for client in world.clients(1).await {
        for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "post"] {
            let reply = ask(&client, method.parse().unwrap(), "/api/v1/person/enrich").await;
            reply.assert_error(405, "invalid_request");
            assert_eq!(reply.header("allow"), Some("POST"));
        }
        assert_eq!(world.totals(&client.tenant), (1, 0, 0));
    }
}

/// Specification 4 defines no query parameters, so the query is ignored.
#[tokio::test]
async fn a_query_is_not_looked_at() {
    let world = World::open().await;
    for client in world.clients(1).await {
        ask(&client, Method::POST, "/api/v1/person/enrich?email=x&y").await.assert_status(200);
    }
}

#[tokio::test]
async fn nobody_has_to_be_known_to_be_told_that_a_path_or_a_method_is_wrong() {
    let world = World::open().await;
    for client in world.clients(1).await {
        let nobody = client.with_key("");
        ask(&nobody, Method::POST, "/").await.assert_error(404, "invalid_request");
        ask(&nobody, Method::GET, "/api/v1/person/enrich").await.assert_error(405, "invalid_request");
        assert_eq!(world.tap.take_asked(), []);
    }
}
