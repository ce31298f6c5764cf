// A lock client for harness. Put your lock in the place of the calls to Redis in `Client`; the rest is the protocol.
import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

// The promises of this lock: docs/client-protocol.md has the words.
const CONTRACT = {
  lease: true, renews: false, extends: true, fifo: false, tries: true, wakes: "polls",
  owner: "server", token: "none", keys: "harness:{lock}", value: "string",
};
const COMPARE_AND_DELETE =
  "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const COMPARE_AND_EXTEND =
  "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/** It surely did not happen. Any other error: it is not known whether it happened. */
class Refused extends Error {}

const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");
const now = () => Number(process.hrtime.bigint() / 1000n) / 1000; // milliseconds of CLOCK_MONOTONIC

/** One connection; a call that fails or times out closes it, so that no answer is taken for another's. */
class Redis {
  constructor(endpoint, timeout) {
    const colon = endpoint.lastIndexOf(":");
    this.timeout = timeout;
    this.read = Buffer.alloc(0);
    this.waiting = null; // of the one call that is under way
    this.socket = connect({ host: endpoint.slice(0, colon), port: Number(endpoint.slice(colon + 1)), noDelay: true });
    this.socket.on("data", (bytes) => {
      this.read = Buffer.concat([this.read, bytes]);
      this.answer();
    });
    this.socket.on("error", (error) => this.fail(error));
    this.socket.on("close", () => this.fail(new Error("the server closed the connection")));
  }

  fail(error) {
    this.error ??= error;
    this.socket.destroy();
    this.waiting?.reject(error);
    this.waiting = null;
  }

  call(...words) {
    if (this.error) return Promise.reject(this.error);
    const parts = words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.fail(new Error("no answer in time")), this.timeout);
      const done = (end) => (value) => {
        clearTimeout(timer);
        end(value);
      };
      this.waiting = { resolve: done(resolve), reject: done(reject) };
      this.socket.write(`*${words.length}\r\n${parts.join("")}`);
    });
  }

  answer() {
    const end = this.read.indexOf("\r\n");
    if (end < 0 || !this.waiting) return;
    const text = this.read.toString("utf8", 1, end);
    const kind = String.fromCharCode(this.read[0]);
    const size = kind === "$" ? Number(text) : -1;
    const whole = size < 0 ? end + 2 : end + 2 + size + 2;
    if (this.read.length < whole) return;
    const value = size < 0 ? text : this.read.toString("utf8", end + 2, end + 2 + size);
    this.read = this.read.subarray(whole);
    const { resolve, reject } = this.waiting;
    this.waiting = null;
    if (kind === "-") reject(new Refused(text));
    else if (kind === ":") resolve(Number(text));
    else resolve(kind === "$" && size < 0 ? null : value);
  }
}

class Client {
  held = new Map(); // lock -> { value, timer }
  leftovers = []; // { lock, value } of unknown operations

  constructor(number, endpoint, lease) {
    Object.assign(this, { number, endpoint, lease });
  }

  async call(...words) {
    this.redis ??= new Redis(this.endpoint, this.lease / 3);
    try {
      return await this.redis.call(...words);
    } catch (error) {
      if (!(error instanceof Refused)) this.redis = null;
      throw error;
    }
  }

  async delete(lock, value) {
    try {
      return (await this.call("EVAL", COMPARE_AND_DELETE, 1, `harness:${lock}`, value)) === 1;
    } catch (error) {
      if (!(error instanceof Refused)) this.leftovers.push({ lock, value }); // it may have happened or not
      throw error;
    }
  }

  async acquire(lock, wait) {
    const deadline = now() + wait;
    while (this.leftovers.length > 0) {
      const left = this.leftovers.pop();
      try {
        await this.delete(left.lock, left.value);
      } catch (error) {
        throw new Refused(`cleaning up first: ${error.message}`); // the lock was not asked for yet
      }
    }
    const value = randomUUID();
    for (;;) {
      const asked = now();
      let answer;
      try {
        answer = await this.call("SET", `harness:${lock}`, value, "NX", "PX", this.lease);
      } catch (error) {
        if (!(error instanceof Refused)) this.leftovers.push({ lock, value }); // it may have happened or not
        throw error;
      }
      if (answer !== null) return this.hold(lock, value, asked);
      if (now() >= deadline) throw new Refused(wait > 0 ? "timeout" : "busy");
      await sleep(20);
    }
  }

  async hold(lock, value, asked) {
    if (!this.believe(lock, value, asked)) {
      await this.delete(lock, value);
      throw new Refused("timeout");
    }
    return { owner: value };
  }

  believe(lock, value, asked) {
    // counted from before the request was sent, so that it ends earlier here than on the server
    const left = asked + this.lease * 0.85 - now();
    if (left > 0) this.held.set(lock, { value, timer: setTimeout(() => this.lost(lock), left) });
    return left > 0;
  }

  async extend(lock) {
    const hold = this.held.get(lock);
    if (!hold) throw new Refused("not held");
    const asked = now();
    const extended = await this.call("EVAL", COMPARE_AND_EXTEND, 1, `harness:${lock}`, hold.value, this.lease);
    if (extended !== 1) throw new Refused("not held: it expired");
    clearTimeout(hold.timer);
    this.believe(lock, hold.value, asked);
    return {};
  }

  lost(lock) {
    const at = Number(process.hrtime.bigint()); // CLOCK_MONOTONIC
    say({ type: "signal", client: this.number, f: "lost", lock, at, cause: "lease ends" });
  }

  async release(lock) {
    const hold = this.held.get(lock);
    if (!hold) throw new Refused("not held");
    this.held.delete(lock);
    clearTimeout(hold.timer);
    if (!(await this.delete(lock, hold.value))) throw new Refused("not held: it expired");
    return {};
  }

  async close() {
    for (const lock of [...this.held.keys()]) await this.release(lock);
    this.redis?.socket.destroy();
    return {};
  }
}

const clients = new Map();

async function perform(request) {
  const number = request.client;
  if (request.op === "open") {
    const opened = new Client(number, request.endpoints[0], request.lease_ms);
    await opened.call("PING"); // `open` fails if there is no connection
    clients.set(number, opened);
    return { contract: CONTRACT };
  }
  const client = clients.get(number);
  if (!client) throw new Refused("this client is not open");
  switch (request.op) {
    case "acquire":
      return client.acquire(request.lock, request.wait_ms);
    case "release":
      return client.release(request.lock);
    case "extend":
      return client.extend(request.lock);
    case "close":
      clients.delete(number);
      return client.close();
    default:
      throw new Refused(`no such operation: ${request.op}`);
  }
}

/** What a line asks for; nothing where it is no request, which has no number to answer with. */
function read(line) {
  try {
    const request = JSON.parse(line);
    return request?.id !== undefined && request.client !== undefined && request.op !== undefined ? request : null;
  } catch {
    return null;
  }
}

async function answer(request) {
  try {
    say({ type: "ok", id: request.id, ...(await perform(request)) });
  } catch (error) {
    // an error that is no refusal: it is not known whether it happened
    say({ type: error instanceof Refused ? "fail" : "info", id: request.id, error: error.message });
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim() === "") continue;
  const request = read(line);
  if (request) await answer(request);
  else console.error(`no request: ${line}`);
}
await Promise.allSettled([...clients.values()].map((client) => client.close()));
process.exit(0);
