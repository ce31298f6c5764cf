// Filters: words that a row must have, and outcomes.
const form = document.getElementById("filters");
const query = document.getElementById("query");
const rows = [...document.querySelectorAll("#runs tbody tr")];
const texts = rows.map((row) => row.textContent.toLowerCase());

function filter() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = new Set([...form.querySelectorAll("input:checked")].map((box) => box.value));
  let shown = 0;
  rows.forEach((row, place) => {
    const outcome = row.dataset.outcome;
    row.hidden = !((wanted.has(outcome) || outcome === "NONE") && words.every((word) => texts[place].includes(word)));
    if (!row.hidden) shown++;
  });
  document.getElementById("shown").textContent = shown === rows.length ? "" : `${shown} of ${rows.length}`;
}

form.hidden = false;
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
