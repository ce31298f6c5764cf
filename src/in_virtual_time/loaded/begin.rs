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
use super::shared::{CLOSE_ON_EXEC, HERE, PID, READ_WRITE, auxiliary, environment, first_stack, map_page, page, values};
use super::signals;
use super::tasks;

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = begin;

const VDSO: u64 = 33;
/// `AT_RANDOM`: the address of 16 random bytes, which Go draws from.
const RANDOM: u64 = 25;
const RANDOM_BYTES: usize = 16;

/// Puts the program in virtual time; without the variable, or its page, it runs in real time.
extern "C" fn begin() {
    let Some(stack) = first_stack() else { return };
    let Some(path) = values(environment(stack), VARIABLE.as_bytes()).next() else {
        return;
    };
    let file = system(call::OPENAT, [HERE as usize, path, READ_WRITE | CLOSE_ON_EXEC]);
    if file < 0 || !map_page(file as usize, 0) {
        return;
    }
    let pid = system(call::GETPID, []) as u32;
    PID.store(pid, SeqCst);
    let Some(slot) = own_slot(pid) else { return };
    tasks::has_begun(slot, pid);
    // the descriptors of the program before that had `FD_CLOEXEC` are closed, which ends pipes
    page().poke(about::ANY);
    let told = |wanted: u64| {
        // SAFETY: an entry stays where it is.
        let mut entries = auxiliary(stack).map(|entry| unsafe { *entry });
        let found = entries.find(|[kind, _]| *kind == wanted);
        found.map_or(0, |[_, value]| value as usize)
    };
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
    program::give_place(stack);
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
