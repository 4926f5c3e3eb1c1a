// Tables sort by their headings and filter by a field; the page can be light or dark.
"use strict";
(() => {
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.value;
    return value === undefined ? (cell.classList.contains("number") ? null : cell.textContent) : Number(value);
  };
  const names = new Intl.Collator("en", { numeric: true });
  const before = (a, b) => (typeof a === "number" ? a - b : names.compare(a, b));

  const sort = (table, column) => {
    const head = table.tHead.rows[0].cells[column];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row, column), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // what has no value comes last, both ways
      return down ? before(b, a) : before(a, b);
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };

  const filter = (table, wanted) => {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...table.tBodies[0].rows];
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    const all = rows.length.toLocaleString("en");
    table.querySelector(".rows").textContent = words.length ? `${shown.toLocaleString("en")} of ${all} rows` : `${all} rows`;
  };

  for (const table of document.querySelectorAll("table.sorted")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => sort(table, column));
    });
  }
  for (const field of document.querySelectorAll("input[type=search]")) {
    const table = document.getElementById(field.getAttribute("aria-controls"));
    field.addEventListener("input", () => filter(table, field.value));
  }

  const button = document.getElementById("theme");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  });
})();
