// Keys, links, buttons. The page is whole without any of this.
const byId = (id) => document.getElementById(id);
const ids = data.violations.map((violation) => violation.id);
const timeline = byId("timeline");

// Violations in the order of the page: what n and p go through.
const stops = [...document.querySelectorAll("main section.violation, main details.violation")].map((element) => element.id);

function go(id, link = true) {
  const element = byId(id);
  if (!element) return;
  document.querySelectorAll(".current").forEach((other) => other.classList.remove("current"));
  element.classList.add("current");
  for (let fold = element.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  element.scrollIntoView({ block: "start" });
  element.focus({ preventScroll: true });
  view.current = ids.indexOf(id);
  const violation = data.violations[view.current];
  if (violation) showAt(violation);
  if (link && location.hash !== "#" + id) history.replaceState(null, "", "#" + id);
}

// The timeline, and the charts with it, have the stretch of the violation's drawing.
function showAt(violation) {
  const margin = violation.drawn ? 0 : Math.max((violation.to - violation.from) * .1, 1000);
  show(violation.from - margin, violation.to + margin, false);
  reveal(violation);
}

// Scrolls the lanes, not the page, to what a violation is about.
function reveal(violation) {
  const row = rows.find((row) => row.lane && row.lane.lock === violation.lock && violation.clients.includes(row.lane.client));
  if (row && timeline) scroller.scrollTop = Math.max(0, row.y - 120);
}

function step(by) {
  if (stops.length === 0) return;
  const now = stops.indexOf(ids[view.current]);
  go(stops[now < 0 ? (by > 0 ? 0 : stops.length - 1) : (now + by + stops.length) % stops.length]);
}

// #HL001-1 is a violation, #t=12.0-16.0 a stretch of seconds.
function follow() {
  const stretch = /^#t=([\d.]+)-([\d.]+)$/.exec(location.hash);
  if (stretch && Number(stretch[2]) > Number(stretch[1])) {
    show(Number(stretch[1]) * 1e6, Number(stretch[2]) * 1e6, false);
    if (timeline) timeline.scrollIntoView({ block: "start" });
  } else if (stops.includes(location.hash.slice(1))) {
    go(location.hash.slice(1), false);
  }
}

const keys = {
  n: () => step(1), p: () => step(-1), "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), f: fit, o: reorder,
  ArrowLeft: () => move(-.2), ArrowRight: () => move(.2),
  ArrowUp: () => timeline && scroller.scrollBy(0, -LANE * 3), ArrowDown: () => timeline && scroller.scrollBy(0, LANE * 3),
  "/": () => timeline && (byId("find").focus(), timeline.scrollIntoView({ block: "nearest" })),
  "?": () => byId("help").open ? byId("help").close() : byId("help").showModal(),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  // up and down belong to the page until the timeline has the focus
  if (/^Arrow(Up|Down)$/.test(event.key) && !event.target.closest("#timeline")) return;
  if (byId("help").open && event.key !== "?") return;
  const key = keys[event.key];
  if (key) { event.preventDefault(); key(); }
});

function reorder() {
  if (!timeline) return;
  view.order = !view.order;
  byId("order").setAttribute("aria-pressed", view.order);
  changed(false);
}

// Charts keep to the timeline's stretch of real time.
function retime() {
  const percent = (us) => (us - view.from) / (view.to - view.from) * 100;
  const { places, digits } = steps(view.from, view.to, 9);
  const ticks = places.filter((us) => percent(us) < 97).map((us) => [percent(us), seconds(us, digits)]);
  byId("stretch").hidden = !document.querySelector("figure.chart") || (view.from === 0 && view.to === end);
  byId("shown").textContent = `${seconds(view.from, digits)} to ${seconds(view.to, digits)} of ${seconds(end, 1)}, as the timeline `;
  for (const figure of document.querySelectorAll("figure.chart")) {
    const plot = figure.querySelector("svg.window");
    plot.setAttribute("viewBox", `${view.from} 0 ${view.to - view.from} 1000`);
    for (const band of figure.querySelectorAll("rect.band")) {
      const from = Math.max(0, percent(Number(band.dataset.from))), to = Math.min(100, percent(Number(band.dataset.to)));
      band.setAttribute("x", from + "%");
      band.setAttribute("width", Math.max(0, to - from) + "%");
    }
    figure.querySelector(".ticks").replaceChildren(...ticks.map(([left, label]) => {
      const tick = document.createElement("span");
      tick.style.left = left + "%";
      tick.textContent = label;
      return tick;
    }));
  }
}

// Each sentence and its number in the drawing light one another.
for (const violation of stops.map(byId)) {
  violation.querySelectorAll("ol > li").forEach((sentence, place) => {
    const marks = violation.querySelectorAll(`.mark.s${place + 1}`);
    const light = (on) => [sentence, ...marks].forEach((one) => one.classList.toggle("lit", on));
    for (const one of [sentence, ...marks]) {
      one.addEventListener("mouseenter", () => light(true));
      one.addEventListener("mouseleave", () => light(false));
    }
  });
}

document.querySelectorAll("section.violation .turn").forEach((turn) => {
  const place = stops.indexOf(turn.closest(".violation").id);
  const button = (sign, by, label) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = sign;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", () => { view.current = ids.indexOf(stops[place]); step(by); });
    return made;
  };
  turn.append(button("‹", -1, "previous violation"), ` ${place + 1} of ${stops.length} `, button("›", 1, "next violation"));
  turn.hidden = stops.length < 2;
});

if (byId("copy")) {
  byId("copy").hidden = false;
  byId("copy").addEventListener("click", async () => {
    getSelection().selectAllChildren(byId("again"));
    const copied = await navigator.clipboard.writeText(data.again).then(() => true, () => document.execCommand("copy"));
    byId("copy").textContent = copied ? "copied" : "selected";
  });
}

function listenToTimeline() {
  let raf = 0;
  const soon = () => { cancelAnimationFrame(raf); raf = requestAnimationFrame(() => { readColors(); paint(); }); };
  watchers.push(soon);
  new ResizeObserver(soon).observe(board);
  scroller.addEventListener("scroll", soon, { passive: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
  byId("order").addEventListener("click", reorder);
  byId("in").addEventListener("click", () => zoom(.5));
  byId("out").addEventListener("click", () => zoom(2));
  byId("fit").addEventListener("click", fit);
  canvas.addEventListener("mousemove", hover);
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaX) < Math.abs(event.deltaY)) return;
    event.preventDefault();
    if (event.ctrlKey) zoom(event.deltaY > 0 ? 1.25 : .8, at(event).us); else move((event.deltaX || event.deltaY) / 800);
  }, { passive: false });
  canvas.addEventListener("dblclick", (event) => zoom(.4, at(event).us));
  dragged(canvas, (event, start) => move((start.x - event.clientX) / (canvas.clientWidth - GUTTER), start));
  dragged(overview, (event, start) => {
    const box = overview.getBoundingClientRect();
    const us = (x) => (x - box.left - GUTTER) / (box.width - GUTTER) * end;
    if (Math.abs(event.clientX - start.x) > 3) show(Math.min(us(start.x), us(event.clientX)), Math.max(us(start.x), us(event.clientX)));
  });
  findIn(byId("find"), byId("found"));
}

function dragged(element, moved) {
  let start = null;
  element.addEventListener("pointerdown", (event) => {
    start = { x: event.clientX, from: view.from, to: view.to };
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => { if (start) moved(event, start); });
  for (const name of ["pointerup", "pointercancel"]) element.addEventListener(name, () => { start = null; });
}

function findIn(input, output) {
  let found = [], place = -1;
  const next = (by) => {
    if (found.length === 0) return;
    place = (place + by + found.length) % found.length;
    const { lane, turn } = found[place];
    view.found = { lane, from: turn.asked, to: turn.stop };
    const margin = Math.max((turn.stop - turn.asked) * .5, 50000);
    output.textContent = `${place + 1} of ${found.length}`;
    scroller.scrollTop = Math.max(0, rows.find((row) => row.lane === lane).y - 120);
    show(turn.asked - margin, turn.stop + margin);
  };
  input.addEventListener("input", () => {
    found = matches(input.value);
    place = -1;
    view.found = null;
    output.textContent = input.value.trim() === "" ? "" : found.length ? `${found.length} found` : "nothing found";
    changed(false);
  });
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); next(event.shiftKey ? -1 : 1); } });
}

// Above the charts: of what they are, and the way to the whole.
{
  const shown = document.createElement("span"), whole = document.createElement("button");
  shown.id = "shown";
  whole.type = "button";
  whole.textContent = "whole run";
  whole.addEventListener("click", fit);
  byId("stretch").append(shown, whole);
}
byId("help-hint").hidden = false;
watchers.push(retime);
if (timeline) {
  for (const id of ["tools", "board", "legend"]) byId(id).hidden = false;
  byId("roles").hidden = servers.length === 0;
  listenToTimeline();
}
readColors();
changed(false);
follow();
// it opens where the first violation is; `f` and "fit" show the whole run
const first = data.violations[ids.indexOf(stops[0])];
if (!location.hash && first) showAt(first);
addEventListener("hashchange", follow);
