"use strict";
// Plots of trainings: layers by steps, lines by step, and what depth buys.

// Few enough cells print their values; a name of a step takes about 40 pixels.
PLOTS.grid = (figure, choice, view, colors, width) => {
  const { layers, steps, values, unit, log } = choice;
  const at = (layer) => (view.percent ? (100 * layer) / page.runs[choice.run].depth : layer);
  const shown = (value) => (value === null ? "" : unit === "%" ? value.toFixed(1) : digits3(value));
  const printed = width / steps.length > 48 && layers.length <= MOST_PRINTED;
  const scaled = (value) => (value === null ? null : log ? Math.log10(value) : value);
  const all = figure.choices.filter((other) => other.unit === unit && other.log === log) // one scale for all maps
    .flatMap((other) => other.values.flat()).filter((value) => value !== null);
  const data = [{
    type: "heatmap", x: steps.map((_, i) => i), y: layers.map(at),
    z: values.map((line) => line.map(scaled)), zmin: scaled(Math.min(...all)), zmax: scaled(Math.max(...all)),
    colorscale: "Cividis", reversescale: log, xgap: Number(printed), ygap: Number(printed), hoverinfo: "text", hoverongaps: false,
    hovertext: values.map((line, i) => line.map((value, j) => (
      `layer ${layers[i]}, step ${steps[j].toLocaleString("en")}: ${shown(value)} ${unit}`))),
    text: values.map((line) => line.map(shown)), texttemplate: printed ? "%{text}" : "", textfont: { size: 10 },
    colorbar: { thickness: 12, outlinewidth: 0, tickfont: { size: 11 }, ...(log ? powers(all) : {}) },
  }];
  const every = Math.ceil(steps.length / Math.max(2, Math.floor((width - 110) / 56)));
  const ticks = steps.map((_, i) => i).filter((i) => (steps.length - 1 - i) % every === 0); // the last step has one
  const xaxis = {
    title: titled("step"), showgrid: false, ticks: "", tickvals: ticks, ticktext: ticks.map((i) => steps[i].toLocaleString("en")),
  };
  const yaxis = { title: titled(view.percent ? "percent of depth" : "layer"), showgrid: false, ticks: "" };
  if (!view.percent) Object.assign(yaxis, { tickformat: "d", dtick: step(layers.at(-1)) });
  return { data, layout: layout(colors, { xaxis, yaxis }) };
};

PLOTS.course = (figure, _, view, colors) => {
  const lines = figure.lines.filter((line) => view.runs.has(line.run));
  const traces = lines.flatMap((line) => trainedTraces(line, line.steps, figure, colors, (i) => `step ${line.steps[i].toLocaleString("en")}`));
  const deepest = Math.max(1, ...lines.map((line) => page.runs[line.run].depth));
  const yaxis = figure.whole ? { range: [0, 1.06 * deepest], tickformat: "d", dtick: step(deepest) } : {};
  const xaxis = { title: titled("step"), tickformat: ",d", nticks: 7 };
  return { data: traces, layout: layout(colors, { xaxis, yaxis }) };
};

PLOTS.clock = (figure, _, view, colors) => {
  const byLayer = figure.across === "layer";
  const lines = figure.lines.filter((line) => view.runs.has(line.run));
  const traces = lines.flatMap((line) => {
    const x = line.x.map((value) => (byLayer && view.percent ? (100 * value) / line.depth : value));
    return trainedTraces(line, x, figure, colors, (i) => (
      `layer ${line.layers[i]} of ${line.depth}${byLayer ? "" : `, ${digits(line.x[i])} ms`}`));
  });
  const end = view.percent ? 100 : Math.max(1, ...figure.lines.map((line) => line.depth));
  const xaxis = byLayer
    ? { title: titled(view.percent ? "percent of depth" : "layer"), range: [-0.03 * end, 1.03 * end],
      ...(view.percent ? {} : { tickformat: "d", dtick: step(end) }) }
    : { title: titled("ms a sample"), rangemode: "tozero" };
  const yaxis = figure.log ? { type: "log", exponentformat: "power", minexponent: 3, ...decades(figure) } : {};
  return { data: traces, layout: layout(colors, { xaxis, yaxis }) };
};

// A line with its band of one standard error.
function trainedTraces(line, x, figure, colors, place) {
  const style = look(line, colors);
  const name = escaped(lineName(line, figure));
  return [
    ...bands(line, x, line.values, figure.log).map((band) => ({
      type: "scatter", ...band, mode: "lines", fill: "toself", fillcolor: faded(style.color), line: { width: 0 }, hoverinfo: "skip",
    })),
    {
      type: "scatter", mode: "lines+markers", name, x, y: line.values, hoverinfo: "text",
      hovertext: line.told.map((told, i) => `${name ? `${name}<br>` : ""}${place(i)}: ${escaped(told)}`),
      line: { color: style.color, dash: style.dash, width: 2 },
      marker: { symbol: style.symbol, size: 6, color: style.color, maxdisplayed: MOST_MARKERS },
      ...(x.length === 1 ? apart(line, style) : {}),
    },
  ];
}

// A model of one point: a large open diamond with its error, which no curve that it rivals can cover.
function apart(line, { color }) {
  return {
    mode: "markers", error_y: { type: "data", array: line.errors, color, thickness: 1.5, width: 5 },
    marker: { symbol: "diamond-open", size: 14, color, line: { width: 2.5 } },
  };
}

function digits3(value) {
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

// Ticks of a colour bar over logarithms: 1, 2 and 5 of each decade, or decades alone.
function powers(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    (high / low > 1000 ? [1] : [1, 2, 5]).forEach((first) => found.push(first * 10 ** power));
  }
  const kept = found.filter((value) => value >= low && value <= high);
  const ticks = kept.length > 1 ? kept : [low, high];
  return { tickvals: ticks.map(Math.log10), ticktext: ticks.map(digits3) };
}

Object.assign(ROWS, {
  grid: (figure, shown) => [
    ["run", "layer", "step", "value"],
    figure.choices.filter(shown).flatMap(({ run, layers, steps, values }) => layers.flatMap((layer, i) => steps.map((at, j) => (
      [runName(run), layer, at, values[i][j]])))),
  ],
  course: (figure, shown) => [
    ["run", "step", "value", "stderr"],
    figure.lines.filter(shown).flatMap((line) => line.steps.map((at, i) => [runName(line.run), at, line.values[i], line.errors[i]])),
  ],
  clock: (figure, shown) => [
    ["model", "layer", figure.across === "layer" ? "depth" : figure.across, "value", "stderr"],
    figure.lines.filter(shown).flatMap((line) => line.layers.map((layer, i) => (
      [line.name, layer, figure.across === "layer" ? line.depth : line.x[i], line.values[i], line.errors[i]]))),
  ],
});
