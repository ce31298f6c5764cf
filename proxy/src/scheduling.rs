//! How the kernel schedules the proxy's thread.

use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// Makes this thread run as soon as there is something to do for it (`SCHED_FIFO`,
/// <https://man7.org/linux/man-pages/man7/sched.7.html>), so that the network does not slow down with the processors. A process
/// without the right to it (`CAP_SYS_NICE`, `RLIMIT_RTPRIO`) is scheduled as before.
///
/// A higher priority among the usual threads is worse: the kernel counts it as load, and wakes the thread on another processor than
/// the one on which its bytes arrived.
pub(super) fn before_all_others() {
    let first = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, first);
}
