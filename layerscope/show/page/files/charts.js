"use strict";
// Charts: Vega draws each from its specification; what the reader switches changes its rows and parameters alone.

const root = document.documentElement;
const view = {
  runs: new Set(page.runs.keys()),
  percent: document.querySelector("input[name=axis][value=percent]")?.checked ?? false, // exits alone have no such choice
  overlay: document.getElementById("overlay")?.checked ?? false,
  beside: false,
};
const cards = [...document.querySelectorAll("[data-figure]")].map((card, i) => {
  const figure = page.figures[i]; // in the order of the page
  const slot = card.querySelector(".slot").cloneNode(true);
  return { card, figure, slot, wide: card.classList.contains("wide"), picked: [...figure.places], plots: [], drawn: false };
});
const OPTIONS = { mode: "vega-lite", renderer: "canvas", actions: false, ast: true, logLevel: 1 };
Object.defineProperty(globalThis, "devicePixelRatio", { value: Math.max(2, devicePixelRatio) }); // charts are sharp on paper
let drawing = 0;
let moved = false; // by the reader
["wheel", "keydown", "pointerdown"].forEach((kind) => addEventListener(kind, () => { moved = true; }, { once: true, passive: true }));

// The rows of one plot; what has no value is left out.
function rowsOf(choice) {
  choice.rows ??= (() => {
    const columns = columnsOf(choice.columns);
    return Array.from({ length: choice.count }, (_, i) => Object.fromEntries(
      [["run", runName(choice.run)], ...columns.flatMap(({ name, value }) => (value(i) === null ? [] : [[name, value(i)]]))]));
  })();
  return choice.rows;
}

// Whether a figure has one plot for all results.
function isTogether(figure) {
  return figure.overlaid && !view.beside;
}

function shownOf(figure, choice) {
  return isTogether(figure) ? figure.choices.filter(({ run }) => view.runs.has(run)) : [choice];
}

// A specification in the colours of a theme; rows have none.
function themed(value, dark = root.dataset.theme === "dark") {
  if (Array.isArray(value)) return value.map((entry) => themed(entry, dark));
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, themed(entry, dark)]));
  return (dark && page.dark[value]) || value;
}

// What is drawn in a plot: the specification with the rows of the results that are shown.
function specOf(figure, choice, width, dark) {
  const spec = themed(choice.spec ?? figure.spec, dark);
  const rows = shownOf(figure, choice).flatMap(rowsOf);
  const cells = Math.max(1, new Set(rows.map(({ column }) => column)).size);
  const side = cells * Math.max(1, Math.floor(Math.min(width - 110, 400) / cells)); // whole pixels: no seams between cells
  if (spec.layer) {
    spec.layer = spec.layer.filter(({ name }) => (name !== "overlay" || view.overlay) && (name !== "printed" || width > figure.printed));
    if (view.beside) sameAxes(spec, figure);
  }
  return {
    ...spec, config: themed(page.config, dark), params: [{ name: "percent", value: view.percent }], data: { values: rows },
    ...(figure.square ? { width: side, height: side } : { width, height: figure.tall, autosize: { type: "fit-x", contains: "padding" } }),
  };
}

// Plots that stand side by side have the same axes: each reaches as far as the points of all.
function sameAxes(spec, figure) {
  const rows = figure.choices.filter(({ run }) => view.runs.has(run)).flatMap(rowsOf).filter(({ y, mark }) => y !== undefined && mark !== "guide" && mark !== "over");
  if (!figure.overlaid || !rows.length) return;
  const low = Math.min(...rows.map(({ y, error = 0 }) => (y > error ? Math.max(y - error, y / 2) : y - error)));
  const ends = { y: [low, Math.max(...rows.map(({ y, error = 0 }) => y + error))], x: [Math.min(...rows.map(({ x }) => x)), Math.max(...rows.map(({ x }) => x))] };
  spec.layer.flatMap((layer) => layer.layer ?? [layer]).forEach(({ encoding, data }) => ["x", "y"].forEach((axis) => {
    const scale = encoding[axis]?.scale;
    if (scale && !data && !scale.domain) Object.assign(scale, { domain: ends[axis], nice: true });
  }));
}

// Which plots of a figure are shown: side by side one of each result, of the kind that was seen first.
function pick(entry) {
  const { figure } = entry;
  entry.picked = [...figure.places];
  if (!view.beside) return;
  const kind = figure.choices[figure.places[0]].choice;
  const owned = [...view.runs].sort((a, b) => a - b).map((run) => figure.choices.flatMap((choice, i) => (choice.run === run ? [i] : [])));
  const picked = owned.filter((own) => own.length).map((own) => own.find((i) => figure.choices[i].choice === kind) ?? own[0]);
  if (picked.length) entry.picked = picked;
}

// A card made ready for its plots.
function settle(entry) {
  const { card, figure, picked } = entry;
  const box = card.querySelector(".plots");
  while (box.children.length > picked.length) box.lastElementChild.remove();
  while (box.children.length < picked.length) box.append(entry.slot.cloneNode(true));
  entry.plots = [...box.querySelectorAll(".plot")];
  card.classList.toggle("wide", entry.wide || picked.length > 1);
  entry.plots.forEach((plot, slot) => {
    const choice = figure.choices[picked[slot]];
    const own = plot.closest(".slot");
    own.hidden = !isTogether(figure) && !view.runs.has(choice.run);
    plot.previousElementSibling.textContent = isTogether(figure) ? "" : choiceName(choice); // on paper no list to choose from is seen
    if (!plot.children.length) plot.style.minHeight = `${figure.tall}px`; // a link can lead to it before it is drawn
    const select = own.querySelector("select");
    if (!select) return;
    if (!select.length) select.append(...figure.choices.map((one, i) => element("option", { value: i }, choiceName(one))));
    select.value = picked[slot];
  });
}

async function drawCard(entry) {
  const { figure, picked } = entry;
  settle(entry);
  entry.drawn = true;
  await Promise.all(entry.plots.map(async (plot, slot) => {
    const choice = figure.choices[picked[slot]];
    if (plot.closest(".slot").hidden) return;
    if (!shownOf(figure, choice).length) {
      plot.textContent = "no run with this metric is chosen";
      return;
    }
    const tooltip = { theme: root.dataset.theme };
    plot.chart = (await vegaEmbed(plot, specOf(figure, choice, plot.clientWidth), { ...OPTIONS, tooltip })).view;
    plot.querySelector("form").remove(); // for parameters that a reader could set
    plot.style.minHeight = "";
  }));
}

function choiceName(choice) {
  return [calledBy(choice.run), choice.choice].filter(Boolean).join(", ");
}

// Plots are drawn one by one, so that the page can be read and scrolled from the first on; folded ones when they open.
// The one that the address names comes first.
async function drawAll() {
  const mine = ++drawing;
  root.dataset.drawn = "";
  document.querySelectorAll("[data-color]").forEach((mark) => { mark.style.color = themed(mark.dataset.color); });
  const kept = inView();
  cards.forEach((entry) => { entry.drawn = false; settle(entry); });
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

for (const entry of cards) {
  const { card, figure } = entry;
  const slotOf = (inside) => entry.plots.findIndex((plot) => plot.closest(".slot")?.contains(inside));
  card.addEventListener("change", ({ target }) => {
    entry.picked[slotOf(target)] = Number(target.value);
    drawCard(entry);
  });
  card.addEventListener("click", ({ target }) => {
    if (target.matches("[data-csv]")) download(`${figure.file}.csv`, csv(...listOf(figure)));
    if (!target.matches("[data-png]")) return;
    const own = slotOf(target); // the button below a card saves all of its plots
    entry.plots.forEach((plot, slot) => { if (own < 0 || own === slot) saveImage(figure, figure.choices[entry.picked[slot]], plot.clientWidth); });
  });
}

// The rows behind a figure, as its CSV holds them.
function listOf(figure) {
  const names = Object.keys(figure.names);
  const rows = figure.choices.filter(({ run }) => view.runs.has(run)).flatMap((choice) => rowsOf(choice).filter(({ mark }) => mark !== "guide" && mark !== "over")
    .map((row) => [runName(choice.run), choice.choice, ...names.map((name) => row[name])]));
  return [["run", "choice", ...Object.values(figure.names)], rows];
}

// A plot as an image that explains itself on a white page.
async function saveImage(figure, choice, width) {
  const text = figure.title + (figure.unit ? ` (${figure.unit})` : "");
  const subtitle = [page.runs.length === 1 ? page.title : "", isTogether(figure) ? "" : choiceName(choice)].filter(Boolean).join(", ");
  const spec = { ...specOf(figure, choice, width, false), title: { text, subtitle, limit: width, frame: "bounds" } };
  const { view: drawn } = await vegaEmbed(document.createElement("div"), spec, OPTIONS);
  element("a", { href: await drawn.toImageURL("png", 3), download: `${figure.file}.png` }).click();
}
