"use strict";
// Plots by their kind, from what documents hold to plotly's traces and layout: charts, heat maps, box plots, bars.

const DASHES = ["solid", "dash", "dot", "dashdot"];
const GLYPHS = { circle: "●", square: "■", "triangle-up": "▲", x: "✕", star: "★", diamond: "◆", bars: "▮" };
const SYMBOLS = Object.keys(GLYPHS).slice(0, 5); // 5 and 7 colours: 35 looks
const MOST_MARKERS = 26;
const MOST_PRINTED = 16;
const RING = "#ff3d7f"; // seen on both ends of a map's scale, in both themes
const CHARACTER = 6.6; // pixels
const NOTHING = 0.05; // how far an axis reaches to each side of values that do not differ

function theme() {
  const css = getComputedStyle(document.documentElement);
  const value = (name) => css.getPropertyValue(name).trim();
  return {
    ink: value("--ink"), muted: value("--muted"), card: value("--card"), grid: value("--grid"), line: value("--line"),
    mark: value("--mark"), low: value("--low"), middle: value("--middle"), high: value("--high"), series: value("--series").split(",").map((color) => color.trim()),
  };
}

function layout(colors, more) {
  const axis = { gridcolor: colors.grid, linecolor: colors.line, zeroline: false, fixedrange: coarse(), tickfont: { size: 11 } };
  const { xaxis = {}, yaxis = {}, ...rest } = more;
  return {
    paper_bgcolor: colors.card, plot_bgcolor: colors.card, font: { color: colors.ink, size: 12 }, showlegend: false,
    margin: { l: 52, r: 14, t: 10, b: 40 }, hoverlabel: { font: { size: 12 }, namelength: -1 }, hovermode: "closest",
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, dragmode: coarse() ? false : "zoom", ...rest,
  };
}

function titled(text) {
  return { text: escaped(text), font: { size: 12 }, standoff: 6 };
}

function coarse() {
  return matchMedia("(pointer: coarse)").matches; // a finger that moves over a plot scrolls the page
}

// The series that lie over each other anywhere on the page, by name: each has its own dash on every plot. What has no
// name looks like the only one that has, and unlike several.
const everyName = [...new Set(page.figures.filter((figure) => figure.overlaid)
  .flatMap((figure) => figure.choices.flatMap(({ series }) => series.map(({ name }) => name ?? ""))))];
const allNames = everyName.filter(Boolean).length > 1 ? ["", ...everyName.filter(Boolean)].filter((name) => everyName.includes(name)) : everyName.filter(Boolean);

// Colour, dash and shape of a series: of several results each has its own colour, of one each of its series.
function look(run, { name = "", tone = "own", mark = "line", detail }, colors) {
  const kind = Math.max(0, allNames.indexOf(name));
  if (detail) return { ...look(run, { name, tone, mark }, colors), dash: "dot", symbol: "square" };
  if (typeof tone === "number") return styled(tone, DASHES[tone % DASHES.length], colors);
  if (tone === "rival") return { ...styled(page.runs[run].look + 1, "dash", colors), symbol: "square", width: 1.5 };
  if (tone === "ink" || tone === "muted") return { color: colors[tone], dash: "solid", symbol: "diamond", width: 2 };
  return styled(page.runs[run].alone && mark === "line" ? kind : page.runs[run].look, DASHES[kind % DASHES.length], colors);
}

function styled(number, dash, colors) {
  return { color: colors.series[number % colors.series.length], dash, symbol: SYMBOLS[number % SYMBOLS.length], width: 2 };
}

const PLOTS = {
  chart(figure, choice, view, colors) {
    const seen = figure.choices.filter(({ run }) => view.runs.has(run));
    const shown = figure.overlaid && !view.beside ? seen : [choice];
    const lines = shown.flatMap((one) => one.series.map((series) => ({ ...one, series }))).filter(({ series }) => !series.right || view.overlay);
    const known = lines.filter(({ series }) => !(series.mark === "guide" || series.mark === "level" || series.right));
    if (!known.some(({ series }) => series.y.some((value) => value !== null))) {
      const reasons = [...new Set(known.map(({ series }) => series.note).filter(Boolean))];
      return { empty: shown.length ? ["no value", ...reasons].join("; ") : "no run with this metric is chosen" };
    }
    const alike = figure.choices.filter((one) => one.x.title === shown[0].x.title);
    const x = across(alike, view);
    const drawn = lines.map((line) => seriesTraces(line, figure, x, colors));
    const marks = drawn.flatMap((line) => line.marks);
    const right = lines.some(({ series }) => series.right);
    const more = right ? { yaxis2: { ...SECOND, tickfont: { size: 11, color: colors.muted } } } : {};
    const named = shown.flatMap((one) => one.lines ?? []);
    Object.assign(more, { margin: { l: 52, r: right ? 44 : 14, t: named.length ? 26 : 10, b: 40 }, ...across_lines(named, x, colors) });
    const rivals = view.beside ? alike.filter((one) => seen.includes(one) && one.y.title === shown[0].y.title) : [];
    const yaxis = upright(shown[0].y, [...known, ...rivals.flatMap(({ series }) => series.map((one) => ({ series: one })))]);
    if (rivals.length) sameAxes(rivals, x, yaxis);
    return { data: [...drawn.flatMap((line) => line.traces), ...(marks.length ? [markTrace(marks)] : [])], layout: layout(colors, { xaxis: x.axis, yaxis, ...more }) };
  },

  map(figure, choice, view, colors, width, height) {
    const { rows, columns, values, rings = [], depth } = choice;
    const alike = figure.choices.flatMap((other) => (other.unit === choice.unit ? other.values.flat() : [])).filter((value) => value !== null);
    if (!alike.length) return { empty: figure.note || "no value" };
    const scaled = (value) => (value === null || value === undefined ? null : choice.log ? Math.log10(value) : value);
    const high = choice.high ?? Math.max(...alike);
    const low = choice.low ?? Math.min(...alike, high - choice.least);
    const beyond = high > low || choice.log ? 0 : NOTHING;
    const print = (value) => (value === null ? "" : choice.unit === "%" ? value.toFixed(1) : high <= 1 && low >= -1 ? value.toFixed(2).replace(/^(-?)0\./, "$1.") : digits(value, 3));
    const printed = choice.shown ?? values.map((line) => line.map(print));
    const labels = rows.every((name) => name.length < 6) ? 0 : Math.max(...rows.map((name) => Math.min(roomFor(width), [...name].length)));
    const left = labels ? 14 + CHARACTER * labels : 52;
    const side = Math.min(width - left - 64, height - 50); // of a square, which the scale stands beside and is as high as
    const right = choice.square && !labels ? width - left - side : 4;
    const cell = (width - 100 - CHARACTER * labels) / columns.length;
    const fits = rows.length <= (labels ? 60 : MOST_PRINTED) && cell > 5 + 6 * Math.max(...printed.flat().map((text) => text.length));
    const named = (title, name) => (title && name !== "final" ? `${title} ${name}` : name);
    const told = (i, j) => choice.texts?.[i]?.[j] ?? `${named(choice.down, rows[i])}, ${named(choice.across, columns[j])}: ${values[i][j] === null ? "no value" : digits(values[i][j], 5)} ${choice.unit}`;
    const percent = (title, name) => (view.percent && depth && title === "layer" && name !== "final" ? `${Math.round((100 * name) / depth)}` : name);
    const data = [{
      type: "heatmap", x: columns.map((_, j) => j), y: rows.map((_, i) => i), z: values.map((line) => line.map(scaled)),
      zmin: scaled(low - beyond), zmax: scaled(high + beyond), hoverinfo: "text", hoverongaps: false, xgap: Number(fits), ygap: Number(fits),
      ...(choice.diverging ? { colorscale: [[0, colors.low], [0.5, colors.middle], [1, colors.high]] } : { colorscale: "Cividis", reversescale: Boolean(choice.reversed) }),
      hovertext: rows.map((_, i) => columns.map((__, j) => escaped(short(told(i, j), 160)))),
      text: printed.map((line, i) => line.map((text, j) => (labels && rings[i] === j ? `○ ${text}` : text))), texttemplate: fits ? "%{text}" : "", textfont: { size: 10.5 },
      colorbar: { thickness: 12, ...(choice.square && !labels ? { lenmode: "pixels", len: side } : {}), outlinewidth: 0, tickfont: { size: 11 }, ...(choice.log ? powers(low, high) : { nticks: 6 }) },
    }, {
      type: "scatter", mode: "markers", hoverinfo: "skip", visible: !(fits && labels), x: rings.map((j) => j ?? null), y: rings.map((_, i) => i),
      marker: { symbol: "circle-open", size: fits && !labels ? 26 : 9, color: choice.diverging ? colors.ink : RING, line: { width: 2 } },
    }].slice(0, rings.length ? 2 : 1);
    const ends = (names) => [-0.5, names.length - 0.5];
    const axis = { showgrid: false, ticks: "", ...(choice.square ? { constrain: "domain" } : {}) };
    const title = (text) => titled(cut(view.percent && depth && text === "layer" ? "percent of depth" : text ?? "", Math.max(20, roomFor(width))));
    const widest = Math.max(...columns.map((name) => [...name].length));
    const xaxis = { ...axis, title: title(choice.across), range: ends(columns), ...ticks(columns.map((name) => percent(choice.across, name)), (width - 100) / Math.max(30, 8 * Math.min(10, widest)), 10) };
    const yaxis = { ...axis, title: labels ? {} : title(choice.down), range: choice.upward || choice.square ? ends(rows) : ends(rows).reverse(), ...ticks(rows.map((name) => percent(choice.down, name)), labels ? rows.length : 11, roomFor(width)) };
    if (choice.square && !labels) yaxis.scaleanchor = "x";
    return { data, layout: layout(colors, { xaxis, yaxis, margin: { l: left, r: right, t: 10, b: 40 } }) };
  },

  boxes(figure, choice, view, colors) {
    const { color } = look(choice.run, { mark: "boxes" }, colors);
    const { boxes, each } = choice;
    const column = (pick) => boxes.map(pick);
    const far = boxes.flatMap((box) => (box.outliers ?? []).map(([name, value]) => ({ column: box.name, name, value })));
    const data = [{
      type: "box", x: column((b) => b.name), q1: column((b) => b.quartiles[0]), median: column((b) => b.quartiles[1]),
      q3: column((b) => b.quartiles[2]), lowerfence: column((b) => b.whiskers[0]), upperfence: column((b) => b.whiskers[1]),
      mean: column((b) => b.mean), marker: { color }, line: { width: 1.3 }, whiskerwidth: 0.5, hoverinfo: "y",
    }, {
      type: "scatter", mode: "markers", x: far.map((s) => s.column), y: far.map((s) => s.value), hoverinfo: "text",
      hovertext: far.map((s) => `${each} ${escaped(short(s.name))}: ${s.value.toFixed(3)} at ${choice.x} ${s.column}`),
      marker: { color, size: 3.5, opacity: 0.6 },
    }];
    const names = column((b) => b.name);
    const seen = figure.choices.filter(({ run, y }) => view.runs.has(run) && y === choice.y);
    const spread = seen.flatMap((one) => one.boxes.flatMap((b) => [...b.whiskers, b.mean, ...(b.outliers ?? []).map(([, value]) => value)]));
    return { data, layout: layout(colors, { xaxis: { type: "category", categoryorder: "array", categoryarray: names, title: titled(choice.x) }, yaxis: { title: titled(choice.y), ...(view.beside ? { range: around(spread) } : {}) } }) };
  },

  bars(figure, choice, view, colors, width) {
    const { rows, values, low = [], high = [], x } = choice;
    const names = rows.map((name) => escaped(cut(name, roomFor(width))));
    const error = (ends, sign) => values.map((value, i) => Math.max(0, sign * ((ends[i] ?? value) - value)));
    const data = [{
      type: "bar", orientation: "h", x: values, y: rows.map((_, i) => i), hoverinfo: "text",
      marker: { color: look(choice.run, { mark: "bars" }, colors).color, opacity: 0.75 },
      error_x: { visible: low.some((end) => end !== null), type: "data", symmetric: false, array: error(high, 1), arrayminus: error(low, -1), color: colors.ink, thickness: 1.3, width: 3 },
      hovertext: rows.map((name, i) => `${escaped(name)}: ${digits(values[i], 3)}${(low[i] ?? null) === null ? "" : ` (${digits(low[i], 3)} … ${digits(high[i], 3)})`}`),
    }];
    const seen = figure.choices.filter((one) => view.runs.has(one.run) && one.x.title === x.title);
    const range = x.range ?? (view.beside ? around([0, ...seen.flatMap((one) => [...one.values, ...(one.low ?? []), ...(one.high ?? [])])]) : null);
    const xaxis = { title: titled(x.title), ...(range ? { range } : {}), nticks: 6, zeroline: true, zerolinecolor: colors.muted };
    const yaxis = { range: [rows.length - 0.5, -0.5], showgrid: false, ticks: "", tickvals: rows.map((_, i) => i), ticktext: names };
    return { data, layout: layout(colors, { xaxis, yaxis, bargap: 0.35, margin: { l: 14 + CHARACTER * Math.max(...names.map((name) => name.length)), r: 12, t: 10, b: 40 } }) };
  },
};

// What a reader has chosen to see over the others, dotted on a scale of its own.
const SECOND = { overlaying: "y", side: "right", showgrid: false, zeroline: false, tickmode: "auto", nticks: 5 };

// The horizontal axis of all choices, and where a point of one of them lies: layers also by percent of depth.
function across(choices, view) {
  const { title, range, whole, log } = choices[0].x;
  const depth = Math.max(0, ...choices.map((one) => one.x.depth ?? 0));
  const percent = view.percent && depth > 0;
  const end = percent ? 100 : depth;
  const all = choices.flatMap(({ series }) => series.flatMap((one) => one.x));
  const most = depth || Math.max(1, ...all);
  const axis = { title: titled(percent ? "percent of depth" : title), ...(log ? { type: "log" } : { nticks: 8 }) };
  if (depth) axis.range = [-0.03 * end, 1.03 * end];
  if (range && !percent) axis.range = range;
  if (whole && !percent) Object.assign(axis, { tickformat: ",d" }, most <= 800 ? { dtick: step(most) } : { nticks: 7 });
  return { axis, at: (value, one) => (value === null ? null : percent ? (100 * value) / (one.depth ?? one.x.depth) : value * (one.x.scale ?? 1)) };
}

// The vertical axis: logarithmic, of a range that is given, or long enough that noise looks like noise.
function upright({ title, range, whole, log, scale = 1, least = 0 }, lines) {
  const axis = { title: titled(title ?? "") };
  const reach = (side) => lines.flatMap(({ series }) => series.y.map((value, i) => [value, side * (series.errors?.[i] ?? 0)]))
    .filter(([value]) => value !== null).map(([value, error]) => (value + (log ? 0 : error)) * scale);
  const [low, high] = [Math.min(...reach(-1)), Math.max(...reach(1))]; // with the bands
  if (log && low > 0) return { ...axis, type: "log", exponentformat: "power", minexponent: 3, ...decades(low, high) };
  if (low === 0 && high === 0) Object.assign(axis, { range: range ?? [-NOTHING * scale, NOTHING * scale] });
  else if (range) Object.assign(axis, { range });
  else if (high - low < least * scale) {
    const end = Math.min(least * scale / 2, scale === 100 && high <= 100 ? 100.5 - (low + high) / 2 : Infinity);
    axis.range = [(low + high) / 2 + end - least * scale, (low + high) / 2 + end];
  }
  return whole ? { ...axis, tickformat: "d", dtick: step(range?.[1] ?? high) } : axis;
}

// Axes that show all of some plots, for those that stand side by side; what has a range already keeps it.
function sameAxes(choices, { axis, at }, yaxis) {
  const lines = choices.flatMap((one) => one.series.filter(({ mark, right }) => mark !== "guide" && !right).map((series) => ({ one, series })));
  const x = lines.flatMap(({ one, series }) => series.x.map((value) => at(value, { ...one, depth: series.depth })));
  const y = lines.flatMap(({ one, series }) => series.y.flatMap((value, i) => {
    const error = (series.errors?.[i] ?? 0) * (one.y.scale ?? 1);
    return value === null ? [] : [-1, 1].map((sign) => value * (one.y.scale ?? 1) + sign * error);
  }));
  if (!axis.range) axis.range = around(x, axis.type === "log");
  if (!yaxis.range) yaxis.range = around(lines.some(({ series }) => series.mark === "bars") ? [0, ...y] : y, yaxis.type === "log");
}

// The range of an axis around values, a little wider than they are.
function around(values, log = false) {
  const known = values.filter((value) => value !== null && (!log || value > 0)).map((value) => (log ? Math.log10(value) : value));
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const room = 0.06 * (high - low) || NOTHING;
  return [low - room, high + room];
}

// A series as traces, its band first, and what is marked on it.
function seriesTraces({ run, series, y: { scale = 1, log }, marked: word, ...one }, figure, { at }, colors) {
  const { texts = [], labels = [], errors = [], mark = "line", tone = "own", marked = [], pale = [], after = [], note } = series;
  const style = look(run, series, colors);
  const x = series.x.map((value) => at(value, { ...one, depth: series.depth }));
  const y = series.y.map((value) => (value === null ? null : value * scale));
  const name = escaped(seriesName(run, series, figure));
  const over = figure.overlaid && name ? `${name}<br>` : "";
  const text = (i) => `${over}${escaped(texts[i] ?? "")}${note ? `<br>${escaped(note)}` : ""}`;
  const base = { name, hoverinfo: texts.length ? "text" : "skip", yaxis: series.right ? "y2" : "y" };
  if (!x.length) return { traces: [], marks: [] };
  if (mark === "guide" || mark === "level") {
    const line = mark === "guide" ? { color: style.color, width: series.right ? 1.5 : 1, dash: series.right ? "2px,3px" : "dot" } : { color: style.color, width: 1.5, dash: "8px,5px" };
    return { traces: [{ ...base, type: "scatter", mode: "lines", x, y, hovertext: x.map((_, i) => text(i)), line }], marks: [] };
  }
  if (mark === "bars") {
    return { traces: [{ ...base, type: "bar", x, y, hovertext: texts.map(escaped), marker: { color: x.map((_, i) => (pale.includes(i) ? colors.line : style.color)) } }], marks: [] };
  }
  const kept = x.map((_, i) => i).filter((i) => !after.includes(i));
  const of = (values) => kept.map((i) => values[i]);
  const apart = mark === "points" && errors.length; // a large open diamond with its error, which no curve can cover
  const mode = [mark === "line" ? "lines" : "", "markers", labels.length ? "text" : ""].filter(Boolean).join("+");
  const symbol = apart ? "diamond-open" : style.symbol;
  const traces = [
    ...(apart ? [] : bands(of(x), of(y), of(errors), scale, log)).map((band) => ({
      type: "scatter", ...band, mode: "lines", fill: "toself", fillcolor: faded(style.color), line: { width: 0 }, hoverinfo: "skip", yaxis: base.yaxis })),
    {
      ...base, type: "scatter", mode, x: of(x), y: of(y), hovertext: kept.map(text), connectgaps: false, cliponaxis: figure.overlaid,
      text: labels.map(escaped), textposition: "bottom center", textfont: { size: 11, color: colors.muted },
      line: { color: style.color, dash: style.dash, width: style.width },
      marker: { symbol, size: apart ? 14 : tone === "ink" ? 10 : figure.overlaid ? 6 : 7, color: style.color, maxdisplayed: MOST_MARKERS, line: { width: apart ? 2.5 : 0, color: style.color } },
      ...(apart ? { error_y: { type: "data", array: errors.map((error) => error * scale), color: style.color, thickness: 1.5, width: 5 } } : {}),
    },
  ];
  const marks = after.map((i) => ({ x: x[i], y: y[i], text: text(i), symbol: "diamond-open", size: 10, color: style.color }));
  const ring = { symbol: "circle-open", size: 14, color: colors.mark };
  marks.push(...marked.map((i) => ({ x: x[i], y: y[i], text: `${text(i)}, ${word}`, ...ring })));
  return { traces, marks };
}

// What is marked on the lines of a plot, as one trace: fewer traces are drawn faster.
function markTrace(marks) {
  const column = (name) => marks.map((mark) => mark[name]);
  return {
    type: "scatter", mode: "markers", x: column("x"), y: column("y"), hoverinfo: "text", hovertext: column("text"), cliponaxis: false,
    marker: { symbol: column("symbol"), size: column("size"), color: column("color"), line: { width: 2, color: column("color") } },
  };
}

// Lines across a chart at numbers with names.
function across_lines(lines, { at }, colors) {
  const to = lines.map(([value, name]) => ({ x: at(value, { x: {} }), name }));
  const base = { xref: "x", yref: "paper" };
  return {
    shapes: to.map(({ x }) => ({ type: "line", ...base, x0: x, x1: x, y0: 0, y1: 1, line: { color: colors.mark, dash: "dash", width: 2 } })),
    annotations: to.map(({ x, name }) => ({ ...base, x, y: 1, yanchor: "bottom", showarrow: false, text: escaped(name), font: { color: colors.mark } })),
  };
}

// Bands of one standard error: a polygon for each stretch of points that have a value.
function bands(x, y, errors, scale, log) {
  const found = [];
  let stretch = [];
  const close = () => {
    if (stretch.length > 1) {
      const low = stretch.map((i) => [x[i], log ? Math.max(y[i] - errors[i] * scale, y[i] / 2) : y[i] - errors[i] * scale]);
      const high = stretch.map((i) => [x[i], y[i] + errors[i] * scale]).reverse();
      found.push({ x: [...low, ...high].map((p) => p[0]), y: [...low, ...high].map((p) => p[1]) });
    }
    stretch = [];
  };
  y.forEach((value, i) => (value === null || (errors[i] ?? null) === null ? close() : stretch.push(i)));
  close();
  return found;
}

function faded(color) {
  return color + (page.runs.length > 4 ? "18" : "33"); // bands of many results lie on each other
}

function digits(value, most) {
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(most)));
}

function roomFor(width) {
  return Math.max(10, Math.min(34, Math.floor(width / 22)));
}

function cut(text, room) {
  const letters = [...text];
  return letters.length > room ? `${letters.slice(0, room - 1).join("")}…` : text;
}

function short(text, room = 60) {
  return cut(text, room);
}

// What tells a series from the others of its plot: the result, and its own name where there are several.
function seriesName(run, { name = "", detail }, figure) {
  const names = new Set(figure.choices.flatMap(({ series }) => series.map((one) => one.name ?? "")));
  const own = names.size > 1 || !figure.overlaid ? name : "";
  return [figure.overlaid ? calledBy(run) : "", own, detail ?? ""].filter(Boolean).map((text) => short(text)).join(", ");
}

// Ticks of an axis of names: about `most` of them, the last one included.
function ticks(names, most, room) {
  const every = Math.max(1, Math.ceil(names.length / Math.max(2, Math.floor(most))));
  const kept = names.map((_, i) => i).filter((i) => (names.length - 1 - i) % every === 0);
  return { tickvals: kept, ticktext: kept.map((i) => escaped(cut(String(names[i]), room))) };
}

// Ticks of a logarithmic axis: every decade, every other where there are many; plotly's own where there is hardly one.
function decades(low, high) {
  const span = Math.log10(high / low);
  return span > 6 ? { dtick: 2 } : span > 1 ? { dtick: 1 } : {};
}

// Ticks of a colour bar over logarithms: 1, 2 and 5 of each decade, or decades alone.
function powers(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    (high / low > 1000 ? [1] : [1, 2, 5]).forEach((first) => found.push(first * 10 ** power));
  }
  const kept = found.filter((value) => value >= low && value <= high);
  const marks = kept.length > 1 ? kept : [low, high];
  return { tickvals: marks.map(Math.log10), ticktext: marks.map((value) => digits(value, 3)) };
}

function step(depth) {
  return [1, 2, 4, 5, 10, 20, 50, 100].find((size) => depth / size <= 8) ?? 1000;
}

// The rows behind a figure, as its CSV holds them: values in the units of the long frame.
const ROWS = {
  chart: (figure, shown) => [
    ["run", "series", figure.choices[0].x.title, figure.choices[0].y.title || "value", figure.choices[0].spread ?? "stderr", figure.choices[0].marked, "point"],
    figure.choices.filter(shown).flatMap(({ run, choice, series }) => series.filter(({ mark }) => mark !== "guide").flatMap((one) => one.x.map((x, i) => (
      [runName(run), [one.name ?? choice, one.detail].filter(Boolean).join(", "), x, one.y[i], one.errors?.[i], one.marked?.includes(i) ?? false, one.texts?.[i]])))),
  ],
  map: (figure, shown) => {
    const { down = "row", across: along = "column" } = figure.choices[0];
    return [["run", "series", down, along === down ? `${down}_b` : along, "value"], figure.choices.filter(shown).flatMap(({ run, choice, rows, columns, values }) => (
      rows.flatMap((a, i) => columns.map((b, j) => [runName(run), choice, a, b, values[i][j]]))))];
  },
  boxes: (figure, shown) => [
    ["run", "series", figure.choices[0].x, "n", "mean", "lower_whisker", "q1", "median", "q3", "upper_whisker", "below_0"],
    figure.choices.filter(shown).flatMap(({ run, choice, boxes }) => boxes.map((box) => (
      [runName(run), choice, box.name, box.n, box.mean, box.whiskers[0], ...box.quartiles, box.whiskers[1], box.negative ?? 0]))),
  ],
  bars: (figure, shown) => [
    ["run", "series", "name", figure.choices[0].x.title, "low", "high"],
    figure.choices.filter(shown).flatMap(({ run, choice, rows, values, low = [], high = [] }) => rows.map((name, i) => (
      [runName(run), choice, name, values[i], low[i], high[i]]))),
  ],
};
