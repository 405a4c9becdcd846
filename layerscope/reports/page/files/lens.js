"use strict";
const root = document.documentElement;
const themeButton = document.getElementById("theme");
function setTheme(name) {
  root.dataset.theme = name;
  themeButton.setAttribute("aria-pressed", String(name === "dark"));
}
setTheme(root.dataset.theme);
themeButton.addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));

// Paper is light.
let screenTheme = root.dataset.theme;
addEventListener("beforeprint", () => { screenTheme = root.dataset.theme; setTheme("light"); });
addEventListener("afterprint", () => setTheme(screenTheme));

// One cell of each grid takes part in the tab order; from there arrow keys walk, and the line below tells it in full.
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
for (const grid of document.querySelectorAll(".grid")) {
  const rows = [...grid.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll(".cell")]);
  const heads = [...grid.querySelectorAll("thead .over")];
  const told = grid.parentElement.querySelector(".picked");
  const place = new Map(rows.flatMap((row, y) => row.map((cell, x) => [cell, [y, x]])));
  let picked = rows[0][0];
  picked.tabIndex = 0;
  const name = (head) => head.querySelector("bdi")?.textContent ?? head.textContent;
  const tell = (cell) => {
    const [, x] = place.get(cell);
    told.textContent = `${name(heads[x])} × ${name(cell.parentElement.querySelector("th"))}: ${cell.title}`;
  };
  const cellOf = (event) => event.target.closest?.(".cell");
  grid.addEventListener("focusin", (event) => {
    const cell = cellOf(event);
    if (!cell) return;
    if (cell !== picked) picked.tabIndex = -1;
    picked = cell;
    picked.tabIndex = 0;
    tell(cell);
  });
  grid.addEventListener("mouseover", (event) => { if (cellOf(event)) tell(cellOf(event)); });
  grid.addEventListener("click", (event) => {
    const cell = cellOf(event);
    if (!cell) return;
    cell.tabIndex = 0;
    cell.focus();
  });
  grid.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step || !cellOf(event)) return;
    const [y, x] = place.get(cellOf(event));
    const next = rows[y + step[0]]?.[x + step[1]];
    if (!next) return;
    event.preventDefault();
    next.tabIndex = 0;
    next.focus();
    next.scrollIntoView({ block: "nearest", inline: "center" });
  });
}
root.dataset.drawn = "all";
