"use strict";
// Values as the page holds them, and files made of them. Texts from data reach the page by textContent alone, and
// plots through `escaped`, because plotly reads a few tags and entities in its texts.

const page = JSON.parse(document.getElementById("content").textContent);
// A long frame: columns by name, each with the value of a row (null where there is none), and the number of rows.
function frameOf(given) {
  const columns = new Map(given.map((column) => {
    const stored = column.values ? (row) => column.values[row] : () => column.all;
    const value = column.texts ? (row) => column.texts[stored(row)] ?? null : stored;
    return [column.name, { name: column.name, number: !column.texts, value }];
  }));
  return { columns, rows: Math.max(0, ...given.map((column) => column.values?.length ?? 1)) };
}
const numbers = frameOf(page.frame);
const scores = frameOf(page.scores);

// What every two layers gave, by run, metric and pooling: {layers, values}, layers in order, the final one last.
function squares() {
  if (!numbers.rows) return new Map();
  const [run, metric, pooling, layer, site, other, otherSite, value] =
    ["run", "metric", "pooling", "layer", "site", "layer_b", "site_b", "value"].map((name) => numbers.columns.get(name).value);
  const name = (site, layer) => (site === "raw" ? String(layer) : "final");
  const found = new Map();
  for (let row = 0; row < numbers.rows; row++) {
    if (other(row) === null) continue;
    const key = JSON.stringify([run(row), metric(row), pooling(row)]);
    if (!found.has(key)) found.set(key, new Map());
    const lines = found.get(key);
    const a = name(site(row), layer(row));
    if (!lines.has(a)) lines.set(a, new Map());
    lines.get(a).set(name(otherSite(row), other(row)), value(row));
  }
  return new Map([...found].map(([key, lines]) => {
    const layers = [...lines.keys()].sort((a, b) => (a === "final") - (b === "final") || a - b);
    return [key, { layers, values: layers.map((a) => layers.map((b) => lines.get(a).get(b) ?? null)) }];
  }));
}

function escaped(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function csv(header, rows) {
  const field = (value) => {
    if (value === null || value === undefined) return "";
    const text = String(value);
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return [header, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function runName(index) {
  return page.runs[index].name;
}

// What tells a run, or a series of scores, from the others of its kind: nothing where there is no other.
function calledBy(index) {
  return page.runs[index].alone ? "" : runName(index);
}
