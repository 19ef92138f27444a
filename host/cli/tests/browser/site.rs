//! A server with the web application, and its users.

use crate::chromium::Browser;
use crate::enrich::{Enrich, Server, within_a_second};

pub const PASSWORD: &str = "harbour violet spoon";
pub const EMAIL: &str = "ada.marlowe.sample001@gmail.com";

pub struct Site {
    pub enrich: Enrich,
    pub server: Server,
    /// The URL of the web application. Its host is `localhost`, where browsers keep secure cookies without
    /// TLS.
    pub url: String,
}

impl Site {
    /// Starts a server whose accounts are in a data directory.
    pub fn on_sqlite() -> Self {
        Self::start(Enrich::new())
    }

    /// Starts a server whose accounts are in this PostgreSQL database.
    pub fn on_postgres(database: String) -> Self {
        let enrich = Enrich::with_database(database);
        enrich.ok(&["migrate"]);
        Self::start(enrich)
    }

    fn start(enrich: Enrich) -> Self {
        enrich.import(&format!("{EMAIL},https://www.linkedin.com/in/ada-marlowe\n"));
        enrich.ok(&["workspace", "create", "shop", "--credits", "1000"]);
        let server = enrich.serve(&["ENRICH_CONSOLE_LISTEN=127.0.0.1:0"]);
        let url = server.console_url().replace("127.0.0.1", "localhost");
        Self { enrich, server, url }
    }

    /// Creates an invitation and returns its link.
    pub fn invite(&self, email: &str, role: &str) -> String {
        self.enrich.ok(&["user", "invite", "shop", email, "--role", role, "--url", &self.url])
    }

    /// Creates a user and signs in.
    pub async fn sign_in(&self, browser: &Browser, email: &str, role: &str) {
        browser.open(&self.invite(email, role)).await;
        browser.type_into("#password", PASSWORD).await;
        browser.type_into("#again", PASSWORD).await;
        browser.press("Join").await;
        browser.wait_for_heading("Sign in").await;
        browser.type_into("#email", email).await;
        browser.type_into("#password", PASSWORD).await;
        browser.press("Sign in").await;
        browser.wait_for_heading("API keys").await;
    }

    /// Looks an email up with a key and returns the status.
    pub fn lookup(&self, key: &str, email: &str) -> u16 {
        self.server.connect().enrich(key, email).unwrap().status
    }

    /// Waits until lookups with the key are refused, which takes at most a second.
    pub fn assert_refused_within_a_second(&self, key: &str) {
        within_a_second("the key is refused", || self.lookup(key, EMAIL) == 401);
    }
}
