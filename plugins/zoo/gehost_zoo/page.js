// Sorts a table by the column whose head is clicked, and filters the models by their names.
for (const head of document.querySelectorAll("table.sortable thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
    const numeric = head.classList.contains("number");
    const first = numeric ? "descending" : "ascending", second = numeric ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? second : first;
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...body.rows].map((row) => {
      const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent;
      return [numeric ? (text === "" ? -1 : Number(text)) : text, row];
    });
    rows.sort(([a], [b]) => sign * (numeric ? a - b : a.localeCompare(b)));
    body.append(...rows.map(([, row]) => row));
  });
}
const filter = document.getElementById("filter"), shown = document.getElementById("shown");
filter?.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/);
  let count = 0;
  for (const row of document.querySelector("table.models").tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    count += !row.hidden;
  }
  shown.textContent = `${count} shown`;
});
