//! Blocks of whole lines, parsed in parallel: each of several threads cuts the next block off the input and parses it, and the caller takes
//! them in the order of the file.
//!
//! A thread promises the block that it cuts before another thread can cut the next one, so the promises have the order of the file. Their
//! number is bounded, and a block that was taken is filled again. Without threads, or for a text of one block, the caller's thread does all
//! steps.

use std::io::{ErrorKind, Read};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::error::ReadError;
use super::lines::LineBlock;

/// Bytes of a block: so many that its hand-over costs nothing, and so few that it stays in a processor's cache.
const BLOCK_BYTES: usize = 1 << 18;
/// Promises that wait for the caller, for each thread.
const UNDER_WAY: usize = 4;
/// The largest number of threads: the caller takes the parsed blocks, and is no faster than a few of them.
const MAX_THREADS: usize = 4;

/// A block that will be parsed, or the error in place of it.
type PromisedBlock = Result<Receiver<LineBlock>, ReadError>;

/// Reads all blocks of an input, parses them, and calls `take` with them in order.
///
/// # Errors
/// Fails if reading fails, or with the first error of `take`.
pub(super) fn each_block(
    input: impl Read + Send,
    take: impl FnMut(&mut LineBlock) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    by_threads(processors.min(MAX_THREADS), input, take)
}

fn by_threads(
    threads: usize,
    input: impl Read + Send,
    take: impl FnMut(&mut LineBlock) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut cutter = BlockCutter {
        input,
        rest: Vec::new(),
        ended: false,
    };
    let mut first = LineBlock::default();
    cutter.fill(&mut first)?;
    if cutter.ended || threads == 1 {
        one_by_one(cutter, first, take)
    } else {
        side_by_side(cutter, first, threads, take)
    }
}

fn one_by_one(
    mut cutter: BlockCutter<impl Read>,
    mut block: LineBlock,
    mut take: impl FnMut(&mut LineBlock) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    loop {
        block.parse();
        take(&mut block)?;
        if cutter.ended {
            return Ok(());
        }
        cutter.fill(&mut block)?;
    }
}

fn side_by_side(
    cutter: BlockCutter<impl Read + Send>,
    mut first: LineBlock,
    threads: usize,
    mut take: impl FnMut(&mut LineBlock) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let (cutter, taken) = (Mutex::new(cutter), Mutex::new(Vec::new()));
    let is_done: Result<bool, ReadError> = thread::scope(|scope| {
        let (promise, promised) = sync_channel(threads * UNDER_WAY);
        let mut begun = 0;
        for _ in 0..threads {
            let (cutter, taken, promise) = (&cutter, &taken, promise.clone());
            let helper = thread::Builder::new().spawn_scoped(scope, move || cut_and_parse(cutter, taken, &promise));
            begun += usize::from(helper.is_ok());
        }
        drop(promise);
        if begun == 0 {
            return Ok(false);
        }
        first.parse();
        take(&mut first)?;
        for block in promised {
            // a thread that panics keeps no promise, and its panic becomes one of the caller
            let Ok(mut block) = block?.recv() else { break };
            take(&mut block)?;
            taken.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        }
        Ok(true)
    });
    match is_done? {
        true => Ok(()),
        false => one_by_one(cutter.into_inner().unwrap_or_else(PoisonError::into_inner), first, take),
    }
}

/// Cuts and parses blocks until the input ends, or a thread does by an error or a panic.
fn cut_and_parse(
    cutter: &Mutex<BlockCutter<impl Read>>,
    taken: &Mutex<Vec<LineBlock>>,
    promise: &SyncSender<PromisedBlock>,
) {
    loop {
        let mut block = taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_default();
        let (parsed, kept) = sync_channel(1);
        {
            let Ok(mut cutter) = cutter.lock() else { return };
            if cutter.ended {
                return;
            }
            let cut = cutter.fill(&mut block);
            let failed = cut.is_err();
            cutter.ended |= failed;
            // a caller that has ended takes no promise
            if promise.send(cut.map(|()| kept)).is_err() || failed {
                return;
            }
        }
        block.parse();
        let _ = parsed.send(block);
    }
}

/// Cuts an input into blocks after newlines.
struct BlockCutter<R> {
    input: R,
    /// The bytes after the last newline of the previous block.
    rest: Vec<u8>,
    /// Whether the previous block is the last one.
    ended: bool,
}

impl<R: Read> BlockCutter<R> {
    /// Fills a block with whole lines, or with all remaining bytes. At least one byte comes after a block that is not the last.
    fn fill(&mut self, block: &mut LineBlock) -> Result<(), ReadError> {
        let text = &mut block.text;
        let mut filled = self.rest.len();
        text.resize(text.len().max(filled + BLOCK_BYTES), 0);
        text[..filled].copy_from_slice(&self.rest);
        self.rest.clear();
        loop {
            match self.input.read(&mut text[filled..]) {
                Ok(0) if filled < text.len() => {
                    self.ended = true;
                    text.truncate(filled);
                    block.last = true;
                    return Ok(());
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            if filled < text.len() {
                continue;
            }
            if let Some(newline) = text[..filled - 1].iter().rposition(|byte| *byte == b'\n') {
                self.rest.extend_from_slice(&text[newline + 1..]);
                text.truncate(newline + 1);
                block.last = false;
                return Ok(());
            }
            // The line is longer than a block.
            text.resize(filled * 2, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const THREADS: usize = 3;
    const LINES: u64 = 40_000;

    fn text() -> Vec<u8> {
        let line = |index| {
            format!(r#"{{"index":{index},"time":{index},"process":1,"type":"invoke","f":"acquire","lock":"l0"}}"#)
                + "\n"
        };
        (0..LINES).map(line).collect::<String>().into_bytes()
    }

    /// Returns the indices of all events, in the order in which they came, and the error after them.
    fn indices(input: impl Read + Send) -> (Vec<u64>, Option<ReadError>) {
        let mut indices = Vec::new();
        let ended = by_threads(THREADS, input, |block| {
            indices.extend(block.events.iter().map(|event| event.index));
            Ok(())
        });
        (indices, ended.err())
    }

    /// An input that ends with an error.
    struct Ends<F: FnMut() -> io::Result<usize>>(F);

    impl<F: FnMut() -> io::Result<usize>> Read for Ends<F> {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            (self.0)()
        }
    }

    #[test]
    fn blocks_come_in_the_order_of_the_file() {
        assert!(text().len() > 8 * BLOCK_BYTES, "several blocks a thread");
        for _ in 0..20 {
            let (indices, error) = indices(Cursor::new(text()));
            assert!(error.is_none());
            assert!(indices.into_iter().eq(0..LINES));
        }
    }

    #[test]
    fn what_was_read_before_an_error_comes_before_it() {
        let broken = Ends(|| Err(io::Error::other("the disk is gone")));
        let (indices, error) = indices(Cursor::new(text()).chain(broken));
        let whole_blocks = (text().len() / BLOCK_BYTES - 1) * BLOCK_BYTES / (text().len() / LINES as usize + 1);
        assert!(indices.len() > whole_blocks, "{} of {whole_blocks}", indices.len());
        assert!(indices.iter().copied().eq(0..indices.len() as u64));
        assert!(error.is_some_and(|error| error.to_string().contains("the disk is gone")));
    }

    #[test]
    fn an_error_of_the_caller_ends_the_other_threads() {
        let endless = io::repeat(b'\n');
        let mut blocks = 0;
        let ended = by_threads(THREADS, endless, |_| {
            blocks += 1;
            if blocks < 5 { Ok(()) } else { Err(ReadError::Empty) }
        });
        assert!(matches!(ended, Err(ReadError::Empty)));
        assert_eq!(blocks, 5);
    }

    #[test]
    fn a_panic_of_any_thread_is_one_of_the_caller() {
        let panics = Ends(|| panic!("an input that panics"));
        let read = || indices(Cursor::new(text()).chain(panics));
        assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
    }
}
