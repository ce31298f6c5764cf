//! `harness export`: a history for other tools.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use harness_checkers::{History, write_edn};

use super::Failure;
use super::args::{ExportArgs, ExportFormat};
use super::examined::{find, open};
use crate::exit::Exit;

pub fn export(args: &ExportArgs) -> Result<Exit, Failure> {
    let stored = find(&args.stored.read.results, &args.stored.wanted)?;
    let history = open(&stored, &args.stored.read.options())?;
    let ExportFormat::Edn = args.format;
    let written = match &args.output {
        Some(path) => File::create(path).and_then(|file| write(&history, file)),
        None => write(&history, io::stdout().lock()),
    };
    match written {
        // a reader that closed the pipe has read enough
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let target = args
                .output
                .as_ref()
                .map_or("stdout".into(), |path| path.display().to_string());
            Err(Failure::environment(format!("could not write {target}: {error}")))
        }
        _ => Ok(Exit::Holds),
    }
}

fn write(history: &History, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    write_edn(history, &mut out)?;
    out.flush()
}
