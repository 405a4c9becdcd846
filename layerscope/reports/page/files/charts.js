"use strict";
// Charts of documents: lines, points and bars over two axes.

const TONES = { own: 0, rival: 1 }; // the colour beside that of the result itself

PLOTS.chart = (figure, choice, _, colors) => {
  const data = choice.drawn.flatMap((series) => seriesTraces(series, choice.run, colors));
  const layers = choice.drawn.flatMap((series) => series.x);
  const axis = ({ title, range, whole }) => ({
    title: titled(escaped(title)), nticks: 8, ...(range ? { range } : {}),
    ...(whole ? { tickformat: "d", dtick: step(Math.max(...layers)) } : {}),
  });
  return { data, layout: layout(colors, { xaxis: axis(choice.x), yaxis: axis(choice.y), margin: { l: 52, r: 16, t: 10, b: 40 } }) };
};

function seriesTraces({ name, x, y, texts, labels, mark, tone, marked, pale }, run, colors) {
  const color = tone in TONES ? colors.series[(page.runs[run].look + TONES[tone]) % colors.series.length] : colors[tone];
  const rival = tone === "rival";
  const base = { name: escaped(name), x, y, hovertext: texts.map(escaped), hoverinfo: texts.length ? "text" : "skip" };
  if (!x.length) return [];
  if (mark === "bars") return [{ ...base, type: "bar", marker: { color: x.map((_, i) => (pale.includes(i) ? colors.line : color)) } }];
  if (mark === "guide") return [{ ...base, type: "scatter", mode: "lines", line: { color, width: 1, dash: "dot" } }];
  const mode = [mark === "line" ? "lines" : "", "markers", labels.length ? "text" : ""].filter(Boolean).join("+");
  const found = [{
    ...base, type: "scatter", mode, cliponaxis: false, text: labels.map(escaped), textposition: "bottom center",
    textfont: { size: 11, color: colors.muted }, line: { color, width: rival ? 1.5 : 2, dash: rival ? "dash" : "solid" },
    marker: { color, size: tone === "ink" ? 10 : 7, symbol: tone === "ink" ? "diamond" : rival ? "square" : "circle", maxdisplayed: MOST_MARKERS },
  }];
  if (marked.length) {
    const ring = { symbol: "circle-open", size: 15, color: colors.mark, line: { width: 2.5, color: colors.mark } };
    const [at, up, told] = [x, y, texts].map((values) => marked.map((i) => values[i]));
    found.push({ ...base, name: "chosen", type: "scatter", mode: "markers", cliponaxis: false, x: at, y: up, hovertext: told.map((text) => `chosen: ${escaped(text)}`), marker: ring });
  }
  return found;
}

Object.assign(ROWS, {
  chart: (figure, shown) => [
    ["run", "series", figure.choices[0].x.title, figure.choices[0].y.title, "chosen", "point"],
    figure.choices.filter(shown).flatMap(({ run, drawn }) => drawn.filter(({ name }) => name).flatMap((one) => one.x.map((x, i) => (
      [runName(run), one.name, x, one.y[i], one.marked.includes(i), one.texts[i] ?? null])))),
  ],
});
