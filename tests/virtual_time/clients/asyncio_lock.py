# SET NX PX over streams of asyncio, in a loop that a second thread runs: the loop wakes through a socket pair.
import asyncio, random, sys, threading, uuid
sys.path.insert(0, sys.argv[1])
from harness_client import Fail, Lock, serve

LOOP = asyncio.new_event_loop()
threading.Thread(target=LOOP.run_forever, daemon=True).start()


class Streams(Lock):
    def open(self, endpoints, lease_ms):
        host, port = endpoints[0].rsplit(":", 1)
        self.at, self.lease_ms, self.held, self.link = (host, int(port)), lease_ms, {}, None

    async def ask(self, *words):
        try:
            if self.link is None:
                self.link = await asyncio.wait_for(asyncio.open_connection(*self.at), 1)
            read, write = self.link
            text = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            write.write(f"*{len(words)}\r\n{text}".encode())
            await write.drain()
            line = await asyncio.wait_for(read.readuntil(b"\r\n"), 1)
            return line.strip().decode()
        except Exception:
            self.link = None
            raise

    def acquire(self, lock, wait_ms):
        async def acquire():
            value = str(uuid.uuid4())
            async with asyncio.timeout(wait_ms / 1000) if hasattr(asyncio, "timeout") else asyncio.Lock():
                while await self.ask("SET", f"harness:{lock}", value, "NX", "PX", str(self.lease_ms)) != "+OK":
                    await asyncio.sleep(0.01 + random.random() / 50)
            return value

        try:
            self.held[lock] = asyncio.run_coroutine_threadsafe(acquire(), LOOP).result()
        except TimeoutError:
            raise Fail("timeout")
        return None, self.held[lock]

    def release(self, lock):
        script = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
        asked = self.ask("EVAL", script, "1", f"harness:{lock}", self.held.pop(lock, ""))
        if asyncio.run_coroutine_threadsafe(asked, LOOP).result() != ":1":
            raise Fail("not held")


serve(Streams)
