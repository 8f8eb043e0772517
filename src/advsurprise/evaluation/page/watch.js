// A run in progress: polls the server for its progress and its newest episodes.

const INTERVAL = 2000;
const live = { shown: 0, newest: 0, fetching: false };

async function fetched(name) {
  const answer = await fetch(name, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer.json();
}

async function ask() {
  try {
    const status = await fetched("status.json");
    byId("training").textContent = status.text;
    live.newest = status.episodes;
    byId("newer").textContent = `New episodes, from step ${status.from.toLocaleString("en")}: show`;
    if (!live.shown) byId("runs").dataset.message = status.waiting;
    await offer();
  } catch {
    byId("training").textContent = "No answer: `advsurprise watch` is no longer running.";
  }
}

// New episodes never replace what somebody is looking at: they are offered, and shown at once only if nothing has been
// shown yet, nothing has been touched, or the box is ticked and the episode is over.
async function offer() {
  if (live.newest === live.shown) return;
  const started = now.playing || now.state > 0;
  const over = panels.length > 0 && !now.playing && now.state >= lastState();
  if (!live.shown || !started) await renew(false);
  else if (byId("follow").checked && over) await renew(true);
  byId("newer").hidden = live.newest === live.shown;
}

async function renew(plays) {
  if (live.fetching) return;
  live.fetching = true;
  try {
    const { number, run } = await fetched("episodes.json");
    live.shown = live.newest = number;
    now.state = 0;
    await showRuns([run]);
    byId("newer").hidden = true;
    if (plays || byId("follow").checked) play(true);
  } finally {
    live.fetching = false;
  }
}

function beginWatching() {
  if (isTooOld()) return;
  document.querySelector("h1").textContent = document.title;
  listen(document);
  fromAddress();
  byId("newer").addEventListener("click", () => renew(now.playing));
  byId("follow").addEventListener("change", offer);
  const again = async () => { await ask(); setTimeout(again, INTERVAL); };
  again();
}
