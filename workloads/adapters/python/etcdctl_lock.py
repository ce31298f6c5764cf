"""`etcdctl lock` under harness: one process of etcdctl for each acquire, which prints the key and holds until it ends.

https://github.com/etcd-io/etcd/tree/main/etcdctl

The key ends in the lease that keeps it. etcdctl renews the lease, and ends with an error when it is lost.
"""

import os
import select
import signal
import subprocess
import threading

from harness_client import Fail, Lock, serve


class EtcdctlLock(Lock):
    contract = {
        "lease": True,
        "renews": True,
        "fifo": True,
        "tries": False,
        "owner": "server",
        "token": "none",
        "keys": "harness/{lock}/",
        "value": "revision",
    }

    def open(self, endpoints, lease_ms):
        self.ttl = max(1, round(lease_ms / 1000))
        self.endpoints = ",".join(endpoints)
        self.held = {}
        if (code := self.etcdctl("endpoint", "health").wait()) != 0:
            raise ConnectionError(f"etcdctl endpoint health ended with {code}")

    def etcdctl(self, *words):
        command = ["etcdctl", f"--endpoints={self.endpoints}", *words]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)

    def acquire(self, lock, wait_ms):
        process = self.etcdctl("lock", f"harness/{lock}", f"--ttl={self.ttl}")
        readable, _, _ = select.select([process.stdout], [], [], wait_ms / 1000)
        key = process.stdout.readline().strip() if readable else ""
        if not key:
            return self.give_up(process, ended=bool(readable))
        self.held[lock] = process
        threading.Thread(target=self.watch, args=(lock, process), daemon=True).start()
        return None, f"0x{key.rsplit('/', 1)[1]}"

    def end(self, process):
        process.send_signal(signal.SIGINT)  # deletes its key and ends its lease
        try:
            return process.wait(2 * self.ttl)
        except subprocess.TimeoutExpired:
            process.kill()
            raise TimeoutError("etcdctl did not end")

    def give_up(self, process, ended):
        code = self.end(process)
        rest = process.stdout.read()
        if ended or rest or code not in (0, 1, -signal.SIGINT):
            raise ConnectionError(f"etcdctl ended with {code}")
        raise Fail("timeout")

    def watch(self, lock, process):
        process.stdout.read()  # until etcdctl ends
        code = process.wait()
        if self.held.get(lock) is process:
            self.lost(lock, f"etcdctl ended with {code}")

    def release(self, lock):
        process = self.held.pop(lock, None)
        if process is None or process.poll() is not None:
            raise Fail("not held")
        code = self.end(process)
        if code not in (0, -signal.SIGINT):
            raise ConnectionError(f"etcdctl ended with {code}")

    def close(self):
        for process in self.held.values():
            process.kill()


serve(EtcdctlLock)
