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
  return { card, figure, plots: [...card.querySelectorAll(".plot")], picked: [...figure.places], drawn: false };
});
let drawing = 0;

function drawCard(entry, colors) {
  const { card, figure, plots, picked } = entry;
  entry.drawn = true;
  plots.forEach((plot, slot) => {
    const choice = figure.choices[picked[slot]];
    plot.closest(".slot").hidden = !figure.overlaid && !view.runs.has(choice.run);
    plot.previousElementSibling.textContent = figure.overlaid ? "" : choiceName(choice); // on paper no list to choose from is seen
    plot.style.height = figure.kind === "bars" || (choice.rows && !choice.square && !choice.upward) ? `${Math.max(9, 4.5 + 1.2 * choice.rows.length)}rem` : "";
    const { data, layout, empty } = PLOTS[figure.kind](figure, choice, view, colors, plot.clientWidth);
    plot.classList.toggle("empty", Boolean(empty));
    if (empty) {
      Plotly.purge(plot);
      plot.textContent = empty;
      return;
    }
    if (!plot._fullLayout) plot.replaceChildren();
    // plotly measures a plot's room later than paper waits for it
    if (root.classList.contains("printing")) Object.assign(layout, { width: plot.clientWidth, height: plot.clientHeight });
    Plotly.react(plot, data, layout, { displayModeBar: false, responsive: true, showTips: false });
  });
  if (figure.kind === "chart") writeKey(card.querySelector(".key"), figure, picked, colors);
  else card.querySelector(".key").textContent = figure.note;
}

// Below a plot: which line is which, and about how many samples it is, where all lines are about as many.
function writeKey(key, figure, picked, colors) {
  const choices = (figure.overlaid ? figure.choices : picked.map((i) => figure.choices[i])).filter(({ run }) => view.runs.has(run));
  const lines = choices.flatMap(({ run, series }) => series.filter(({ mark, right }) => mark !== "guide" && !right).map((one) => ({ run, one, name: seriesName(run, one, figure) })));
  const first = lines.filter(({ name }, i) => name && lines.findIndex((other) => other.name === name) === i);
  const notes = (own) => [...new Set(own.map(({ one }) => one.note).filter(Boolean))];
  const alike = notes(lines).length === 1;
  const single = figure.overlaid || new Set(choices.map(({ run }) => run)).size === 1;
  const told = first.length > 1 || !figure.overlaid || lines.some(({ run, one }) => one.detail || !page.runs[run].alone);
  const names = told ? first.map(({ run, one, name }) => {
    const style = look(run, one, colors);
    const drawn = one.mark === "bars" ? { ...style, symbol: "bars", dash: null } : one.mark === "points" ? { ...style, dash: null } : style;
    return element("span", {}, swatch(single ? drawn : { ...drawn, color: colors.muted }), ` ${name}${alike ? "" : notes([{ one }]).map((note) => ` (${note})`).join("")}`);
  }) : [];
  const marked = !figure.overlaid && lines.some(({ one }) => one.marked) ? [`○ ${figure.choices[0].marked}`] : [];
  const same = new Set(lines.map(({ one }) => one.name ?? "")).size === 1 && figure.overlaid ? [lines[0].one.name] : [];
  const shared = [...marked, ...same, ...(alike ? notes(lines) : []), figure.note].filter(Boolean);
  key.replaceChildren(...names, element("span", {}, shared.join(" · ")));
}

function choiceName(choice) {
  return [calledBy(choice.run), choice.choice].filter(Boolean).join(", ");
}

// A short line as the plots draw it: colour, dash and marker.
function swatch({ color, dash, symbol }) {
  const dashes = { solid: "", dash: "6 3", dot: "2 2", dashdot: "6 2 2 2" };
  if (dash === null) {
    const mark = element("span", { class: "swatch", "aria-hidden": "true" }, GLYPHS[symbol]);
    mark.style.color = color;
    return mark;
  }
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

// Plots are drawn one by one, so that the page can be read and scrolled from the first on; folded ones when they open.
async function drawAll() {
  const mine = ++drawing;
  root.dataset.drawn = "";
  const colors = theme();
  document.querySelectorAll(".runs label").forEach((label) => {
    const run = Number(label.querySelector("[data-run]").dataset.run);
    label.querySelector(".swatch").replaceWith(swatch(look(run, { mark: "level" }, colors)));
  });
  let since = performance.now();
  cards.forEach((entry) => { entry.drawn = false; });
  for (const entry of cards) {
    if (entry.card.closest("details:not([open])")) continue;
    drawCard(entry, colors);
    if (performance.now() - since < 200) continue; // the browser lays the page out anew at each pause
    since = performance.now();
    await new Promise((resolve) => { setTimeout(resolve); });
    if (mine !== drawing) return;
  }
  root.dataset.drawn = "all";
}

document.querySelectorAll("details.group").forEach((group) => group.addEventListener("toggle", () => {
  if (group.open) cards.filter(({ card, drawn }) => !drawn && group.contains(card)).forEach((entry) => drawCard(entry, theme()));
}));

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
    saveImage(figure, figure.choices[picked[slot]], plots[slot]);
  }));
}

// A plot as an image that explains itself on a white page: title, unit, and which line is which.
function saveImage(figure, choice, plot) {
  const before = root.dataset.theme;
  root.dataset.theme = "light";
  const { data, layout, empty } = PLOTS[figure.kind](figure, choice, view, theme(), plot.clientWidth);
  root.dataset.theme = before;
  if (empty) return;
  const title = figure.title + (figure.unit ? ` (${figure.unit})` : "");
  const below = [page.runs.length === 1 ? page.title : "", figure.overlaid ? "" : choiceName(choice)].filter(Boolean).join(", ");
  const lines = data.filter((trace) => trace.name);
  const room = Math.floor(plot.clientWidth / 7.5);
  const above = [...folded(title, room).map(escaped), ...folded(below, Math.floor(1.3 * room)).map((line) => `<sub>${escaped(line)}</sub>`)];
  Object.assign(layout, {
    title: { text: above.join("<br>"), font: { size: 13 }, x: 0.02, xanchor: "left", y: 0.98, yanchor: "top" },
    showlegend: lines.length > 0, legend: { orientation: "h", y: -0.28, font: { size: 11 } },
  });
  const more = 18 * above.length;
  layout.margin = { ...layout.margin, t: layout.margin.t + more };
  const whole = data.map((trace) => ({ ...trace, showlegend: Boolean(trace.name) }));
  const size = { width: plot.clientWidth, height: plot.clientHeight + more + (lines.length > 1 ? 14 * lines.length : 0) };
  Plotly.downloadImage({ data: whole, layout }, { format: "png", scale: 3, filename: figure.file, ...size });
}

// A text in lines of at most `room` letters, broken between its words where it can be.
function folded(text, room) {
  const lines = [""];
  for (const word of text.split(/(?<=[\s-])/u).flatMap((word) => word.match(new RegExp(`.{1,${room}}`, "gsu")))) {
    if (lines.at(-1) && [...lines.at(-1), ...word.trimEnd()].length > room) lines.push("");
    lines[lines.length - 1] += word;
  }
  return lines.filter(Boolean);
}

// A table of cells under headings: a row for each layer, metric or series.
function cellsTable({ id, title, head, columns, rows }) {
  const cells = columns.map((column, i) => ({
    ...column,
    value: (row) => rows[row].cells[i]?.value ?? null,
    text: (row) => rows[row].cells[i]?.text ?? "",
    marked: (row) => rows[row].cells[i]?.marked ?? false,
  }));
  const parts = ["value", ...new Set(rows.flatMap((row) => row.cells.flatMap((cell) => Object.keys(cell ?? {}))))]
    .filter((key, i) => !i || !["value", "text", "marked"].includes(key));
  const fields = columns.flatMap((column, i) => parts.map((key) => ({
    name: [column.title, column.detail].filter(Boolean).join(", ") + (key === "value" ? "" : ` ${key}`),
    value: (row) => rows[row].cells[i]?.[key] ?? null,
  })));
  const run = { title: "run", choose: true, value: (row) => runName(rows[row].run), text: (row) => runName(rows[row].run) };
  const name = {
    title: head, number: head === "layer", ascending: true, value: (row) => rows[row].name, text: (row) => rows[row].name,
    rank: (row) => rows[row].rank,
  };
  const several = rows.some((row) => !page.runs[row.run].alone);
  const leading = [...(several ? [run] : []), name];
  return makeTable(document.querySelector(`#${id} .table`), {
    label: title, file: id, columns: [...leading, ...cells],
    fields: [{ name: "run", value: run.value }, { name: head, value: name.value }, ...fields],
    count: rows.length, isShown: (row) => view.runs.has(rows[row].run),
  });
}

function longTable({ id, title, columns: given, owners, choose }) {
  const held = columnsOf(given);
  const rows = Array.from(owners.keys());
  const shown = ({ name, value }) => (name === "run" ? page.runs.length > 1 : rows.some((row) => value(row) !== null));
  const columns = held.filter(shown).map(({ name, number, value }) => {
    const text = (row) => {
      const found = value(row);
      if (found === null) return "";
      return typeof found === "number" && !Number.isInteger(found) ? String(Number(found.toPrecision(6))) : String(found);
    };
    return { title: name, number, choose: choose.includes(name), value, text };
  });
  return makeTable(document.querySelector(`#${id} .table`), {
    label: title, file: id, columns, fields: held, count: rows.length, isShown: (row) => view.runs.has(owners[row]),
  });
}

const tables = page.tables.map((table) => (table.long ? longTable : cellsTable)(table));

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
const wideTables = () => [...document.querySelectorAll(".tabled:not(.long) .table")];
addEventListener("beforeprint", () => {
  screenTheme = root.dataset.theme;
  opened = [...document.querySelectorAll("#runs details:not([open])")];
  opened.forEach((details) => { details.open = true; });
  setTheme("light");
  root.classList.add("printing");
  drawing += 1;
  cards.filter(({ card }) => !card.closest("details:not([open])")).forEach((card) => drawCard(card, theme()));
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
