// What lies under the pointer, and finding: both end in a turn of a lane.
const tip = document.getElementById("tip");

// The time at a place of the canvas, and the lane or the server there.
function at(event) {
  const box = canvas.getBoundingClientRect();
  const [a, b] = [toAxis(view.from), toAxis(view.to)];
  const x = event.clientX - box.left;
  const y = event.clientY - box.top < top0 ? 0 : event.clientY - box.top + scroller.scrollTop;
  const us = fromAxis(a + (x - GUTTER) / (box.width - GUTTER) * (b - a));
  const server = servers[Math.floor((event.clientY - box.top - roles0) / ROLE)];
  const row = rows.find((row) => (row.lane || row.owned) && y >= row.y && y < row.y + LANE);
  return { x, y, us, lane: row && row.lane, owned: row && row.owned, server: y === 0 && server, slack: (view.to - view.from) / box.width * 5 };
}

function underneath({ lane, owned, server, us, slack }) {
  if (server) {
    // the shortest of those that the pointer could mean
    const near = server.spells.filter((spell) => spell.from <= us + slack && spell.to >= us - slack);
    const spell = near.sort((one, other) => one.to - one.from - (other.to - other.from))[0];
    return spell && { server, spell };
  }
  if (owned) {
    const grant = owned.find((grant) => grant.from <= us + slack && grant.to >= us - slack);
    return grant && { grant };
  }
  if (!lane) return null;
  for (const signal of lane.signals) if (Math.abs(signal.at - us) < slack) return { signal };
  let nearest = null, best = slack;
  for (const turn of lane.turns) {
    if (turn.asked > us + slack) break;
    const distance = us < turn.asked ? turn.asked - us : us > turn.stop ? us - turn.stop : 0;
    if (distance < best || (distance === 0 && best === 0)) { best = distance; nearest = turn; }
  }
  return nearest && { turn: nearest };
}

function words(lane, hit) {
  if (hit.spell) {
    const { from, to, role, line } = hit.spell;
    return `${hit.server.name} ${role}\nseen    ${seconds(from)}   ${lineOf(line)}\nuntil   ${seconds(to)}\nservers are asked once a second`;
  }
  if (hit.grant) {
    const { from, to, client } = hit.grant;
    return `owner on the server: ${client || "an unknown client"}\nfrom    ${seconds(from)}\nuntil   ${seconds(to)}   after ${span(to - from)}`;
  }
  if (hit.signal) {
    const { kind, at, line, cause } = hit.signal;
    const what = { woken: "was woken", lost: "was notified that the lock is lost", died: "died" }[kind];
    return `${lane.name} ${what} at ${seconds(at)}${cause ? `: ${cause}` : ""}\n${lineOf(line)}`;
  }
  const turn = hit.turn;
  const text = [`${lane.name} on ${lane.lock}, process ${turn.process}`, `call    ${seconds(turn.asked)}   ${lineOf(turn.line)}`];
  if (turn.answered >= 0) {
    text.push(`reply   ${seconds(turn.answered)}   ${lineOf(turn.lineAnswered)}   after ${span(turn.answered - turn.asked)}: ${ANSWERS[turn.answer]}`);
  } else {
    text.push(ANSWERS[turn.answer]);
  }
  if (turn.token) text.push(`token   ${turn.token}`);
  if (turn.node) text.push(`node    ${turn.node}`);
  if (turn.until >= 0) {
    const line = turn.lineEnded ? `   ${lineOf(turn.lineEnded)}` : "";
    text.push(`held    ${span(turn.until - turn.answered)}, until ${seconds(turn.until)}${line}: ${ENDED[turn.ended]}`);
  }
  return text.join("\n");
}

function hover(event) {
  const place = at(event);
  const hit = place.x > GUTTER && underneath(place);
  tip.hidden = !hit;
  if (!hit) return;
  tip.textContent = words(place.lane, hit);
  const box = board.getBoundingClientRect();
  tip.style.left = Math.max(0, Math.min(event.clientX - box.left + 14, box.width - tip.offsetWidth - 4)) + "px";
  tip.style.top = event.clientY - box.top + 16 + "px";
}

// All turns that a query means: a client, a lock, a token, a server or a line.
function matches(query) {
  const wanted = query.trim().toLowerCase();
  const line = /^(?:line|l\.|:)\s*(\d+)$/.exec(wanted);
  const found = [];
  if (wanted === "") return found;
  for (const lane of lanes) {
    const whole = lane.name === wanted || lane.lock.toLowerCase() === wanted;
    for (const turn of lane.turns) {
      const lines = [turn.line, turn.lineAnswered, turn.lineEnded];
      const index = line && Number(line[1]) - (data.numbered ? 1 : 0);
      if (whole || turn.token === wanted || turn.node.toLowerCase() === wanted || (line && lines.includes(index))) found.push({ lane, turn });
    }
  }
  return found.sort((one, other) => one.turn.asked - other.turn.asked);
}
