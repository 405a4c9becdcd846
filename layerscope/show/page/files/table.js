"use strict";
// One table that sorts by any heading and filters by words and by choices; rows are shown as far as asked for.

const ROWS_AT_ONCE = 100;

// columns: [{title, detail, number, wraps, value(row), text(row), marked(row), choose}]; rows: indices 0 … count − 1;
// fields: the columns of the CSV, [{name, value(row)}]
function makeTable(root, { label, columns, fields, count, file, isShown }) {
  const state = { sort: null, descending: false, words: "", limit: ROWS_AT_ONCE, choices: new Map() };
  const search = element("input", { type: "search", placeholder: "Filter rows", "aria-label": `Filter rows of ${label}` });
  const status = element("span", { class: "status", role: "status" });
  const save = element("button", { type: "button", class: "quiet", "data-csv": "" }, "CSV of these rows");
  const tools = element("div", { class: "tools" }, search, ...columns.filter((c) => c.choose).map(chooser), save, status);
  const headings = columns.map(heading);
  const body = element("tbody");
  const head = element("thead", {}, element("tr", {}, ...headings));
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    element("table", {}, head, body));
  const more = element("button", { type: "button", class: "quiet more" }, "More rows");
  root.replaceChildren(tools, scroll, more);
  const hint = () => root.classList.toggle("beyond", scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft > 8);
  scroll.addEventListener("scroll", hint, { passive: true });
  new ResizeObserver(hint).observe(scroll);
  const words = Array.from({ length: count }, () => null);

  search.addEventListener("input", () => { state.words = search.value; state.limit = ROWS_AT_ONCE; show(); });
  more.addEventListener("click", () => { state.limit += 10 * ROWS_AT_ONCE; show(); });
  save.addEventListener("click", () => {
    const rows = chosen().map((row) => fields.map((field) => field.value(row)));
    download(`${file}.csv`, csv(fields.map((field) => field.name), rows));
  });

  function chooser(column) {
    const values = [...new Set(Array.from({ length: count }, (_, row) => column.text(row)))];
    const options = ["", ...values].map((value) => element("option", { value }, value || `every ${column.title}`));
    const select = element("select", { "aria-label": `${column.title} in ${label}` }, ...options);
    select.addEventListener("change", () => {
      state.choices.set(column, select.value);
      state.limit = ROWS_AT_ONCE;
      show();
    });
    return select;
  }

  function heading(column) {
    const button = element("button", { type: "button" }, ...breakable(column.title));
    button.addEventListener("click", () => {
      state.descending = state.sort === column ? !state.descending : Boolean(column.number) && !column.ascending;
      state.sort = column;
      show();
    });
    const cell = element("th", { scope: "col", "aria-sort": "none", ...(column.number && { class: "number" }) }, button);
    if (column.detail) button.append(element("span", { class: "detail" }, column.detail));
    return cell;
  }

  function wordsOf(row) {
    words[row] ??= columns.map((column) => column.text(row)).join(" ").toLowerCase();
    return words[row];
  }

  function chosen() {
    const wanted = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [];
    for (let row = 0; row < count; row++) {
      if (!isShown(row)) continue;
      if ([...state.choices].some(([column, value]) => value && column.text(row) !== value)) continue;
      if (wanted.length && !wanted.every((word) => wordsOf(row).includes(word))) continue;
      rows.push(row);
    }
    return state.sort ? sorted(rows, state.sort, state.descending) : rows;
  }

  function show() {
    const rows = chosen();
    body.replaceChildren(...rows.slice(0, state.limit).map((row) => element("tr", {}, ...columns.map((column, i) => {
      const kind = ["number", "wraps"].filter((is) => column[is]).concat(column.marked?.(row) ? "marked" : []).join(" ");
      const text = column.text(row);
      return element(i ? "td" : "th", { ...(!i && { scope: "row" }), ...(kind && { class: kind }), ...(text.length > 30 && { title: text }) }, text);
    }))));
    headings.forEach((cell, i) => {
      const direction = state.descending ? "descending" : "ascending";
      cell.setAttribute("aria-sort", columns[i] === state.sort ? direction : "none");
    });
    const seen = Math.min(state.limit, rows.length);
    const of = rows.length === count ? "" : ` of ${count.toLocaleString("en")}`;
    status.textContent = `${rows.length.toLocaleString("en")}${of} row${rows.length === 1 && !of ? "" : "s"}` +
      (seen < rows.length ? `, the first ${seen.toLocaleString("en")} shown` : "");
    more.hidden = seen >= rows.length;
  }

  show();
  return { show };
}

// A name that may break between its words, not inside one, and so takes no more room than it needs.
function breakable(name) {
  return name.split(/(?<=[-_./])/u).flatMap((word, i) => (i ? [element("wbr"), word] : [word]));
}

// Rows by a column's values, what is missing always last; equal values keep their order.
function sorted(rows, column, descending) {
  const sign = descending ? -1 : 1;
  const key = column.rank ?? column.value;
  const keyed = rows.map((row) => [key(row) ?? null, row]);
  keyed.sort(([a, i], [b, j]) => {
    if (a === null || b === null) return (a === null) - (b === null) || i - j;
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return sign * order || i - j;
  });
  return keyed.map(([, row]) => row);
}
