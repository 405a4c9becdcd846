"use strict";
// From a figure's content to plotly's traces and layout.

const DASHES = ["solid", "dash", "dot", "dashdot"];
const GLYPHS = { circle: "●", square: "■", "triangle-up": "▲", x: "✕", star: "★" }; // 5 and 7 colours: 35 looks
const SYMBOLS = Object.keys(GLYPHS);
const MOST_MARKERS = 26;
const MOST_PRINTED = 13;

function theme() {
  const css = getComputedStyle(document.documentElement);
  const value = (name) => css.getPropertyValue(name).trim();
  return {
    ink: value("--ink"), muted: value("--muted"), card: value("--card"), grid: value("--grid"), line: value("--line"),
    mark: value("--mark"), series: value("--series").split(",").map((color) => color.trim()),
  };
}

function layout(colors, more) {
  const axis = {
    gridcolor: colors.grid, linecolor: colors.line, zeroline: false, fixedrange: coarse(),
    tickfont: { size: 11 },
  };
  const { xaxis = {}, yaxis = {}, ...rest } = more;
  return {
    paper_bgcolor: colors.card, plot_bgcolor: colors.card, font: { color: colors.ink, size: 12 }, showlegend: false,
    margin: { l: 52, r: 12, t: 10, b: 40 }, hoverlabel: { font: { size: 12 }, namelength: -1 }, hovermode: "closest",
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, dragmode: coarse() ? false : "zoom", ...rest,
  };
}

function titled(text) {
  return { text, font: { size: 12 }, standoff: 6 };
}

function coarse() {
  return matchMedia("(pointer: coarse)").matches; // a finger that moves over a plot scrolls the page
}

// Colour and shape of a line: of several runs each has its own, of several poolings each its own dash, on every plot.
const allPoolings = poolingsOf(page.figures.flatMap((figure) => figure.lines ?? [])).filter((name) => name !== null);

function look(line, colors) {
  const pooling = Math.max(0, allPoolings.indexOf(line.pooling));
  const i = several ? line.run : pooling;
  const dash = DASHES[pooling % DASHES.length];
  return { color: colors.series[i % colors.series.length], dash, symbol: SYMBOLS[i % SYMBOLS.length] };
}

function poolingsOf(lines) {
  return [...new Set(lines.map((line) => line.pooling))];
}

const pairs = squares();

function squareOf({ run, metric, pooling }) {
  return pairs.get(JSON.stringify([runName(run), metric, pooling]));
}

const PLOTS = {
  curve(figure, _, view, colors) {
    const lines = figure.lines.filter((line) => view.runs.has(line.run))
      .map((line) => curveTraces(line, figure, look(line, colors), view, colors));
    const data = [...lines.flatMap((line) => line.traces), markTrace(lines.flatMap((line) => line.marks))];
    const end = view.percent ? 100 : Math.max(1, ...figure.lines.map((line) => page.runs[line.run].depth));
    const xaxis = { title: titled(view.percent ? "percent of depth" : "layer"), range: [-0.03 * end, 1.03 * end] };
    if (!view.percent) Object.assign(xaxis, { tickformat: "d", dtick: step(end) });
    const yaxis = figure.log ? { type: "log", exponentformat: "power", minexponent: 3, ...decades(figure) } : {};
    const annotations = lines.length ? [] : [{
      text: "no run with this metric is chosen", xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false,
    }];
    return { data, layout: layout(colors, { xaxis, yaxis, annotations }) };
  },

  heat(figure, choice, _, colors) {
    const { layers, values } = squareOf(choice);
    const printed = layers.length <= MOST_PRINTED;
    const data = [{
      type: "heatmap", x: layers, y: layers, z: values, zmin: Math.min(0, ...values.flat()), zmax: 1,
      colorscale: "Cividis", texttemplate: printed ? "%{z:.2f}" : "", textfont: { size: 10 }, xgap: Number(printed), ygap: Number(printed),
      hovertemplate: "layers %{y} and %{x}: %{z:.4f}<extra></extra>",
      colorbar: { thickness: 12, outlinewidth: 0, tickfont: { size: 11 } },
    }];
    const axis = { type: "category", title: titled("layer"), constrain: "domain", showgrid: false, ticks: "" };
    return { data, layout: layout(colors, { xaxis: axis, yaxis: { ...axis, scaleanchor: "x" } }) };
  },

  box(figure, choice, _, colors) {
    const color = colors.series[several ? choice.run % colors.series.length : 0];
    const names = choice.boxes.map((box) => box.layer);
    const column = (pick) => choice.boxes.map(pick);
    const far = choice.boxes.flatMap((box) => box.outliers.map((sample) => ({ layer: box.layer, ...sample })));
    const data = [{
      type: "box", x: names, q1: column((b) => b.quartiles[0]), median: column((b) => b.quartiles[1]),
      q3: column((b) => b.quartiles[2]), lowerfence: column((b) => b.whiskers[0]),
      upperfence: column((b) => b.whiskers[1]), mean: column((b) => b.mean), marker: { color }, line: { width: 1.3 },
      whiskerwidth: 0.5, hoverinfo: "y",
    }, {
      type: "scatter", mode: "markers", x: far.map((s) => s.layer), y: far.map((s) => s.value), hoverinfo: "text",
      hovertext: far.map((s) => `sample ${escaped(short(s.name))}: ${s.value.toFixed(3)} at layer ${s.layer}`),
      marker: { color, size: 3.5, opacity: 0.6 },
    }];
    const xaxis = { type: "category", categoryorder: "array", categoryarray: names, title: titled("layer") };
    return { data, layout: layout(colors, { xaxis, yaxis: { title: titled("cosine") } }) };
  },

  bars(figure, choice, _, colors) {
    const color = colors.series[several ? choice.run % colors.series.length : 0];
    const data = [{
      type: "bar", x: choice.layers, y: choice.shares.map((share) => 100 * share), marker: { color },
      hovertemplate: "layer %{x}: %{y:.1f} %<extra></extra>",
    }];
    const more = {
      xaxis: { title: titled("layer from which the prediction stays"), dtick: step(choice.layers.at(-1)), tickformat: "d" },
      yaxis: { title: titled(`% of ${choice.n.toLocaleString("en")} predictions`), rangemode: "tozero" },
    };
    if (choice.mean !== null) {
      const right = choice.mean > (1 + choice.layers.at(-1)) / 2;
      const at = { xref: "x", yref: "paper" };
      const line = { color: colors.mark, dash: "dash", width: 2 };
      more.shapes = [{ type: "line", ...at, x0: choice.mean, x1: choice.mean, y0: 0, y1: 1, line }];
      more.annotations = [{
        ...at, x: choice.mean, y: 1, yanchor: "bottom", xanchor: right ? "right" : "left", showarrow: false,
        text: choice.told, font: { color: colors.mark },
      }];
      more.margin = { l: 52, r: 12, t: 26, b: 40 };
    }
    return { data, layout: layout(colors, more) };
  },
};

function curveTraces(line, figure, style, view, colors) {
  const depth = page.runs[line.run].depth;
  const at = (layer) => (view.percent ? (100 * layer) / depth : layer);
  const end = line.layers.length - (line.final ? 1 : 0);
  const x = line.layers.slice(0, end).map(at);
  const values = line.values.slice(0, end);
  const name = lineName(line, figure);
  const text = (i) => {
    const layer = line.final && i === end ? "after the final norm" : `layer ${line.layers[i]}`;
    return (name ? `${escaped(name)}<br>` : "") + `${layer}: ${escaped(line.told[i])}<br>N: ${line.n}`;
  };
  const base = { type: "scatter", hoverinfo: "text" };
  const traces = [
    ...bands(line, x, values, figure.log).map((band) => (
      { type: "scatter", ...band, mode: "lines", fill: "toself", fillcolor: faded(style.color), line: { width: 0 },
        hoverinfo: "skip" })),
    { ...base, name: escaped(name), x, y: values, hovertext: values.map((_, i) => text(i)), connectgaps: false,
      mode: "lines+markers", line: { color: style.color, dash: style.dash, width: 2 },
      marker: { symbol: style.symbol, size: 6, color: style.color, maxdisplayed: MOST_MARKERS } },
  ];
  const marks = [];
  if (line.final) {
    marks.push({ x: at(depth), y: line.values[end], text: text(end), symbol: "diamond-open", size: 10, color: style.color });
  }
  const i = line.layers.indexOf(line.stands_out);
  if (line.stands_out !== null && i >= 0 && i < end) {
    const ring = { symbol: "circle-open", size: 14, color: colors.mark };
    marks.push({ x: x[i], y: values[i], text: `${text(i)}, stands out`, ...ring });
  }
  return { traces, marks };
}

// What is marked on the lines of a plot, as one trace: fewer traces are drawn faster.
function markTrace(marks) {
  const column = (name) => marks.map((mark) => mark[name]);
  return {
    type: "scatter", mode: "markers", x: column("x"), y: column("y"), hoverinfo: "text", hovertext: column("text"),
    marker: { symbol: column("symbol"), size: column("size"), color: column("color"), line: { width: 2, color: column("color") } },
  };
}

// Bands of one standard error: a polygon for each stretch of layers that have a value.
function bands(line, x, values, log) {
  const found = [];
  let stretch = [];
  const close = () => {
    if (stretch.length > 1) {
      const low = stretch.map((i) => [x[i], log ? Math.max(values[i] - line.errors[i], values[i] / 2) : values[i] - line.errors[i]]);
      const high = stretch.map((i) => [x[i], values[i] + line.errors[i]]).reverse();
      found.push({ x: [...low, ...high].map((p) => p[0]), y: [...low, ...high].map((p) => p[1]) });
    }
    stretch = [];
  };
  values.forEach((value, i) => (value === null || line.errors[i] === null ? close() : stretch.push(i)));
  close();
  return found;
}

function faded(color) {
  return color + (page.runs.length > 4 ? "18" : "33"); // bands of many runs lie on each other
}

function short(text) {
  const letters = [...text];
  return letters.length > 60 ? `${letters.slice(0, 59).join("")}…` : text;
}

// What tells a line from the others of its plot: the run, and the pooling where there are several.
function lineName(line, figure) {
  const pooling = poolingsOf(figure.lines).length > 1 ? line.named : "";
  return [several ? runName(line.run) : "", pooling].filter(Boolean).map(short).join(", ");
}

// Ticks of a logarithmic axis: every decade, every other where there are many; plotly's own where there is hardly one.
function decades(figure) {
  const values = figure.lines.flatMap((line) => line.values).filter((value) => value > 0);
  const span = Math.log10(Math.max(...values) / Math.min(...values));
  return span > 6 ? { dtick: 2 } : span > 1 ? { dtick: 1 } : {};
}

function step(depth) {
  return [1, 2, 4, 5, 10, 20, 50, 100].find((size) => depth / size <= 8) ?? 1000;
}

// The rows behind a figure, as its CSV holds them: values in the units of the long frame.
const ROWS = {
  curve: (figure, shown) => [
    ["run", "pooling", "site", "layer", "value", "stderr"],
    figure.lines.filter(shown).flatMap((line) => line.layers.map((layer, i) => (
      [runName(line.run), line.pooling, line.sites[i], layer, line.raw[i], line.stderr[i]]))),
  ],
  heat: (figure, shown) => [
    ["run", "pooling", "layer", "layer_b", "value"],
    figure.choices.filter(shown).flatMap((choice) => {
      const { layers, values } = squareOf(choice);
      return layers.flatMap((a, i) => layers.map((b, j) => [runName(choice.run), choice.pooling, a, b, values[i][j]]));
    }),
  ],
  box: (figure, shown) => [
    ["run", "layer", "n", "mean", "lower_whisker", "q1", "median", "q3", "upper_whisker"],
    figure.choices.filter(shown).flatMap((choice) => choice.boxes.map((box) => (
      [runName(choice.run), box.layer, box.n, box.mean, box.whiskers[0], ...box.quartiles, box.whiskers[1]]))),
  ],
  bars: (figure, shown) => [
    ["run", "layer", "share"],
    figure.choices.filter(shown).flatMap((choice) => choice.layers.map((layer, i) => [runName(choice.run), layer, choice.shares[i]])),
  ],
};
