// Unpacks the data, and says times and numbers as the page does. `../html/data.rs` packs it: the two are one format.
const FIELDS = 11;
const ANSWERS = ["acquired", "not acquired", "unknown: acquired or not", "no answer in this history"];
const ENDED = ["still held when the history ends", "its release call", "a notification that it is lost", "its process died", "changed its mode"];
const OK = 0, NO = 1, UNKNOWN = 2;

const data = JSON.parse(document.getElementById("data").textContent);
const end = Math.max(data.end, 1);

// One lane: columns by turn. Times in microseconds; -1 where there is none. A turn stops where its hold ends, or else its wait.
function unpack(lane, place) {
  const flat = lane.turns, count = flat.length / FIELDS;
  const turns = [];
  let asked = 0, line = 0;
  for (let at = 0; at < count; at++) {
    const of = (field) => flat[at * FIELDS + field];
    asked += of(0);
    line += of(7);
    const answered = of(1) < 0 ? -1 : asked + of(1);
    const until = of(3) < 0 ? -1 : answered + of(3);
    const stop = until >= 0 ? until : answered >= 0 ? answered : end;
    turns.push({
      lane: place, asked, answered, until, stop, answer: of(2), ended: of(4), token: token(of(5)), process: of(6), line,
      lineAnswered: of(8) ? line + of(8) : 0, lineEnded: of(9) ? line + of(9) : 0,
      node: of(10) ? data.nodes[of(10) - 1] : "",
    });
  }
  return { lock: lane.lock, client: lane.client, name: `c${lane.client}`, turns, signals: [] };
}

function token(packed) {
  if (packed === 0) return "";
  if (typeof packed === "string") return packed;
  return String(BigInt(data.base) + BigInt(packed) - 1n);
}

const lanes = data.lanes.map(unpack);
for (const [lane, at, kind, line, cause] of data.signals) lanes[lane].signals.push({ at, kind, line, cause });
// By lock: whom the server had as the owner.
const grants = new Map();
for (const [lane, from, long, client] of data.grants) {
  const lock = lanes[lane].lock;
  if (!grants.has(lock)) grants.set(lock, []);
  grants.get(lock).push({ from, to: from + long, client: client < 0 ? "" : `c${client}` });
}

// The digits with which all tokens begin, where they are long: what an eye passes over.
const COMMON = data.common;

// A role lasts until the server's next one.
const LEADS = ["leader", "master", "standalone"], ABSENT = "not serving";
const servers = data.servers.map(({ name, spells }) => ({
  name,
  spells: spells.map(([from, role, line], place) => ({ from, to: place + 1 < spells.length ? spells[place + 1][0] : end, role, line })),
}));

const seconds = (us, digits = 3) => (us / 1e6).toFixed(digits) + "s";
const span = (us) => us < 1000 ? us.toFixed(0) + "µs" : us < 999500 ? (us / 1000).toFixed(us < 9950 ? 1 : 0) + "ms" : (us / 1e6).toFixed(2) + "s";
// The line of an event in history.jsonl; histories from elsewhere have only their own indices.
const lineOf = (index) => data.numbered ? `line ${index + 1}` : `index ${index}`;

// Everything that happened, once each and in order: what "event order" spaces evenly.
const moments = (() => {
  const all = [];
  for (const lane of lanes) {
    for (const turn of lane.turns) {
      all.push(turn.asked);
      if (turn.answered >= 0) all.push(turn.answered);
      if (turn.until >= 0) all.push(turn.until);
    }
    for (const signal of lane.signals) all.push(signal.at);
  }
  for (const owned of grants.values()) for (const grant of owned) all.push(grant.from, grant.to);
  for (const window of data.windows) all.push(window.from, window.to);
  for (const server of servers) for (const spell of server.spells) all.push(spell.from);
  all.push(0, end);
  const sorted = Float64Array.from(all).sort();
  let kept = 0;
  for (let at = 0; at < sorted.length; at++) if (at === 0 || sorted[at] !== sorted[at - 1]) sorted[kept++] = sorted[at];
  return sorted.subarray(0, kept);
})();

// The first place in an ascending list that is at least a value.
function placeOf(list, value, key = (x) => x) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(list[middle]) < value) low = middle + 1; else high = middle;
  }
  return low;
}
