//! `--threads-by-seed`: races between threads of one client, which the usual order of threads hides.

use super::{CLIENT, harness_on};
use crate::command::Harness;

/// Returns two clients in a process that share a connection. Each request is sent under one lock and its answer read under another,
/// so the answers may be read in another order. It prints between the two: a thread may lose the processor in each system call.
fn two_locks_for_one_connection() -> String {
    let own = "self.at, self.lease_ms, self.held, self.link = (host, int(port)), lease_ms, {}, None";
    let ask = CLIENT.split("    def ask").nth(1).unwrap();
    let ask = ask.split("    def acquire").next().unwrap();
    let shared = r#"(self, *words):
        with SENDING:
            if Tiny.link is None:
                Tiny.link = socket.create_connection(self.at, timeout=1)
                Tiny.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Tiny.read = Tiny.link.makefile("rb")
            text = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            Tiny.link.sendall(f"*{len(words)}\r\n{text}".encode())
        for word in words:
            print("sent", word, file=sys.stderr)
        with READING:
            return Tiny.read.readline().strip().decode()

"#;
    CLIENT
        .replace(
            own,
            "self.at, self.lease_ms, self.held = (host, int(port)), lease_ms, {}",
        )
        .replace(ask, shared)
        .replace(
            "class Tiny(Lock):\n",
            "SENDING, READING = threading.Lock(), threading.Lock()\n\nclass Tiny(Lock):\n    link = None\n",
        )
        .replace(
            "time.sleep(0.01 + random.random() / 50)",
            "time.sleep(0.001 + random.random() / 500)",
        )
}

/// Returns a client whose thread renews the key of a hold until a release stops it. The thread checks that the lock is
/// held, and prints, before it renews; a release stops the thread, and prints, before the hold ends.
fn a_renewal_beside_the_release() -> String {
    let renewal = r#"class Tiny(Lock):
    def renew(self, told):
        while True:
            try:
                told.get(timeout=self.lease_ms / 3000)
                is_over = True
            except queue.Empty:
                is_over = False
            for lock, value in list(self.held.items()):
                print("renewing", lock, file=sys.stderr)
                with self.mutex:
                    self.ask("SET", f"harness:{lock}", value, "PX", str(self.lease_ms))
            if is_over:
                return

"#;
    CLIENT
        .replace("import random,", "import queue, random,")
        .replace("class Tiny(Lock):\n", renewal)
        .replace(
            "lease_ms, {}, None\n",
            "lease_ms, {}, None\n        self.mutex = threading.Lock()\n",
        )
        .replace(
            "                self.held[lock] = value\n",
            "                self.held[lock], self.told = value, queue.Queue()\n                threading.Thread(target=self.renew, args=[self.told], daemon=True).start()\n",
        )
        .replace(
            "        value = self.held.pop(lock, None)\n",
            "        self.told.put(None)\n        print(\"releasing\", lock, file=sys.stderr)\n        value = self.held.pop(lock, None)\n        self.mutex.acquire()\n",
        )
        .replace(
            "            raise Fail(\"not held\")\n\nserve",
            "            self.mutex.release()\n            raise Fail(\"not held\")\n        self.mutex.release()\n\nserve",
        )
}

/// Returns the exit codes of runs with these seeds, up to the first violation.
fn exits(harness: &Harness, words: &str, seeds: std::ops::Range<u32>) -> Vec<i32> {
    let mut exits = Vec::new();
    for seed in seeds {
        let words = format!("{words} --fault none --lease 1s --time 20s --seed {seed}");
        exits.push(harness.virtual_time(&words).exit);
        if exits.ends_with(&[1]) {
            break;
        }
    }
    exits
}

/// Asserts that the lock passes in the usual order of threads, and fails in a drawn one. Returns `None` without a Redis.
fn is_found(client: &str, words: &str) -> Option<Harness> {
    let harness = harness_on("redis")?;
    let words = format!("{} {words}", harness.client(client));
    // more grants than a run with drawn threads has
    assert_eq!(exits(&harness, &format!("{words} --grants 400"), 1..2), [0]);
    let drawn = exits(
        &harness,
        &format!("{words} --threads-by-seed --stop-on-violation"),
        1..9,
    );
    assert!(drawn.ends_with(&[1]), "{drawn:?}");
    Some(harness)
}

#[test]
fn a_renewal_that_comes_after_the_release_is_found() {
    if let Some(harness) = is_found(&a_renewal_beside_the_release(), "--clients 3") {
        harness.assert_replayed();
    }
}

#[test]
fn a_client_without_races_holds_in_every_order() {
    let Some(harness) = harness_on("redis") else { return };
    let words = format!(
        "{} --clients 4 --per-process 2 --threads-by-seed --grants 60",
        harness.client(CLIENT)
    );
    assert_eq!(exits(&harness, &words, 1..2), [0]);
}

mod nightly {
    use super::*;

    #[test]
    fn answers_that_change_places_on_a_shared_connection_are_found() {
        is_found(&two_locks_for_one_connection(), "--clients 4 --per-process 2");
    }
}
