"use strict";
// Plots of comparisons: layers of one run by layers of another, layers by checkpoints.

const RING = "#ff3d7f"; // seen on both ends of the scale, in both themes

PLOTS.rectangle = (figure, choice, _, colors, width) => {
  const { down, across, names, values, best } = choice;
  const printed = across.length <= MOST_PRINTED && width / across.length > 30;
  const all = figure.choices.flatMap((other) => other.values.flat()).filter((value) => value !== null);
  const data = [{
    type: "heatmap", x: across.map((_, j) => j), y: down.map((_, i) => i), z: values, zmin: Math.min(0, ...all), zmax: 1,
    colorscale: "Cividis", xgap: Number(printed), ygap: Number(printed), hoverinfo: "text", hoverongaps: false,
    hovertext: values.map((line, i) => line.map((value, j) => (
      `${layerName(down[i])} of ${escaped(short(names[0]))}<br>${layerName(across[j])} of ${escaped(short(names[1]))}: ${value?.toFixed(4)}`))),
    texttemplate: printed ? "%{z:.2f}" : "", textfont: { size: 10 },
    colorbar: { thickness: 12, outlinewidth: 0, tickfont: { size: 11 } },
  }, {
    type: "scatter", mode: "markers", x: best, y: down.map((_, i) => i), hoverinfo: "skip",
    marker: { symbol: "circle-open", size: printed ? 26 : 8, color: RING, line: { width: 2, color: RING } },
  }];
  const axis = { showgrid: false, ticks: "", constrain: "domain" };
  const room = Math.max(12, Math.floor(width / 9));
  const xaxis = { ...axis, title: titled(`layer of ${escaped(cut(names[1], room))}`), range: [-0.5, across.length - 0.5], ...named(across, width / 34) };
  const yaxis = { ...axis, title: titled(`layer of ${escaped(cut(names[0], 34))}`), range: [-0.5, down.length - 0.5], ...named(down, 11), scaleanchor: "x" };
  return { data, layout: layout(colors, { xaxis, yaxis }) };
};

PLOTS.checkpoints = (figure, choice, _, colors, width) => {
  const { layers, steps, values, unit, log } = choice;
  const told = (value) => (value === null ? "" : unit === "%" ? value.toFixed(1) : digits3(value));
  const printed = width / steps.length > 48 && layers.length <= MOST_PRINTED;
  const scaled = (value) => (value === null ? null : log ? Math.log10(value) : value);
  const all = values.flat().filter((value) => value !== null);
  const data = [{
    type: "heatmap", x: steps.map((_, i) => i), y: layers.map((_, i) => i), z: values.map((line) => line.map(scaled)),
    zmin: scaled(Math.min(...all)), zmax: scaled(Math.max(...all)), colorscale: "Cividis", reversescale: log,
    xgap: Number(printed), ygap: Number(printed), hoverinfo: "text", hoverongaps: false,
    hovertext: values.map((line, i) => line.map((value, j) => (
      `${layerName(layers[i])}, ${escaped(short(steps[j]))}: ${told(value)} ${unit}`))),
    text: values.map((line) => line.map(told)), texttemplate: printed ? "%{text}" : "", textfont: { size: 10 },
    colorbar: { thickness: 12, outlinewidth: 0, tickfont: { size: 11 }, ...(log ? powers(all) : {}) },
  }];
  const room = Math.max(4, Math.floor((width - 110) / Math.min(steps.length, 6) / 7));
  const marked = named(steps.map((name) => escaped(cut(name, room))), (width - 110) / 56);
  const xaxis = { title: titled("checkpoint"), showgrid: false, ticks: "", ...marked };
  const yaxis = { title: titled("layer"), showgrid: false, ticks: "", ...named(layers, 11) };
  return { data, layout: layout(colors, { xaxis, yaxis }) };
};

function layerName(layer) {
  return layer === "final" ? "final" : `layer ${layer}`;
}

// Ticks of an axis of names: at most about so many, the last one among them.
function named(names, most) {
  const every = Math.max(1, Math.ceil(names.length / Math.max(2, Math.floor(most))));
  const ticks = names.map((_, i) => i).filter((i) => (names.length - 1 - i) % every === 0);
  return { tickvals: ticks, ticktext: ticks.map((i) => names[i]) };
}

Object.assign(ROWS, {
  rectangle: (figure, shown) => [
    ["pair", "layer", "layer_b", "value"],
    figure.choices.filter(shown).flatMap(({ run, down, across, values }) => down.flatMap((a, i) => across.map((b, j) => (
      [runName(run), a, b, values[i][j]])))),
  ],
  checkpoints: (figure, shown) => [
    ["layer", "checkpoint", "value"],
    figure.choices.filter(shown).flatMap(({ layers, steps, values }) => layers.flatMap((layer, i) => steps.map((at, j) => (
      [layer, at, values[i][j]])))),
  ],
});
