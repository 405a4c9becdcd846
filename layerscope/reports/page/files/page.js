"use strict";
// The page put together: plots drawn one after another, tables, and what the reader switches.

const root = document.documentElement;
const view = {
  runs: new Set(page.runs.keys()),
  percent: document.querySelector("input[name=axis][value=percent]")?.checked ?? false, // exits alone have no such choice
  overlay: document.getElementById("overlay")?.checked ?? false,
};
const cards = [...document.querySelectorAll("[data-figure]")].map((card, i) => {
  const figure = page.figures[i]; // in the order of the page
  const plots = [...card.querySelectorAll(".plot")];
  return { card, figure, plots, picked: [...(figure.places ?? [0])] };
});
let drawing = 0;

function drawCard({ card, figure, plots, picked }, colors) {
  plots.forEach((plot, slot) => {
    const choice = figure.choices?.[picked[slot]];
    plot.closest(".slot").hidden = choice !== undefined && !view.runs.has(choice.run);
    plot.previousElementSibling.textContent = choice ? choiceName(choice) : ""; // on paper no list to choose from is seen
    plot.style.height = choice?.rows ? `${Math.max(9, 4.5 + 1.2 * choice.rows.length)}rem` : "";
    const { data, layout } = PLOTS[figure.kind](figure, choice, view, colors, plot.clientWidth);
    // plotly measures a plot's room later than paper waits for it
    if (root.classList.contains("printing")) Object.assign(layout, { width: plot.clientWidth, height: plot.clientHeight });
    Plotly.react(plot, data, layout, { displayModeBar: false, responsive: true, showTips: false });
  });
  if (figure.lines) writeKey(card.querySelector(".key"), figure, colors);
  else card.querySelector(".key").textContent = noteOf(figure, picked);
}

// Below a plot: which line is which, and about how many samples it is, where all lines are about as many.
function writeKey(key, figure, colors) {
  const lines = figure.lines.filter((line) => view.runs.has(line.run));
  const alike = new Set(lines.map((line) => line.counted)).size === 1;
  const names = lines.length > 1 || lines.some((line) => !page.runs[line.run].alone) ? lines.map((line) => (
    element("span", {}, swatch(look(line, colors)), ` ${lineName(line, figure)}${alike ? "" : ` (${line.counted})`}`))) : [];
  const shared = [new Set(lines.map((line) => line.named)), new Set(lines.map((line) => line.counted))]
    .flatMap((found) => (found.size === 1 ? [...found].filter(Boolean) : []));
  key.replaceChildren(...names, element("span", {}, shared.join(" · ")));
}

// Below plots of one run each: what their colours stand for.
function noteOf(figure, picked) {
  if (figure.kind !== "tasks") return figure.note ?? "";
  const compared = [...new Set(picked.map((i) => figure.choices[i].compared))].join(" or ");
  return `Colour: score of a layer less that of ${compared} on the same task; beyond the ends of the scale lies one cell in twenty. ○ the best layer.`;
}

function choiceName(choice) {
  return [choice.series ?? calledBy(choice.run), choice.choice].filter(Boolean).join(", ");
}

// A short line as the plots draw it: colour, dash and marker.
function swatch({ color, dash, symbol }) {
  const dashes = { solid: "", dash: "6 3", dot: "2 2", dashdot: "6 2 2 2" };
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [name, value] of Object.entries({ width: 22, height: 6 })) svg.setAttribute(name, value);
  const drawn = { d: "M0 3H22", stroke: color, "stroke-width": 2, "stroke-dasharray": dashes[dash] };
  for (const [name, value] of Object.entries(drawn)) line.setAttribute(name, value);
  svg.append(line);
  const made = element("span", { class: "swatch", "aria-hidden": "true" }, svg, GLYPHS[symbol]);
  made.style.color = color;
  return made;
}

// Plots are drawn one by one, so that the page can be read and scrolled from the first on.
async function drawAll() {
  const mine = ++drawing;
  root.dataset.drawn = "";
  const colors = theme();
  document.querySelectorAll(".runs label").forEach((label) => {
    const run = Number(label.querySelector("[data-run]").dataset.run);
    label.querySelector(".swatch").replaceWith(swatch(look({ run, pooling: null }, colors)));
  });
  let since = performance.now();
  for (const card of cards) {
    drawCard(card, colors);
    if (performance.now() - since < 200) continue; // the browser lays the page out anew at each pause
    since = performance.now();
    await new Promise((resolve) => { setTimeout(resolve); });
    if (mine !== drawing) return;
  }
  root.dataset.drawn = "all";
}

for (const entry of cards) {
  const { card, figure, plots, picked } = entry;
  card.querySelectorAll(".choice select").forEach((select, slot) => {
    figure.choices.forEach((choice, i) => {
      select.append(element("option", { value: i }, choiceName(choice)));
    });
    select.value = picked[slot];
    select.addEventListener("change", () => {
      picked[slot] = Number(select.value);
      drawCard(entry, theme());
    });
  });
  card.querySelector("[data-csv]").addEventListener("click", () => {
    download(`${figure.file}.csv`, csv(...ROWS[figure.kind](figure, ({ run }) => view.runs.has(run))));
  });
  card.querySelectorAll("[data-png]").forEach((button, slot) => button.addEventListener("click", () => {
    saveImage(figure, figure.choices?.[picked[slot]], plots[slot]);
  }));
}

// A plot as an image that explains itself on a white page: title, unit, and which line is which.
function saveImage(figure, choice, plot) {
  const before = root.dataset.theme;
  root.dataset.theme = "light";
  const { data, layout } = PLOTS[figure.kind](figure, choice, view, theme(), plot.clientWidth);
  root.dataset.theme = before;
  const named = choice ? short(choiceName(choice)) : "";
  const title = figure.title + (figure.unit ? ` (${figure.unit})` : "");
  const about = figure.about ?? (page.runs[0].alone ? page.title : "");
  const below = [short(about), named].filter(Boolean).join(", ");
  const lines = data.filter((trace) => trace.name);
  Object.assign(layout, {
    title: {
      text: `${escaped(title)}<br><sub>${escaped(below)}</sub>`, font: { size: 13 }, x: 0.02, xanchor: "left", y: 0.97,
      yanchor: "top",
    },
    showlegend: lines.length > 0, legend: { orientation: "h", y: -0.28, font: { size: 11 } },
  });
  layout.margin = { ...layout.margin, t: layout.margin.t + 36 };
  const whole = data.map((trace) => ({ ...trace, showlegend: Boolean(trace.name) }));
  const size = { width: plot.clientWidth, height: plot.clientHeight + 40 + (lines.length > 1 ? 14 * lines.length : 0) };
  Plotly.downloadImage({ data: whole, layout }, { format: "png", scale: 3, filename: figure.file, ...size });
}

// A table of cells under headings: a row for each layer, metric or series.
function cellsTable({ id, title, head, columns, rows }) {
  const cells = columns.map((column, i) => ({
    title: column.title, detail: column.detail, number: true,
    value: (row) => rows[row].cells[i]?.value ?? null,
    text: (row) => rows[row].cells[i]?.told ?? "",
    marked: (row) => rows[row].cells[i]?.marked ?? false,
  }));
  const parts = ["value", "stderr", "low", "high"].filter((key) => (
    key === "value" || rows.some((row) => row.cells.some((cell) => cell && key in cell))));
  const fields = columns.flatMap((column, i) => parts.map((key) => ({
    name: [column.title, column.detail].filter(Boolean).join(", ") + (key === "value" ? "" : ` ${key}`),
    value: (row) => rows[row].cells[i]?.[key] ?? null,
  })));
  const run = { title: "run", choose: true, value: (row) => runName(rows[row].run), text: (row) => runName(rows[row].run) };
  const name = {
    title: head, number: head === "layer", ascending: true, value: (row) => rows[row].name, text: (row) => rows[row].name,
    place: (row) => rows[row].place,
  };
  const several = rows.some((row) => !page.runs[row.run].alone);
  const leading = [...(several || !head ? [{ ...run, choose: head !== null }] : []), ...(head ? [name] : [])];
  return makeTable(document.querySelector(`#${id} .table`), {
    label: title, file: id, columns: [...leading, ...cells],
    fields: [{ name: "run", value: run.value }, ...(head ? [{ name: head, value: name.value }] : []), ...fields],
    count: rows.length, isShown: (row) => view.runs.has(rows[row].run),
  });
}

function longTable({ columns: held, rows: count }, { id, label, file, choose, isShown }) {
  const rows = Array.from({ length: count }, (_, row) => row);
  const told = ({ name, value }) => (name === "run" ? !page.runs[0].alone : rows.some((row) => value(row) !== null));
  const columns = [...held.values()].filter(told).map(({ name, number, value }) => {
    const text = (row) => {
      const found = value(row);
      if (found === null) return "";
      return typeof found === "number" && !Number.isInteger(found) ? String(Number(found.toPrecision(6))) : String(found);
    };
    return { title: name, number, choose: choose.includes(name), value, text };
  });
  return makeTable(document.querySelector(`#${id} .table`), { label, file, columns, fields: [...held.values()], count, isShown });
}

const runOf = new Map(page.runs.map((run, i) => [run.name, i]).reverse());
const tables = page.tables.filter((table) => table.rows.length).map(cellsTable);
if (numbers.rows) {
  tables.push(longTable(numbers, {
    id: "numbers", label: "Every number", file: "numbers", choose: ["run", "metric"],
    isShown: (row) => view.runs.has(runOf.get(numbers.columns.get("run").value(row))),
  }));
}
if (scores.rows) {
  tables.push(longTable(scores, {
    id: "every-score", label: "Every score", file: "scores", choose: ["model", "task"],
    isShown: (row) => view.runs.has(page.scored[row]),
  }));
}

document.querySelectorAll("[data-run]").forEach((box) => box.addEventListener("change", () => {
  const run = Number(box.dataset.run);
  if (box.checked) view.runs.add(run); else view.runs.delete(run);
  tables.forEach((table) => table.show());
  drawAll();
}));

document.querySelectorAll("input[name=axis]").forEach((radio) => radio.addEventListener("change", () => {
  view.percent = radio.value === "percent";
  drawAll();
}));

document.getElementById("overlay")?.addEventListener("change", (event) => {
  view.overlay = event.target.checked;
  drawAll();
});

const themeButton = document.getElementById("theme");
function setTheme(name) {
  root.dataset.theme = name;
  themeButton.setAttribute("aria-pressed", String(name === "dark"));
}
themeButton.addEventListener("click", () => {
  setTheme(root.dataset.theme === "dark" ? "light" : "dark");
  drawAll();
});

// Paper is light and narrow: the plots are drawn for it, and for the screen again afterwards.
let screenTheme = "light";
let opened = [];
const LEGIBLE = 0.5; // a table that had to shrink more stays off the paper
const wideTables = () => [...document.querySelectorAll(".tabled .table, #layers .table")];
addEventListener("beforeprint", () => {
  screenTheme = root.dataset.theme;
  opened = [...document.querySelectorAll("#runs details:not([open])")];
  opened.forEach((details) => { details.open = true; });
  setTheme("light");
  root.classList.add("printing");
  drawing += 1;
  cards.forEach((card) => drawCard(card, theme()));
  wideTables().forEach((wide) => { // every column on the sheet
    const zoom = Math.min(1, wide.clientWidth / wide.querySelector("table").scrollWidth);
    wide.style.zoom = zoom;
    wide.closest(".tabled")?.classList.toggle("onscreen", zoom < LEGIBLE);
  });
});
addEventListener("afterprint", () => {
  opened.forEach((details) => { details.open = false; });
  setTheme(screenTheme);
  root.classList.remove("printing");
  wideTables().forEach((wide) => { wide.style.zoom = ""; });
  drawAll();
});

setTheme(root.dataset.theme);
drawAll();
