"use strict";
// Shows what /api/v1 tells. Everything goes in as text, never as markup: URLs are strangers' words.

const api = "/api/v1/";
const byId = (id) => document.getElementById(id);
const shown = [];
const MOST_SHOWN = 100;
let last = 0;

async function ask(path, method = "GET") {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(api + path, { method, headers, cache: "no-store" });
  byId("token").hidden = answer.status !== 401;
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.detail || answer.statusText);
  return told;
}

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function row(...cells) {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
}

function seconds(count) {
  if (count === null || count === undefined) return "";
  if (count < 120) return `${Math.round(count)} s`;
  return count < 7200 ? `${Math.round(count / 60)} min` : `${Math.round(count / 3600)} h`;
}

function figures(status) {
  const refused = Object.entries(status.requests.refused);
  const tiles = [
    ["forwarded", status.requests.forwarded],
    ["failed", status.requests.failed],
    ["left by clients", status.requests.client_gone],
    ...refused.map(([why, count]) => [why, count]),
    ...Object.entries(status.requests.reported).map(([why, count]) => [`${why} (reported)`, count]),
    ["waiting", status.waiting],
    ["authorities", status.robots.authorities],
    ["robots.txt fetched", status.robots.fetched],
    ["fetches failed", status.robots.failed],
    ["memory of rules", `${Math.ceil(status.robots.memory / 1024)} KiB`],
  ];
  byId("figures").replaceChildren(...tiles.map(([name, value]) => {
    const tile = document.createElement("div");
    tile.append(element("b", value.toLocaleString()), element("span", name));
    return tile;
  }));
}

function host(known) {
  const button = element("button", "Refresh");
  button.addEventListener("click", async () => {
    button.disabled = true;
    await ask(`authorities/${encodeURIComponent(known.authority)}/refresh`, "POST").catch(trouble);
    await update();
  });
  const robots = known.failure ? `${known.access}; ${known.failure}` : known.access;
  const action = document.createElement("td");
  action.append(button);
  return row(
    element("td", known.authority),
    element("td", robots, known.failure ? "bad" : ""),
    element("td", seconds(known.age), "number"),
    element("td", known.pace.waiting, "number"),
    element("td", known.pace.in_flight, "number"),
    element("td", known.pace.owed ? `${known.pace.owed.toFixed(1)} s` : "", "number"),
    action,
  );
}

function decision(made) {
  const at = element("td", new Date(made.at).toLocaleTimeString(), "tight");
  const why = element("td", made.enforced ? made.detail : `let through: ${made.detail}`, made.enforced ? "bad" : "");
  return row(at, element("td", made.client || "", "tight"), element("td", made.url || ""), why);
}

function distrusted(one) {
  const client = one.user_agent ? `${one.client} (${one.user_agent})` : one.client;
  return row(
    element("td", client),
    element("td", one.host),
    element("td", one.times, "number"),
    element("td", `${one.how}: ${one.cure}`),
  );
}

function trouble(error) {
  byId("state").textContent = error.message;
  byId("state").className = "bad";
}

async function update() {
  try {
    const [status, decisions] = await Promise.all([ask("status"), ask(`decisions?after=${last}`)]);
    byId("state").className = "";
    byId("state").textContent =
      `${status.version}, ${status.mode}, on ${status.listen.join(", ")}, up for ${seconds(status.uptime)}`;
    figures(status);
    byId("distrust").hidden = status.distrusted.clients.length === 0;
    byId("distrusted").replaceChildren(...status.distrusted.clients.map(distrusted));
    byId("hosts").replaceChildren(...status.authorities.map(host));
    for (const made of decisions) {
      if (made.number <= last) continue;
      last = made.number;
      shown.unshift(decision(made));
    }
    shown.length = Math.min(shown.length, MOST_SHOWN);
    byId("decisions").replaceChildren(...shown);
  } catch (error) {
    trouble(error);
  }
}

byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", new FormData(event.target).get("token"));
  update();
});

byId("explain").addEventListener("submit", async (event) => {
  event.preventDefault();
  const asked = new URLSearchParams(new FormData(event.target));
  if (!asked.get("product_token")) asked.delete("product_token");
  const verdict = byId("verdict");
  try {
    const why = await ask(`explain?${asked}`);
    verdict.textContent = `${why.allowed ? "allowed" : "not allowed"}: ${why.detail || why.reason}`;
    verdict.className = why.allowed ? "good" : "bad";
  } catch (error) {
    verdict.textContent = error.message;
    verdict.className = "bad";
  }
});

async function watch() {
  await update();
  setTimeout(watch, document.hidden ? 10000 : 2000);
}
watch();
