//! Settings that change replies: prices, supported emails, required confidence.

use enrich_lib::credit::Price;
use enrich_lib::email::EmailPolicy;
use enrich_tests::blackbox::{KNOWN, TestServer, UNKNOWN};

async fn with_price(found: u64, not_found: u64) -> TestServer {
    TestServer::start_with(|settings| settings.policy.price = Price { found, not_found }).await
}

async fn with_emails(policy: EmailPolicy) -> TestServer {
    TestServer::start_with(|settings| settings.policy.emails = policy).await
}

/// The hold reserves the larger of the two prices.
#[tokio::test]
async fn refuses_a_lookup_unless_the_larger_price_is_available() {
    let server = with_price(3, 1).await;
    for client in server.clients(6).await {
        client.look_up(KNOWN).await.assert_status(200);
        assert_eq!(server.balance(&client.workspace), (3, 0, 3));
        client.look_up(UNKNOWN).await.assert_status(404);
        assert_eq!(server.balance(&client.workspace), (2, 0, 4));
        client.look_up(UNKNOWN).await.assert_error(402, "insufficient_credits");
        assert_eq!(server.balance(&client.workspace), (2, 0, 4));
    }
}

#[tokio::test]
async fn not_found_may_cost_more_than_found() {
    let server = with_price(1, 3).await;
    for client in server.clients(6).await {
        client.look_up(KNOWN).await.assert_status(200);
        client.look_up(UNKNOWN).await.assert_status(404);
        assert_eq!(server.balance(&client.workspace), (2, 0, 4));
        client.look_up(KNOWN).await.assert_error(402, "insufficient_credits");
    }
}

#[tokio::test]
async fn free_lookups_need_no_credits() {
    let server = with_price(0, 0).await;
    for client in server.clients(0).await {
        client.look_up(KNOWN).await.assert_status(200);
        client.look_up(UNKNOWN).await.assert_status(404);
    }
}

#[tokio::test]
async fn supports_only_allowed_providers() {
    let providers_allowed = Some(["gmail.com".to_owned()].into());
    let server = with_emails(EmailPolicy { providers_allowed, ..EmailPolicy::default() }).await;
    for client in server.clients(1).await {
        client.look_up(KNOWN).await.assert_status(200);
    }
    let client = server.client(1).await;
    client.look_up("ada.marlowe@GMail.com").await.assert_status(200);
    for email in ["ada@outlook.com", "ada@mail.gmail.com", "ada@gmail.com.marlowe.name"] {
        client.look_up(email).await.assert_error(400, "unsupported_email");
    }
}

/// Disposable providers, private relays and role accounts can each be allowed by a setting.
#[tokio::test]
async fn each_refused_kind_of_email_can_be_allowed() {
    let refused = EmailPolicy::default();
    let kinds = [
        ("ada@mailinator.com", EmailPolicy { refuse_disposable: false, ..refused.clone() }),
        ("ada@duck.com", EmailPolicy { refuse_relays: false, ..refused.clone() }),
        ("info@marlowe.name", EmailPolicy { refuse_roles: false, ..refused.clone() }),
    ];
    for (supported, policy) in &kinds {
        let server = with_emails(policy.clone()).await;
        let client = server.client(1).await;
        for (email, _) in &kinds {
            let reply = client.look_up(email).await;
            if email == supported {
                reply.assert_status(404);
            } else {
                reply.assert_error(400, "unsupported_email");
            }
        }
    }
}

#[tokio::test]
async fn refuses_additional_disposable_domains() {
    let disposable_domains = ["throwaway.name".to_owned()].into();
    let server = with_emails(EmailPolicy { disposable_domains, ..EmailPolicy::default() }).await;
    let client = server.client(1).await;
    client.look_up("ada@marlowe.name").await.assert_status(404);
    for email in ["ada@throwaway.name", "ada@sub.Throwaway.name", "ada@mailinator.com"] {
        client.look_up(email).await.assert_error(400, "unsupported_email");
    }
}

/// "No trusted match" is `not_found` (specification 1).
#[tokio::test]
async fn match_below_the_required_confidence_is_not_found() {
    let server = TestServer::start().await;
    server.add_person("maybe.ada@gmail.com", "ada-marlowe", 0.79);
    for client in server.clients(1).await {
        client.look_up("maybe.ada@gmail.com").await.assert_status(404);
    }
}
