// Filters: words that a row must have, and outcomes.
const form = document.getElementById("filters");
const query = document.getElementById("query");
const rows = [...document.querySelectorAll("#runs tbody tr")];
const texts = rows.map((row) => row.textContent.toLowerCase());

function filter() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const values = (boxes) => new Set([...form.querySelectorAll(boxes)].map((box) => box.value));
  const wanted = values("input:checked"), known = values("input[type=checkbox]");
  let shown = 0;
  rows.forEach((row, place) => {
    const outcome = row.dataset.outcome;
    row.hidden = !((wanted.has(outcome) || !known.has(outcome)) && words.every((word) => texts[place].includes(word)));
    if (!row.hidden) shown++;
  });
  document.getElementById("shown").textContent = shown === rows.length ? "" : `${shown} of ${rows.length}`;
}

// Tables that are sorted by a click on a heading, and by another one the other way round.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.sort === undefined ? cell.textContent.trim().toLowerCase() : Number(cell.dataset.sort);
  };
  const order = (one, other) => (typeof one === "number" && typeof other === "number" ? one - other : String(one) < String(other) ? -1 : 1);
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const up = heading.ariaSort !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
      heading.ariaSort = up ? "ascending" : "descending";
      const sorted = [...body.rows].map((row) => [key(row, column), row]);
      sorted.sort(([one], [other]) => (one === other ? 0 : up ? order(one, other) : order(other, one)));
      body.append(...sorted.map(([, row]) => row));
    });
  });
}

form.hidden = false;
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
