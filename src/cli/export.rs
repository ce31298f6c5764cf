//! `harness export`: a history for other tools.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use harness_checkers::{History, write_edn};

use super::args::{ExportArgs, ExportFormat};
use super::check::{find, open};
use super::complain;
use crate::exit::Exit;

pub fn export(args: &ExportArgs) -> Exit {
    let stored = match find(&args.stored.read.results, &args.stored.wanted) {
        Ok(stored) => stored,
        Err(error) => return complain(Exit::Usage, error),
    };
    let history = match open(&stored, &args.stored.read.options()) {
        Ok(history) => history,
        Err(error) => return complain(Exit::Usage, format!("{}: {error}", stored.history.display())),
    };
    let ExportFormat::Edn = args.format;
    let written = match &args.output {
        Some(path) => File::create(path).and_then(|file| write(&history, file)),
        None => write(&history, io::stdout().lock()),
    };
    match written {
        // a reader that went away has what it wanted
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let target = args
                .output
                .as_ref()
                .map_or("stdout".into(), |path| path.display().to_string());
            complain(Exit::Environment, format!("could not write {target}: {error}"))
        }
        _ => Exit::Holds,
    }
}

fn write(history: &History, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    write_edn(history, &mut out)?;
    out.flush()
}
