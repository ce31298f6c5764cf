//! The table of descriptors: each is a socket of the world, a pipe or the like, by which threads of the family wake each other, or a file.

use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::disks::{FileStatus, mode};
use super::page::{EPOLLS, LOCALS, about, connection};
use super::shared::{NONBLOCKING, TurnCell, flags_of};
use super::trap::TrappedCall;
use super::turns::{page, touch, wrote, wrote_to_pipe};

/// The number of descriptors in the table; the kind of others is looked up each time.
const KEPT: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DescriptorKind {
    Unknown,
    /// A file, a folder, a device.
    File,
    /// A pipe, a socket that is not the world's, an eventfd.
    Local,
    /// A set of `epoll` that this program made.
    Epoll,
    /// A socket of the world.
    Network,
    /// A device of random bytes.
    Random,
}

/// The state of a socket of the world.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SocketStage {
    New,
    Listening,
    Dialling,
    Open,
}

#[derive(Clone, Copy)]
pub struct Descriptor {
    pub kind: DescriptorKind,
    pub stage: SocketStage,
    /// Its number in the page: of a connection, or of a set of `epoll`; of a pipe or the like counted from 1, and 0 where it has none.
    pub number: u16,
    /// In network byte order, as the address and the port of the peer.
    pub local_port: u16,
    pub peer_address: u32,
    pub peer_port: u16,
    /// Whether a call has returned ECONNRESET to a write of the program, or ECONNREFUSED.
    pub told: bool,
    /// Whether calls on it wait, as of `known_at`: the count of changes (`modes`) plus 1; 0: it is not known.
    pub waits: bool,
    pub known_at: u32,
}

const UNKNOWN: Descriptor = Descriptor {
    kind: DescriptorKind::Unknown,
    stage: SocketStage::New,
    number: 0,
    local_port: 0,
    peer_address: 0,
    peer_port: 0,
    told: false,
    waits: false,
    known_at: 0,
};

/// Options of TCP have smaller numbers than this.
const OPTIONS: usize = 40;

static OPTIONS_OF: TurnCell<[[u32; OPTIONS]; KEPT]> = TurnCell::new([[0; OPTIONS]; KEPT]);
static TABLE: TurnCell<[Descriptor; KEPT]> = TurnCell::new([UNKNOWN; KEPT]);

pub fn get(descriptor: usize) -> Descriptor {
    let kept = of(descriptor).map_or(UNKNOWN, |kept| *kept);
    if kept.kind != DescriptorKind::Unknown {
        return kept;
    }
    let looked = Descriptor {
        kind: look(descriptor),
        ..UNKNOWN
    };
    set(descriptor, looked);
    looked
}

pub fn set(descriptor: usize, what: Descriptor) {
    if let Some(kept) = of(descriptor) {
        *kept = what;
    }
}

/// Returns an option of TCP, which has no effect: some programs check that it is as they set it.
pub fn tcp_option(descriptor: usize, option: usize) -> Option<&'static mut u32> {
    // SAFETY: only the thread that has the turn looks at it, and no reference is kept.
    unsafe { (*OPTIONS_OF.get()).get_mut(descriptor)?.get_mut(option) }
}

/// Adds a new socket of the world.
pub fn add(descriptor: usize, stage: SocketStage) -> Descriptor {
    for option in 0..OPTIONS {
        if let Some(kept) = tcp_option(descriptor, option) {
            *kept = 0;
        }
    }
    let made = Descriptor {
        kind: DescriptorKind::Network,
        stage,
        ..UNKNOWN
    };
    set(descriptor, made);
    made
}

#[expect(clippy::mut_from_ref, reason = "the thread that has the turn is alone")]
fn of(descriptor: usize) -> Option<&'static mut Descriptor> {
    // SAFETY: only the thread that has the turn looks at it, and no reference is kept.
    unsafe { (*TABLE.get()).get_mut(descriptor) }
}

fn look(descriptor: usize) -> DescriptorKind {
    match FileStatus::of(descriptor).map(|status| status.kind()) {
        Err(_) => DescriptorKind::Unknown,
        Ok(mode::PIPE | mode::SOCKET | 0) => DescriptorKind::Local,
        Ok(_) => DescriptorKind::File,
    }
}

/// Returns whether calls on a descriptor wait: it is without `O_NONBLOCK`.
pub fn blocks(descriptor: usize) -> bool {
    let changes = page().modes.load(SeqCst).wrapping_add(1);
    if let Some(kept) = of(descriptor).filter(|kept| kept.known_at == changes) {
        return kept.waits;
    }
    let flags = flags_of(descriptor);
    let waits = flags >= 0 && flags as usize & NONBLOCKING == 0;
    if let Some(kept) = of(descriptor) {
        kept.waits = waits;
        kept.known_at = changes;
    }
    waits
}

/// Answers `ioctl`, of which `FIONBIO` changes whether calls wait.
pub fn ioctl(call: &TrappedCall<'_>) -> isize {
    const SETS_NONBLOCKING: usize = 0x5421;
    let answer = call.ask_kernel();
    if call.arguments[1] & 0xffff_ffff == SETS_NONBLOCKING {
        modes_changed();
    }
    answer
}

fn modes_changed() {
    page().modes.fetch_add(1, SeqCst);
}

/// Reports a read, a write or a close to harness, or to the threads that wait for the other end.
pub fn used(descriptor: Descriptor) {
    match descriptor.kind {
        DescriptorKind::File | DescriptorKind::Unknown | DescriptorKind::Random | DescriptorKind::Epoll => {}
        DescriptorKind::Network if descriptor.stage == SocketStage::Open => wrote(descriptor.number),
        DescriptorKind::Network => touch(),
        DescriptorKind::Local => {
            wrote_to_pipe();
            page().poke(descriptor.about());
        }
    }
}

/// Adds a device of random bytes.
pub fn add_random(descriptor: usize) {
    let kind = DescriptorKind::Random;
    set(descriptor, Descriptor { kind, ..UNKNOWN });
}

/// Returns whether there is a socket of the world, which the next program of this process would not know.
pub fn is_connected() -> bool {
    (0..KEPT).any(|descriptor| of(descriptor).is_some_and(|kept| kept.kind == DescriptorKind::Network))
}

impl Descriptor {
    /// Returns the event for which a thread waits on this descriptor alone, one of `page::about`.
    fn about(self) -> u64 {
        match (self.kind, self.stage) {
            (DescriptorKind::Network, SocketStage::Open | SocketStage::Dialling) => about::connection(self.number),
            (DescriptorKind::Network, SocketStage::Listening) => about::LISTENER,
            (DescriptorKind::Local, _) if self.number == 0 => about::LOCAL,
            (DescriptorKind::Local, _) => about::local(self.number),
            (DescriptorKind::Epoll, _) => about::epoll(self.number),
            _ => about::ANY,
        }
    }
}

/// Returns the same for a descriptor by its number.
pub fn about(descriptor: usize) -> u64 {
    get(descriptor).about()
}

/// Returns the same for a set of `epoll`, or `about::ANY` if another program made it.
pub fn about_set(descriptor: usize) -> u64 {
    match about(descriptor) {
        set @ about::EPOLL.. => set,
        _ => about::ANY,
    }
}

/// The system calls that create pipes, sets of `epoll` and the like.
pub const MAKING: [usize; 7] = [
    call::PIPE,
    call::PIPE2,
    call::SOCKETPAIR,
    call::EVENTFD,
    call::EVENTFD2,
    call::EPOLL_CREATE,
    call::EPOLL_CREATE1,
];

/// Answers one of [`MAKING`]: the new descriptors get a number.
pub fn make(call: &TrappedCall<'_>) -> isize {
    let answer = call.ask_kernel();
    if answer < 0 {
        return answer;
    }
    let page = page();
    let of_kind = |kind, number: usize| Descriptor {
        kind,
        number: number as u16,
        ..UNKNOWN
    };
    let local = || {
        let made = page.locals_made.fetch_add(1, SeqCst) as usize;
        of_kind(DescriptorKind::Local, made % (LOCALS - 1) + 1)
    };
    match call.number {
        call::EPOLL_CREATE | call::EPOLL_CREATE1 => {
            let made = page.epolls.made.fetch_add(1, SeqCst) as usize;
            if made < EPOLLS {
                set(answer as usize, of_kind(DescriptorKind::Epoll, made));
            }
        }
        call::EVENTFD | call::EVENTFD2 => set(answer as usize, local()),
        _ => {
            let ends = if call.number == call::SOCKETPAIR { 3 } else { 0 };
            // SAFETY: the program gave this address to have two descriptors written, which the kernel has done.
            let ends = unsafe { *(call.arguments[ends] as *const [i32; 2]) };
            let made = local();
            ends.into_iter().for_each(|end| set(end as usize, made));
        }
    }
    answer
}

/// Answers `epoll_ctl`: an added descriptor may be ready, and another thread may wait for the set.
pub fn epoll_ctl(call: &TrappedCall<'_>) -> isize {
    const DELETE: usize = 2;
    let [set, operation, descriptor, ..] = call.arguments;
    let answer = call.ask_kernel();
    if answer == 0 && operation != DELETE {
        let set = about_set(set);
        if set != about::ANY {
            page().epolls.add(set, about(descriptor));
        }
        page().poke(set);
    }
    answer
}

/// Answers `close`, `dup`, `fcntl` and the like.
pub fn changed(call: &TrappedCall<'_>) -> isize {
    let [first, second, third, ..] = call.arguments;
    match call.number {
        call::CLOSE => {
            let before = get(first);
            let closed = call.ask_kernel();
            set(first, UNKNOWN);
            used(before);
            if matches!(before.kind, DescriptorKind::Local | DescriptorKind::Network) {
                touch();
            }
            closed
        }
        call::CLOSE_RANGE => {
            /// `CLOSE_RANGE_CLOEXEC`: they stay open until a program is executed.
            const STAY: usize = 4;
            let closed = call.ask_kernel();
            if closed < 0 || third & STAY != 0 {
                return closed;
            }
            for descriptor in first..=second.min(KEPT) {
                set(descriptor, UNKNOWN);
            }
            touch();
            page().poke(about::ANY);
            closed
        }
        call::FCNTL => {
            // `F_DUPFD` and `F_DUPFD_CLOEXEC`
            const DUPLICATE: [usize; 2] = [0, 1030];
            const SET_FLAGS: usize = 4;
            let answer = call.ask_kernel();
            if second == SET_FLAGS {
                modes_changed();
            }
            if DUPLICATE.contains(&second) && answer >= 0 {
                set(answer as usize, get(first));
            }
            answer
        }
        _ => {
            let before = (call.number != call::DUP).then(|| get(second));
            let source = get(first);
            let made = call.ask_kernel();
            if made >= 0 && made as usize != first {
                set(made as usize, source);
                if let Some(before) = before {
                    used(before);
                    touch();
                }
            }
            made
        }
    }
}

/// Returns the state of the connection of a socket, from the page.
pub fn connection_of(descriptor: Descriptor) -> u8 {
    match descriptor.stage {
        // it has no number yet
        SocketStage::New | SocketStage::Listening => connection::DIALLING,
        SocketStage::Dialling | SocketStage::Open => {
            page().connections[usize::from(descriptor.number)].load(SeqCst)
        }
    }
}
