// Curves over the steps of an episode. Colours are CSS classes, so that switching between dark and light needs no redraw.

function element(tag, { text, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  // Texts come from configurations: never parse them as HTML.
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

function vector(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function roleClass(run, role) {
  return run.roles.length === 1 ? "role-2" : `role-${role % 3}`;
}

function shortNumber(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3).replace("-", "−");
}

// One line per role, each with gaps where another role acts.
function linesByRole(run, episode, valueAt) {
  return run.roles.map((name, role) => ({
    name,
    style: roleClass(run, role),
    values: Array.from({ length: episode.steps }, (_, step) => (episode.arrays.role.data[step] === role ? valueAt(step, role) : NaN)),
  }));
}

function chartsOf(run, episode) {
  const { trace, reward, value, entropy, measures } = episode.arrays;
  const steps = episode.steps, roles = run.roles.length, streams = run.streams.length;
  const named = (title, stream) => (streams > 1 ? `${title}: ${run.streams[stream]}` : title);
  const charts = run.traces.map((title, number) => ({
    title, shaded: true, lines: linesByRole(run, episode, (step) => trace.data[number * steps + step]),
  }));
  run.streams.forEach((_, stream) => charts.push({
    title: named(roles > 1 ? "Rewards" : "Reward", stream),
    shaded: true,
    lines: linesByRole(run, episode, (step, role) => reward.data[(step * roles + role) * streams + stream]),
  }));
  run.streams.forEach((_, stream) => charts.push({
    title: named("Value", stream), lines: linesByRole(run, episode, (step) => value.data[step * streams + stream]),
  }));
  charts.push({ title: "Policy entropy (nats)", lines: linesByRole(run, episode, (step) => entropy.data[step]), from: 0 });
  const shown = run.measures.findIndex((each) => each.shown);
  if (shown >= 0) {
    const values = Array.from({ length: episode.states }, (_, state) => measures.data[state * run.measures.length + shown]);
    charts.push({ title: run.measures[shown].label, lines: [{ name: "", style: "neutral", values }], from: 0, ofStates: true });
  }
  return charts;
}

function drawChart(chart, episode, seek) {
  const finite = chart.lines.flatMap((line) => line.values.filter(Number.isFinite));
  let low = Math.min(chart.from ?? Infinity, ...finite), high = Math.max(chart.from ?? -Infinity, ...finite);
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  if (low === high) [low, high] = [low - (low ? Math.abs(low) / 2 : 0), high + (Math.abs(high) / 2 || 1)];
  const steps = episode.steps, y = (value) => 94 - (88 * (value - low)) / (high - low);
  const drawing = vector("svg", { viewBox: `0 0 ${steps} 100`, preserveAspectRatio: "none", role: "img", "aria-label": described(chart, low, high) });
  if (chart.shaded && episode.partlyScored) drawing.append(...stretches(episode.arrays.scored.data, steps).filter((each) => each.value).map((each) => vector("rect", { class: "shade", x: each.from, width: each.to - each.from, y: 0, height: 100 })));
  if (low < 0 && high > 0) drawing.append(vector("path", { class: "zero", d: `M0 ${y(0)}H${steps}` }));
  for (const line of chart.lines) drawing.append(vector("path", { class: line.style, d: pathOf(line.values, chart.ofStates ? 0 : 0.5, y, chart.ofStates) }));
  const plot = element("div", { class: "plot" }, drawing, element("div", { class: "cursor" }));
  plot.append(element("span", { class: "axis high", text: shortNumber(high) }), element("span", { class: "axis low", text: shortNumber(low) }));
  scrubs(plot, steps, seek);
  const readings = element("span", { class: "readings" });
  const figure = element("figure", { class: "chart" }, element("div", { class: "head" }, element("span", { text: chart.title }), readings), plot);
  return { figure, plot, move: (state) => showReadings(chart, readings, state) };
}

function described(chart, low, high) {
  const names = chart.lines.map((line) => line.name).filter(Boolean).join(" and ");
  return `${chart.title}${names ? ` of ${names}` : ""}, step by step, from ${shortNumber(low)} to ${shortNumber(high)}`;
}

function pathOf(values, offset, y, stairs) {
  let path = "", drawing = false, before = 0;
  values.forEach((value, step) => {
    const known = Number.isFinite(value), x = step + offset;
    if (known && drawing && stairs) path += `L${x} ${y(before).toFixed(2)}`;
    if (known) path += `${drawing ? "L" : "M"}${x} ${y(value).toFixed(2)}${drawing ? "" : "h0.01"}`;
    [drawing, before] = [known, value];
  });
  return path;
}

// Runs of equal values, with the start and end of each.
function stretches(values, number) {
  const runs = [];
  for (let index = 0; index < number; index++) {
    const last = runs[runs.length - 1];
    if (last && last.value === values[index]) last.to = index + 1;
    else runs.push({ value: values[index], from: index, to: index + 1 });
  }
  return runs;
}

function showReadings(chart, readings, state) {
  readings.replaceChildren(...chart.lines.filter((line) => Number.isFinite(line.values[state])).map((line) => {
    const value = line.values[state];
    return element("span", { class: line.style, "data-value": value, text: shortNumber(value) });
  }));
}

const ROW = 5, COLUMN = 3;

// Probabilities of all actions as a strip: a row per action, darker is likelier, with a mark on the action taken.
function drawActions(run, episode, seek) {
  const { role, action, probability } = episode.arrays, number = run.actions.length, steps = episode.steps;
  const canvas = element("canvas", { role: "img", "aria-label": `Probability of each action (${run.actions.join(", ")}), step by step` });
  canvas.width = steps * COLUMN;
  canvas.height = number * ROW;
  canvas.style.height = `${number * 15}px`;
  const plot = element("div", { class: "plot actions" }, canvas, element("div", { class: "cursor" }));
  const labels = run.actions.map((name, index) => {
    const label = element("span", { class: "axis", text: name, title: name });
    label.style.top = `${index * 15}px`;
    return label;
  });
  plot.append(...labels);
  scrubs(plot, steps, seek);
  const readings = element("span", { class: "readings" });
  const figure = element("figure", { class: "chart" }, element("div", { class: "head" }, element("span", { text: "Probability of each action" }), readings), plot);
  const paint = () => {
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    const colours = run.roles.map((_, each) => colourOf(figure, run.roles.length === 1 ? "--role-2" : `--role-${each % 3}`));
    const ink = colourOf(figure, "--ink");
    for (let step = 0; step < steps; step++) {
      for (let each = 0; each < number; each++) {
        context.globalAlpha = probability.data[step * number + each];
        context.fillStyle = colours[role.data[step]];
        context.fillRect(step * COLUMN, each * ROW, COLUMN, ROW);
      }
      context.globalAlpha = 1;
      context.fillStyle = ink;
      context.fillRect(step * COLUMN, action.data[step] * ROW + ROW - 1, COLUMN, 1);
    }
  };
  const move = (state) => {
    const taken = state < steps ? action.data[state] : -1;
    labels.forEach((label, index) => label.classList.toggle("taken", index === taken));
    if (taken < 0) return readings.replaceChildren();
    const chance = probability.data[state * number + taken];
    const text = `${run.actions[taken]} ${Math.round(100 * chance)} %`;
    readings.replaceChildren(element("span", { class: roleClass(run, role.data[state]), "data-value": chance, text }));
  };
  return { figure, plot, move, paint };
}

function scrubs(plot, steps, seek) {
  const at = (event) => {
    const box = plot.getBoundingClientRect();
    seek(Math.max(0, Math.min(steps - 1, Math.floor(((event.clientX - box.left) / box.width) * steps))));
  };
  plot.addEventListener("pointerdown", (event) => { plot.setPointerCapture(event.pointerId); at(event); });
  plot.addEventListener("pointermove", (event) => { if (plot.hasPointerCapture(event.pointerId)) at(event); });
}
