//! Which emails are well-formed, which are supported, and which addresses belong to the same person.

use enrich_lib::email::EmailPolicy;
use enrich_tests::blackbox::{KNOWN, KNOWN_URL, UNKNOWN, World};

/// An email must be a `Mailbox` of RFC 5321. Surrounding spaces are not trimmed and a trailing dot is not allowed.
#[tokio::test]
async fn what_is_no_mailbox_of_rfc_5321_is_invalid_email() {
    let world = World::open().await;
    let client = world.client(1).await;
    for email in [
        " ",
        "ada",
        "@gmail.com",
        "ada@",
        "ada@@gmail.com",
        "ada@gmail@com",
        " ada@gmail.com",
        "ada@gmail.com ",
        "ada@gmail.com\n",
        "ada@gmail.com.",
        "ada @gmail.com",
        "ada@gmail .com",
        ".ada@gmail.com",
        "ada.@gmail.com",
        "a..da@gmail.com",
        "ada@.gmail.com",
        "ada@gmail..com",
        "ada@-gmail.com",
        "ada@gmail-.com",
        "ada@gm_ail.com",
        "ada@gmail,com",
        "ada(work)@gmail.com",
        "Ada <ada@gmail.com>",
        "<ada@gmail.com>",
        "mailto:ada@gmail.com,bob@gmail.com",
        "\"ada@gmail.com",
        "\"a\"da@gmail.com",
        "ada@[1.2.3.256]",
        "ada@[1.2.3]",
        "ada@[IPv6:x]",
        "ada\0@gmail.com",
        "ada\u{7f}@gmail.com",
    ] {
        let reply = client.look_up(email).await;
        assert_eq!(reply.json()["error"], "invalid_email", "{email:?}: {reply:?}");
    }
    assert_eq!(world.totals(&client.tenant), (1, 0, 0));
}

/// The local part has up to 64 octets, the domain up to 253 with labels up to 63, and the whole address up to 254.
#[tokio::test]
async fn lengths_are_held_to_the_octet() {
    let world = World::open().await;
    let client = world.client(1).await;
    let a = |n: usize| "a".repeat(n);
    let domain = |last: usize| format!("{0}.{0}.{0}.{1}", a(60), a(last)); // 183 octets plus the last label
    for (email, fits) in [
        (format!("{}@b.name", a(64)), true),
        (format!("{}@b.name", a(65)), false),
        (format!("a@{}.name", a(63)), true),
        (format!("a@{}.name", a(64)), false),
        (format!("{}@{}", a(30), domain(40)), true), // 254 octets
        (format!("{}@{}", a(31), domain(40)), false),
        (format!("{}@{}", a(3_000), domain(40)), false),
    ] {
        let reply = client.look_up(&email).await;
        let status = if fits { 404 } else { 400 };
        assert_eq!(reply.status, status, "{} octets", email.len());
        if !fits {
            reply.assert_error(400, "invalid_email");
        }
    }
}

/// Each kind of well-formed but unsupported email, with one or more examples.
#[tokio::test]
async fn each_kind_of_unsupported_email_is_refused() {
    let world = World::open().await;
    let client = world.client(1).await;
    for (kind, email) in [
        ("quoted local part", "\"ada\"@gmail.com"),
        ("quoted local part", "\"ada marlowe\"@gmail.com"),
        ("address literal", "ada@[127.0.0.1]"),
        ("address literal", "ada@[IPv6:2001:db8::1]"),
        ("single label", "ada@localhost"),
        ("single label", "ada@com"),
        ("special use", "ada@example.com"),
        ("special use", "ada@mail.example.org"),
        ("special use", "ada@host.invalid"),
        ("special use", "ada@printer.local"),
        ("special use", "ada@x.test"),
        ("special use", "ada@hidden.onion"),
        ("internationalised", "zoë@gmail.com"),
        ("internationalised", "zoe@bücher.ch"),
        ("internationalised", "用户@gmail.com"),
        ("disposable", "ada@mailinator.com"),
        ("disposable", "ada@Sub.Mailinator.com"),
        ("role", "info@gmail.com"),
        ("role", "Admin@marlowe.name"),
        ("role", "noreply@marlowe.name"),
        ("role", "no-reply+x@marlowe.name"),
        ("private relay", "x7f3k@privaterelay.appleid.com"),
        ("private relay", "ada@duck.com"),
    ] {
        let reply = client.look_up(email).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]),
            (400, &"unsupported_email".into()),
            "{kind}: {email}"
        );
    }
    assert_eq!(world.totals(&client.tenant), (1, 0, 0));
}

/// Work domains and unknown domains are supported.
#[tokio::test]
async fn people_anywhere_else_are_looked_up() {
    let world = World::open().await;
    let client = world.client(1).await;
    for email in [
        "ada.lovelace@outlook.com",
        "a@yahoo.co.uk",
        "ada@marlowe-consulting.name",
        "ada@never-heard-of.museum",
        "ada@xn--bcher-kva.ch",
        "informant@gmail.com",
        "a!#$%&'*+-/=?^_`{|}~z@marlowe.name",
    ] {
        client.look_up(email).await.assert_status(404);
    }
}

/// An allow-list of providers can be configured.
#[tokio::test]
async fn an_operator_may_support_some_providers_alone() {
    let providers_allowed = Some(["gmail.com".to_owned()].into());
    let allowed = EmailPolicy { providers_allowed, ..EmailPolicy::default() };
    let world = World::with(|settings| settings.policy.emails = allowed).await;
    for client in world.clients(1).await {
        client.look_up(KNOWN).await.assert_status(200);
    }
    let client = world.client(1).await;
    client.look_up("ada.marlowe@GMail.com").await.assert_status(200);
    for email in ["ada@outlook.com", "ada@mail.gmail.com", "ada@gmail.com.marlowe.name"] {
        client.look_up(email).await.assert_error(400, "unsupported_email");
    }
}

/// Disposable providers, private relays and role accounts can each be allowed by a setting.
#[tokio::test]
async fn an_operator_may_support_each_kind_that_somebody_may_be_behind() {
    let refused = EmailPolicy::default();
    let kinds = [
        ("ada@mailinator.com", EmailPolicy { refuse_disposable: false, ..refused.clone() }),
        ("ada@duck.com", EmailPolicy { refuse_relays: false, ..refused.clone() }),
        ("info@marlowe.name", EmailPolicy { refuse_roles: false, ..refused.clone() }),
    ];
    for (supported, policy) in &kinds {
        let world = World::with(|settings| settings.policy.emails = policy.clone()).await;
        let client = world.client(1).await;
        for (email, _) in &kinds {
            let reply = client.look_up(email).await;
            if email == supported {
                reply.assert_status(404);
            } else {
                reply.assert_error(400, "unsupported_email");
            }
        }
    }
    let disposable_domains = ["throwaway.name".to_owned()].into();
    let policy = EmailPolicy { disposable_domains, ..refused };
    let world = World::with(|settings| settings.policy.emails = policy).await;
    let client = world.client(1).await;
    client.look_up("ada@marlowe.name").await.assert_status(404);
    for email in ["ada@throwaway.name", "ada@sub.Throwaway.name", "ada@mailinator.com"] {
        client.look_up(email).await.assert_error(400, "unsupported_email");
    }
}

/// Addresses are converted to lower case and normalized by provider rules (Gmail: dots, `+` suffixes and
/// `googlemail.com`), so that one person has one record.
#[tokio::test]
async fn all_addresses_of_a_gmail_mailbox_find_one_person() {
    let world = World::open().await;
    let client = world.client(9).await;
    for email in [
        "ada.marlowe@gmail.com",
        "adamarlowe@gmail.com",
        "a.d.a.marlowe@gmail.com",
        "Ada.Marlowe@GMAIL.com",
        "ada.marlowe+shop@gmail.com",
        "AdaMarlowe+a+b.c@googlemail.com",
    ] {
        let reply = client.look_up(email).await;
        assert_eq!(reply.json()["profile"]["linkedin_url"], KNOWN_URL, "{email}");
        assert!(!reply.body.contains('@'), "never shown");
    }
}

/// Normalizing too much would return another person's profile.
#[tokio::test]
async fn no_other_provider_is_taken_to_ignore_dots() {
    let world = World::open().await;
    world.add_person("ada.marlowe@marlowe.name", "ada-marlowe", 1.0);
    let client = world.client(9).await;
    client.look_up("Ada.Marlowe@Marlowe.name").await.assert_status(200);
    for email in
        ["adamarlowe@marlowe.name", "ada.marlowe+x@marlowe.name", "ada.marlowe@mail.marlowe.name", UNKNOWN]
    {
        client.look_up(email).await.assert_status(404);
    }
}
