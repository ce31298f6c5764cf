// SET NX PX over a socket of Node's, with its timers and its pool of threads.
const net = require("net"), crypto = require("crypto"), lines = require("readline");
const clients = new Map();
const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");

function ask(client, words) {
  return new Promise((done, failed) => {
    if (!client.socket) {
      client.waiting = [];
      let text = "";
      const [host, port] = client.at.split(":");
      const socket = (client.socket = net.connect({ host, port: Number(port), noDelay: true }));
      socket.setTimeout(1000, () => socket.destroy(new Error("no answer")));
      socket.on("data", (bytes) => {
        text += bytes;
        for (let end; (end = text.indexOf("\r\n")) >= 0; text = text.slice(end + 2)) client.waiting.shift()?.done(text.slice(0, end));
      });
      socket.on("error", () => {});
      socket.on("close", () => {
        if (client.socket === socket) client.socket = null;
        for (const one of client.waiting.splice(0)) one.failed(new Error("the connection ended"));
      });
    }
    client.waiting.push({ done, failed });
    client.socket.write(`*${words.length}\r\n` + words.map((word) => `$${word.length}\r\n${word}\r\n`).join(""));
  });
}

async function perform(client, { op, endpoints, lease_ms, lock, wait_ms }) {
  if (op === "open") Object.assign(client, { at: endpoints[0], lease: String(lease_ms), held: new Map() });
  if (op === "acquire") {
    // from the pool of threads
    const value = await new Promise((done) => crypto.randomBytes(8, (_, bytes) => done(bytes.toString("hex"))));
    const end = performance.now() + wait_ms;
    while ((await ask(client, ["SET", "harness:" + lock, value, "NX", "PX", client.lease])) !== "+OK") {
      if (performance.now() >= end) return { type: "fail", error: "timeout" };
      await new Promise((done) => setTimeout(done, 10 + 20 * Math.random()));
    }
    client.held.set(lock, value);
    return { type: "ok", owner: value };
  }
  if (op === "release") {
    const script = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    const value = client.held.get(lock) ?? "";
    client.held.delete(lock);
    if ((await ask(client, ["EVAL", script, "1", "harness:" + lock, value])) !== ":1") return { type: "fail", error: "not held" };
  }
  return { type: "ok" };
}

lines.createInterface({ input: process.stdin }).on("line", async (line) => {
  const request = JSON.parse(line);
  if (!clients.has(request.client)) clients.set(request.client, {});
  const answer = await perform(clients.get(request.client), request).catch((error) => ({ type: "info", error: String(error) }));
  say({ id: request.id, ...answer });
}).on("close", () => process.exit(0));
