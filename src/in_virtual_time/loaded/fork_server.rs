//! The fork server, in its own process: while it waits for its first input, it forks when harness asks ([`answer`]). The forked process is
//! the first one of a new family, with its own page, input, output and errors, and harness is its parent.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::gate::{close, system};
use super::page::{FAILED, FamilyPage, PATH, VARIABLE};
use super::shared::{CLOSE_ON_EXEC, PID, READ_WRITE, map_page, open, page, values, wake, write_number};
use super::text::ShortText;

const PAGE_ENDING: &[u8] = b".page";

/// Whether this process is a fork, whose environment names the page of the fork server.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Forks. It returns in both processes.
pub fn answer(me: usize) {
    const CHILD_OF_HARNESS: usize = 0x8000;
    const SIGCHLD: usize = 17;
    let order = &page().fork;
    let forked = system(call::CLONE, [CHILD_OF_HARNESS | SIGCHLD, 0, 0, 0, 0]);
    if forked != 0 {
        order.answer.store(u32::try_from(forked).unwrap_or(FAILED), SeqCst);
        return wake(&order.answer);
    }
    if !begin_family(me) {
        const FAILURE: usize = 1;
        system(call::EXIT_GROUP, [FAILURE]);
    }
}

/// Opens the files and maps the page that harness has prepared, before any call of the program. Returns whether it could.
fn begin_family(me: usize) -> bool {
    let order = &page().fork;
    let harness = page().harness.load(SeqCst);
    for file in &order.files {
        let Some(descriptor) = file.descriptor.load(SeqCst).checked_sub(1) else {
            break;
        };
        let flags = file.flags.load(SeqCst) as usize;
        let path = ShortText::<40>::of(format_args!("/proc/{harness}/fd/{}\0", file.file.load(SeqCst)));
        let opened = open(path.bytes(), flags);
        if opened < 0
            || system(
                call::DUP3,
                [opened as usize, descriptor as usize, flags & CLOSE_ON_EXEC],
            ) < 0
        {
            return false;
        }
        system(call::CLOSE, [opened as usize]);
    }
    let processor = order.processor.load(SeqCst) as usize;
    let mut path = [0u8; PATH + PAGE_ENDING.len() + 1];
    let length = order.path.copy_to(&mut path, PAGE_ENDING);
    let file = open(&path[..=length], READ_WRITE);
    if file < 0 || !map_page(file as usize, page() as *const FamilyPage as usize) {
        return false;
    }
    stand_alone(processor);
    let pid = system(call::GETPID, []) as u32;
    PID.store(pid, SeqCst);
    IS_FORKED.store(true, SeqCst);
    let page = page();
    let slot = &page.slots[me];
    slot.pid.store(pid, SeqCst);
    slot.tid.store(pid, SeqCst);
    page.processes[0].pid.store(pid, SeqCst);
    let word = slot.cleared.load(SeqCst) as usize;
    system(call::SET_TID_ADDRESS, [word]);
    write_number(word, slot.number.load(SeqCst));
    let closed = close() == 0;
    page.fork.answer.store(pid, SeqCst);
    wake(&page.fork.answer);
    closed
}

/// Gives the process its own group and one processor, and ends it with harness, like a program that harness starts.
fn stand_alone(processor: usize) {
    const DEATH_SIGNAL: usize = 1;
    const SIGKILL: usize = 9;
    system(call::SETPGID, [0, 0]);
    system(call::PRCTL, [DEATH_SIGNAL, SIGKILL]);
    let mut only = [0u64; 16];
    if let Some(processor) = processor.checked_sub(1)
        && let Some(word) = only.get_mut(processor / 64)
    {
        *word = 1 << (processor % 64);
        system(call::SCHED_SETAFFINITY, [0, size_of_val(&only), only.as_ptr() as usize]);
    }
}

/// Replaces the page of the fork server by that of this family in the environment of the next program: both paths have the same length.
pub fn name_page(environment: usize) {
    if !IS_FORKED.load(SeqCst) || environment == 0 {
        return;
    }
    let page = page();
    let mut path = [0u8; PATH + PAGE_ENDING.len() + 1];
    let length = page.path.copy_to(&mut path, PAGE_ENDING);
    for value in values(environment, VARIABLE.as_bytes()) {
        let value = value as *mut u8;
        // SAFETY: it ends with a zero, and the path replaces one of the same length.
        unsafe {
            if (0..length).all(|place| *value.add(place) != 0) && *value.add(length) == 0 {
                core::ptr::copy_nonoverlapping(path.as_ptr(), value, length);
            }
        }
    }
}
