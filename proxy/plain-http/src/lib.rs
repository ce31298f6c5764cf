//! The interface of `reqwest` 0.11, as far as `toxiproxy_rust` uses it, over `ureq`, for plain HTTP.
//!
//! `toxiproxy_rust` 0.1.6 asks for `reqwest` 0.11, which brings an older generation of `hyper`, `h2` and `http-body`, and OpenSSL,
//! a C library whose headers must be there to build. It sends plain HTTP to a Toxiproxy and needs none of them. `Cargo.toml` of the
//! workspace puts this crate in the place of `reqwest` (`[patch.crates-io]`).

use std::fmt;

pub use url::Url;

/// Why there is no response, or none that can be read.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

pub mod blocking {
    use std::io::{self, Read};
    use std::time::Duration;

    use serde::de::DeserializeOwned;
    use ureq::http;

    use super::{Error, Url};

    /// How long `reqwest` waits for a whole response, unless told otherwise:
    /// <https://docs.rs/reqwest/0.11/reqwest/blocking/struct.ClientBuilder.html#method.timeout>.
    const TIMEOUT: Duration = Duration::from_secs(30);

    #[derive(Debug, Clone)]
    pub struct Client {
        agent: ureq::Agent,
    }

    impl Client {
        #[expect(
            clippy::new_without_default,
            reason = "reqwest's has it, and nothing here asks for it"
        )]
        pub fn new() -> Self {
            let config = ureq::Agent::config_builder()
                .timeout_global(Some(TIMEOUT))
                .http_status_as_error(false)
                // a Toxiproxy is reached directly, whatever the environment says
                .proxy(None)
                // one that was started again has closed what was open
                .max_idle_connections(0)
                .build();
            Self {
                agent: config.new_agent(),
            }
        }

        pub fn get(&self, url: Url) -> RequestBuilder {
            self.request(http::Method::GET, &url)
        }

        pub fn post(&self, url: Url) -> RequestBuilder {
            self.request(http::Method::POST, &url)
        }

        pub fn delete(&self, url: Url) -> RequestBuilder {
            self.request(http::Method::DELETE, &url)
        }

        fn request(&self, method: http::Method, url: &Url) -> RequestBuilder {
            RequestBuilder {
                agent: self.agent.clone(),
                request: http::Request::builder().method(method).uri(url.as_str()),
                body: None,
            }
        }
    }

    #[derive(Debug)]
    pub struct RequestBuilder {
        agent: ureq::Agent,
        request: http::request::Builder,
        body: Option<String>,
    }

    impl RequestBuilder {
        pub fn header(mut self, name: &str, value: &str) -> Self {
            self.request = self.request.header(name, value);
            self
        }

        pub fn body(mut self, body: String) -> Self {
            self.body = Some(body);
            self
        }

        /// Sends it, and blocks until the head of the response is there. A status is no error.
        pub fn send(self) -> Result<Response, Error> {
            let sent = match self.body {
                Some(body) => self.agent.run(self.request.body(body).map_err(Error::new)?),
                None => self.agent.run(self.request.body(()).map_err(Error::new)?),
            };
            let body = sent.map_err(Error::new)?.into_body().into_reader();
            Ok(Response { body })
        }
    }

    /// The body of a response, to be read.
    pub struct Response {
        body: ureq::BodyReader<'static>,
    }

    impl Response {
        pub fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
            serde_json::from_reader(self.body).map_err(Error::new)
        }
    }

    impl Read for Response {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.body.read(buffer)
        }
    }
}
