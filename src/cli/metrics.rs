//! `--metrics`: Prometheus's figures of runs and hunts, served while a command lasts.

use std::net::SocketAddr;
use std::sync::Arc;

use harness_proxy::api::TextPage;

use super::Failure;
use crate::ui::metrics::MetricsBoard;

/// A board and the page that shows it, if `--metrics` is set.
#[derive(Default)]
pub struct Metrics(Option<(Arc<MetricsBoard>, TextPage)>);

impl Metrics {
    /// Serves at this address until it is dropped, on the runtime of the caller.
    pub fn serve(at: Option<SocketAddr>, quiet: bool) -> Result<Self, Failure> {
        let Some(at) = at else { return Ok(Self::default()) };
        let board = Arc::new(MetricsBoard::default());
        let shown = Arc::clone(&board);
        let page = TextPage::serve(at, "/metrics", move || shown.text())
            .map_err(|error| Failure::environment(format!("could not serve metrics at {at}: {error}")))?;
        if !quiet {
            eprintln!("metrics at http://{}/metrics", page.address());
        }
        Ok(Self(Some((board, page))))
    }

    pub fn board(&self) -> Option<Arc<MetricsBoard>> {
        self.0.as_ref().map(|(board, _)| Arc::clone(board))
    }
}
