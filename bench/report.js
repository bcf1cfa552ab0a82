// SPDX-License-Identifier: Apache-2.0
// A click on a column's head sorts its table, the next one the other way round. Empty cells come last.
for (const head of document.querySelectorAll("th")) {
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0];
    const way = head.dataset.way === "1" ? -1 : 1;
    head.dataset.way = way;
    const value = (row) => row.cells[head.cellIndex].textContent;
    const compare = (a, b) => head.className === "text" ? a.localeCompare(b, "en", {numeric: true}) : parseFloat(a) - parseFloat(b);
    const rows = [...body.rows].sort((a, b) =>
      !value(a) - !value(b) || way * compare(value(a), value(b)));
    body.append(...rows);
  });
}
