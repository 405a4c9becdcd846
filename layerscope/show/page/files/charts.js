"use strict";
// Charts: Vega draws each from its specification; what the reader switches changes its rows and parameters alone.

const root = document.documentElement;
const view = {
  runs: new Set(page.runs.keys()),
  percent: document.querySelector("input[name=axis][value=percent]")?.checked ?? false, // exits alone have no such choice
};
const cards = [...document.querySelectorAll("[data-figure]")].map((card, i) => (
  { card, figure: page.figures[i], plot: card.querySelector(".plot"), drawn: false } // in the order of the page
));
const OPTIONS = { mode: "vega-lite", renderer: "canvas", actions: false, ast: true, logLevel: 1 };
Object.defineProperty(globalThis, "devicePixelRatio", { value: Math.max(2, devicePixelRatio) }); // charts are sharp on paper
let drawing = 0;
let moved = false; // by the reader
["wheel", "keydown", "pointerdown"].forEach((kind) => addEventListener(kind, () => { moved = true; }, { once: true, passive: true }));

// The rows of one result in a figure; what has no value is left out.
function rowsOf(part) {
  const columns = Object.entries(part.columns);
  part.rows ??= part.columns.run.map((_, i) => Object.fromEntries(
    columns.map(([name, values]) => [name, values[i]]).filter(([, value]) => value !== null)));
  return part.rows;
}

function shownOf(figure) {
  return figure.parts.filter(({ run }) => view.runs.has(run));
}

// A specification in the colours of a theme; rows have none.
function themed(value, dark = root.dataset.theme === "dark") {
  if (Array.isArray(value)) return value.map((entry) => themed(entry, dark));
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, themed(entry, dark)]));
  return (dark && page.dark[value]) || value;
}

// What is drawn in a plot: the specification with the rows of the results that are shown.
function specOf(figure, width, dark) {
  const spec = themed(figure.spec, dark);
  const rows = shownOf(figure).flatMap(rowsOf);
  const cells = Math.max(1, new Set(rows.map(({ column }) => column)).size);
  const side = cells * Math.max(1, Math.floor(Math.min(width - 110, 400) / cells)); // whole pixels: no seams between cells
  if (spec.layer) spec.layer = spec.layer.filter(({ name }) => name !== "printed" || width > figure.printed);
  return {
    ...spec, config: themed(page.config, dark), params: [{ name: "percent", value: view.percent }], data: { values: rows },
    ...(figure.square ? { width: side, height: side } : { width, height: figure.tall, autosize: { type: "fit-x", contains: "padding" } }),
  };
}

async function drawCard(entry) {
  const { figure, plot } = entry;
  entry.drawn = true;
  if (!shownOf(figure).length) {
    plot.textContent = "no run with this metric is chosen";
    return;
  }
  const tooltip = { theme: root.dataset.theme };
  plot.chart = (await vegaEmbed(plot, specOf(figure, plot.clientWidth), { ...OPTIONS, tooltip })).view;
  plot.querySelector("form").remove(); // for parameters that a reader could set
  plot.style.minHeight = "";
}

// Plots are drawn one by one, so that the page can be read and scrolled from the first on; folded ones when they open.
// The one that the address names comes first.
async function drawAll() {
  const mine = ++drawing;
  root.dataset.drawn = "";
  document.querySelectorAll("[data-color]").forEach((mark) => { mark.style.color = themed(mark.dataset.color); });
  const kept = inView();
  cards.forEach((entry) => {
    entry.drawn = false;
    if (!entry.plot.children.length) entry.plot.style.minHeight = `${entry.figure.tall}px`; // a link can lead to it before it is drawn
  });
  kept();
  if (mine === 1) reveal();
  const first = linked()?.closest("[data-figure]");
  let since = performance.now();
  for (const entry of [...cards].sort((a, b) => (b.card === first) - (a.card === first))) {
    if (entry.drawn || entry.card.closest("details:not([open])")) continue;
    await drawCard(entry);
    if (mine !== drawing) return;
    if (performance.now() - since < 200) continue; // the browser lays the page out anew at each pause
    since = performance.now();
    await new Promise((resolve) => { setTimeout(resolve); });
    if (mine !== drawing) return;
  }
  root.dataset.colors = root.dataset.theme;
  if (mine === 1 && !moved) reveal();
  root.dataset.drawn = "all";
}

document.querySelectorAll("details.group").forEach((group) => group.addEventListener("toggle", () => {
  if (group.open) cards.filter(({ card, drawn }) => !drawn && group.contains(card)).forEach(drawCard);
}));

let resized = 0;
let lastWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === lastWidth || root.classList.contains("printing")) return;
  lastWidth = innerWidth;
  clearTimeout(resized);
  resized = setTimeout(drawAll, 200);
});

for (const { card, figure, plot } of cards) {
  card.addEventListener("click", ({ target }) => {
    if (target.matches("[data-csv]")) download(`${figure.file}.csv`, csv(...listOf(figure)));
    if (target.matches("[data-png]")) saveImage(figure, plot.clientWidth);
  });
}

// The rows behind a figure, as its CSV holds them.
function listOf(figure) {
  const names = Object.keys(figure.names);
  const rows = shownOf(figure).flatMap((part) => (
    rowsOf(part).map((row) => [runName(part.run), ...names.map((name) => row[name])])
  ));
  return [["run", ...Object.values(figure.names)], rows];
}

// A plot as an image that explains itself on a white page.
async function saveImage(figure, width) {
  const text = figure.title + (figure.unit ? ` (${figure.unit})` : "");
  const subtitle = page.runs.length === 1 ? page.title : "";
  const spec = { ...specOf(figure, width, false), title: { text, subtitle, limit: width, frame: "bounds" } };
  const { view: drawn } = await vegaEmbed(document.createElement("div"), spec, OPTIONS);
  element("a", { href: await drawn.toImageURL("png", 3), download: `${figure.file}.png` }).click();
}
