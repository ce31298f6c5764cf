"""What clients of this folder share: a lock that ends by the holder's own clock, and the event loop of libraries of asyncio."""

import asyncio
import threading
import time

from harness_client import LibraryLock


class TimedLock(LibraryLock):
    """A lock that is not renewed, of a library that does not tell its end.

    The application looks at its clock: `lost` is raised when 85 % of the lease are over, counted from before the request.
    """

    def contender(self, lock):
        """A new object that asks for the lock."""

    def attempt(self, contender):
        """Asks once, and says whether the lock was taken."""
        return contender.acquire(blocking=False)

    def take(self, lock, wait_ms):
        deadline = time.monotonic() + wait_ms / 1000
        contender = self.contender(lock)
        while True:
            self.ends = time.monotonic() + self.lease * 0.85
            if self.attempt(contender):
                return contender
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.02)

    def acquire(self, lock, wait_ms):
        grant = super().acquire(lock, wait_ms)
        timer = threading.Timer(max(0, self.ends - time.monotonic()), self.ended, (lock, self.held[lock]))
        timer.daemon = True
        timer.start()
        return grant

    def ended(self, lock, contender):
        if self.held.get(lock) is contender:
            self.lost(lock, "the lease ends")


_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, daemon=True).start()


def run(coroutine, limit=None):
    """Runs a coroutine on the loop of the process, and cancels it where it takes longer than `limit` seconds."""
    return asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, limit), _loop).result()
