// A report: what was compared, curves, final measures, replays, settings and commands.

const report = data.report;
const within = (id, selector) => byId(id).querySelector(selector);

function rowOf(head, cells) {
  return element("tr", {}, element("th", { scope: "row", text: head }), ...cells.map((text) => element("td", { text: text ?? "–" })));
}

function headOf(heads) {
  return element("thead", {}, element("tr", {}, ...heads.map((text) => (text ? element("th", { scope: "col", text }) : element("td")))));
}

function showAbout() {
  within("about", "dl").append(...report.about.map(([term, text]) => element("div", {}, element("dt", { text: term }), element("dd", { text }))));
  within("about", "ul").append(...report.notes.map((text) => element("li", { text })));
}

function showCurves() {
  const panels = within("curves", ".panels");
  panels.append(...report.panels.map((panel) => drawPanel(panel, report.series)));
  drawLegend(within("curves", ".series"), panels, report.series);
  const smoothing = report.smoothing > 1 ? `mean of the last ${report.smoothing} updates` : "not smoothed";
  within("curves", ".caption").textContent = `Bold: interquartile mean over training seeds. Shaded: its 95% bootstrap interval. Thin: each seed. ${smoothing[0].toUpperCase()}${smoothing.slice(1)}.`;
}

function showMeasures() {
  const { runs, rows, even } = report.measures, table = within("measures", "table");
  const body = rows.map(({ label, cells }) => element("tr", {}, element("th", { scope: "row", text: label }), ...cells.map(measureCell)));
  table.append(headOf(["", ...runs]), element("tbody", {}, ...body));
  const bold = even ? "Bold: the highest, where its interval lies above those of all other methods; whether high is good depends on the measure. Measures under a method's own model are never bold." : "Nothing is bold, since the methods were trained for different numbers of steps.";
  const alone = rows.some(({ cells }) => cells.some((cell) => cell && cell.half === null)) ? " A single seed has no interval." : "";
  within("measures", ".caption").textContent = `The last point of the training curves: mean over training seeds ± half of its 95% interval (Student's t).${alone} ${bold}`;
}

function measureCell(cell) {
  if (!cell) return element("td", { text: "–" });
  const made = element("td", { "data-mean": cell.mean, "data-half": cell.half ?? "", title: `${cell.n} seed${cell.n > 1 ? "s" : ""}` });
  made.append(cell.best ? element("b", { text: cell.text }) : cell.text);
  return made;
}

function showReplays() {
  if (!data.runs.length) {
    byId("replay").replaceChildren(byId("replay-head"), element("p", { class: "caption", text: "No method has a checkpoint to replay." }));
    return null;
  }
  const options = () => data.runs.map((run, number) => element("option", { value: number, text: run.name }));
  byId("method").append(...options());
  byId("beside").append(element("option", { value: "", text: "none" }), ...options());
  byId("beside").parentElement.hidden = data.runs.length < 2;
  const choose = () => {
    const numbers = [byId("method").value, byId("beside").value].filter((value) => value !== "");
    return showRuns([...new Set(numbers)].map((number) => data.runs[number]));
  };
  byId("method").addEventListener("change", choose);
  byId("beside").addEventListener("change", choose);
  listen(byId("replay"));
  setSpeed(8);
  return choose();
}

// A value shared by all methods is shown once.
function settingRow({ name, values, default: usual }) {
  if (values.some((value) => value !== values[0])) return rowOf(name, [...values, usual]);
  const row = rowOf(name, [values.length > 1 ? `${values[0] ?? "–"} (all)` : values[0], usual]);
  row.cells[1].colSpan = values.length;
  return row;
}

function showSettings() {
  const { runs, rows } = report.settings;
  byId("fields").append(headOf(["", ...runs, "default"]), element("tbody", {}, ...rows.map(settingRow)));
  const { heads, rows: versions } = report.versions;
  byId("versions").append(headOf(["", ...heads]), element("tbody", {}, ...versions.map((row) => rowOf(row.name, row.values))));
}

function showCommands() {
  for (const { title, text } of report.commands) {
    const code = element("code", { text }), button = element("button", { type: "button", text: "Copy", "aria-label": `Copy: ${title}` });
    button.addEventListener("click", async () => { button.textContent = (await copied(text, code)) ? "Copied" : "Selected"; });
    byId("commands").append(element("h3", { text: title }), element("div", { class: "command" }, element("pre", {}, code), button));
  }
}

// If the page may not use the clipboard, the text is at least selected.
async function copied(text, code) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(code);
    return document.execCommand("copy");
  }
}

async function beginReport() {
  showAbout();
  showCurves();
  showMeasures();
  showSettings();
  showCommands();
  if (!isTooOld()) await showReplays();
  document.documentElement.dataset.ready = "yes";
}
