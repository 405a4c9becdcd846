"use strict";
// Values as the page holds them, and files made of them. Texts from data reach the page by textContent alone, and
// charts as rows of a table.

async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
}

// Vega's script runs as the page's own ones do: the page's policy knows its digest.
document.head.append(element("script", {}, await (await unpacked("vega")).text()));
const page = await (await unpacked("content")).json();
globalThis.page = page;

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
