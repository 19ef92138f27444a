//! Which certificates `enrich lookup --tls-ca` trusts, and what it says of the others.
#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod enrich;

use enrich::{Enrich, Ran};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};

/// A self-signed certificate as `openssl req -x509` makes it: that of an authority.
fn openssl(host: &str) -> CertificateParams {
    let mut params = CertificateParams::new([host.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.use_authority_key_identifier_extension = true;
    params
}

/// Serves HTTPS on 127.0.0.1 with `params`, and looks somebody up. The server's own file is `server.pem`.
fn lookup(params: &CertificateParams, tls_ca: Option<&str>) -> Ran {
    let (enrich, key) = Enrich::with_key(1, 500);
    let secret = KeyPair::generate().unwrap();
    let cert = enrich.file("server.pem", params.self_signed(&secret).unwrap().pem());
    let secret = enrich.file("server.key", secret.serialize_pem());
    let other = openssl("127.0.0.1").self_signed(&KeyPair::generate().unwrap()).unwrap();
    enrich.file("other.pem", other.pem());
    enrich.file("both.pem", format!("{}{}", other.pem(), std::fs::read_to_string(&cert).unwrap()));
    let server = enrich.serve(&["--tls-cert", cert.to_str().unwrap(), "--tls-key", secret.to_str().unwrap()]);
    let mut args = vec!["lookup", "ada.marlowe@gmail.com", "--key", &key, "--url", &server.url];
    args.extend(tls_ca.iter().flat_map(|file| ["--tls-ca", file]));
    enrich.run(&args)
}

#[test]
fn accepts_a_self_signed_certificate_of_openssl_that_is_in_the_file() {
    for file in ["server.pem", "both.pem"] {
        let ran = lookup(&openssl("127.0.0.1"), Some(file));
        assert!(ran.stdout.contains("\"not_found\""), "{file}: {}", ran.stderr);
    }
}

#[test]
fn accepts_a_self_signed_certificate_of_no_authority() {
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let ran = lookup(&params, Some("server.pem"));
    assert!(ran.stdout.contains("\"not_found\""), "{}", ran.stderr);
}

#[test]
fn refuses_other_certificates_in_plain_words() {
    let mut expired = openssl("127.0.0.1");
    expired.not_after = date_time_ymd(2020, 1, 1);
    let mut early = openssl("127.0.0.1");
    early.not_before = date_time_ymd(4000, 1, 1);
    let mut for_clients = openssl("127.0.0.1");
    for_clients.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let mut for_both = for_clients.clone();
    for_both.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    assert!(lookup(&for_both, Some("server.pem")).success);
    let mut nameless = openssl("127.0.0.1");
    nameless.subject_alt_names = Vec::new();
    let mut leaf = CertificateParams::new(["enrich.example".to_owned()]).unwrap();
    leaf.is_ca = IsCa::ExplicitNoCa;
    let mut stranger = leaf.clone();
    stranger.distinguished_name.push(DnType::CommonName, "stranger");
    for (params, tls_ca, told) in [
        (&openssl("enrich.example"), Some("server.pem"), "is for another host"),
        (&openssl("127.0.0.2"), Some("server.pem"), "is for another host"),
        (&leaf, Some("server.pem"), "is for another host"),
        (&nameless, Some("server.pem"), "names no host"),
        (&expired, Some("server.pem"), "has expired"),
        (&early, Some("server.pem"), "is not valid yet"),
        (&for_clients, Some("server.pem"), "is not meant for servers"),
        (&openssl("127.0.0.1"), Some("other.pem"), "is not trusted itself"),
        (&openssl("127.0.0.1"), None, "--tls-ca FILE trusts"),
        (&stranger, Some("other.pem"), "is not issued by a trusted authority"),
        (&leaf, Some("other.pem"), "is not signed by the authority that it names"),
    ] {
        let ran = lookup(params, tls_ca);
        assert_eq!(ran.code, Some(4), "{told}: {}", ran.stdout);
        assert!(ran.stderr.contains(told), "{told}: {}", ran.stderr);
        for debug in ["CaUsed", "NotValid", "Unknown", "Expired", "InvalidCert", "{", "("] {
            assert!(!ran.stderr.contains(debug), "{debug}: {}", ran.stderr);
        }
    }
}

#[test]
fn says_what_is_wrong_with_the_file_or_the_protocol() {
    let (enrich, _) = Enrich::with_key(1, 500);
    enrich.file("empty.pem", "");
    enrich.file("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let server = enrich.serve(&[]);
    let url = server.url.replace("http:", "https:");
    for (file, told, code) in [
        ("empty.pem", "cannot use empty.pem: it has no certificate in PEM form", 2),
        ("bad.pem", "cannot use bad.pem: the certificate is malformed", 2),
        ("no.pem", "cannot use no.pem: ", 2),
    ] {
        let ran = enrich.run(&["lookup", "ada@gmail.com", "--key", "enr_x", "--url", &url, "--tls-ca", file]);
        assert!(ran.code == Some(code) && ran.stderr.contains(told), "{file}: {}", ran.stderr);
    }
    let ran = enrich.run(&["lookup", "ada@gmail.com", "--key", "enr_x", "--url", &url]);
    assert!(ran.code == Some(4) && ran.stderr.contains("does not speak TLS"), "{}", ran.stderr);
}
