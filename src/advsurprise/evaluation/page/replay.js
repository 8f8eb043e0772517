// Panels and controls of a replay.

const SPEEDS = [1, 2, 4, 8, 16, 32, 64];
const DIRECTIONS = ["right", "down", "left", "up"];
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const now = { episode: 0, state: 0, playing: false, speed: 8, seeds: [] };
let panels = [], timer = 0, loading = 0;

async function unpack({ type, shape, diff, data: text }) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  const array = type === "u1" ? new Uint8Array(buffer) : new Float32Array(buffer);
  const size = shape.slice(1).reduce((a, b) => a * b, 1);
  if (diff) for (let index = size; index < array.length; index++) array[index] += array[index - size];
  return { shape, data: array };
}

async function ready(run, episode) {
  if (episode.ready) return episode;
  const names = Object.keys(episode.arrays);
  const arrays = await Promise.all(names.map((name) => unpack(episode.arrays[name])));
  episode.arrays = Object.fromEntries(names.map((name, index) => [name, arrays[index]]));
  const { scored, tiles, obs, mean, std } = episode.arrays;
  episode.partlyScored = scored.data.includes(1) && scored.data.includes(0);
  if (tiles) episode.bounds = bounds(tiles.data, episode.states, run.picture.world, run.picture.tiles);
  if (run.picture.kind === "vector") episode.range = rangeOf(obs, mean, std);
  episode.ready = true;
  return episode;
}

function rangeOf(obs, mean, std) {
  const all = [0, ...obs.data, ...(mean ? mean.data : [])].filter(Number.isFinite);
  return [Math.min(...all), Math.max(...all)];
}

// A run's panel. The parts that belong to an episode are rebuilt when one is chosen.

function makePanel(run, number) {
  const seed = element("select", { "aria-label": `Seed of ${run.name}` });
  run.seeds.forEach((each, index) => seed.append(element("option", { value: index, text: each.seed })));
  seed.value = now.seeds[number];
  seed.addEventListener("change", () => { now.seeds[number] = Number(seed.value); load(); });
  const steps = `${run.steps.toLocaleString("en")} training steps`;
  const details = [`${run.method} in ${run.env}`, steps, run.settings, run.note].filter(Boolean).join(" · ");
  const about = element("div", { class: "about" }, element("h2", { text: run.name }), element("p", { text: details, title: details }), element("label", { text: "Seed " }, seed));
  const part = (name) => element("div", { class: name });
  const panel = { run, number, seed, badge: element("span", { class: "badge" }), did: element("span", { class: "did" }), note: element("span", { class: "note" }) };
  panel.measures = element("dl", { class: "measures" });
  panel.charts = part("charts");
  panel.paint = run.picture.tiles && tilePainter(run.picture.tiles);
  const left = element("div", {}, element("p", { class: "now" }, panel.badge, panel.did, panel.note), makeStage(panel), panel.measures);
  panel.root = element("section", { class: "run", "aria-label": run.name }, about, left, panel.charts);
  return panel;
}

function makeStage(panel) {
  const { kind, belief } = panel.run.picture, tiled = kind === "tiles", pixels = kind === "image" ? " pixels" : "";
  const figure = (name, caption, style = "") => {
    panel[name] = element("canvas", { role: "img" });
    return element("figure", { class: name + style }, panel[name], element("figcaption", { text: caption }));
  };
  const side = element("div", { class: "side" });
  if (tiled) side.append(figure("view", "What the body sees"));
  if (belief && kind === "image") side.append(figure("belief", "What the model expects: mean", pixels), figure("spread", "… and its standard deviation", pixels));
  else if (belief) side.append(figure("belief", kind === "vector" ? "What the model expects: mean ± standard deviation" : "What the model expects (% where not certain)"));
  const main = tiled ? figure("world", "The world") : figure("world", "What the body sees", pixels);
  panel.frame = main;
  main.dataset.name = main.className;
  return element("div", { class: side.children.length ? "stage" : "stage flat" }, main, side);
}

function fillPanel(panel, episode) {
  const { run } = panel;
  panel.episode = episode;
  panel.drawn = chartsOf(run, episode).map((chart) => drawChart(chart, episode, seek));
  panel.drawn.push(drawActions(run, episode, seek));
  const legend = element("p", { class: "legend" });
  run.roles.forEach((name, role) => legend.append(element("span", { class: roleClass(run, role) }, element("i"), element("span", { class: "role-name", text: name }))));
  if (episode.partlyScored) legend.append(element("span", {}, element("i", { class: "scored" }), "scored steps"));
  panel.charts.replaceChildren(legend, ...panel.drawn.map((each) => each.figure));
  panel.values = run.measures.filter((each) => each.shown).map(() => element("dd"));
  let number = 0;
  panel.measures.replaceChildren(...run.measures.filter((each) => each.shown).map((each) => element("div", {}, element("dt", { text: each.label }), panel.values[number++])));
}

function showPanel(panel) {
  const { run, episode } = panel, state = Math.min(now.state, episode.states - 1), { arrays } = episode;
  const acts = state < episode.steps, step = Math.min(state, episode.steps - 1), role = arrays.role.data[step];
  const style = roleClass(run, role);
  panel.frame.className = `${panel.frame.dataset.name} ${style}`;
  panel.badge.className = `badge ${style}`;
  panel.badge.textContent = run.roles[role];
  const over = now.state >= episode.states || !acts;
  panel.did.textContent = over ? ending(episode) : run.actions[arrays.action.data[step]];
  panel.note.textContent = acts && episode.partlyScored && arrays.scored.data[step] ? "scored step" : "";
  const shown = run.measures.map((each, index) => [each, arrays.measures.data[state * run.measures.length + index]]).filter(([each]) => each.shown);
  shown.forEach(([, value], index) => { panel.values[index].textContent = shortNumber(value); panel.values[index].dataset.value = value; });
  for (const each of panel.drawn) {
    each.move(state);
    each.plot.querySelector(".cursor").style.left = `${(100 * Math.min(state + 0.5, episode.steps)) / episode.steps}%`;
  }
  showPictures(panel, state, step, colourOf(panel.badge, "--colour"));
}

function ending(episode) {
  return { terminated: "the episode is over", truncated: "the time limit was reached", cut: `recording ends at step ${episode.steps}` }[episode.end];
}

function showPictures(panel, state, step, colour) {
  const { run, episode } = panel, { kind, classes, own, names, world } = run.picture, { arrays } = episode;
  if (kind === "tiles") {
    drawWorld(panel.world, panel.paint, episode, world, state, colour);
    drawTiles(panel.view, panel.paint, arrays.obs, state, own, colour);
    if (panel.belief) drawLikeliest(panel.belief, panel.paint, arrays.likeliest, arrays.certainty, step, Math.round(255 / classes));
    describe(panel, state, step);
  } else if (kind === "image") {
    drawPixels(panel.world, arrays.obs, state);
    if (panel.belief) { drawPixels(panel.belief, arrays.mean, step); drawPixels(panel.spread, arrays.std, step); }
    label(panel, { world: `What the body sees at step ${state}`, belief: "Mean of every pixel under the density model", spread: "Its standard deviation" });
  } else if (kind === "classes") {
    drawClasses(panel.world, arrays.obs, state, names);
    if (panel.belief) drawClasses(panel.belief, arrays.likeliest, step, names, arrays.certainty);
    label(panel, { world: `What the body sees at step ${state}`, belief: "The likeliest class of every entry" });
  } else {
    drawNumbers(panel.world, arrays.obs, state, episode.range);
    if (panel.belief) drawNumbers(panel.belief, arrays.mean, step, episode.range, arrays.std);
    label(panel, { world: `What the body sees at step ${state}`, belief: "Mean and standard deviation of every entry" });
  }
}

function label(panel, texts) {
  for (const [name, text] of Object.entries(texts)) if (panel[name]) panel[name].setAttribute("aria-label", text);
}

function describe(panel, state, step) {
  const { run, episode } = panel, { body, obs, certainty } = episode.arrays;
  const [column, row, direction] = body.data.subarray(4 * state, 4 * state + 3);
  const cells = obs.shape[1] * obs.shape[2], seen = obs.data.subarray(state * cells, (state + 1) * cells);
  const things = [...new Set(Array.from(seen, (tile) => run.picture.tiles[tile].name))].filter((name) => name !== "unseen");
  const texts = {
    world: `The world from above: ${run.roles[episode.arrays.role.data[step]]} is in column ${column}, row ${row} and faces ${DIRECTIONS[direction]}`,
    view: `The body sees: ${things.join(", ") || "nothing"}`,
  };
  if (certainty) {
    const sure = certainty.data.subarray(step * cells, (step + 1) * cells);
    const mean = sure.reduce((total, each) => total + each, 0) / sure.length / 255;
    texts.belief = `The density model's likeliest class of every cell, on average ${Math.round(100 * mean)} % probable`;
  }
  label(panel, texts);
}

// Controls.

// Panels whose episode has been unpacked: none for a moment after a new choice.
function loaded() {
  return panels.filter((panel) => panel.episode);
}

function show() {
  loaded().forEach(showPanel);
  const last = lastState();
  byId("scrubber").max = last;
  byId("scrubber").value = now.state;
  byId("scrubber").setAttribute("aria-valuetext", `step ${now.state} of ${last}`);
  byId("clock").replaceChildren(element("span", { class: "word", text: "step " }), `${now.state} of ${last}`);
  if (!now.playing) byId("spoken").textContent = `Step ${now.state}: ` + panels.map((panel) => `${panel.badge.textContent}, ${panel.did.textContent}`).join("; ");
}

function lastState() {
  return Math.max(1, ...loaded().map((panel) => panel.episode.states)) - 1;
}

function seek(state) {
  now.state = Math.max(0, Math.min(lastState(), state));
  show();
}

function play(on) {
  now.playing = on;
  clearTimeout(timer);
  if (on && now.state >= lastState()) now.state = 0;
  byId("play").classList.toggle("playing", on);
  byId("play").setAttribute("aria-label", on ? "Pause" : "Play");
  if (on) timer = setTimeout(tick, 1000 / now.speed);
  show();
}

function tick() {
  if (now.state >= lastState()) return play(false);
  seek(now.state + 1);
  timer = setTimeout(tick, 1000 / now.speed);
}

function setSpeed(speed) {
  now.speed = speed;
  byId("speed").value = speed;
}

function drawTurns() {
  byId("turns").replaceChildren(...panels.map(({ run, episode }) => {
    const turns = stretches(Array.from(episode.arrays.role.data, (role, step) => 2 * role + (episode.partlyScored ? 1 - episode.arrays.scored.data[step] : 0)), episode.steps);
    const bars = turns.map(({ value, from, to }) => vector("rect", { class: `${roleClass(run, value >> 1)}${value & 1 ? " quiet" : ""}`, x: from, width: to - from, y: 0, height: 1 }));
    return vector("svg", { viewBox: `0 0 ${lastState()} 1`, preserveAspectRatio: "none" }, ...bars);
  }));
}

async function load() {
  const mine = ++loading;
  const chosen = await Promise.all(panels.map(({ run, number }) => {
    const { episodes } = run.seeds[now.seeds[number]];
    return ready(run, episodes[Math.min(now.episode, episodes.length - 1)]);
  }));
  if (mine !== loading) return;
  panels.forEach((panel, index) => fillPanel(panel, chosen[index]));
  now.state = Math.min(now.state, lastState());
  byId("episode").value = now.episode;
  drawTurns();
  show();
  panels.forEach((panel) => panel.drawn.forEach((each) => each.paint && each.paint()));
  document.documentElement.dataset.ready = "yes";
}

function chooseEpisode(number) {
  const last = byId("episode").options.length - 1;
  now.episode = Math.max(0, Math.min(last, number));
  now.state = 0;
  load();
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  const onButton = ["BUTTON", "SUMMARY", "A"].includes(event.target.tagName), far = event.shiftKey ? 10 : 1;
  const faster = (by) => setSpeed(SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, SPEEDS.indexOf(now.speed) + by))]);
  const keys = {
    " ": () => play(!now.playing), ArrowLeft: () => seek(now.state - far), ArrowRight: () => seek(now.state + far),
    Home: () => seek(0), End: () => seek(lastState()), "[": () => chooseEpisode(now.episode - 1), "]": () => chooseEpisode(now.episode + 1),
    "+": () => faster(1), "=": () => faster(1), "-": () => faster(-1),
  };
  if (!(event.key in keys) || (onButton && event.key === " ")) return;
  event.preventDefault();
  keys[event.key]();
}

function fillEpisodes(runs) {
  const longest = runs.reduce((best, run) => (run.seeds[0].episodes.length > best.seeds[0].episodes.length ? run : best));
  const first = longest.measures.findIndex((each) => each.shown);
  byId("episode").replaceChildren(...longest.seeds[0].episodes.map((episode, number) => {
    const value = first < 0 || episode.measures[first] === null ? "" : ` · ${longest.measures[first].label}: ${shortNumber(episode.measures[first])}`;
    return element("option", { value: number, text: `${number + 1}${runs.length > 1 ? "" : value}` });
  }));
}

// Listens to keys only inside `home`, so that the space bar still scrolls the rest of the page.
function listen(home) {
  SPEEDS.forEach((speed) => byId("speed").append(element("option", { value: speed, text: `${speed}/s` })));
  byId("episode").addEventListener("change", (event) => chooseEpisode(Number(event.target.value)));
  byId("speed").addEventListener("change", (event) => setSpeed(Number(event.target.value)));
  byId("scrubber").addEventListener("input", (event) => seek(Number(event.target.value)));
  const buttons = { first: () => seek(0), back: () => seek(now.state - 1), play: () => play(!now.playing), forward: () => seek(now.state + 1), last: () => seek(lastState()) };
  for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);
  home.addEventListener("keydown", pressed);
  const repaint = () => { if (loaded().length) { show(); panels.forEach((panel) => panel.drawn.forEach((each) => each.paint && each.paint())); } };
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  window.addEventListener("resize", repaint);
}

// Reads where to start from the address: `#episode=2&step=40&speed=16&play`.
function fromAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const whole = (name, fallback) => (/^\d+$/.test(wanted.get(name) || "") ? Number(wanted.get(name)) : fallback);
  now.episode = Math.max(whole("episode", 1) - 1, 0);
  now.state = whole("step", 0);
  setSpeed(SPEEDS.includes(whole("speed", 8)) ? whole("speed", 8) : 8);
  return wanted.has("play");
}

// Shows one run, or two next to each other, and keeps the current episode, step and seeds.
function showRuns(runs) {
  if (now.playing) play(false);
  now.seeds = runs.map((run, number) => Math.min(now.seeds[number] || 0, run.seeds.length - 1));
  panels = runs.map(makePanel);
  byId("runs").className = panels.length > 1 ? "two" : "one";
  byId("runs").replaceChildren(...panels.map((panel) => panel.root));
  fillEpisodes(runs);
  now.episode = Math.min(now.episode, byId("episode").options.length - 1);
  return load();
}

function isTooOld() {
  if (window.DecompressionStream) return false;
  byId("runs").append(element("p", { class: "message", text: "This browser is too old to read the replay (it has no DecompressionStream)." }));
  return true;
}

async function begin() {
  if (isTooOld()) return;
  listen(document);
  const plays = fromAddress();
  await showRuns(data.runs);
  if (plays) play(true);
}
