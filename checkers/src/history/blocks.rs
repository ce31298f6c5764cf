//! Text in blocks of whole lines, parsed side by side: one thread reads, as many as there are processors parse, and the caller
//! takes the blocks in the order of the file.
//!
//! Threads of the standard library and bounded channels do it: blocks are dealt in turn, so nothing is stolen or reordered, and a
//! pool of a library would bring nothing but itself. Without threads, or for a text of one block, the caller's thread does it all.

use std::io::{ErrorKind, Read};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use super::error::ReadError;
use super::lines::LineBlock;

/// Bytes of a block: large enough that handing it over costs nothing, small enough that it stays in a processor's cache.
const BLOCK_BYTES: usize = 1 << 18;
/// Blocks that may wait before and after each parser. More do not make it faster.
const QUEUE: usize = 2;
/// Parsers side by side at most: one thread takes what they parse, and is no faster than a few of them.
const MAX_PARSERS: usize = 4;

/// Reads all blocks of an input, parses them, and gives them to `take` in order.
///
/// # Errors
/// When reading fails, and what `take` answers first.
pub(super) fn each_block(
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
    let parsers = thread::available_parallelism().map_or(1, |processors| processors.get().min(MAX_PARSERS));
    if cutter.ended || parsers == 1 {
        one_by_one(cutter, first, take)
    } else {
        side_by_side(cutter, first, parsers, take)
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
    parsers: usize,
    mut take: impl FnMut(&mut LineBlock) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    thread::scope(|scope| {
        let (mut to_parse, mut parsed) = (Vec::new(), Vec::new());
        for _ in 0..parsers {
            let (sender, blocks) = mpsc::sync_channel(QUEUE);
            let (done, receiver) = mpsc::sync_channel(QUEUE);
            to_parse.push(sender);
            parsed.push(receiver);
            scope.spawn(move || parse_each(&blocks, &done));
        }
        let (give_back, used) = mpsc::channel();
        let (failed, failure) = mpsc::sync_channel(1);
        scope.spawn(move || {
            if let Err(error) = deal(cutter, first, &to_parse, &used) {
                // The receiver is gone only when the caller has an error already.
                let _ = failed.send(error);
            }
        });
        for parsed in (0..parsers).cycle().map(|turn| &parsed[turn]) {
            let Ok(mut block) = parsed.recv() else {
                // The blocks came to an end, or the input did not let itself be read.
                return failure.recv().map_or(Ok(()), Err);
            };
            take(&mut block)?;
            // The reader may have ended before, and needs no more blocks then.
            let _ = Sender::send(&give_back, block);
        }
        Ok(())
    })
}

fn parse_each(blocks: &Receiver<LineBlock>, done: &SyncSender<LineBlock>) {
    for mut block in blocks {
        block.parse();
        if done.send(block).is_err() {
            return;
        }
    }
}

/// Cuts the input and deals its blocks to the parsers in turn, until the input or the parsers end.
fn deal(
    mut cutter: BlockCutter<impl Read>,
    first: LineBlock,
    parsers: &[SyncSender<LineBlock>],
    used: &Receiver<LineBlock>,
) -> Result<(), ReadError> {
    let mut block = first;
    for parser in parsers.iter().cycle() {
        if parser.send(block).is_err() || cutter.ended {
            break;
        }
        block = used.try_recv().unwrap_or_default();
        cutter.fill(&mut block)?;
    }
    Ok(())
}

/// Cuts an input into blocks behind newlines.
struct BlockCutter<R> {
    input: R,
    /// What was read behind the last newline of the block before.
    rest: Vec<u8>,
    /// The block that was cut last is the last one.
    ended: bool,
}

impl<R: Read> BlockCutter<R> {
    /// Fills a block with whole lines, or with everything that is left. At least one byte comes after a block that is not the last.
    fn fill(&mut self, block: &mut LineBlock) -> Result<(), ReadError> {
        let text = block.text_to_fill();
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
            // A line that is longer than a block.
            text.resize(filled * 2, 0);
        }
    }
}
