"use strict";
// Values as the page holds them, and files made of them. Texts from data reach the page by textContent alone, and
// plots through `escaped`, because plotly reads a few tags and entities in its texts.

const page = JSON.parse(document.getElementById("content").textContent);
// The columns of a long frame, each with the value of a row, null where there is none.
function columnsOf(given) {
  return given.map((column) => {
    const stored = column.values ? (row) => column.values[row] : () => column.all;
    const value = column.texts ? (row) => column.texts[stored(row)] ?? null : stored;
    return { name: column.name, number: !column.texts, value };
  });
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

// What tells a result from the others of its kind: nothing where there is no other.
function calledBy(index) {
  return page.runs[index].alone ? "" : runName(index);
}
