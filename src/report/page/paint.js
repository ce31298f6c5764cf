// Draws the timeline: an overview of the whole run, and the chosen stretch with a lane for each lock and client.
const board = document.getElementById("board");
const overview = document.getElementById("overview");
const canvas = document.getElementById("canvas");
const scroller = document.getElementById("lanes");
const GUTTER = 92, AXIS = 24, BAND = 20, ROLE = 16, LANE = 22, LOCK = 20, TALLEST = 560;
let colors = {};

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "raised", "line", "text", "quiet", "hold", "on-hold", "wait", "fault", "fault-ground", "on-fault", "violation", "woken", "lost", "died", "unsure"]) {
    colors[name] = style.getPropertyValue("--" + name).trim();
  }
}

// Where each lane is: under its lock's name.
const rows = [];
// Faults that are on at the same time are drawn under each other.
const levels = [];
for (const window of data.windows) {
  const free = levels.findIndex((until) => until <= window.from);
  window.level = Math.min(free < 0 ? levels.length : free, 3);
  levels[window.level] = Math.max(levels[window.level] || 0, window.to);
}
const roles0 = AXIS + BAND * levels.length;
const top0 = roles0 + (servers.length ? ROLE * servers.length + 4 : 0);
let tall = top0;
lanes.forEach((lane, place) => {
  if (place === 0 || lanes[place - 1].lock !== lane.lock) {
    rows.push({ lock: lane.lock, y: tall });
    tall += LOCK;
  }
  rows.push({ lane, place, y: tall });
  tall += LANE;
  const owned = grants.get(lane.lock), last = place + 1 === lanes.length || lanes[place + 1].lock !== lane.lock;
  if (owned && last) {
    rows.push({ owned, y: tall });
    tall += LANE;
  }
});
// Before the first picture: what is opened at may be far down.
if (scroller) document.getElementById("tall").style.height = tall + "px";
// From the first lane of a lock to its last row.
const extents = new Map();
{
  let lock = null;
  for (const row of rows) {
    if (row.lock !== undefined) extents.set(lock = row.lock, { from: row.y + LOCK, to: row.y + LOCK });
    else extents.get(lock).to = row.y + LANE;
  }
}

// A context in CSS pixels, sharp on every screen.
function sized(element, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (element.width !== w || element.height !== h) { element.width = w; element.height = h; }
  const pen = element.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

const hatches = {};
function hatch(pen, color) {
  const key = color + (window.devicePixelRatio || 1);
  if (!hatches[key]) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const ink = tile.getContext("2d");
    ink.strokeStyle = color;
    ink.lineWidth = 2;
    for (const shift of [-8, 0, 8]) { ink.beginPath(); ink.moveTo(shift, 8); ink.lineTo(shift + 8, 0); ink.stroke(); }
    hatches[key] = tile;
  }
  return pen.createPattern(hatches[key], "repeat");
}

function paintOverview() {
  const width = overview.clientWidth, height = overview.clientHeight;
  const pen = sized(overview, width, height);
  const x = (us) => GUTTER + us / end * (width - GUTTER);
  for (const window of data.windows) {
    pen.fillStyle = hatch(pen, colors.fault);
    pen.fillRect(x(window.from), 0, Math.max(2, x(window.to) - x(window.from)), height);
  }
  // how much was held, of all turns, those that the lanes leave out, too
  const most = Math.max(...data.held, 1), column = end / data.held.length;
  pen.fillStyle = colors.hold;
  data.held.forEach((share, place) => {
    const bar = Math.sqrt(share / most) * (height - 18), left = Math.round(x(place * column));
    pen.fillRect(left, height - bar, Math.max(1, Math.round(x((place + 1) * column)) - left), bar);
  });
  pen.fillStyle = colors.violation;
  for (const violation of data.violations.filter((violation) => violation.root)) {
    pen.beginPath();
    pen.moveTo(x(violation.at) - 5, 0); pen.lineTo(x(violation.at) + 5, 0); pen.lineTo(x(violation.at), 9);
    pen.fill();
    pen.fillRect(x(violation.at) - .75, 0, 1.5, height);
  }
  pen.fillStyle = colors.ground;
  pen.globalAlpha = .72;
  pen.fillRect(GUTTER, 0, x(view.from) - GUTTER, height);
  pen.fillRect(x(view.to), 0, width - x(view.to), height);
  pen.globalAlpha = 1;
  pen.strokeStyle = colors.text;
  pen.strokeRect(x(view.from) + .5, .5, Math.max(3, x(view.to) - x(view.from)) - 1, height - 1);
  pen.fillStyle = colors.quiet;
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.fillText("whole run", 8, height / 2);
}

// The chosen stretch. The axis and the faults stay where they are; lanes that are scrolled away are not drawn.
function paint() {
  paintOverview();
  const width = scroller.clientWidth, height = Math.min(tall, TALLEST), offset = scroller.scrollTop;
  canvas.style.height = height + "px";
  const pen = sized(canvas, width, height);
  const [a, b] = [toAxis(view.from), toAxis(view.to)];
  const plot = width - GUTTER;
  const x = (us) => GUTTER + (toAxis(us) - a) / (b - a) * plot;
  const current = data.violations[view.current];
  const seen = rows.filter((row) => row.y + LANE > offset + top0 && row.y < offset + height);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  within(pen, GUTTER, 0, plot, height, () => {
    const { places, digits } = steps(a, b, Math.max(2, plot / 90));
    for (const at of places) {
      const place = GUTTER + (at - a) / (b - a) * plot;
      pen.fillStyle = colors.line;
      pen.fillRect(place, 0, 1, height);
      pen.fillStyle = colors.quiet;
      pen.fillText(seconds(fromAxis(at), view.order ? 3 : digits), place + 4, AXIS / 2);
    }
    for (const window of data.windows) paintWindow(pen, window, x, height);
    servers.forEach((server, place) => paintRoles(pen, server, roles0 + ROLE * place, x));
    within(pen, GUTTER, top0, plot, height - top0, () => {
      pen.translate(0, -offset);
      for (const violation of data.violations) if (violation.root || violation === current) paintOverlaps(pen, violation, x);
      for (const row of seen) if (row.lane) paintLane(pen, row, x, current); else if (row.owned) paintOwned(pen, row, x);
    });
    for (const violation of data.violations) {
      if (!violation.root && violation !== current) continue;
      pen.fillStyle = colors.violation;
      pen.fillRect(x(violation.at) - 1, AXIS - 9, 2, violation === current ? height : 9);
    }
  });
  paintLabels(pen, height);
  within(pen, 0, top0, width, height - top0, () => {
    pen.translate(0, -offset);
    seen.forEach((row, place) => paintLabel(pen, row, width, current, place === 0));
  });
}

// Draws inside a rectangle only.
function within(pen, x, y, width, height, draw) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  draw();
  pen.restore();
}

function paintWindow(pen, window, x, height) {
  const [from, to] = [x(window.from), x(window.to)];
  if (to < GUTTER || from > canvas.clientWidth) return;
  const left = Math.max(from, GUTTER - 20), width = Math.max(2, to - left), top = AXIS + BAND * window.level;
  pen.globalAlpha = .28;
  pen.fillStyle = hatch(pen, colors.fault);
  pen.fillRect(left, top, width, height);
  pen.globalAlpha = 1;
  pen.fillStyle = colors["fault-ground"];
  pen.fillRect(left, top, width, BAND - 2);
  within(pen, left, top, width, BAND - 2, () => {
    const name = `${window.fault} ${window.number}`;
    const words = `${name}  ${window.title}${window.bit ? "" : "  (no effect)"}`;
    pen.fillStyle = colors["on-fault"];
    const at = Math.max(left, GUTTER) + 6;
    pen.fillText(fitting(pen, words, left + width - at, [name, `${window.number}`]), at, top + BAND / 2 - 1);
  });
}

// Solid leads, a frame follows, hatched does not serve; and the word, where there is room for it.
function paintRoles(pen, server, y, x) {
  const tall = ROLE - 2, last = canvas.clientWidth;
  for (const { from, to, role } of server.spells) {
    if (to < view.from || from > view.to) continue;
    const left = Math.max(x(from), GUTTER - 4), width = Math.max(2, Math.min(x(to), last + 4) - left);
    const leads = LEADS.includes(role), absent = role === ABSENT;
    pen.fillStyle = leads ? colors.text : colors.ground;
    pen.fillRect(left, y, width, tall);
    if (absent) { pen.fillStyle = hatch(pen, colors.quiet); pen.fillRect(left, y, width, tall); }
    if (!leads) { pen.strokeStyle = colors.quiet; pen.strokeRect(left + .5, y + .5, Math.max(1, width - 1), tall - 1); }
    const word = pen.measureText(role).width, at = Math.max(left, GUTTER) + 5;
    if (left + width - at < word + 5) continue;
    if (absent) { pen.fillStyle = colors.ground; pen.fillRect(at - 2, y + 1, word + 4, tall - 2); }
    pen.fillStyle = leads ? colors.ground : colors.text;
    pen.fillText(role, at, y + tall / 2 + .5);
  }
}

// The stretches of a violation lie behind all rows of its lock.
function paintOverlaps(pen, violation, x) {
  const extent = extents.get(violation.lock);
  if (!extent) return;
  for (const [from, to] of violation.overlaps) {
    if (to < view.from || from > view.to) continue;
    const left = Math.max(x(from), GUTTER - 4), width = Math.max(2, Math.min(x(to), canvas.clientWidth + 4) - left);
    pen.fillStyle = colors.violation;
    pen.globalAlpha = .22;
    pen.fillRect(left, extent.from, width, extent.to - extent.from);
    pen.globalAlpha = 1;
    pen.fillRect(left, extent.from, 1, extent.to - extent.from);
    pen.fillRect(left + width - 1, extent.from, 1, extent.to - extent.from);
  }
}

// Whom the server had as the owner, one after the other.
function paintOwned(pen, { owned, y }, x) {
  let drawn = -1;
  for (const { from, to, client } of owned) {
    if (to < view.from) continue;
    if (from > view.to) break;
    const left = Math.max(x(from), drawn, GUTTER - 4), right = Math.min(x(to), canvas.clientWidth + 4);
    if (right < drawn + .7) continue;
    const width = Math.max(1, right - left);
    pen.fillStyle = colors.raised;
    pen.fillRect(left, y + 4, width, LANE - 8);
    pen.strokeStyle = colors.quiet;
    pen.strokeRect(left + .5, y + 4.5, Math.max(1, width - 1), LANE - 9);
    drawn = right;
    pen.fillStyle = colors.text;
    const at = Math.max(left, GUTTER) + 6;
    const words = client ? `owner: ${client}` : "an owner";
    pen.fillText(fitting(pen, words, left + width - at - 4, [words, client]), at, y + LANE / 2);
  }
}

function paintLane(pen, { lane, y }, x, current) {
  const middle = y + LANE / 2;
  const about = current && current.lock === lane.lock && current.clients.includes(lane.client);
  if (about) { pen.fillStyle = colors.raised; pen.globalAlpha = .8; pen.fillRect(GUTTER, y, 1e5, LANE); pen.globalAlpha = 1; }
  // neighbours that would fall on one pixel are drawn once
  let drawn = -1, waited = -1;
  const last = canvas.clientWidth;
  for (const turn of lane.turns) {
    if (turn.asked > view.to) break;
    if (turn.stop < view.from) continue;
    const asked = x(turn.asked), answered = turn.answered < 0 ? last : x(turn.answered);
    if (answered > waited + 1) {
      pen.fillStyle = turn.answer === UNKNOWN ? colors.unsure : colors.wait;
      pen.fillRect(Math.max(asked, waited), middle - 1.5, Math.max(1, answered - Math.max(asked, waited)), 3);
      waited = answered;
    }
    if (turn.answer === OK && turn.until >= 0) {
      const until = x(turn.until);
      if (until > drawn + .7) {
        pen.fillStyle = colors.hold;
        pen.fillRect(Math.max(answered, drawn), y + 3, Math.max(1, until - Math.max(answered, drawn)), LANE - 6);
        drawn = until;
        if (until - answered > 30) wordsIn(pen, turn, Math.max(answered, GUTTER), until, middle);
      }
    } else if (turn.answer !== OK) {
      outcome(pen, turn, Math.min(answered, last - 6), middle);
    }
  }
  // a violation without a stretch is a moment of the lanes that it is about
  for (const violation of data.violations) {
    if (!(violation.root || violation === current) || violation.overlaps.length || violation.lock !== lane.lock) continue;
    if (!violation.clients.includes(lane.client) || violation.at < view.from || violation.at > view.to) continue;
    pen.fillStyle = colors.violation;
    pen.fillRect(x(violation.at) - 1, y, 3, LANE);
  }
  for (const signal of lane.signals) if (signal.at >= view.from && signal.at <= view.to) sign(pen, signal, x(signal.at), y);
  if (view.found && view.found.lane === lane) {
    pen.strokeStyle = colors.text;
    pen.lineWidth = 2;
    const from = x(view.found.from), to = x(view.found.to);
    pen.strokeRect(from - 3, y + 1, Math.max(6, to - from + 6), LANE - 2);
    pen.lineWidth = 1;
  }
}

// The digits that all tokens have in common are pale; where there is room for the others alone, an ellipsis stands for them.
function wordsIn(pen, turn, from, to, middle) {
  const room = to - from - 10;
  const own = turn.token.slice(COMMON.length);
  const choices = [["holds", "", ""]];
  if (turn.token) choices.unshift(["holds, token ", COMMON, own], ["", COMMON, own], ["", COMMON && "…", own]);
  const fits = (parts) => pen.measureText(parts.join("")).width <= room;
  const parts = choices.find(fits) || [];
  let x = from + 6;
  pen.fillStyle = colors["on-hold"];
  parts.forEach((text, place) => {
    pen.globalAlpha = place === 1 ? .6 : 1;
    pen.fillText(text, x, middle);
    x += pen.measureText(text).width;
  });
  pen.globalAlpha = 1;
}

// As much of a text as there is room for, at least its first choice of less; what is left out shows, and half a word says nothing.
function fitting(pen, text, room, [least, ...less]) {
  const fits = (text) => pen.measureText(text).width <= room;
  if (fits(text)) return text;
  while (text.length > least.length && !fits(text + "…")) text = text.slice(0, -1);
  return text.length > least.length ? text + "…" : [least, ...less].find(fits) || "";
}

// "~" for what is unknown, a cross for what surely was not.
function outcome(pen, turn, x, middle) {
  if (turn.answer === NO) {
    pen.strokeStyle = colors.quiet;
    pen.beginPath();
    pen.moveTo(x - 3, middle - 3); pen.lineTo(x + 3, middle + 3); pen.moveTo(x + 3, middle - 3); pen.lineTo(x - 3, middle + 3);
    pen.stroke();
  } else {
    pen.fillStyle = colors.unsure;
    pen.fillRect(x - 4, middle - 4, 8, 8);
    pen.fillStyle = colors.ground;
    pen.fillText("~", x - 4, middle);
  }
}

function sign(pen, signal, x, y) {
  const text = { woken: "▴", lost: "◆", died: "†" }[signal.kind];
  pen.fillStyle = colors[signal.kind];
  pen.fillText(text, x - 4, signal.kind === "woken" ? y + LANE - 5 : y + LANE / 2);
}

// Names stay at the left, whatever they cover.
function paintLabels(pen, height) {
  pen.fillStyle = colors.ground;
  pen.fillRect(0, 0, GUTTER, height);
  pen.fillStyle = colors.line;
  pen.fillRect(GUTTER - 1, 0, 1, height);
  pen.fillStyle = colors.quiet;
  if (levels.length) pen.fillText("fault", 8, AXIS + BAND / 2 - 1);
  servers.forEach((server, place) => pen.fillText(short(server.name), 8, roles0 + ROLE * place + ROLE / 2));
  pen.fillText(view.order ? "event order" : "time", 8, AXIS / 2);
}

const short = (name) => name.length > 12 ? name.slice(0, 11) + "…" : name;

function paintLabel(pen, row, width, current, first) {
  if (row.lane) {
    const about = current && current.lock === row.lane.lock && current.clients.includes(row.lane.client);
    pen.fillStyle = about ? colors.violation : colors.text;
    pen.font = `${about ? "bold " : ""}12px system-ui, sans-serif`;
    // where its lock's own line is scrolled away, the first lane names it
    const name = first ? `${short(row.lane.lock)} ${row.lane.name}` : row.lane.name;
    pen.fillText((about ? "▸ " : "  ") + name, first ? 6 : 20, row.y + LANE / 2);
  } else if (row.owned) {
    pen.fillStyle = colors.quiet;
    pen.font = "12px system-ui, sans-serif";
    pen.fillText("server", 20, row.y + LANE / 2);
  } else {
    pen.fillStyle = colors.line;
    pen.fillRect(0, row.y, width, 1);
    pen.fillStyle = colors.quiet;
    pen.font = "bold 12px system-ui, sans-serif";
    pen.fillText(short(row.lock), 8, row.y + LOCK / 2 + 1);
  }
}
