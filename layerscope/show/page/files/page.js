"use strict";
// The page put together: tables, and what the reader switches.

// A table of cells under headings: a row for each layer, metric or series.
function cellsTable(table) {
  const several = new Set(table.rows.map(({ run }) => run).filter((run) => view.runs.has(run)));
  if (view.beside && several.size > 1) return joinedTable(table, [...several]);
  const { id, name: file, title, head, columns, rows } = table;
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
  const leading = [...(rows.some((row) => !page.runs[row.run].alone) ? [run] : []), name];
  return makeTable(tableIn(id), {
    label: title, file, columns: [...leading, ...cells],
    fields: [{ name: "run", value: run.value }, { name: head, value: name.value }, ...fields],
    count: rows.length, isShown: (row) => view.runs.has(rows[row].run),
  });
}

function tableIn(id) {
  return document.getElementById(id).querySelector(".table");
}

// The same table of several results as one: a row for each layer, under every heading a column for each result, and of
// two results what the second has more than the first.
function joinedTable({ id, name: file, title, head, columns, rows }, runs) {
  const seen = new Map();
  const keys = new Map(); // rows by their names: one of the same name comes again, as the next of that name
  rows.forEach((row, i) => {
    const again = `${row.run} ${row.name}`;
    seen.set(again, (seen.get(again) ?? 0) + 1);
    const key = `${row.name} ${seen.get(again)}`;
    if (!keys.has(key)) keys.set(key, { name: row.name, rank: row.rank, of: new Map() });
    keys.get(key).of.set(row.run, i);
  });
  const joined = [...keys.values()].filter(({ of }) => runs.some((run) => of.has(run))).sort((a, b) => a.rank - b.rank);
  const names = apart(runs.map(runName));
  const cells = columns.flatMap((column, c) => {
    const cell = (run) => (row) => rows[joined[row].of.get(run)]?.cells[c];
    const known = runs.filter((run) => joined.some((_, row) => cell(run)(row)));
    const unit = [column.title, column.detail].filter(Boolean).join(", ");
    const own = known.map((run) => ({
      ...column, group: unit, title: names[runs.indexOf(run)], detail: "", value: (row) => cell(run)(row)?.value ?? null,
      text: (row) => cell(run)(row)?.text ?? "", marked: (row) => cell(run)(row)?.marked ?? false,
    }));
    if (!column.number || known.length !== 2 || runs.length !== 2) return own;
    const scale = shownAs(joined.map((_, row) => cell(known[0])(row)).find((one) => one?.value));
    const more = (row) => {
      const [a, b] = known.map((run) => cell(run)(row)?.value);
      return typeof a === "number" && typeof b === "number" ? b - a : null;
    };
    const signed = (value) => (value === null ? "" : `${value > 0 ? "+" : value < 0 ? "−" : ""}${digits(Math.abs(scale * value), 3)}`);
    return [...own, { title: "difference", group: unit, number: true, value: more, text: (row) => signed(more(row)) }];
  });
  const first = {
    title: head, number: head === "layer", ascending: true, value: (row) => joined[row].name, text: (row) => joined[row].name,
    rank: (row) => joined[row].rank,
  };
  const fields = [first, ...cells].map(({ title: own, group, value }) => ({ name: [group, own].filter(Boolean).join(": "), value }));
  return makeTable(tableIn(id), { label: title, file, columns: [first, ...cells], fields, count: joined.length, isShown: () => true });
}

// The factor from a cell's number to what is shown of it: 100 for a share in percent.
function shownAs(cell) {
  const ratio = Math.abs(parseFloat((cell?.text ?? "").replace(/,/g, "").replace("−", "-")) / cell?.value);
  return ratio > 0 && Number.isFinite(ratio) ? 10 ** Math.round(Math.log10(ratio)) : 1;
}

// What tells names apart: without the words that all begin and end with.
function apart(names) {
  let words = names.map((name) => name.split(" "));
  const shared = (at) => words.every((own) => own.length > 1 && own.at(at) === words[0].at(at));
  while (shared(0)) words = words.map((own) => own.slice(1));
  while (shared(-1)) words = words.map((own) => own.slice(0, -1));
  return words.map((own) => own.join(" "));
}

function longTable({ id, name: file, title, columns: given, owners, choose }) {
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
  return makeTable(tableIn(id), {
    label: title, file, columns, fields: held, count: rows.length, isShown: (row) => view.runs.has(owners[row]),
  });
}

const listed = () => page.tables.map((table) => (table.long ? longTable : cellsTable)(table));
let tables = listed();

document.querySelectorAll("[data-run]").forEach((box) => box.addEventListener("change", () => {
  const run = Number(box.dataset.run);
  if (box.checked) view.runs.add(run); else view.runs.delete(run);
  if (view.beside) arrange(); else tables.forEach((table) => table.show());
  drawAll();
}));

function arrange() {
  cards.forEach(pick);
  tables = listed();
}

document.querySelectorAll("input[name=beside]").forEach((radio) => radio.addEventListener("change", () => {
  view.beside = radio.value === "beside";
  arrange();
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

// Paper is light and narrow; charts that were drawn for a dark screen are inverted there.
let screenTheme = "light";
let opened = [];
const LEGIBLE = 0.5; // a table that had to shrink more stays off the paper
const wideTables = () => [...document.querySelectorAll(".tabled:not(.long) .table")];
addEventListener("beforeprint", () => {
  screenTheme = root.dataset.theme;
  opened = [...document.querySelectorAll("#runs details:not([open]), #cite details:not([open])")];
  opened.forEach((details) => { details.open = true; });
  setTheme("light");
  root.classList.add("printing");
  wideTables().forEach((wide) => { // every column on the sheet
    const zoom = Math.min(1, wide.clientWidth / wide.querySelector("table").scrollWidth);
    wide.style.zoom = zoom;
    wide.closest(".tabled")?.classList.toggle("onscreen", zoom < LEGIBLE);
  });
  document.querySelectorAll("main > section").forEach((section) => { // a heading has something below it
    const tabled = [...section.querySelectorAll(".tabled")];
    const gone = tabled.length && !section.querySelector(".card, .grid") && tabled.every((one) => one.matches(".long, .onscreen"));
    section.classList.toggle("onscreen", Boolean(gone));
  });
});
addEventListener("afterprint", () => {
  opened.forEach((details) => { details.open = false; });
  setTheme(screenTheme);
  root.classList.remove("printing");
  wideTables().forEach((wide) => { wide.style.zoom = ""; });
});
