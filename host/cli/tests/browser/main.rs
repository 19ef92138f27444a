//! The web application in Chromium, by WebDriver. Needs `chromium`, `chromedriver` and axe-core, which
//! `./test` installs. Screenshots of all pages are written to `target/console`.
//!
//! - `chromium`: the browser
//! - `site`: a server with the web application, and its users
//! - `journey`: from an invitation to a revoked key, also without JavaScript and with the keyboard alone
//! - `examples`: the examples of the quick start
//! - `pages`: each page on a desktop, a tablet and a phone, light and dark, checked by axe-core

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed step fails the test")]

mod chromium;
#[path = "../enrich/mod.rs"]
mod enrich;
mod examples;
mod journey;
mod pages;
mod site;
