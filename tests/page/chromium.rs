//! A headless Chromium, driven through its debugging pipe: one JSON message after the other, each ended by a zero byte.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use harness::cluster::find_program;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::machine::{KilledAtDrop, LIMIT, until_ok};

/// Names of the programs of Chromium, the smallest first.
const PROGRAMS: [&str; 5] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Returns the program: `HARNESS_CHROMIUM`, or the one on the PATH.
fn program() -> PathBuf {
    if let Some(own) = std::env::var_os("HARNESS_CHROMIUM") {
        return own.into();
    }
    let found = PROGRAMS.iter().find_map(|program| find_program(program));
    found.unwrap_or_else(|| panic!("no Chromium: none of {} is installed", PROGRAMS.join(", ")))
}

/// One page in a browser of its own.
pub struct BrowserPage {
    _browser: KilledAtDrop,
    pipe: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    number: u64,
    /// Errors and warnings of the browser.
    pub complaints: Vec<String>,
    /// The addresses that the page requested.
    pub requests: Vec<String>,
    loads: usize,
    folder: TempDir,
}

impl BrowserPage {
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        // the pipe's ends are the descriptors 3 and 4
        let mut browser = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#])
            .arg(program())
            .args([
                "--headless",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--disable-extensions",
                "--disable-background-networking",
            ])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell can be started");
        let (sender, messages) = channel();
        let output = browser.stdout.take().expect("it is piped");
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let _ = serde_json::from_slice(&message).map(|message| sender.send(message));
            }
        });
        let pipe = browser.stdin.take().expect("it is piped");
        let mut page = Self {
            _browser: KilledAtDrop(browser),
            pipe,
            messages,
            session: None,
            number: 0,
            complaints: Vec::new(),
            requests: Vec::new(),
            loads: 0,
            folder,
        };
        let target = page.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        page.session = page.call("Target.attachToTarget", attach)["sessionId"]
            .as_str()
            .map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page.resize(1280, 900);
        page
    }

    /// Writes a page to a file.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a page can be written");
        path
    }

    /// Opens a file, at a place in it, and waits until it is loaded.
    pub fn open(&mut self, path: &Path, place: &str) {
        // from elsewhere, so that a place in the same file is loaded, too
        let before = self.loads;
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.until("an empty page", |page| page.loads > before);
        let before = self.loads;
        self.requests.clear();
        self.call(
            "Page.navigate",
            json!({ "url": format!("file://{}{place}", path.display()) }),
        );
        self.until("the page", |page| page.loads > before);
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < LIMIT, "{what} is not loaded: {:?}", self.complaints);
            if let Ok(message) = self.messages.recv_timeout(Duration::from_millis(100)) {
                self.note(&message);
            }
        }
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    pub fn prefer(&mut self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    pub fn without_scripts(&mut self) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    }

    /// Returns the value of an expression on the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let question = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", question);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer:#}");
        answer["result"]["value"].take()
    }

    /// Returns the text of an expression on the page.
    pub fn text(&mut self, expression: &str) -> String {
        serde_json::from_value(self.value(expression)).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until an expression is true on the page.
    pub fn wait(&mut self, expression: &str) {
        until_ok(|| {
            let is_true = self.value(expression) == json!(true);
            let why = || format!("never true: {expression}\n{:?}", self.complaints);
            is_true.then_some(()).ok_or_else(why)
        });
    }

    pub fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            self.call(
                "Input.dispatchKeyEvent",
                json!({ "type": kind, "key": key, "text": text }),
            );
        }
    }

    /// Writes a picture of the page to the folder of `HARNESS_SHOTS`, if it is set.
    pub fn shoot(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("HARNESS_SHOTS") else {
            return;
        };
        // the layout has no scroll bar, at which the picture would be cut off
        self.call("Emulation.setScrollbarsHidden", json!({ "hidden": true }));
        let shot = self.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        let shot = shot["data"].as_str().unwrap_or_default();
        let picture = BASE64_STANDARD.decode(shot).expect("a picture");
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), picture).expect("a picture can be written");
    }

    /// Asserts that the browser had no complaint, and that the page requested nothing but its own file.
    pub fn assert_quiet(&mut self) {
        // earlier complaints arrive before the answer to this
        self.value("1");
        assert!(self.complaints.is_empty(), "{:#?}", self.complaints);
        assert!(
            self.requests.len() == 1 && self.requests[0].starts_with("file://"),
            "asked for {:#?}",
            self.requests
        );
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.pipe.write_all(&bytes).expect("the browser listens");
        loop {
            let message = self.messages.recv_timeout(LIMIT);
            let mut message = message.unwrap_or_else(|_| panic!("{method}: the browser does not answer"));
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message:#}");
                return message["result"].take();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Page.loadEventFired" => self.loads += 1,
            "Runtime.exceptionThrown" => self.complaints.push(params["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" => self.complaints.push(params["args"].to_string()),
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                self.complaints.push(params["entry"].to_string())
            }
            "Network.requestWillBeSent" => {
                let address = params["request"]["url"].as_str().unwrap_or_default();
                if address != "about:blank" {
                    self.requests.push(address.to_owned());
                }
            }
            _ => {}
        }
    }
}
