// Results of system calls, one line each: a run in virtual time prints the same lines as one on the kernel.
// Times are only compared with what was asked for, so that a slow machine prints the same.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
static int64_t began;
static void begin(void) { began = now(); }
// whether at least so many milliseconds passed since `begin`
static const char *after(int ms) { return now() - began >= ms * 1000000LL ? "in time" : "TOO EARLY"; }
static void say(const char *what, long answer) { printf("%s: %ld %s\n", what, answer, answer < 0 ? strerror(errno) : ""); fflush(stdout); }
static struct timespec in(clockid_t clock, int ms) { struct timespec t; clock_gettime(clock, &t); int64_t n = t.tv_sec * 1000000000LL + t.tv_nsec + ms * 1000000LL; return (struct timespec){ n / 1000000000, n % 1000000000 }; }

static void clocks(void) {
    for (int id = 0; id < 12; id++) { struct timespec t; if (id < 8 || id > 10) { printf("clock_gettime %d: %d\n", id, clock_gettime(id, &t)); } }
    struct timespec t; say("clock_gettime of none", clock_gettime(99, &t));
    int64_t one = now(), other = now(); printf("a clock goes on: %d\n", other >= one);
    struct timeval v; say("gettimeofday", gettimeofday(&v, 0)); printf("time is that of gettimeofday: %d\n", llabs(time(0) - v.tv_sec) <= 1);
    clock_gettime(CLOCK_REALTIME, &t); printf("and of clock_gettime: %d\n", llabs(t.tv_sec - v.tv_sec) <= 1);
    say("clock_gettime by number", syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t));
    unsigned cpu = 9999; say("getcpu", syscall(SYS_getcpu, &cpu, 0, 0)); printf("a processor: %d\n", cpu < 9999);
}
static void sleeps(void) {
    begin(); say("usleep", usleep(3000)); puts(after(3));
    struct timespec t = { 0, 2000000 }, rest = { 7, 7 };
    begin(); say("nanosleep", nanosleep(&t, &rest)); puts(after(2));
    t = (struct timespec){ 0, -1 }; say("nanosleep for nothing", nanosleep(&t, 0));
    begin(); t = in(CLOCK_MONOTONIC, 3); say("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0)); puts(after(3));
    begin(); t = in(CLOCK_REALTIME, 3); say("clock_nanosleep by the wall clock", clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0)); puts(after(2));
    t = (struct timespec){ 1, 0 }; say("clock_nanosleep until the past", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0));
    say("sched_yield", sched_yield());
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t cond = PTHREAD_COND_INITIALIZER; static int ready; static sem_t sem; static pthread_barrier_t barrier; static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static void *signals_cond(void *p) { usleep(3000); pthread_mutex_lock(&mutex); ready = 1; pthread_cond_signal(&cond); pthread_mutex_unlock(&mutex); return p; }
static volatile int tried;
static void *holds_mutex(void *p) { pthread_mutex_lock(&mutex); ready = 2; while (!tried) usleep(1000); usleep(3000); pthread_mutex_unlock(&mutex); return p; }
static void *posts(void *p) { usleep(2000); sem_post(&sem); return p; }
static void *meets(void *p) { usleep(1000); pthread_barrier_wait(&barrier); return p; }
static void *reads(void *p) { pthread_rwlock_rdlock(&rw); usleep(3000); pthread_rwlock_unlock(&rw); return p; }
static _Atomic long counted;
static void *counts(void *p) { for (int i = 0; i < 1000; i++) { pthread_mutex_lock(&mutex); counted = counted + 1; if (i % 100 == 0) sched_yield(); pthread_mutex_unlock(&mutex); } return p; }
static void *leaves(void *p) { (void)p; pthread_exit((void *)42); }
static void threads(void) {
    pthread_t t[8]; void *r;
    begin(); pthread_create(t, 0, signals_cond, (void *)7); pthread_mutex_lock(&mutex); while (!ready) pthread_cond_wait(&cond, &mutex); pthread_mutex_unlock(&mutex); puts(after(3)); pthread_join(*t, &r); say("join", (long)r);
    pthread_mutex_lock(&mutex); begin(); struct timespec at = in(CLOCK_REALTIME, 5); int e = pthread_cond_timedwait(&cond, &mutex, &at); printf("cond_timedwait: %s\n", strerror(e)); puts(after(4)); pthread_mutex_unlock(&mutex);
    pthread_create(t, 0, holds_mutex, 0); while (ready != 2) usleep(100); say("trylock of one that is held", pthread_mutex_trylock(&mutex));
    at = in(CLOCK_REALTIME, 2); printf("mutex_timedlock: %s\n", strerror(pthread_mutex_timedlock(&mutex, &at))); tried = 1; say("lock", pthread_mutex_lock(&mutex)); pthread_mutex_unlock(&mutex); pthread_join(*t, 0);
    sem_init(&sem, 0, 0); say("sem_trywait", sem_trywait(&sem)); at = in(CLOCK_REALTIME, 3); begin(); say("sem_timedwait", sem_timedwait(&sem, &at)); puts(after(2));
    begin(); pthread_create(t, 0, posts, 0); say("sem_wait", sem_wait(&sem)); puts(after(2)); pthread_join(*t, 0);
    pthread_barrier_init(&barrier, 0, 4); for (int i = 0; i < 3; i++) pthread_create(t + i, 0, meets, 0); e = pthread_barrier_wait(&barrier); printf("barrier: %d\n", e == 0 || e == PTHREAD_BARRIER_SERIAL_THREAD); for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    pthread_create(t, 0, reads, 0); usleep(1000); begin(); say("rwlock", pthread_rwlock_wrlock(&rw)); pthread_rwlock_unlock(&rw); pthread_join(*t, 0);
    for (int i = 0; i < 8; i++) pthread_create(t + i, 0, counts, 0);
    for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
    say("counted", counted);
    pthread_create(t, 0, leaves, 0); pthread_join(*t, &r); say("exit of a thread", (long)r);
    pthread_attr_t a; pthread_attr_init(&a); pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED); sem_init(&sem, 0, 0); pthread_create(t, &a, posts, 0); say("a detached thread posts", sem_wait(&sem));
    uint32_t word = 5; struct timespec d = { 0, 2000000 }; say("futex of another value", syscall(SYS_futex, &word, 0, 4, 0)); begin(); say("futex until a time", syscall(SYS_futex, &word, 0, 5, &d)); puts(after(2)); say("wake nobody", syscall(SYS_futex, &word, 1, 9));
}

static int pipe_of[2], pair[2];
static void *writes(void *p) { usleep(3000); if (write(*(int *)p, "hello", 5) != 5) puts("no write"); return 0; }
static void *drains(void *p) { char b[65536]; usleep(2000); long all = 0, n; while (all < 1000000 && (n = read(*(int *)p, b, sizeof b)) > 0) all += n; return (void *)all; }
static void descriptors(void) {
    char b[64]; pthread_t t; struct pollfd f; fd_set s; struct timeval v; struct epoll_event ev = { .events = EPOLLIN }, got[4]; void *r;
    if (pipe(pipe_of) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return;
    begin(); pthread_create(&t, 0, writes, pipe_of + 1); say("read of a pipe", read(pipe_of[0], b, sizeof b)); puts(after(3)); pthread_join(t, 0);
    f = (struct pollfd){ pipe_of[0], POLLIN, 0 }; begin(); say("poll", poll(&f, 1, 3)); puts(after(3)); say("poll at once", poll(&f, 1, 0));
    pthread_create(&t, 0, writes, pipe_of + 1); say("poll until it is written", poll(&f, 1, -1)); printf("events: %d\n", f.revents); say("read", read(pipe_of[0], b, sizeof b)); pthread_join(t, 0);
    FD_ZERO(&s); FD_SET(pair[0], &s); v = (struct timeval){ 0, 3000 }; begin(); say("select", select(pair[0] + 1, &s, 0, 0, &v)); puts(after(3)); printf("its rest: %ld %ld\n", (long)v.tv_sec, (long)v.tv_usec);
    pthread_create(&t, 0, writes, pair + 1); FD_SET(pair[0], &s); say("select until it is written", select(pair[0] + 1, &s, 0, 0, 0)); printf("set: %d\n", !!FD_ISSET(pair[0], &s)); say("recv", recv(pair[0], b, sizeof b, 0)); pthread_join(t, 0);
    struct timespec d = { 0, 2000000 }; FD_SET(pair[0], &s); begin(); say("pselect", pselect(pair[0] + 1, &s, 0, 0, &d, 0)); puts(after(2)); begin(); say("ppoll", ppoll(&f, 1, &d, 0)); puts(after(2));
    int e = epoll_create1(0); epoll_ctl(e, EPOLL_CTL_ADD, pair[0], &ev); begin(); say("epoll_wait", epoll_wait(e, got, 4, 3)); puts(after(3)); pthread_create(&t, 0, writes, pair + 1); say("epoll_wait until it is written", epoll_wait(e, got, 4, -1)); say("recv at once", recv(pair[0], b, sizeof b, MSG_DONTWAIT)); pthread_join(t, 0);
    say("recv of nothing", recv(pair[0], b, sizeof b, MSG_DONTWAIT));
    v = (struct timeval){ 0, 3000 }; setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &v, sizeof v); begin(); say("recv with a limit", recv(pair[0], b, sizeof b, 0)); say("read with a limit", read(pair[0], b, sizeof b));
    int n = eventfd(0, 0); uint64_t one = 3; say("write of an eventfd", write(n, &one, 8)); say("read of it", read(n, &one, 8)); say("it was", one);
    char *much = calloc(1, 1000000); pthread_create(&t, 0, drains, pair + 1); long sent = 0, k; while (sent < 1000000 && (k = send(pair[0], much + sent, 1000000 - sent, 0)) > 0) sent += k; say("sent", sent); pthread_join(t, &r); say("drained", (long)r);
    struct iovec parts[3] = { { much, 400000 }, { much, 0 }, { much, 600000 } }; struct msghdr message = { .msg_iov = parts, .msg_iovlen = 3 };
    pthread_create(&t, 0, drains, pair + 1); say("sendmsg of much", sendmsg(pair[0], &message, 0)); pthread_join(t, &r); say("drained", (long)r);
    pthread_create(&t, 0, drains, pair + 1); say("writev of much", writev(pair[0], parts, 3)); pthread_join(t, &r); say("drained", (long)r);
    pthread_create(&t, 0, drains, pipe_of); say("writev of much to a pipe", writev(pipe_of[1], parts, 3)); pthread_join(t, &r); say("drained", (long)r);
    int copy = dup(pipe_of[1]); close(pipe_of[1]); say("write of a copy", write(copy, "x", 1)); close(copy); say("read", read(pipe_of[0], b, sizeof b)); say("end", read(pipe_of[0], b, sizeof b));
    say("poll of an end", poll(&f, 1, -1)); printf("events: %d\n", f.revents);
    f.fd = 999; say("poll of none", poll(&f, 1, 5)); say("read of none", read(999, b, 1));
}

struct addition { int set, of; struct epoll_event event; };
static void *adds(void *p) { struct addition *a = p; usleep(3000); epoll_ctl(a->set, EPOLL_CTL_ADD, a->of, &a->event); return 0; }
static void *dials(void *p) { int s = socket(AF_INET, SOCK_STREAM, 0); usleep(3000); if (connect(s, p, sizeof(struct sockaddr_in))) puts("no connection"); usleep(3000); if (write(s, "hello", 5) != 5) puts("no write"); usleep(3000); close(s); return 0; }
static void *dials_slowly(void *p) { int s = socket(AF_INET, SOCK_STREAM, 0); if (connect(s, p, sizeof(struct sockaddr_in))) puts("no connection"); for (int i = 0; i < 3; i++) { if (write(s, "hello", 5) != 5) puts("no write"); usleep(3000); } close(s); return 0; }
static void *sends_bytes(void *p) { int s = socket(AF_INET, SOCK_STREAM, 0); if (connect(s, p, sizeof(struct sockaddr_in))) puts("no connection"); for (int i = 0; i < 3000; i++) if (write(s, "x", 1) != 1) puts("no write"); usleep(3000); close(s); return 0; }
static void *shuts(void *p) { usleep(3000); shutdown(*(int *)p, SHUT_RD); return 0; }
// a copy of a descriptor that was sent over a pair of sockets
static int passed(int of) {
    int p[2], got; char byte = 'x', room[CMSG_SPACE(sizeof of)] = { 0 }; struct iovec v = { &byte, 1 }; struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, p)) return -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m); c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof of); memcpy(CMSG_DATA(c), &of, sizeof of);
    if (sendmsg(p[0], &m, 0) != 1 || recvmsg(p[1], &m, 0) != 1) return -1;
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof got); close(p[0]); close(p[1]); return got;
}
static int set_of(int of) { int set = epoll_create1(0); struct epoll_event e = { .events = EPOLLIN, .data.fd = of }; epoll_ctl(set, EPOLL_CTL_ADD, of, &e); return set; }
static void sets(void) {
    pthread_t t; struct epoll_event got[4]; char b[64]; uint64_t one = 1; int p[2], q[2], status; if (pipe(p) || pipe(q)) return;
    int empty = epoll_create(1), n = eventfd(1, 0); struct addition a = { empty, n, { .events = EPOLLIN } }; pthread_create(&t, 0, adds, &a); say("epoll_wait until another thread adds what is ready", epoll_wait(empty, got, 4, -1)); pthread_join(t, 0); say("read of it", read(n, &one, 8));
    int inner = set_of(p[0]), outer = set_of(inner), copy = dup(inner), other = set_of(q[0]); pthread_create(&t, 0, writes, p + 1); say("epoll_wait for a set in a set", epoll_wait(outer, got, 4, -1)); pthread_join(t, 0); say("epoll_wait of a copy", epoll_wait(copy, got, 4, 0)); say("read", read(p[0], b, sizeof b)); say("epoll_wait of another set", epoll_wait(other, got, 4, 0));
    struct pollfd f = { inner, POLLIN, 0 }; pthread_create(&t, 0, writes, p + 1); say("poll for a set", poll(&f, 1, -1)); pthread_join(t, 0); say("read", read(p[0], b, sizeof b));
    pid_t c = fork(); if (!c) { writes(p + 1); usleep(3000); writes(q + 1); _exit(0); } say("epoll_wait until a child writes", epoll_wait(copy, got, 4, -1)); say("and for the other set", epoll_wait(other, got, 4, -1)); waitpid(c, &status, 0); close(p[1]); say("read", read(p[0], b, sizeof b)); say("epoll_wait for an end", epoll_wait(inner, got, 4, -1)); printf("hung up: %d\n", !!(got[0].events & EPOLLHUP));
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }; socklen_t size = sizeof at; int l = socket(AF_INET, SOCK_STREAM, 0); say("bind", bind(l, (void *)&at, size)); say("listen", listen(l, 8)); getsockname(l, (void *)&at, &size);
    int taken = socket(AF_INET, SOCK_STREAM, 0); say("bind to a port that is taken", bind(taken, (void *)&at, size)); close(taken);
    pthread_create(&t, 0, dials, &at); int dialled = set_of(l); say("epoll_wait until somebody dials", epoll_wait(dialled, got, 4, -1)); int s = accept(l, 0, 0), hears = set_of(s); say("epoll_wait until it says something", epoll_wait(hears, got, 4, -1)); say("recv", recv(s, b, sizeof b, 0)); say("epoll_wait until it ends", epoll_wait(hears, got, 4, -1)); say("recv", recv(s, b, sizeof b, 0)); pthread_join(t, 0); close(s);
    pthread_create(&t, 0, dials, &at); s = accept(l, 0, 0); printf("accepted: %d\n", s >= 0); say("recv", recv(s, b, sizeof b, 0)); pthread_join(t, 0); close(s);
    f.fd = l; pthread_create(&t, 0, dials, &at); say("poll until somebody dials", poll(&f, 1, -1)); s = accept(l, 0, 0); pthread_join(t, 0); say("recv", recv(s, b, sizeof b, 0)); close(s);
    char name[64] = ""; struct iovec part = { b, sizeof b }; struct msghdr message = { .msg_name = name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1 };
    pthread_create(&t, 0, dials, &at); s = accept(l, 0, 0); say("recvmsg", recvmsg(s, &message, 0)); printf("from a name of %d bytes\n", message.msg_namelen); pthread_join(t, 0); close(s);
    pthread_create(&t, 0, dials_slowly, &at); s = accept(l, 0, 0); say("recv of all", recv(s, b, 10, MSG_WAITALL)); say("recv of all there is", recv(s, b, 10, MSG_WAITALL)); pthread_join(t, 0); close(s);
    pthread_create(&t, 0, sends_bytes, &at); s = accept(l, 0, 0); long all = 0, k; while ((k = read(s, b, sizeof b)) > 0) all += k; say("single bytes", all); pthread_join(t, 0); close(s);
    pthread_create(&t, 0, dials, &at); s = accept(l, 0, 0); int sent = passed(s); say("read of a connection that was sent", read(sent, b, sizeof b)); pthread_join(t, 0); close(sent); close(s);
    pthread_create(&t, 0, dials, &at); s = accept(l, 0, 0); c = fork(); if (!c) { dup2(s, 0); execlp("head", "head", "-c", "5", (char *)0); _exit(1); } waitpid(c, &status, 0); say(", read by a program that was executed", WEXITSTATUS(status)); pthread_join(t, 0); close(s);
    struct sockaddr_in nobody = at; nobody.sin_port = htons(1); s = socket(AF_INET, SOCK_STREAM, 0); say("connect to nobody", connect(s, (void *)&nobody, size)); say("and again", connect(s, (void *)&nobody, size)); say("connect to somebody", connect(s, (void *)&at, size)); sent = accept(l, 0, 0); say("write", write(s, "hello", 5)); say("recv", recv(sent, b, sizeof b, 0)); close(sent); close(s);
    pthread_create(&t, 0, shuts, &l); say("accept until it is shut", accept(l, 0, 0)); pthread_join(t, 0); close(l);
}

static volatile sig_atomic_t signalled;
static void on(int s) { signalled = s; }
static char other_stack[65536]; static volatile int on_other;
static void where(int s) { char c; (void)s; on_other = &c >= other_stack && &c < other_stack + sizeof other_stack; }
// again and again until the call has returned: on a busy machine a signal may come before the call is made
static volatile int returned;
static void *interrupts(void *p) { usleep(3000); do pthread_kill(*(pthread_t *)p, SIGUSR1); while (usleep(50000) == 0 && !returned); return 0; }
#define INTERRUPTED(what, call) do { returned = 0; pthread_create(&t, 0, interrupts, &me); say(what, call); returned = 1; pthread_join(t, 0); } while (0)
static void signals(void) {
    struct sigaction a = { .sa_handler = on }, old; sigset_t s, before; pthread_t me = pthread_self(), t;
    say("sigaction", sigaction(SIGUSR1, &a, 0)); sigaction(SIGUSR1, 0, &old); printf("it is kept: %d\n", old.sa_handler == on);
    say("raise", raise(SIGUSR1)); printf("signalled: %d\n", signalled == SIGUSR1); signalled = 0;
    say("sigqueue", sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = 1 })); printf("signalled: %d\n", signalled == SIGUSR1); signalled = 0; say("pthread_sigqueue", pthread_sigqueue(me, SIGUSR1, (union sigval){ .sival_int = 1 })); printf("signalled: %d\n", signalled == SIGUSR1); signalled = 0;
    sigemptyset(&s); sigaddset(&s, SIGUSR1); say("block", sigprocmask(SIG_BLOCK, &s, &before)); kill(getpid(), SIGUSR1); printf("blocked: %d\n", signalled == 0); sigpending(&before); printf("pending: %d\n", sigismember(&before, SIGUSR1)); sigprocmask(SIG_UNBLOCK, &s, 0); printf("unblocked: %d\n", signalled == SIGUSR1); signalled = 0;
    struct timespec d = { 5, 0 }; INTERRUPTED("nanosleep that is interrupted", nanosleep(&d, &d)); printf("a rest: %d\n", d.tv_sec == 4);
    int p[2]; if (pipe(p)) return; char c; INTERRUPTED("read that is interrupted", read(p[0], &c, 1));
    fd_set f; FD_ZERO(&f); FD_SET(p[0], &f); struct timeval v = { 5, 0 }; INTERRUPTED("select that is interrupted", select(p[0] + 1, &f, 0, 0, &v)); printf("its set: %d, a rest: %d\n", !!FD_ISSET(p[0], &f), v.tv_sec == 4);
    INTERRUPTED("pause", pause());
    sigprocmask(SIG_BLOCK, &s, 0); d = (struct timespec){ 0, 2000000 }; say("sigtimedwait", sigtimedwait(&s, 0, &d)); INTERRUPTED("sigwaitinfo", sigwaitinfo(&s, 0));
    signalled = 0; sigemptyset(&before); INTERRUPTED("sigsuspend", sigsuspend(&before)); printf("signalled: %d\n", signalled == SIGUSR1); if (!fork()) _exit(0); INTERRUPTED("sigsuspend while a child ends", sigsuspend(&before)); wait(0); sigprocmask(SIG_UNBLOCK, &s, 0);
    stack_t n; sigaltstack(0, &n); printf("no other stack: %d\n", n.ss_flags == SS_DISABLE); stack_t k = { .ss_sp = other_stack, .ss_size = sizeof other_stack }; say("sigaltstack", sigaltstack(&k, 0)); a.sa_handler = where; a.sa_flags = SA_ONSTACK; sigaction(SIGUSR2, &a, 0); raise(SIGUSR2); printf("on the other stack: %d\n", on_other); sigaltstack(0, &k); printf("it is kept: %d\n", k.ss_sp == other_stack); k.ss_flags = SS_DISABLE; say("no more", sigaltstack(&k, 0)); sigaltstack(0, &n); printf("no other stack again: %d\n", n.ss_flags == SS_DISABLE);
    a.sa_handler = on; a.sa_flags = 0; sigaction(SIGALRM, &a, 0); struct itimerval it = { { 0, 50000 }, { 0, 3000 } }, left; signalled = 0; begin(); say("setitimer", setitimer(ITIMER_REAL, &it, 0)); say("pause until it goes off", pause()); puts(after(3)); printf("signalled: %d\n", signalled == SIGALRM);
    it.it_interval.tv_usec = 0; signalled = 0; setitimer(ITIMER_REAL, &it, 0); while (!signalled) usleep(1000); getitimer(ITIMER_REAL, &left); printf("no timer: %d\n", left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0);
    it = (struct itimerval){ { 0, 2000 }, { 0, 2000 } }; begin(); setitimer(ITIMER_REAL, &it, 0); for (int i = 0; i < 3; i++) pause(); puts(after(6)); it = (struct itimerval){ 0 }; say("setitimer for nothing", setitimer(ITIMER_REAL, &it, 0)); say("alarm", alarm(5)); say("alarm again", alarm(0));
    sigfillset(&s); say("block all", sigprocmask(SIG_BLOCK, &s, &before)); usleep(1000); sigprocmask(SIG_SETMASK, &before, 0);
}

extern char **environ;
static void *wakes_parent(void *p) { if (write(*(int *)p, "x", 1) != 1) puts("no write"); return p; }
static void joins(int *p) {
    for (int i = 0; i < 1000; i++) { pthread_t t; char c; pthread_create(&t, 0, wakes_parent, p + 1); pthread_join(t, 0); if (read(*p, &c, 1) != 1) puts("no read"); }
    _exit(6);
}
static void processes(void) {
    int st, p[2]; if (pipe(p)) return; char b[64]; pid_t own = getpid();
    printf("getpid is gettid: %d\n", getpid() == gettid());
    begin(); pid_t c = fork(); if (!c) { usleep(2000); if (getppid() < 2) _exit(9); _exit(write(p[1], "child", 5) == 5 ? 3 : 4); }
    printf("waitpid: %d\n", waitpid(c, &st, 0) == c); say("status", WEXITSTATUS(st)); puts(after(2)); say("read from it", read(p[0], b, sizeof b)); say("wait for none", wait(&st));
    c = fork(); if (!c) { pid_t own = getpid(); if (!fork()) { while (getppid() == own) usleep(1000); _exit(write(p[1], "orphan", 6) != 6); } _exit(0); } say("read from one whose parent has ended", read(p[0], b, sizeof b)); waitpid(c, &st, 0);
    c = fork(); if (!c) { raise(SIGTERM); _exit(1); } printf("wait: %d\n", wait(&st) == c); printf("ended by SIGTERM: %d\n", WIFSIGNALED(st) && WTERMSIG(st) == SIGTERM);
    c = fork(); if (!c) { raise(SIGSEGV); _exit(1); } printf("wait: %d\n", wait(&st) == c); printf("ended by SIGSEGV: %d\n", WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV);
    c = fork(); if (!c) { signal(SIGSEGV, SIG_IGN); raise(SIGSEGV); _exit(__builtin_ia32_rdtsc() ? 4 : 5); } waitpid(c, &st, 0); say("status of one that ignores SIGSEGV", WEXITSTATUS(st));
    c = fork(); if (!c) { for (;;) pause(); } usleep(1000); say("kill", kill(c, SIGKILL)); printf("wait: %d\n", waitpid(c, &st, 0) == c); printf("killed: %d\n", WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL); say("kill of none", kill(c, 0));
    c = fork(); if (!c) { if (setsid() != getpid() || getsid(0) != getpid() || getpgrp() != getpid()) _exit(1); if (write(p[1], "x", 1) != 1) _exit(2); for (;;) pause(); } say("read from one with a session", read(p[0], b, sizeof b)); printf("its group: %d\n", getpgid(c) == c); say("kill of the group", kill(-c, SIGTERM)); printf("waitpid of the group: %d\n", waitpid(-c, &st, 0) == c); printf("ended by SIGTERM: %d\n", WIFSIGNALED(st) && WTERMSIG(st) == SIGTERM);
    c = fork(); if (!c) { if (read(p[0], b, 1) == 1) usleep(1000); _exit(5); } siginfo_t i = { 0 }; say("waitid that does not wait", waitid(P_PID, c, &i, WEXITED | WNOHANG)); printf("none: %d\n", i.si_pid == 0); if (write(p[1], "x", 1) != 1) return; say("waitid", waitid(P_PID, c, &i, WEXITED)); printf("its number: %d, status %d\n", i.si_pid == c, i.si_status);
    c = fork(); if (!c) joins(p); waitpid(c, &st, 0); say("joins while another process looks", WEXITSTATUS(st));
    int of = -1, number = 0; uint64_t wanted[8] = { CLONE_PIDFD | CLONE_PARENT_SETTID, (uintptr_t)&of, 0, (uintptr_t)&number, SIGCHLD }; c = syscall(435, wanted, sizeof wanted); if (!c) _exit(3);
    if (c < 0 && errno == ENOSYS) { number = c = fork(); of = 0; if (!c) _exit(3); } // a container may not permit it
    printf("clone3 writes the number: %d, and a descriptor: %d\n", number == c, fcntl(of, F_GETFD) >= 0); waitpid(c, &st, 0); say("status", WEXITSTATUS(st));
    int known = 0; signal(SIGCHLD, SIG_IGN); for (int i = 0; i < 140; i++) { c = fork(); if (!c) _exit(write(p[1], getppid() == own ? "y" : "n", 1) != 1); known += read(p[0], b, 1) == 1 && b[0] == 'y'; wait(0); } signal(SIGCHLD, SIG_DFL); say("children that know their parent, and that nobody waits for", known);
    c = vfork(); if (!c) { execlp("sh", "sh", "-c", "exit 6", (char *)0); _exit(1); } waitpid(c, &st, 0); say("vfork and exec", WEXITSTATUS(st));
    int e[2], in[2]; if (pipe2(e, O_CLOEXEC) || pipe(in)) return; c = fork(); if (!c) { dup2(in[0], 0); close(in[1]); execlp("cat", "cat", (char *)0); _exit(1); } close(e[1]); say("read until it executes a program", read(e[0], b, sizeof b)); close(in[1]); waitpid(c, &st, 0); say("status", WEXITSTATUS(st)); close(e[0]); close(in[0]);
    char *v[] = { "sh", "-c", "sleep 0.01; exit 7", 0 }; say("posix_spawn", posix_spawnp(&c, "sh", 0, 0, v, environ)); waitpid(c, &st, 0); say("status", WEXITSTATUS(st));
    say("system", WEXITSTATUS(system("exit 8"))); say("a program that was executed gets its signals", WEXITSTATUS(system("sh -c 'kill -TERM $$; exit 9'; exit $?"))); FILE *f = popen("echo one; sleep 0.01; echo two", "r"); while (fgets(b, sizeof b, f)) fputs(b, stdout); say("pclose", pclose(f)); fflush(stdout);
    int *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); sem_t *q = (sem_t *)(shared + 16); sem_init(q, 1, 0);
    c = fork(); if (!c) { usleep(1000); *shared = 11; sem_post(q); _exit(0); } say("a semaphore of two processes", sem_wait(q)); say("shared", *shared); wait(0);
}
static void disks(void) {
    int f = open("calls.file", O_RDWR | O_CREAT | O_TRUNC, 0600), p[2]; char b[16] = ""; struct iovec parts[2] = { { "abc", 3 }, { "de", 2 } }; if (pipe(p)) return;
    say("pwrite", pwrite(f, "xy", 2, 9)); say("pwritev", pwritev(f, parts, 2, 4)); say("pwritev2 where the file is", pwritev2(f, parts, 1, -1, RWF_DSYNC)); say("writev", writev(f, parts, 2)); say("and from there on", lseek(f, 0, SEEK_CUR)); say("pread", pread(f, b, sizeof b, 0)); printf("it has: %d\n", !memcmp(b, "abcabcdeexy", 11));
    say("fallocate", fallocate(f, 0, 0, 8192)); say("fallocate of nothing", fallocate(f, 0, 0, 0)); say("to its end", lseek(f, 0, SEEK_END));
    say("fsync", fsync(f)); say("fdatasync", fdatasync(f)); say("sync_file_range", sync_file_range(f, 0, 0, 0)); say("fsync of a pipe", fsync(p[1])); say("fsync of none", fsync(999)); say("syncfs of none", syncfs(999)); int at = open(".", O_RDONLY); say("fsync of a folder", fsync(at)); close(at);
    char *m = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0); *m = 'm'; say("msync", msync(m, 4096, MS_SYNC)); say("msync later", msync(m, 4096, MS_ASYNC)); say("msync within a page", msync(m + 1, 4096, MS_SYNC)); say("pread", pread(f, b, 1, 0)); printf("it has: %c\n", *b); munmap(m, 8192);
    close(p[0]); close(p[1]); close(f); unlink("calls.file");
}
static void *unlocks(void *p) { usleep(3000); flock(*(int *)p, LOCK_UN); return p; }
static void locks(void) {
    pthread_t t; int st, one = open("calls.lock", O_RDWR | O_CREAT, 0600), other = open("calls.lock", O_RDWR); struct flock all = { .l_type = F_WRLCK };
    say("flock", flock(one, LOCK_EX)); say("flock of one that is locked, at once", flock(other, LOCK_EX | LOCK_NB)); begin(); pthread_create(&t, 0, unlocks, &one); say("flock until it is unlocked", flock(other, LOCK_EX)); puts(after(3)); pthread_join(t, 0);
    pid_t c = fork(); if (!c) { if (fcntl(one, F_SETLK, &all)) _exit(1); usleep(3000); _exit(0); } usleep(1000); say("fcntl until it is unlocked", fcntl(other, F_SETLKW, &all)); waitpid(c, &st, 0); close(one); close(other); unlink("calls.lock");
}
static void others(void) {
    uint64_t cycles = __builtin_ia32_rdtsc(); printf("cycles go on: %d\n", __builtin_ia32_rdtsc() > cycles); unsigned aux; printf("and by the other instruction: %d\n", __builtin_ia32_rdtscp(&aux) > cycles);
    struct sysinfo i; say("sysinfo", sysinfo(&i)); printf("memory: %d\n", i.totalram * i.mem_unit > 1 << 20); struct rusage u; say("getrusage", getrusage(RUSAGE_SELF, &u)); struct tms t; printf("times: %d\n", times(&t) > 0);
    int tcp = socket(AF_INET, SOCK_STREAM, 0), yes = 1, kept = 0; socklen_t size = sizeof kept; say("TCP_NODELAY", setsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes)); getsockopt(tcp, IPPROTO_TCP, TCP_NODELAY, &kept, &size); printf("it is kept: %d\n", kept != 0);
    say("close_range with CLOSE_RANGE_CLOEXEC", syscall(436, tcp, tcp, 4)); getsockopt(tcp, SOL_SOCKET, SO_DOMAIN, &kept, &size); printf("it is still a socket of TCP: %d\n", kept == AF_INET); close(tcp);
    unsigned char b[32] = { 0 }; say("getrandom", getrandom(b, sizeof b, 0)); int any = 0; for (int i = 0; i < 32; i++) any |= b[i]; printf("random: %d\n", any != 0);
    int f = open("/dev/urandom", O_RDONLY); say("read of /dev/urandom", read(f, b, sizeof b)); close(f); FILE *r = fopen("/dev/random", "r"); say("fread of /dev/random", fread(b, 1, 16, r)); fclose(r);
    r = fopen("/proc/sys/kernel/random/uuid", "r"); char id[64] = ""; if (fgets(id, sizeof id, r)) printf("a UUID: %zu %c %c\n", strlen(id), id[8], id[14]); fclose(r);
    f = open("/dev/urandom", O_RDONLY); static char many[100000]; long all = 0, k; while (all < (long)sizeof many && (k = read(f, many + all, sizeof many - all)) > 0) all += k; say("many of them", all); close(f);
    f = open("calls.file", O_RDWR | O_CREAT | O_TRUNC, 0600); say("write of a file", write(f, "abc", 3)); say("pread", pread(f, b, 3, 0)); close(f); unlink("calls.file"); say("open of none", open("no such file", O_RDONLY));
    char room[48], from[4] = "one", to[4] = ""; struct iovec there = { from, 4 }, here = { to, 4 }; say("ioprio_set", syscall(SYS_ioprio_set, 1, gettid(), 0)); say("ioprio_get", syscall(SYS_ioprio_get, 1, gettid()) < 0 ? -1 : 0); say("sched_getattr", syscall(SYS_sched_getattr, gettid(), room, sizeof room, 0)); say("process_vm_readv", process_vm_readv(getpid(), &here, 1, &there, 1, 0)); puts(to);
    say("setpriority", setpriority(0, gettid(), 0)); cpu_set_t c; say("sched_getaffinity", sched_getaffinity(gettid(), sizeof c, &c)); pthread_attr_t a; say("pthread_getattr_np", pthread_getattr_np(pthread_self(), &a));
}
int main(void) {
    clocks(); sleeps(); threads(); descriptors(); sets(); signals(); processes(); disks(); locks(); others();
    char line[64]; while (fgets(line, sizeof line, stdin)) printf("line %s", line);
    return 13;
}
