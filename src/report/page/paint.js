// Draws the timeline: an overview of the whole run, and the chosen stretch with a lane for each lock and client.
const board = document.getElementById("board");
const overview = document.getElementById("overview");
const canvas = document.getElementById("canvas");
const scroller = document.getElementById("lanes");
const GUTTER = 92, AXIS = 24, BAND = 20, ROLE = 16, LANE = 22, LOCK = 20, TALLEST = 560;
let colors = {};

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "raised", "line", "text", "quiet", "hold", "on-hold", "wait", "fault", "fault-ground", "on-fault", "violation", "woken", "lost", "died", "fail"]) {
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
});

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

// Whole steps of time, or of rank, about one each 90 pixels.
function steps(width) {
  const [a, b] = [toAxis(view.from), toAxis(view.to)];
  const rough = (b - a) / Math.max(2, width / 90);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const step = [1, 2, 5, 10].map((by) => by * power).find((by) => by >= rough);
  const ticks = [];
  for (let at = Math.ceil(a / step) * step; at <= b; at += step) ticks.push(at);
  const digits = view.order ? 3 : step >= 1e6 ? 0 : step >= 1e5 ? 1 : step >= 1e4 ? 2 : step >= 1000 ? 3 : 6;
  return ticks.map((at) => ({ at, label: seconds(fromAxis(at), digits) }));
}

// The chosen stretch. The axis and the faults stay where they are; lanes that are scrolled away are not drawn.
function paint() {
  paintOverview();
  const width = scroller.clientWidth, height = Math.min(tall, TALLEST), offset = scroller.scrollTop;
  document.getElementById("tall").style.height = tall + "px";
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
    for (const { at, label } of steps(plot)) {
      const place = GUTTER + (at - a) / (b - a) * plot;
      pen.fillStyle = colors.line;
      pen.fillRect(place, 0, 1, height);
      pen.fillStyle = colors.quiet;
      pen.fillText(label, place + 4, AXIS / 2);
    }
    for (const window of data.windows) paintWindow(pen, window, x, height);
    servers.forEach((server, place) => paintRoles(pen, server, roles0 + ROLE * place, x));
    within(pen, GUTTER, top0, plot, height - top0, () => {
      pen.translate(0, -offset);
      for (const row of seen) if (row.lane) paintLane(pen, row, x, current);
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
    const words = `${window.fault} ${window.number}  ${window.title}${window.bit ? "" : "  (no effect)"}`;
    pen.fillStyle = colors["on-fault"];
    const at = Math.max(left, GUTTER) + 6;
    pen.fillText(fitting(pen, words, left + width - at), at, top + BAND / 2 - 1);
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
    if (absent) { pen.fillStyle = hatch(pen, colors.violation); pen.fillRect(left, y, width, tall); }
    if (!leads) { pen.strokeStyle = absent ? colors.violation : colors.quiet; pen.strokeRect(left + .5, y + .5, Math.max(1, width - 1), tall - 1); }
    const word = pen.measureText(role).width, at = Math.max(left, GUTTER) + 5;
    if (left + width - at < word + 5) continue;
    if (absent) { pen.fillStyle = colors.ground; pen.fillRect(at - 2, y + 1, word + 4, tall - 2); }
    pen.fillStyle = leads ? colors.ground : absent ? colors.fail : colors.text;
    pen.fillText(role, at, y + tall / 2 + .5);
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
    const stop = turn.until >= 0 ? turn.until : turn.answered >= 0 ? turn.answered : end;
    if (stop < view.from) continue;
    const asked = x(turn.asked), answered = turn.answered < 0 ? last : x(turn.answered);
    if (answered > waited + 1) {
      pen.fillStyle = turn.answer === UNKNOWN ? colors.fault : colors.wait;
      pen.fillRect(Math.max(asked, waited), middle - 1.5, Math.max(1, answered - Math.max(asked, waited)), 3);
      waited = answered;
    }
    if (turn.answer === OK && turn.until >= 0) {
      const until = x(turn.until);
      if (until > drawn + .7) {
        pen.fillStyle = colors.hold;
        pen.fillRect(Math.max(answered, drawn), y + 3, Math.max(1, until - Math.max(answered, drawn)), LANE - 6);
        drawn = until;
        if (until - answered > 70) wordsIn(pen, turn, Math.max(answered, GUTTER), until, middle);
      }
    } else if (turn.answer !== OK) {
      outcome(pen, turn, Math.min(answered, last - 6), middle);
    }
  }
  // a violation is marked in the lanes that it is about
  for (const violation of data.violations) {
    if (!(violation.root || violation === current) || violation.lock !== lane.lock || !violation.clients.includes(lane.client)) continue;
    const [from, to] = violation.overlap || [violation.at, violation.at];
    if (to < view.from || from > view.to) continue;
    pen.fillStyle = colors.violation;
    pen.fillRect(x(from) - 1, y + LANE - 4, Math.max(3, x(to) - x(from) + 1), 3);
  }
  for (const signal of lane.signals) if (signal.at >= view.from && signal.at <= view.to) sign(pen, signal, x(signal.at), y);
  if (view.found && view.found.lane === lane) {
    pen.strokeStyle = colors.violation;
    pen.lineWidth = 2;
    const from = x(view.found.from), to = x(view.found.to);
    pen.strokeRect(from - 3, y + 1, Math.max(6, to - from + 6), LANE - 2);
    pen.lineWidth = 1;
  }
}

function wordsIn(pen, turn, from, to, middle) {
  pen.fillStyle = colors["on-hold"];
  const words = turn.token ? `holds, token ${turn.token}` : "holds";
  pen.fillText(fitting(pen, words, to - from - 10), from + 6, middle);
}

// As much of a text as there is room for; what is left out shows, so that no number looks like another one.
function fitting(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  while (text && pen.measureText(text + "…").width > room) text = text.slice(0, -1);
  return text && text + "…";
}

// "~" for what is unknown, a cross for what surely was not.
function outcome(pen, turn, x, middle) {
  if (turn.answer === NO) {
    pen.strokeStyle = colors.violation;
    pen.beginPath();
    pen.moveTo(x - 3, middle - 3); pen.lineTo(x + 3, middle + 3); pen.moveTo(x + 3, middle - 3); pen.lineTo(x - 3, middle + 3);
    pen.stroke();
  } else {
    pen.fillStyle = colors.fault;
    pen.fillRect(x - 4, middle - 4, 8, 8);
    pen.fillStyle = colors["on-fault"];
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
  } else {
    pen.fillStyle = colors.line;
    pen.fillRect(0, row.y, width, 1);
    pen.fillStyle = colors.quiet;
    pen.font = "bold 12px system-ui, sans-serif";
    pen.fillText(short(row.lock), 8, row.y + LOCK / 2 + 1);
  }
}
