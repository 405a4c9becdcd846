"use strict";
// Cards: their plots, one after another or side by side, what stands below them, and images of them.

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
let drawing = 0;

// Which plots of a figure are shown: side by side one of each result, of the kind that was seen first.
function pick(entry) {
  const { figure } = entry;
  if (!view.beside) {
    entry.picked = [...figure.places];
    return;
  }
  const kind = figure.choices[figure.places[0]].choice;
  const owned = [...view.runs].sort((a, b) => a - b).map((run) => figure.choices.flatMap((choice, i) => (choice.run === run ? [i] : [])));
  const picked = owned.filter((own) => own.length).map((own) => own.find((i) => figure.choices[i].choice === kind) ?? own[0]);
  entry.picked = picked.length ? picked : [...figure.places];
}

// A card made ready for its plots, with all that decides how high it is: a link can lead to it before it is drawn.
function settle(entry, colors) {
  const { card, figure, picked } = entry;
  const box = card.querySelector(".plots");
  while (box.children.length > picked.length) {
    Plotly.purge(box.lastElementChild.querySelector(".plot"));
    box.lastElementChild.remove();
  }
  while (box.children.length < picked.length) box.append(entry.slot.cloneNode(true));
  entry.plots = [...box.querySelectorAll(".plot")];
  card.classList.toggle("wide", entry.wide || picked.length > 1);
  entry.plots.forEach((plot, slot) => {
    const choice = figure.choices[picked[slot]];
    const box = plot.closest(".slot");
    box.hidden = !(figure.overlaid && !view.beside) && !view.runs.has(choice.run);
    plot.previousElementSibling.textContent = figure.overlaid && !view.beside ? "" : choiceName(choice); // on paper no list to choose from is seen
    plot.style.height = figure.kind === "bars" || (choice.rows && !choice.square && !choice.upward) ? `${Math.max(9, 4.5 + 1.2 * choice.rows.length)}rem` : "";
    const select = box.querySelector("select");
    if (!select) return;
    if (!select.length) select.append(...figure.choices.map((one, i) => element("option", { value: i }, choiceName(one))));
    select.value = picked[slot];
  });
  if (figure.kind === "chart") writeKey(card.querySelector(".key"), figure, picked, colors);
  else card.querySelector(".key").textContent = figure.note;
}

function drawCard(entry, colors) {
  const { figure, picked } = entry;
  settle(entry, colors);
  entry.drawn = true;
  entry.plots.forEach((plot, slot) => {
    const { data, layout, empty } = PLOTS[figure.kind](figure, figure.choices[picked[slot]], view, colors, plot.clientWidth, plot.clientHeight);
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
}

// Below a plot: which line is which, and about how many samples it is, where all lines are about as many.
function writeKey(key, figure, picked, colors) {
  const choices = (figure.overlaid && !view.beside ? figure.choices : picked.map((i) => figure.choices[i]))
    .filter(({ run, series }) => view.runs.has(run) && series.some(({ y }) => y.some((value) => value !== null)));
  const lines = choices.flatMap(({ run, series }) => series.filter(({ mark, right }) => mark !== "guide" && !right).map((one) => ({ run, one, name: seriesName(run, one, figure) })));
  const first = lines.filter(({ name }, i) => name && lines.findIndex((other) => other.name === name) === i);
  const notes = (own) => [...new Set(own.map(({ one }) => one.note).filter(Boolean))];
  const alike = notes(lines).length === 1;
  const single = figure.overlaid || new Set(choices.map(({ run }) => run)).size === 1;
  const told = first.length > 1 || (first.length && lines.some(({ name }) => !name)) || !figure.overlaid || lines.some(({ run, one }) => one.detail || !page.runs[run].alone);
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
// The one that the address names comes first.
async function drawAll() {
  const mine = ++drawing;
  root.dataset.drawn = "";
  const colors = theme();
  document.querySelectorAll(".runs label").forEach((label) => {
    const run = Number(label.querySelector("[data-run]").dataset.run);
    label.querySelector(".swatch").replaceWith(swatch(look(run, { mark: "level" }, colors)));
  });
  const kept = inView();
  cards.forEach((entry) => { entry.drawn = false; settle(entry, colors); });
  kept();
  const at = mine === 1 ? reveal() : null;
  const first = linked()?.closest("[data-figure]");
  let since = performance.now();
  for (const entry of [...cards].sort((a, b) => (b.card === first) - (a.card === first))) {
    if (entry.drawn || entry.card.closest("details:not([open])")) continue;
    drawCard(entry, colors);
    if (performance.now() - since < 200) continue; // the browser lays the page out anew at each pause
    since = performance.now();
    await new Promise((resolve) => { setTimeout(resolve); });
    if (mine !== drawing) return;
  }
  if (at !== null && Math.abs(scrollY - at) < 2) reveal(); // the reader has not moved on
  root.dataset.drawn = "all";
}

document.querySelectorAll("details.group").forEach((group) => group.addEventListener("toggle", () => {
  if (group.open) cards.filter(({ card, drawn }) => !drawn && group.contains(card)).forEach((entry) => drawCard(entry, theme()));
}));

for (const entry of cards) {
  const { card, figure } = entry;
  const slotOf = (inside) => entry.plots.findIndex((plot) => plot.closest(".slot")?.contains(inside));
  card.addEventListener("change", ({ target }) => {
    entry.picked[slotOf(target)] = Number(target.value);
    drawCard(entry, theme());
  });
  card.addEventListener("click", ({ target }) => {
    if (target.matches("[data-csv]")) download(`${figure.file}.csv`, csv(...ROWS[figure.kind](figure, ({ run }) => view.runs.has(run))));
    if (!target.matches("[data-png]")) return;
    const own = slotOf(target); // the button below a card saves all of its plots
    entry.plots.forEach((plot, slot) => { if (own < 0 || own === slot) saveImage(figure, figure.choices[entry.picked[slot]], plot); });
  });
}

// A plot as an image that explains itself on a white page: title, unit, and which line is which.
function saveImage(figure, choice, plot) {
  const before = root.dataset.theme;
  root.dataset.theme = "light";
  const { data, layout, empty } = PLOTS[figure.kind](figure, choice, view, theme(), plot.clientWidth, plot.clientHeight);
  root.dataset.theme = before;
  if (empty) return;
  const title = figure.title + (figure.unit ? ` (${figure.unit})` : "");
  const below = [page.runs.length === 1 ? page.title : "", figure.overlaid && !view.beside ? "" : choiceName(choice)].filter(Boolean).join(", ");
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
