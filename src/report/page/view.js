// What stretch of the run is shown. Everything that draws subscribes; nothing here draws.
const view = { from: 0, to: end, order: false, current: -1, found: null };
const watchers = [];
const SHORTEST = 20;

// Places on the axis: microseconds, or the rank of the moment in event order.
function rank(us) {
  const after = placeOf(moments, us);
  if (after >= moments.length) return moments.length - 1;
  if (after === 0 || moments[after] === us) return after;
  const before = moments[after - 1];
  return after - 1 + (us - before) / (moments[after] - before);
}
function unrank(place) {
  const before = Math.max(0, Math.min(Math.floor(place), moments.length - 1));
  const after = Math.min(before + 1, moments.length - 1);
  return moments[before] + (moments[after] - moments[before]) * (place - before);
}
const toAxis = (us) => view.order ? rank(us) : us;
const fromAxis = (place) => view.order ? unrank(place) : place;

function changed(link) {
  for (const watcher of watchers) watcher();
  if (link) setLink();
}

// Shows a stretch in microseconds, never longer than the run and never shorter than an eye can use.
function show(from, to, link = true) {
  let length = Math.min(Math.max(to - from, SHORTEST), end);
  from = Math.min(Math.max(from, 0), end - length);
  view.from = from;
  view.to = from + length;
  changed(link);
}

// Moves and zooms in the axis' own units, so that event order feels as real time does.
function zoom(factor, around) {
  const [a, b] = [toAxis(view.from), toAxis(view.to)];
  const fixed = around === undefined ? (a + b) / 2 : toAxis(around);
  show(fromAxis(fixed - (fixed - a) * factor), fromAxis(fixed + (b - fixed) * factor));
}
function move(share, { from, to } = view) {
  const [a, b] = [toAxis(from), toAxis(to)];
  const by = Math.max(-a, Math.min((b - a) * share, toAxis(end) - b));
  show(fromAxis(a + by), fromAxis(b + by));
}
const fit = () => show(0, end);

// Whole steps between two places, about as many as wanted, and the digits of their times.
function steps(from, to, count) {
  const rough = (to - from) / count, power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const by = [1, 2, 5, 10].map((times) => times * power).find((step) => step >= rough);
  const places = [];
  for (let at = Math.ceil(from / by) * by; at <= to; at += by) places.push(at);
  return { places, digits: Math.max(0, 6 - Math.floor(Math.log10(by))) };
}

// The address says what is shown, so that it can be shared. Other links are left alone while they are shown.
let linking = 0;
function setLink() {
  clearTimeout(linking);
  linking = setTimeout(() => {
    const whole = view.from === 0 && view.to === end;
    const digits = view.to - view.from < 1e5 ? 6 : view.to - view.from < 1e7 ? 3 : 1;
    const link = whole ? "#" : `#t=${(view.from / 1e6).toFixed(digits)}-${(view.to / 1e6).toFixed(digits)}`;
    if (location.hash !== link) history.replaceState(null, "", link);
  }, 150);
}
