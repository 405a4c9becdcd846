"use strict";
// Plots of early exit: accuracy against speed, where samples leave, and what was predicted of it.

const RIVAL = 1; // the colour of truncated models, beside that of exits

PLOTS.pareto = (figure, choice, _, colors) => {
  const { exits, chosen, depths, layers, plain, window } = choice;
  const [color, other] = pairOf(choice.run, colors);
  const points = { type: "scatter", hoverinfo: "text", cliponaxis: false };
  const picked = exits.x.map((_, i) => i).filter((i) => chosen[i]);
  const data = [{
    ...points, name: "truncated at a layer", x: depths.x, y: depths.y, hovertext: depths.told, mode: "lines+markers+text",
    text: layers.map(String), textposition: "bottom center", textfont: { size: 11, color: colors.muted },
    line: { color: other, dash: "dash", width: 1.5 }, marker: { color: other, symbol: "square", size: 7 },
  }, {
    ...points, name: "exits, a point for each threshold", x: exits.x, y: exits.y, hovertext: exits.told, mode: "lines+markers",
    line: { color, width: 2 }, marker: { color, size: 6 },
  }, {
    ...points, name: "chosen", x: picked.map((i) => exits.x[i]), y: picked.map((i) => exits.y[i]),
    hovertext: picked.map((i) => `chosen: ${exits.told[i]}`), mode: "markers",
    marker: { color: colors.mark, symbol: "circle-open", size: 15, line: { width: 2.5, color: colors.mark } },
  }, {
    ...points, name: "plain model", x: plain.x, y: plain.y, hovertext: plain.told, mode: "markers",
    marker: { color: colors.ink, symbol: "diamond", size: 10 },
  }].filter((trace) => trace.x.length);
  const [across, up] = window ? window.map((range) => ({ range })) : [{}, {}];
  const xaxis = { title: titled("measured speed-up (×)"), nticks: 8, ...across };
  const margin = { l: 52, r: 16, t: 10, b: 40 };
  return { data, layout: layout(colors, { xaxis, yaxis: { title: titled(choice.what), ...up }, margin }) };
};

PLOTS.leaving = (figure, choice, _, colors) => {
  const { layers, leaving, shares, cumulative, checked } = choice;
  const [color, other] = pairOf(choice.run, colors);
  const places = layers.map((layer, i) => (checked[i] ? "exit" : i === layers.length - 1 ? "through all layers" : "no exit"));
  const data = [{
    type: "bar", x: layers, y: shares, hoverinfo: "text",
    marker: { color: layers.map((_, i) => (checked[i] ? color : colors.line)) },
    hovertext: layers.map((layer, i) => `layer ${layer}, ${places[i]}: ${leaving[i].toLocaleString("en")} samples, ${shares[i].toFixed(1)} %`),
  }, {
    type: "scatter", mode: "lines+markers", x: layers, y: cumulative, hoverinfo: "text", cliponaxis: false,
    hovertext: layers.map((layer, i) => `${cumulative[i].toFixed(1)} % left by layer ${layer}`),
    line: { color: other, width: 2 }, marker: { color: other, size: 5, maxdisplayed: MOST_MARKERS },
  }];
  const xaxis = { title: titled("layer"), tickformat: "d", dtick: step(layers.at(-1)), range: [0.4, layers.at(-1) + 0.6] };
  const yaxis = { title: titled(`% of ${choice.samples.toLocaleString("en")} samples`), range: [0, 105] };
  return { data, layout: layout(colors, { xaxis, yaxis }) };
};

PLOTS.forecast = (figure, choice, _, colors) => {
  const { predicted, measured, chosen, told } = choice;
  const [color] = pairOf(choice.run, colors);
  const all = [...predicted, ...measured];
  const [low, high] = [0.95 * Math.min(...all), 1.05 * Math.max(...all)];
  const beside = [0.9, 1, 1.1].map((factor) => ({
    type: "scatter", mode: "lines", x: [low, high], y: [factor * low, factor * high], hoverinfo: "skip",
    line: { color: colors.muted, width: 1, dash: factor === 1 ? "solid" : "dot" },
  }));
  const data = [...beside, {
    type: "scatter", mode: "markers", x: predicted, y: measured, hoverinfo: "text", hovertext: told,
    marker: { color: chosen.map((is) => (is ? colors.mark : color)), size: chosen.map((is) => (is ? 11 : 7)), opacity: 1 },
  }];
  const range = [low, high];
  return { data, layout: layout(colors, {
    xaxis: { title: titled("predicted (×)"), range, nticks: 6 }, yaxis: { title: titled("measured (×)"), range, nticks: 6 },
  }) };
};

// The colour of a report's exits, and that of what stands beside them.
function pairOf(run, colors) {
  const look = page.runs[run].look;
  return [look, look + RIVAL].map((i) => colors.series[i % colors.series.length]);
}

Object.assign(ROWS, {
  pareto: (figure, shown) => [
    ["run", "kind", "layer", "measured_speedup", "percent", "chosen"],
    figure.choices.filter(shown).flatMap(({ run, exits, chosen, depths, layers, plain }) => [
      ...exits.x.map((x, i) => [runName(run), "exits", null, x, exits.y[i], chosen[i]]),
      ...depths.x.map((x, i) => [runName(run), "truncated", layers[i], x, depths.y[i], null]),
      ...plain.x.map((x, i) => [runName(run), "plain", null, x, plain.y[i], null]),
    ]),
  ],
  leaving: (figure, shown) => [
    ["run", "layer", "exit", "leaving", "percent", "cumulative_percent"],
    figure.choices.filter(shown).flatMap((choice) => choice.layers.map((layer, i) => (
      [runName(choice.run), layer, choice.checked[i], choice.leaving[i], choice.shares[i], choice.cumulative[i]]))),
  ],
  forecast: (figure, shown) => [
    ["run", "predicted_speedup", "measured_speedup", "chosen"],
    figure.choices.filter(shown).flatMap((choice) => choice.predicted.map((value, i) => (
      [runName(choice.run), value, choice.measured[i], choice.chosen[i]]))),
  ],
});
