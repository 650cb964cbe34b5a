"use strict";
// Tables that sort by a click or a key on their heading, and filter as one types. No library, no network.
(() => {
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.hasAttribute("data-value") ? cell.getAttribute("data-value") : cell.textContent.trim();
  };

  const compare = (a, b, numeric) => {
    if (!numeric) return a.localeCompare(b, "en", { numeric: true });
    return Number(a) - Number(b);
  };

  const sort = (table, column, heading) => {
    const up = heading.getAttribute("aria-sort") !== "ascending";
    const numeric = heading.classList.contains("number");
    const body = table.tBodies[0];
    const missing = (row) => numeric && (value(row, column) === "" || Number.isNaN(Number(value(row, column))));
    const rows = Array.from(body.rows).map((row, place) => ({ row, place }));
    rows.sort((x, y) => {
      // What is not known comes last, whichever way.
      if (missing(x.row) !== missing(y.row)) return missing(x.row) ? 1 : -1;
      if (missing(x.row)) return x.place - y.place;
      const order = compare(value(x.row, column), value(y.row, column), numeric);
      return (up ? order : -order) || x.place - y.place;
    });
    body.append(...rows.map(({ row }) => row));
    for (const other of table.tHead.rows[0].cells) {
      if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    }
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
      const button = heading.querySelector("button");
      if (button) button.addEventListener("click", () => sort(table, column, heading));
    });
  }

  for (const form of document.querySelectorAll("form.filter")) {
    const table = document.getElementById(form.dataset.table);
    const count = form.querySelector("output");
    const show = () => {
      const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
      const method = form.elements.method.value;
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = (row.dataset.text || "").toLowerCase();
        const good = (!method || row.dataset.method === method) && words.every((word) => text.includes(word));
        row.hidden = !good;
        shown += good ? 1 : 0;
      }
      count.textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
    };
    form.addEventListener("input", show);
    form.addEventListener("submit", (event) => event.preventDefault());
    show();
  }
})();
