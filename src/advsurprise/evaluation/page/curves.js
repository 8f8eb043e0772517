// Learning curves: a line with an interval for every method; single seeds on demand.

function linePath(steps, values, x, y) {
  let path = "", drawing = false;
  values.forEach((value, index) => {
    if (value !== null) path += `${drawing ? "L" : "M"}${x(steps[index])} ${y(value).toFixed(2)}`;
    drawing = value !== null;
  });
  return path;
}

function bandPath({ steps, low, high }, x, y) {
  const point = (values) => (step, index) => `${x(step)} ${y(values[index]).toFixed(2)}`;
  return `M${[...steps.map(point(high)), ...steps.map(point(low)).reverse()].join("L")}Z`;
}

// About `number` round values from low to high.
function ticks(low, high, number) {
  const rough = (high - low) / number, unit = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 2.5, 5, 10].map((times) => times * unit).find((each) => each >= rough * 0.999);
  const first = Math.ceil(low / size - 1e-9), last = Math.floor(high / size + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * size);
}

function countText(number) {
  const [size, letter] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([each]) => number >= each) || [1, ""];
  return `${Number((number / size).toPrecision(3))}${letter}`;
}

function rangeOfCurves(curves) {
  const all = curves.flatMap((curve) => [...curve.low, ...curve.high, ...curve.seeds.flatMap((each) => each.values)]).filter((value) => value !== null);
  let low = Math.min(...all), high = Math.max(...all);
  if (low === high) [low, high] = [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
  const margin = 0.04 * (high - low);
  // Axes of counts start at 0; those of values that vary little do not.
  return [low >= 0 && low < 0.5 * high ? 0 : low - margin, high + margin];
}

function seriesClass({ colour, dash }) {
  return `series-${colour} dash-${dash}`;
}

function drawPanel(panel, series) {
  const styles = Object.fromEntries(series.map((each) => [each.name, seriesClass(each)]));
  const [low, high] = rangeOfCurves(panel.curves), last = Math.max(...panel.curves.map((curve) => curve.steps[curve.steps.length - 1]));
  const x = (step) => Number(((1000 * step) / last).toFixed(2)), y = (value) => 300 - (300 * (value - low)) / (high - low);
  const drawing = vector("svg", { viewBox: "0 0 1000 300", preserveAspectRatio: "none", role: "img", "aria-label": inWords(panel) });
  const plot = element("div", { class: "plot learning", tabindex: 0, role: "group", "aria-label": `${panel.label}: use the arrow keys to read it step by step` }, drawing);
  for (const value of ticks(low, high, 5)) {
    drawing.append(vector("path", { class: "zero", d: `M0 ${y(value).toFixed(2)}H1000` }));
    plot.append(placed(element("span", { class: "axis", text: shortNumber(Number(value.toPrecision(6))) }), { top: `${y(value) / 3}%` }));
  }
  for (const value of ticks(0, last, 4)) plot.append(placed(element("span", { class: "tick", text: countText(value) }), { left: `${x(value) / 10}%` }));
  panel.curves.forEach((curve) => {
    const lines = curve.seeds.map((each) => vector("path", { class: "seed", d: linePath(curve.steps, each.values, x, y) }));
    const middle = vector("path", { class: "middle", d: linePath(curve.steps, curve.iqm, x, y) });
    const group = vector("g", { class: styles[curve.name] }, vector("path", { class: "band", d: bandPath(curve, x, y) }), ...lines, middle);
    group.dataset.name = curve.name;
    drawing.append(group);
  });
  const cursor = element("div", { class: "cursor", hidden: "" }), readings = element("p", { class: "readings" });
  plot.append(cursor);
  reads(plot, cursor, readings, panel, styles, last);
  return element("figure", { class: "chart" }, element("figcaption", {}, element("span", { text: panel.label })), plot, element("p", { class: "below", text: "environment steps per seed" }), readings);
}

function placed(made, position) {
  Object.assign(made.style, position);
  return made;
}

function inWords(panel) {
  const ends = panel.curves.map((curve) => {
    const at = curve.steps.length - 1;
    return `${curve.name} ${shortNumber(curve.iqm[at])}, from ${shortNumber(curve.low[at])} to ${shortNumber(curve.high[at])}`;
  });
  return `Learning curves of ${panel.label}. At the end: ${ends.join("; ")}`;
}

// Shows the values at the step under the pointer, or under a cursor moved by the arrow keys.
function reads(plot, cursor, readings, panel, styles, last) {
  const longest = panel.curves.reduce((best, curve) => (curve.steps.length > best.steps.length ? curve : best)).steps;
  let at = longest.length - 1;
  const nearest = (steps, step) => steps.reduce((best, each, index) => (Math.abs(each - step) < Math.abs(steps[best] - step) ? index : best), 0);
  const show = (on) => {
    cursor.hidden = !on;
    const step = longest[at];
    cursor.style.left = `${(100 * step) / last}%`;
    const texts = panel.curves.filter((curve) => curve.steps[curve.steps.length - 1] >= step).map((curve) => {
      const index = nearest(curve.steps, step), [middle, low, high] = [curve.iqm, curve.low, curve.high].map((values) => shortNumber(values[index]));
      return element("span", { class: styles[curve.name], text: `${curve.name} ${middle} [${low}, ${high}]` });
    });
    readings.replaceChildren(...(on ? [element("b", { text: `${step.toLocaleString("en")} steps` }), ...texts] : []));
  };
  const point = (event) => {
    const box = plot.getBoundingClientRect();
    at = nearest(longest, (last * (event.clientX - box.left)) / box.width);
    show(true);
  };
  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);
  plot.addEventListener("pointerleave", () => { if (document.activeElement !== plot) show(false); });
  plot.addEventListener("focus", () => show(true));
  plot.addEventListener("blur", () => show(false));
  plot.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -longest.length, End: longest.length }[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    at = Math.max(0, Math.min(longest.length - 1, at + by * (event.shiftKey ? 10 : 1)));
    show(true);
  });
}

// Buttons that highlight one method with its seeds, and a box that shows all seeds.
function drawLegend(home, panels, series) {
  const chosen = new Set();
  const buttons = series.map((each) => {
    const button = element("button", { type: "button", class: seriesClass(each), "aria-pressed": "false", title: "Highlight it, with every seed" }, vector("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" }, vector("path", { d: "M1 4H27" })), each.name);
    const mark = (hovered) => panels.querySelectorAll("g").forEach((group) => {
      const named = group.dataset.name === each.name;
      group.classList.toggle("hovered", hovered && named);
    });
    button.addEventListener("pointerenter", () => mark(true));
    button.addEventListener("pointerleave", () => mark(false));
    button.addEventListener("click", () => {
      chosen.has(each.name) ? chosen.delete(each.name) : chosen.add(each.name);
      button.setAttribute("aria-pressed", String(chosen.has(each.name)));
      panels.querySelectorAll("g").forEach((group) => {
        group.classList.toggle("forward", chosen.has(group.dataset.name));
        group.classList.toggle("faded", chosen.size > 0 && !chosen.has(group.dataset.name));
      });
    });
    return button;
  });
  const every = element("input", { type: "checkbox", id: "every" });
  every.addEventListener("change", () => panels.classList.toggle("every", every.checked));
  home.append(...buttons, element("label", {}, every, " every seed"));
}
