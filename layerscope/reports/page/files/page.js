"use strict";
// The page put together: plots drawn one after another, tables, and what the reader switches.

const root = document.documentElement;
const view = {
  runs: new Set(page.runs.keys()),
  percent: document.querySelector("input[name=axis][value=percent]").checked,
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
    const { data, layout } = PLOTS[figure.kind](figure, choice, view, colors);
    // plotly measures a plot's room later than paper waits for it
    if (root.classList.contains("printing")) Object.assign(layout, { width: plot.clientWidth, height: plot.clientHeight });
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
    const style = look(line, colors);
    return [swatch(several ? { ...style, color: colors.muted } : style, false), ` ${pooling ?? "by token"}  `];
  }));
}

// A short line as the plots draw it: colour, dash and marker.
function swatch(style, marker) {
  const stroke = { solid: "──", dash: "╌╌", dot: "┈┈", dashdot: "─┈" }[style.dash];
  const made = element("span", { class: "swatch", "aria-hidden": "true" }, marker ? `─${GLYPHS[style.symbol]}─` : stroke);
  made.style.color = style.color;
  return made;
}

// Plots are drawn one by one, so that the page can be read and scrolled from the first on.
async function drawAll() {
  const mine = ++drawing;
  root.dataset.drawn = "";
  const colors = theme();
  document.querySelectorAll(".runs .swatch").forEach((old, run) => {
    old.replaceWith(swatch(look({ run, pooling: null }, colors), true));
  });
  for (const card of cards) {
    drawCard(card, colors);
    await new Promise((resolve) => { setTimeout(resolve); });
    if (mine !== drawing) return;
  }
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
  const steps = frame.get("step").value;
  const hidden = new Set([...(several ? [] : ["run"]), ...(steps(0) === null && steps(frameRows - 1) === null ? ["step"] : [])]);
  const columns = [...frame.values()].filter((column) => !hidden.has(column.name)).map(({ name, number, value }) => {
    const text = (row) => {
      const found = value(row);
      if (found === null) return "";
      return typeof found === "number" && !Number.isInteger(found) ? String(Number(found.toPrecision(6))) : String(found);
    };
    return { title: name, number, choose: name === "run" || name === "metric", value, text };
  });
  const index = new Map(page.runs.map((run, i) => [run.name, i]));
  return makeTable(document.querySelector("#numbers .table"), {
    label: "Every number", file: "numbers", columns, count: frameRows,
    isShown: (row) => view.runs.has(index.get(frame.get("run").value(row))),
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
  drawing += 1;
  cards.forEach((card) => drawCard(card, theme()));
});
addEventListener("afterprint", () => {
  setTheme(screenTheme);
  root.classList.remove("printing");
  drawAll();
});

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
drawAll();
