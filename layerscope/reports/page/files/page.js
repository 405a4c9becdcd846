"use strict";
// The page put together: plots drawn one after another, tables, and what the reader switches.

const root = document.documentElement;
const view = {
  runs: new Set(page.runs.keys()),
  percent: document.querySelector("input[name=axis][value=percent]").checked,
};
const cards = [...document.querySelectorAll("[data-figure]")].map((card) => {
  const figure = page.figures[Number(card.dataset.figure)];
  const plots = [...card.querySelectorAll(".plot")];
  return { card, figure, plots, picked: [...(figure.places ?? [0])] };
});
let drawing = 0;

function drawCard({ card, figure, plots, picked }, colors) {
  plots.forEach((plot, slot) => {
    const choice = figure.choices?.[picked[slot]];
    const { data, layout } = PLOTS[figure.kind](figure, choice, view, colors);
    Plotly.react(plot, data, layout, { displayModeBar: false, responsive: true, showTips: false });
  });
  if (figure.kind === "curve") writeKey(card.querySelector(".key"), figure, colors);
}

// What dashes stand for, where a plot holds several poolings.
function writeKey(key, figure, colors) {
  const poolings = poolingsOf(figure.lines);
  if (poolings.length < 2) return;
  key.replaceChildren(...poolings.flatMap((pooling) => {
    const line = figure.lines.find((entry) => entry.pooling === pooling);
    const style = look(line, poolings, colors);
    return [swatch(several ? { ...style, color: colors.muted } : style, !several), ` ${pooling ?? "by token"}  `];
  }));
}

// A short line as the plots draw it: colour, dash and marker.
function swatch(style, marker = true) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  fillSwatch(svg, style, marker);
  return svg;
}

function fillSwatch(svg, style, marker = true) {
  const dashes = { solid: "", dash: "7 4", dot: "2 3", dashdot: "7 3 2 3" };
  const shapes = {
    circle: "M17 2a4 4 0 1 0 .01 0z", square: "M13 2h8v8h-8z", "triangle-up": "M17 1l5 9h-10z",
    x: "M13 3l2-2 2 3 2-3 2 2-3 3 3 3-2 2-2-3-2 3-2-2 3-3z", star: "M17 0l1.5 4h4l-3 2.500 1 4.500-3.500-2.500-3.500 2.500 1-4.500-3-2.500h4z",
    pentagon: "M17 1l5 4-2 6h-6l-2-6z", cross: "M15 1h4v3h3v4h-3v3h-4v-3h-3v-4h3z", hexagram: "M17 0l2 3h4l-2 3 2 3h-4l-2 3-2-3h-4l2-3-2-3h4z",
  };
  svg.setAttribute("width", "34");
  svg.setAttribute("height", "12");
  svg.setAttribute("aria-hidden", "true");
  const draw = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  svg.replaceChildren(draw("path", { d: "M1 6H33", stroke: style.color, "stroke-width": "2", "stroke-dasharray": dashes[style.dash] }));
  if (marker) svg.append(draw("path", { d: shapes[style.symbol], fill: style.color }));
}

// Plots are drawn one by one, so that the page can be read and scrolled from the first on.
async function drawAll() {
  const mine = ++drawing;
  root.dataset.drawn = "";
  const colors = theme();
  document.querySelectorAll(".runs .swatch").forEach((svg, run) => fillSwatch(svg, look({ run, pooling: null }, [null], colors)));
  for (const card of cards) {
    drawCard(card, colors);
    await new Promise((resolve) => { setTimeout(resolve); });
    if (mine !== drawing) return;
  }
  root.dataset.drawn = "all";
}

function drawNow() {
  drawing += 1;
  const colors = theme();
  cards.forEach((card) => drawCard(card, colors));
  root.dataset.drawn = "all";
}

for (const entry of cards) {
  const { card, figure, plots, picked } = entry;
  card.querySelectorAll("select[data-slot]").forEach((select, slot) => {
    figure.choices.forEach((choice, i) => {
      const name = [several ? runName(choice.run) : "", choice.choice].filter(Boolean).join(", ");
      select.append(element("option", { value: i }, name));
    });
    select.value = picked[slot];
    select.addEventListener("change", () => {
      picked[slot] = Number(select.value);
      drawCard(entry, theme());
    });
  });
  card.querySelector("[data-csv]").addEventListener("click", () => {
    download(`${figure.file}.csv`, csv(...ROWS[figure.kind](figure)));
  });
  card.querySelector("[data-png]").addEventListener("click", async () => {
    for (const [slot, plot] of plots.entries()) {
      const filename = plots.length > 1 ? `${figure.file}-${slot + 1}` : figure.file;
      await Plotly.downloadImage(plot, {
        format: "png", scale: 3, width: plot.clientWidth, height: plot.clientHeight, filename,
      });
    }
  });
}

function layersTable() {
  const { columns, rows } = page.layers;
  const metrics = columns.map((column, i) => ({
    title: column.title, detail: column.detail, number: true, name: [column.title, column.detail].filter(Boolean).join(", "),
    value: (row) => rows[row].cells[i]?.value ?? null,
    text: (row) => rows[row].cells[i]?.told ?? "",
    marked: (row) => rows[row].cells[i]?.stands_out ?? false,
  }));
  const run = { title: "run", choose: true, value: (row) => runName(rows[row].run), text: (row) => runName(rows[row].run) };
  const layer = {
    title: "layer", number: true, ascending: true, value: (row) => rows[row].layer, text: (row) => rows[row].layer,
    place: (row) => rows[row].place,
  };
  return makeTable(document.querySelector("#layers .table"), {
    label: "Every layer", file: "layers", columns: several ? [run, layer, ...metrics] : [layer, ...metrics],
    count: rows.length, isShown: (row) => view.runs.has(rows[row].run),
  });
}

function numbersTable() {
  const chosen = new Set(["run", "metric"]);
  const columns = page.frame.map((column) => {
    const value = column.texts
      ? (row) => (column.codes[row] === null ? null : column.texts[column.codes[row]])
      : (row) => column.numbers[row];
    const text = (row) => {
      const found = value(row);
      if (found === null) return "";
      return typeof found === "number" && !Number.isInteger(found) ? String(Number(found.toPrecision(6))) : String(found);
    };
    return { title: column.name, number: Boolean(column.numbers), choose: chosen.has(column.name), value, text };
  });
  const runs = page.frame[0];
  const number = new Map(page.runs.map((run, i) => [run.name, i]));
  return makeTable(document.querySelector("#numbers .table"), {
    label: "Every number", file: "numbers", columns, count: runs.codes.length,
    isShown: (row) => view.runs.has(number.get(runs.texts[runs.codes[row]])),
  });
}

const tables = [layersTable(), numbersTable()];

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
addEventListener("beforeprint", () => {
  screenTheme = root.dataset.theme;
  setTheme("light");
  root.classList.add("printing");
  drawNow();
  cards.forEach(({ plots }) => plots.forEach((plot) => Plotly.Plots.resize(plot)));
});
addEventListener("afterprint", () => {
  setTheme(screenTheme);
  root.classList.remove("printing");
  drawAll();
});

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
drawAll();
