//! The begin of the library, before the program and all other libraries (`.init_array`, `DF_1_INITFIRST`): it maps the page of the family,
//! and closes the gate to the kernel.

use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::calls::on_call;
use super::clocks::replace_vdso;
use super::cycles;
use super::files;
use super::gate::{close, system};
use super::page::{VARIABLE, about};
use super::program;
use super::shared::{PID, READ_WRITE, map_page, open, page};
use super::signals;
use super::tasks;
use super::variable;

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = begin;

const PATH: usize = 4096;
const VDSO: u64 = 33;
/// `AT_RANDOM`: the address of 16 random bytes, which Go draws from.
const RANDOM: u64 = 25;
const RANDOM_BYTES: usize = 16;

/// Puts the program in virtual time; without the variable, or its page, it runs in real time.
extern "C" fn begin() {
    let mut path = [0u8; PATH];
    if !page_path(&mut path) {
        return;
    }
    let file = open(&path, READ_WRITE);
    if file < 0 || !map_page(file as usize, 0) {
        return;
    }
    let pid = system(call::GETPID, []) as u32;
    PID.store(pid, SeqCst);
    let Some(slot) = own_slot(pid) else { return };
    tasks::has_begun(slot, pid);
    // the descriptors of the program before that had `FD_CLOEXEC` are closed, which ends pipes
    page().poke(about::ANY);
    let random = told(RANDOM);
    if random != 0 {
        files::getrandom(random, RANDOM_BYTES);
    }
    if !replace_vdso(told(VDSO)) || signals::install(on_call) < 0 || close() < 0 {
        // harness sees that the library is not loaded
        page().slots[slot].loaded.store(0, SeqCst);
        return;
    }
    // the `execve` was made in the handler of `SIGSYS`, which blocks all signals
    signals::block(page().blocked.load(SeqCst));
    cycles::trap();
    program::give_place();
}

/// Returns the slot with the turn, unless it is another process's: that of a program that was executed, or of the first of the family.
fn own_slot(pid: u32) -> Option<usize> {
    let slots = &page().slots;
    let owner = page().owner.load(SeqCst).checked_sub(1)? as usize;
    let of = slots[owner].pid.load(SeqCst);
    if of != pid && of != 0 {
        return None;
    }
    // the `execve` ended the other threads of this process
    page().free_slots(|slot| slot.pid.load(SeqCst) == pid && !core::ptr::eq(slot, &slots[owner]));
    Some(owner)
}

/// Reads the value of the variable into `path`, ended by a zero. Returns whether there is one.
fn page_path(path: &mut [u8; PATH]) -> bool {
    let file = open(b"/proc/self/environ\0", 0);
    if file < 0 {
        return false;
    }
    let found = variable::find(VARIABLE.as_bytes(), path, |piece| {
        system(call::READ, [file as usize, piece.as_mut_ptr() as usize, piece.len()])
    });
    system(call::CLOSE, [file as usize]);
    found
}

/// Returns the value of an entry of the auxiliary vector (`getauxval`), or 0.
fn told(wanted: u64) -> usize {
    let file = open(b"/proc/self/auxv\0", 0);
    let mut vector = [[0u64; 2]; 64];
    system(
        call::READ,
        [file as usize, vector.as_mut_ptr() as usize, size_of_val(&vector)],
    );
    system(call::CLOSE, [file as usize]);
    let found = vector.iter().find(|[kind, _]| *kind == wanted);
    found.map_or(0, |[_, value]| *value as usize)
}
