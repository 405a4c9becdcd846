"use strict";
// One cell of each grid takes part in the tab order; from there arrow keys walk, and the line below tells it in full.

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
for (const grid of document.querySelectorAll(".grid")) {
  const rows = [...grid.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll(".cell")]);
  const heads = [...grid.querySelectorAll("thead .over")];
  const at = new Map(rows.flatMap((row, y) => row.map((cell, x) => [cell, [y, x]])));
  const name = (head) => head.querySelector("bdi").textContent;
  const cellOf = (event) => event.target.closest?.(".cell");
  const tell = (cell) => {
    grid.querySelector(".picked").textContent = `${name(heads[at.get(cell)[1]])} × ${name(cell.parentElement.querySelector("th"))}: ${cell.title}`;
  };
  let picked = rows[0][0];
  const pick = (cell) => {
    picked.tabIndex = -1;
    picked = cell;
    picked.tabIndex = 0;
  };
  pick(picked);
  grid.addEventListener("focusin", (event) => {
    if (!cellOf(event)) return;
    pick(cellOf(event));
    tell(picked);
  });
  grid.addEventListener("mouseover", (event) => { if (cellOf(event)) tell(cellOf(event)); });
  grid.addEventListener("click", (event) => {
    if (!cellOf(event)) return;
    pick(cellOf(event));
    picked.focus();
  });
  grid.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step || !cellOf(event)) return;
    const [y, x] = at.get(cellOf(event));
    const next = rows[y + step[0]]?.[x + step[1]];
    if (!next) return;
    event.preventDefault();
    pick(next);
    next.focus();
    next.scrollIntoView({ block: "nearest", inline: "center" });
  });
}
