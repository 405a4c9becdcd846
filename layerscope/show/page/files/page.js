"use strict";
// The page put together: tables, and what the reader switches.

// A table of cells under headings: a row for each layer, metric or series.
function cellsTable(table) {
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

function longTable({ id, name: file, title, columns: given, owners, choose }) {
  const held = given.map(({ name: title, values }) => (
    { name: title, number: values.every((value) => typeof value !== "string"), value: (row) => values[row] }
  ));
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
  opened = [...document.querySelectorAll("#runs details:not([open])")];
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
