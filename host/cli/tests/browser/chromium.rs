//! Chromium, controlled by WebDriver and by its own protocol (CDP).

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fantoccini::elements::Element;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use serde_json::{Value, json};

use crate::enrich::TIMEOUT;

/// A browser with its own cookies. Each test has one, which ends with it.
pub struct Browser {
    pub client: Client,
    _driver: Driver,
}

/// The appearance of a page.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    pub name: &'static str,
    pub width: u32,
    pub is_dark: bool,
}

impl Browser {
    pub async fn start() -> Self {
        let options = json!({ "goog:chromeOptions": { "args": [
            "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1280,900",
        ] } });
        let mut client = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new());
        let driver = Driver::start();
        let client = client.capabilities(options.as_object().unwrap().clone()).connect(&driver.url).await;
        Self { client: client.unwrap(), _driver: driver }
    }

    pub async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    /// Opens a page again until `is_shown`, for usage, which is written each second.
    pub async fn open_until(&self, url: &str, is_shown: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.open(url).await;
            if is_shown().await {
                return;
            }
            assert!(Instant::now() < deadline, "{}", self.text().await);
        }
    }

    /// Runs a command of the Chrome DevTools Protocol.
    pub async fn cdp(&self, command: &str, parameters: Value) -> Value {
        self.client.issue_cmd(Cdp { command: command.to_owned(), parameters }).await.unwrap()
    }

    pub async fn show_as(&self, screen: Screen) {
        let Screen { width, is_dark, .. } = screen;
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.cdp("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.cdp("Emulation.setEmulatedMedia", media).await;
    }

    pub async fn disable_javascript(&self) {
        self.cdp("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    }

    /// Returns the element that matches a CSS selector, as soon as there is one.
    pub async fn find(&self, css: &str) -> Element {
        self.wait_for(css, Locator::Css(css)).await
    }

    async fn wait_for(&self, name: &str, locator: Locator<'_>) -> Element {
        let wait = self.client.wait().at_most(TIMEOUT).every(Duration::from_millis(20));
        match wait.for_element(locator).await {
            Ok(element) => element,
            Err(error) => panic!("no `{name}` on {}: {error}", self.client.current_url().await.unwrap()),
        }
    }

    pub async fn type_into(&self, css: &str, text: &str) {
        self.find(css).await.send_keys(text).await.unwrap();
    }

    /// Clicks the link or button with this text or label.
    pub async fn press(&self, text: &str) {
        let xpath = format!(
            "//a[normalize-space()='{text}' or @aria-label='{text}'] | //button[normalize-space()='{text}' or @aria-label='{text}']"
        );
        self.wait_for(text, Locator::XPath(&xpath)).await.click().await.unwrap();
    }

    pub async fn text(&self) -> String {
        self.find("body").await.text().await.unwrap()
    }

    /// Waits until the page has a heading with this text.
    pub async fn wait_for_heading(&self, text: &str) {
        let xpath = format!("//h1[normalize-space()='{text}']");
        self.wait_for(text, Locator::XPath(&xpath)).await;
    }

    /// Runs axe-core and returns its violations, one line each.
    pub async fn violations(&self) -> Vec<String> {
        // A page keeps it until the next page.
        if self.client.execute("return typeof axe", vec![]).await.unwrap() == "undefined" {
            let axe = AXE.get_or_init(|| {
                let path = root().join("target/npm/node_modules/axe-core/axe.min.js");
                std::fs::read_to_string(&path)
                    .unwrap_or_else(|error| panic!("{}: {error}; run `./test`", path.display()))
            });
            self.client.execute(axe, vec![]).await.unwrap();
        }
        let run = "const done = arguments[0];
            axe.run({ resultTypes: ['violations'] }).then(results => done(results.violations), error => done(String(error)));";
        let violations = self.client.execute_async(run, vec![]).await.unwrap();
        let violations = violations.as_array().unwrap_or_else(|| panic!("axe-core failed: {violations}"));
        let line = |violation: &Value| {
            format!("{}: {} {}", violation["id"], violation["help"], violation["nodes"][0]["html"])
        };
        violations.iter().map(line).collect()
    }

    /// Returns by how many pixels the page is wider than the screen, or a box that wraps is narrower than its text.
    pub async fn overflow(&self) -> i64 {
        let script = "const boxes = [document.documentElement, ...document.querySelectorAll('.wrap')];
            return Math.max(...boxes.map((box) => box.scrollWidth - box.clientWidth))";
        self.client.execute(script, vec![]).await.unwrap().as_i64().unwrap()
    }

    /// Returns the actions in tables that are less than 32 px high.
    pub async fn small_targets(&self) -> Vec<String> {
        let script = "return [...document.querySelectorAll('td.actions :is(a, button)')]
            .filter((target) => target.getBoundingClientRect().height < 32).map((target) => target.textContent)";
        let targets = self.client.execute(script, vec![]).await.unwrap();
        targets.as_array().unwrap().iter().map(ToString::to_string).collect()
    }

    /// Writes a screenshot of the whole page.
    pub async fn screenshot(&self, name: &str) {
        let parameters = json!({ "format": "png", "captureBeyondViewport": true });
        let image = self.cdp("Page.captureScreenshot", parameters).await;
        let image = decode(image["data"].as_str().unwrap());
        let dir = root().join("target/console");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("{name}.png")), image).unwrap();
    }
}

static AXE: OnceLock<String> = OnceLock::new();

fn decode(base64: &str) -> Vec<u8> {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.decode(base64).unwrap()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A chromedriver and its browser, killed on drop.
struct Driver {
    child: Child,
    url: String,
}

impl Driver {
    fn start() -> Self {
        let mut command = Command::new("chromedriver");
        // The browser is in the same process group, and survives chromedriver.
        let command = command.arg("--port=0").process_group(0).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("chromedriver is installed; run `./test`");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut lines = stdout.lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            let (_, port) = line.split_once("successfully on port ")?;
            Some(port.trim_end_matches('.').to_owned())
        });
        // Keeps the pipe open, because chromedriver ends when it cannot write.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url: format!("http://127.0.0.1:{}", port.unwrap()) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
struct Cdp {
    command: String,
    parameters: Value,
}

impl WebDriverCompatibleCommand for Cdp {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        let body = json!({ "cmd": self.command, "params": self.parameters });
        (http::Method::POST, Some(body.to_string()))
    }
}
