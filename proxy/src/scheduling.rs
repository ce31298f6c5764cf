//! The scheduling of the proxy's thread by the kernel.

use std::cell::Cell;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use socket2::SockRef;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use tokio::net::TcpStream;

/// Makes this thread run as soon as there is something to do for it (`SCHED_FIFO`,
/// <https://man7.org/linux/man-pages/man7/sched.7.html>), so that the network does not slow down with the processors. A process
/// without the right to it (`CAP_SYS_NICE`, `RLIMIT_RTPRIO`) is scheduled as before.
///
/// A higher priority among the usual threads is worse: the kernel counts it as load, and wakes the thread on another processor than
/// the one on which its bytes arrived.
pub(super) fn before_all_others() {
    let first = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    if set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, first).is_ok() {
        SENDER.set(Some(SenderWatch::default()));
    }
}

/// So many chunks in a row must have come from the same other processor before the thread moves there: a move costs as much as
/// a few of them.
const CHUNKS_FROM_ELSEWHERE: u32 = 8;

thread_local! {
    /// None on a thread that the kernel moves by itself.
    static SENDER: Cell<Option<SenderWatch>> = const { Cell::new(None) };
}

/// The processor on which the last chunks were sent.
#[derive(Debug, Clone, Copy, Default)]
struct SenderWatch {
    processor: usize,
    /// Chunks in a row that came from there while this thread ran elsewhere.
    chunks: u32,
}

impl SenderWatch {
    /// Notes a chunk that was sent on the processor `sender` and read on `here`. Returns whether this thread should move to the sender's.
    fn sent(&mut self, sender: usize, here: usize) -> bool {
        if sender != self.processor || sender == here {
            *self = Self {
                processor: sender,
                chunks: 0,
            };
        }
        self.chunks += u32::from(sender != here);
        let moves = self.chunks == CHUNKS_FROM_ELSEWHERE;
        if moves {
            self.chunks = 0;
        }
        moves
    }
}

/// Moves this thread to the processor on which the bytes of this socket are sent, if they are sent on another one for long.
///
/// The kernel wakes a thread of [`before_all_others`] on the processor that it last ran on, and interrupts that processor from the
/// sender's for each chunk. A usual thread is pulled to its waker's processor instead. On loopback a packet is received where it is
/// sent, and the socket says where that was (`SO_INCOMING_CPU`, <https://man7.org/linux/man-pages/man7/socket.7.html>).
pub(super) fn follow_sender(socket: &TcpStream) {
    let Some(mut watch) = SENDER.get() else { return };
    let (Ok(sender), Ok(here)) = (SockRef::from(socket).cpu_affinity(), sched_getcpu()) else {
        return;
    };
    let moves = watch.sent(sender, here);
    SENDER.set(Some(watch));
    if moves {
        // a processor that this process may not use is not moved to
        let _ = move_to(sender);
    }
}

/// Moves this thread to a processor, where it may run on any of its processors as before.
fn move_to(processor: usize) -> nix::Result<()> {
    let this_thread = Pid::from_raw(0);
    let allowed = sched_getaffinity(this_thread)?;
    let mut only = CpuSet::new();
    only.set(processor)?;
    sched_setaffinity(this_thread, &only)?;
    sched_setaffinity(this_thread, &allowed)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn it_moves_after_enough_chunks_in_a_row_from_one_other_processor() {
        let mut watch = SenderWatch::default();
        let chunks = CHUNKS_FROM_ELSEWHERE as usize;
        assert!((0..chunks * 3).all(|_| !watch.sent(1, 1)), "it is there");
        assert!((1..chunks).all(|_| !watch.sent(1, 0)));
        assert!(watch.sent(1, 0));
        assert!((1..chunks).all(|_| !watch.sent(1, 0)), "it could not move");
        assert!(watch.sent(1, 0));
        assert!((0..chunks * 3).all(|chunk| !watch.sent(1 + chunk % 2, 0)), "by turns");
        assert!((0..chunks * 3).all(|chunk| !watch.sent(1, chunk % 2)), "some from here");
    }

    /// Returns the processors that this thread may use.
    fn allowed() -> CpuSet {
        sched_getaffinity(Pid::from_raw(0)).expect("Linux tells")
    }

    #[tokio::test]
    async fn a_socket_says_on_which_processor_its_bytes_are_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let processors: Vec<_> = (0..CpuSet::count())
            .filter(|processor| allowed().is_set(*processor) == Ok(true))
            .collect();
        for processor in processors {
            let sender = std::thread::spawn(move || {
                let mut only = CpuSet::new();
                only.set(processor).expect("a processor");
                sched_setaffinity(Pid::from_raw(0), &only).expect("it may be used");
                let mut to = std::net::TcpStream::connect(address).expect("it listens");
                to.write_all(b"chunk").expect("it reads");
                to
            });
            let (mut from, _) = listener.accept().await.expect("the sender connects");
            from.read_exact(&mut [0; 5]).await.expect("it was sent");
            assert_eq!(SockRef::from(&from).cpu_affinity().expect("Linux tells"), processor);
            drop(sender.join().expect("it sent"));
        }
    }

    #[test]
    fn a_thread_that_moved_may_run_where_it_might_before() {
        let before = allowed();
        let here = sched_getcpu().expect("Linux tells");
        move_to(here).expect("it runs there");
        assert_eq!(allowed(), before);
        move_to(CpuSet::count() - 1).expect_err("no machine has so many");
        assert_eq!(allowed(), before);
    }
}
