//! Blocks of whole lines, parsed in parallel: as many threads as there are processors cut blocks off the input and parse them, and the
//! caller takes them in the order of the file.
//!
//! No thread has one part of the work: each takes the next step that is possible, so no processor is idle while there is work. With a
//! thread for each part, one would wait for another that is not running. A library's pool has no order and no bound of its queue. Without
//! threads, or for a text of one block, the caller's thread does all steps.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read};
use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::error::ReadError;
use super::lines::LineBlock;

/// Bytes of a block: so many that its hand-over costs nothing, and so few that it stays in a processor's cache.
const BLOCK_BYTES: usize = 1 << 18;
/// Blocks in the queue for each thread.
const UNDER_WAY: usize = 4;
/// Blocks that wait to be parsed before a thread that can cut parses instead.
const AHEAD: usize = 2;
/// The largest number of threads: one thread takes the parsed blocks, and is no faster than a few of them.
const MAX_THREADS: usize = 5;

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
    first: LineBlock,
    threads: usize,
    mut take: impl FnMut(&mut LineBlock) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let queue = BlockQueue {
        cutter: Mutex::new(cutter),
        state: Mutex::new(BlockQueueState::of(first, threads)),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        // a thread that ends before the others, by an error or a panic, leaves nothing to wait for
        let _end = EndOfBlocks(&queue);
        for _ in 1..threads {
            let help = || {
                let _end = EndOfBlocks(&queue);
                queue.help();
            };
            // without more threads, this one does all steps
            let _ = thread::Builder::new().spawn_scoped(scope, help);
        }
        while let Some(mut block) = queue.next() {
            take(&mut block)?;
            queue.locked().used.push(block);
        }
        queue.locked().error.take().map_or(Ok(()), Err)
    })
}

/// The queue of blocks from the input to the caller.
struct BlockQueue<R> {
    /// Held by the thread that cuts.
    cutter: Mutex<BlockCutter<R>>,
    state: Mutex<BlockQueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct BlockQueueState {
    /// Blocks that wait to be parsed, with their places in the file.
    cut: VecDeque<(u64, LineBlock)>,
    parsed: BTreeMap<u64, LineBlock>,
    /// Blocks that the caller has taken, to be filled again.
    used: Vec<LineBlock>,
    /// The numbers of blocks that were cut, and that the caller has taken.
    cuts: u64,
    taken: u64,
    /// The largest number of blocks in the queue.
    most: u64,
    is_cutting: bool,
    /// Whether the last block was cut.
    is_cut: bool,
    error: Option<ReadError>,
    /// Whether a thread ended, so that the others must end.
    is_over: bool,
}

/// The next step of a thread.
enum BlockStep {
    Cut(LineBlock),
    Parse(u64, LineBlock),
    Take(LineBlock),
    Wait,
    End,
}

impl BlockQueueState {
    fn of(first: LineBlock, threads: usize) -> Self {
        Self {
            cut: VecDeque::from([(0, first)]),
            cuts: 1,
            most: (threads * UNDER_WAY) as u64,
            ..Self::default()
        }
    }

    fn step_of_caller(&mut self) -> BlockStep {
        if let Some(block) = self.parsed.remove(&self.taken) {
            self.taken += 1;
            return BlockStep::Take(block);
        }
        self.step(1)
    }

    /// Returns the next step: cutting if fewer than `ahead` blocks wait to be parsed, and parsing otherwise.
    fn step(&mut self, ahead: usize) -> BlockStep {
        let may_cut = !self.is_cutting && !self.is_cut && self.cuts - self.taken < self.most;
        if self.is_over {
            BlockStep::End
        } else if may_cut && self.cut.len() < ahead {
            self.is_cutting = true;
            BlockStep::Cut(self.used.pop().unwrap_or_default())
        } else if let Some((place, block)) = self.cut.pop_front() {
            BlockStep::Parse(place, block)
        } else if self.is_cut && self.taken == self.cuts {
            BlockStep::End
        } else {
            BlockStep::Wait
        }
    }
}

impl<R: Read> BlockQueue<R> {
    fn locked(&self) -> MutexGuard<'_, BlockQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next block in the order of the file. Until it is parsed, the caller parses and cuts, but parses first, since only one
    /// thread can cut.
    fn next(&self) -> Option<LineBlock> {
        loop {
            match self.awaited(BlockQueueState::step_of_caller) {
                BlockStep::Take(block) => {
                    self.changed.notify_all();
                    return Some(block);
                }
                BlockStep::End => return None,
                step => self.carry_out(step),
            }
        }
    }

    /// Cuts and parses until the end.
    fn help(&self) {
        loop {
            match self.awaited(|state| state.step(AHEAD)) {
                BlockStep::End => return,
                step => self.carry_out(step),
            }
        }
    }

    fn awaited(&self, step: impl Fn(&mut BlockQueueState) -> BlockStep) -> BlockStep {
        let mut state = self.locked();
        loop {
            match step(&mut state) {
                BlockStep::Wait => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                step => return step,
            }
        }
    }

    fn carry_out(&self, step: BlockStep) {
        match step {
            BlockStep::Cut(block) => self.cut(block),
            BlockStep::Parse(place, mut block) => {
                block.parse();
                self.locked().parsed.insert(place, block);
            }
            BlockStep::Take(_) | BlockStep::Wait | BlockStep::End => {}
        }
        self.changed.notify_all();
    }

    fn cut(&self, mut block: LineBlock) {
        let mut cutter = self.cutter.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = cutter.fill(&mut block);
        let mut state = self.locked();
        state.is_cutting = false;
        state.is_cut = cutter.ended || filled.is_err();
        if let Err(error) = filled {
            state.error = Some(error);
        } else {
            let place = state.cuts;
            state.cuts += 1;
            state.cut.push_back((place, block));
        }
    }
}

/// A guard that ends the work of all threads when it is dropped.
struct EndOfBlocks<'a, R: Read>(&'a BlockQueue<R>);

impl<R: Read> Drop for EndOfBlocks<'_, R> {
    fn drop(&mut self) {
        self.0.locked().is_over = true;
        self.0.changed.notify_all();
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
