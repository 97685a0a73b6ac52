"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const values = (column) => [...body.rows].map((row) => {
    const text = row.cells[column].textContent.trim();
    const number = Number(text.replaceAll(",", ""));
    return { row, text, number, none: text === "" || text === "\u2013" };
  });
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const found = values(column);
      const numeric = found.every((each) => each.none || !Number.isNaN(each.number));
      found.sort((a, b) => (a.none - b.none) || (down ? -1 : 1) *
        (numeric ? a.number - b.number : a.text.localeCompare(b.text, "en", { numeric: true })));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...found.map((each) => each.row));
    });
  });
}
