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
    mark: value("--mark"), low: value("--low"), middle: value("--middle"), high: value("--high"), series: value("--series").split(",").map((color) => color.trim()),
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
  const entry = page.runs[line.run];
  const i = line.look ?? (entry.alone ? pooling : entry.look);
  const dash = DASHES[pooling % DASHES.length];
  return { color: colors.series[i % colors.series.length], dash, symbol: SYMBOLS[i % SYMBOLS.length] };
}

function colorOf(run, colors) {
  return colors.series[page.runs[run].look % colors.series.length];
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
    const marks = markTrace(lines.flatMap((line) => line.marks));
    const over = view.overlay ? overlays(figure, view, colors) : [];
    const data = [...over, ...lines.flatMap((line) => line.traces), marks];
    const end = view.percent ? 100 : Math.max(1, ...figure.lines.map((line) => page.runs[line.run].depth));
    const xaxis = { title: titled(view.percent ? "percent of depth" : "layer"), range: [-0.03 * end, 1.03 * end] };
    if (!view.percent) Object.assign(xaxis, { tickformat: "d", dtick: step(end) });
    const yaxis = figure.log ? { type: "log", exponentformat: "power", minexponent: 3, ...decades(figure) } : {};
    const annotations = lines.length ? [] : [{
      text: "no run with this metric is chosen", xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false,
    }];
    const more = over.length ? { yaxis2: { ...SECOND, tickfont: { size: 11, color: colors.muted } }, margin: { l: 52, r: 44, t: 10, b: 40 } } : {};
    return { data, layout: layout(colors, { xaxis, yaxis, annotations, ...more }) };
  },

  tasks(figure, choice, view, colors, width) {
    const { rows, layers, values, reference, best, decimals } = choice;
    const gains = values.map((line, i) => line.map((value) => (value === null || reference[i] === null ? null : value - reference[i])));
    const room = Math.max(10, Math.min(34, Math.floor(width / 22)));
    const widest = Math.max(...rows.map((name) => Math.min(room, [...name].length)));
    const at = (layer) => (view.percent ? (100 * layer) / page.runs[choice.run].depth : layer);
    const end = reach(gains.flat());
    const printed = width / layers.length > 58 && decimals < 5;
    const text = gains.map((line, i) => line.map((gain, j) => (values[i][j] === null ? "no score" : (
      `${values[i][j].toFixed(decimals)}, ${signed(gain, decimals)} against ${choice.compared}`))));
    const data = [{
      type: "heatmap", x: layers.map(at), y: rows.map((_, i) => i), z: gains, zmin: -end, zmax: end, xgap: 1, ygap: 1,
      colorscale: [[0, colors.low], [0.5, colors.middle], [1, colors.high]], hoverongaps: false, hoverinfo: "text",
      hovertext: text.map((line, i) => line.map((told, j) => `${escaped(short(rows[i]))}<br>layer ${layers[j]}: ${told}`)),
      text: gains.map((line, i) => line.map((gain, j) => (
        gain === null ? "" : (layers[j] === best[i] ? "○ " : "") + signed(gain, decimals - 1)))),
      texttemplate: printed ? "%{text}" : "", textfont: { size: 10 },
      colorbar: { thickness: 12, outlinewidth: 0, tickfont: { size: 11 }, nticks: 5, tickformat: `+.${end < 1 ? 2 : 1}f` },
      showscale: rows.length > 3,
    }, {
      type: "scatter", mode: "markers", visible: !printed, x: best.map((layer) => (layer === null ? null : at(layer))), y: rows.map((_, i) => i),
      marker: { symbol: "circle-open", size: 9, color: colors.ink, line: { width: 1.5 } }, hoverinfo: "skip",
    }];
    const half = layers.length > 1 ? (at(layers.at(-1)) - at(layers[0])) / (layers.length - 1) / 2 : 0.5;
    const xaxis = {
      title: titled(view.percent ? "percent of depth" : "layer"), showgrid: false, ticks: "",
      range: [at(layers[0]) - half, at(layers.at(-1)) + half],
    };
    if (!view.percent) Object.assign(xaxis, { tickformat: "d", dtick: step(layers.at(-1)) });
    const yaxis = {
      range: [rows.length - 0.5, -0.5], showgrid: false, ticks: "", tickvals: rows.map((_, i) => i),
      ticktext: rows.map((name) => escaped(cut(name, room))),
    };
    return { data, layout: layout(colors, { xaxis, yaxis, margin: { l: 14 + 6.6 * widest, r: 4, t: 10, b: 40 } }) };
  },

  intervals(figure, choice, _, colors, width) {
    const { rows, values, low, high, statistic } = choice;
    const color = colorOf(choice.run, colors);
    const room = Math.max(12, Math.min(34, Math.floor(width / 22)));
    const widest = Math.max(...rows.map((name) => Math.min(room, [...name].length)));
    const error = (ends, sign) => ends.map((end, i) => (end === null || values[i] === null ? 0 : Math.max(0, sign * (end - values[i]))));
    const data = [{
      type: "bar", orientation: "h", x: values, y: rows.map((_, i) => i), marker: { color, opacity: 0.75 }, hoverinfo: "text",
      error_x: { type: "data", symmetric: false, array: error(high, 1), arrayminus: error(low, -1), color: colors.ink, thickness: 1.3, width: 3 },
      hovertext: rows.map((name, i) => `${escaped(name)}: ${signed(values[i], 2)}` + (low[i] === null ? "" : ` (${signed(low[i], 2)} … ${signed(high[i], 2)})`)),
    }];
    const least = Math.min(0, ...values, ...low.filter((end) => end !== null));
    const xaxis = { title: titled(statistic), range: [least < 0 ? -1.05 : 0, 1.05], dtick: 0.5, zeroline: true, zerolinecolor: colors.muted };
    const yaxis = {
      range: [rows.length - 0.5, -0.5], showgrid: false, ticks: "", tickvals: rows.map((_, i) => i),
      ticktext: rows.map((name) => escaped(cut(name, room))),
    };
    return { data, layout: layout(colors, { xaxis, yaxis, bargap: 0.35, margin: { l: 14 + 6.6 * widest, r: 12, t: 10, b: 40 } }) };
  },

  scatter(figure, choice, _, colors) {
    const color = colorOf(choice.run, colors);
    const data = [{
      type: "scatter", mode: "markers+text", x: choice.x, y: choice.y, text: choice.layers.map(String), hoverinfo: "text",
      textposition: "top center", textfont: { size: 10, color: colors.muted }, cliponaxis: false,
      marker: { color: choice.layers, colorscale: [[0, colors.card], [1, color]], size: 8, line: { width: 1, color } },
      hovertext: choice.layers.map((layer, i) => `layer ${layer}: ${escaped(choice.named)} ${digits(choice.x[i])}, score ${digits(choice.y[i])}`),
    }];
    const xaxis = { title: titled(escaped(choice.named)), nticks: 6 };
    return { data, layout: layout(colors, { xaxis, yaxis: { title: titled("average score") } }) };
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
    const color = colorOf(choice.run, colors);
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
    const color = colorOf(choice.run, colors);
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

// The average score of the run's model, dotted on a scale of its own: once for each run of the plot.
const SECOND = { overlaying: "y", side: "right", showgrid: false, zeroline: false, tickmode: "auto", nticks: 5 };

function overlays(figure, view, colors) {
  const runs = [...new Set(figure.lines.map((line) => line.run))];
  return runs.filter((run) => view.runs.has(run) && page.runs[run].scores).map((run) => {
    const { layers, values, told } = page.runs[run].scores;
    const at = (layer) => (view.percent ? (100 * layer) / page.runs[run].depth : layer);
    const name = ["average score", calledBy(run)].filter(Boolean).map(short).map(escaped).join(", ");
    return {
      type: "scatter", mode: "lines", x: layers.map(at), y: values, yaxis: "y2", name, hoverinfo: "text",
      hovertext: layers.map((layer, i) => `${name}<br>layer ${layer}: ${told[i]}`),
      line: { color: page.runs[run].alone ? colors.muted : colorOf(run, colors), dash: "2px,3px", width: 1.5 },
    };
  });
}

// Half the span of a scale around 0 on which one value in twenty may lie beyond its ends.
function reach(values) {
  const sizes = values.filter((value) => value !== null).map(Math.abs).sort((a, b) => a - b);
  return sizes[Math.floor(0.95 * (sizes.length - 1))] || sizes.at(-1) || 1;
}

function signed(value, decimals) {
  if (value === null) return "–";
  const text = Math.abs(value).toFixed(Math.max(0, decimals));
  return Number(text) === 0 ? text : `${value < 0 ? "−" : "+"}${text}`;
}

function digits(value) {
  return String(Number(value.toPrecision(4)));
}

function cut(text, room) {
  const letters = [...text];
  return letters.length > room ? `${letters.slice(0, room - 1).join("")}…` : text;
}

function curveTraces(line, figure, style, view, colors) {
  const depth = page.runs[line.run].depth;
  const at = (layer) => (view.percent ? (100 * layer) / depth : layer);
  const end = line.layers.length - (line.final ? 1 : 0);
  const x = line.layers.slice(0, end).map(at);
  const values = line.values.slice(0, end);
  const name = lineName(line, figure);
  const text = (i) => {
    const layer = line.final && i === end ? "after the final norm" : `layer ${line.layers[i]}`;
    return (name ? `${escaped(name)}<br>` : "") + `${layer}: ${escaped(line.told[i])}<br>${line.counted}`;
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
  if (line.baseline) {
    const told = `${[name, "as shipped"].filter(Boolean).map(escaped).join(", ")}: ${escaped(line.baseline.told)}`;
    traces.push({
      ...base, mode: "lines", x: [0, at(depth)], y: [line.baseline.value, line.baseline.value], hovertext: told,
      name: told, line: { color: style.color, dash: "8px,5px", width: 1.5 },
    });
  }
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
  return cut(text, 60);
}

// What tells a line from the others of its plot: the run, and the pooling where there are several.
function lineName(line, figure) {
  if (line.name) return short(line.name);
  const pooling = poolingsOf(figure.lines).length > 1 ? line.named : "";
  return [calledBy(line.run), pooling].filter(Boolean).map(short).join(", ");
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
  tasks: (figure, shown) => [
    ["run", "task", "layer", "score", "reference"],
    figure.choices.filter(shown).flatMap((choice) => choice.rows.flatMap((task, i) => choice.layers.map((layer, j) => (
      [runName(choice.run), task, layer, choice.values[i][j], choice.reference[i]])))),
  ],
  intervals: (figure, shown) => [
    ["run", "statistic", "metric", "estimate", "low", "high"],
    figure.choices.filter(shown).flatMap((choice) => choice.rows.map((metric, i) => (
      [runName(choice.run), choice.statistic, metric, choice.values[i], choice.low[i], choice.high[i]]))),
  ],
  scatter: (figure, shown) => [
    ["run", "metric", "layer", "value", "score"],
    figure.choices.filter(shown).flatMap((choice) => choice.layers.map((layer, i) => (
      [runName(choice.run), choice.named, layer, choice.x[i], choice.y[i]]))),
  ],
  bars: (figure, shown) => [
    ["run", "layer", "share"],
    figure.choices.filter(shown).flatMap((choice) => choice.layers.map((layer, i) => [runName(choice.run), layer, choice.shares[i]])),
  ],
};
