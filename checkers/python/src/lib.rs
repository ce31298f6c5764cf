//! The Python module: a path in, findings as JSON and a drawing of each violation out. `harness_checkers` in Python gives them types.

use std::path::PathBuf;

use harness_checkers::{History, Model, Options, OrderDrawing, ReadOptions, check as decide, draw_as_text};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// Findings as JSON, drawings as text by the ids of violations, and the page with all drawings.
type Checked = (String, Vec<(String, String)>, String);

/// Reads a history and decides all properties.
#[pyfunction]
#[pyo3(signature = (path, model=None, lock_key=None, init=None))]
fn check(
    python: Python<'_>,
    path: PathBuf,
    model: Option<&str>,
    lock_key: Option<String>,
    init: Option<String>,
) -> PyResult<Checked> {
    let model: Option<Model> = model.map(str::parse).transpose().map_err(wrong)?;
    let read = ReadOptions {
        lock_key,
        initial: init,
    };
    python.detach(|| {
        let history = History::open(&path, &read).map_err(|error| unreadable(&path, error))?;
        let findings = decide(
            &history,
            &Options {
                model,
                ..Options::default()
            },
        );
        let holds = history.certain_holds();
        let violations = findings.findings.iter().flat_map(|finding| &finding.violations);
        let drawings = violations.map(|violation| (violation.id.clone(), draw_as_text(&history, &holds, violation)));
        let drawings = drawings.collect();
        let judged_by: Model = findings.model.parse().map_err(wrong)?;
        let violations = findings.findings.iter().flat_map(|finding| &finding.violations);
        let drawn = violations.filter_map(|violation| OrderDrawing::of_violation(&history, &judged_by, violation));
        let drawn: Vec<OrderDrawing> = drawn.collect();
        let page = OrderDrawing::page(&path.display().to_string(), &drawn);
        Ok((serde_json::to_string(&findings).map_err(wrong)?, drawings, page))
    })
}

fn unreadable(path: &std::path::Path, error: harness_checkers::ReadError) -> PyErr {
    let text = format!("{}: {error}", path.display());
    match error {
        harness_checkers::ReadError::Io(_) => PyOSError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(check, module)?)
}
