"use strict";
// Shows the data of /api/v1. Everything is inserted as text, never as markup, because strangers choose the URLs.

// The token may be in the address's fragment, which browsers do not send. Removes the fragment from the history.
if (location.hash.length > 1) {
  sessionStorage.setItem("token", decodeURIComponent(location.hash.slice(1)));
  history.replaceState(null, "", location.pathname);
}

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

// Makes a cell, with its column's name for narrow screens.
function cell(label, text, kind) {
  const made = element("td", text, kind);
  made.dataset.label = label;
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
    ["aborted by clients", status.requests.client_gone],
    ...refused.map(([why, count]) => [why, count]),
    ...Object.entries(status.requests.reported).map(([why, count]) => [`${why} (reported)`, count]),
    ["waiting", status.waiting],
    ["authorities", status.robots.authorities],
    ["robots.txt fetched", status.robots.fetched],
    ["fetches failed", status.robots.failed],
    ["memory used", `${Math.ceil(status.robots.memory / 1024)} KiB`],
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
  const access = known.html ? `${known.access} (an HTML page)` : known.access;
  const robots = known.failure ? `${access}; ${known.failure}` : access;
  const action = document.createElement("td");
  action.append(button);
  return row(
    cell("", known.authority, "name"),
    cell("robots.txt", robots, known.failure ? "bad" : ""),
    cell("Age", seconds(known.age), "number"),
    cell("Crawl-delay", known.crawl_delay === null ? "" : `${known.crawl_delay} s`, "number"),
    cell("Waiting", known.pace.waiting, "number"),
    cell("In flight", known.pace.in_flight, "number"),
    cell("Next in", known.pace.owed ? `${known.pace.owed.toFixed(1)} s` : "", "number"),
    action,
  );
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(count, 1)) / 10), units.length - 1);
  return `${(count / 1024 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

function spent(budget) {
  if (!budget) return "";
  const parts = [];
  if (budget.max_requests !== null) parts.push(`${budget.requests} of ${budget.max_requests} requests`);
  if (budget.max_bytes !== null) parts.push(`${bytes(budget.bytes)} of ${bytes(budget.max_bytes)}`);
  if (budget.max_promised !== null) parts.push(`${budget.promised} of ${budget.max_promised} promised`);
  return `${parts.join(", ")} this ${budget.per}`;
}

function user(one) {
  const reasons = Object.entries(one.refused).sort(([, a], [, b]) => b - a);
  const refused = reasons.reduce((sum, [, count]) => sum + count, 0);
  return row(
    cell("", one.user || one.client, "name"),
    cell("Requests", one.requests.toLocaleString(), "number"),
    cell("Refused", refused.toLocaleString(), "number"),
    cell("Why", reasons.map(([why, count]) => `${count} ${why}`).join(", ")),
    cell("Waited", one.waited ? seconds(one.waited) : "", "number"),
    cell("Bytes", bytes(one.bytes), "number"),
    cell("Budget", spent(one.budget)),
  );
}

function who(one) {
  return one.user ? `${one.user} (${one.client})` : one.client || "";
}

function held(one) {
  return row(
    cell("", one.url, "name"),
    cell("Client", who(one), "tight"),
    cell("Why", one.detail),
    cell("Held for", seconds(one.since), "number"),
    cell("Time left", one.left === null ? "" : seconds(one.left), "number"),
  );
}

function decision(made) {
  const rule = made.rule ? `${made.rule}${made.line ? ` (line ${made.line})` : ""}` : "";
  return row(
    cell("", made.url || "(unreadable request)", "name"),
    cell("At", new Date(made.at).toLocaleTimeString(), "tight"),
    cell("Client", who(made), "tight"),
    cell("Decision", made.enforced ? made.reason : `${made.reason}, let through`, made.enforced ? "bad tight" : "tight"),
    cell("Rule", rule, "rule"),
    cell("Why", made.detail, "why"),
  );
}

function distrusted(one) {
  const client = one.user_agent ? `${one.client} (${one.user_agent})` : one.client;
  return row(
    cell("", client, "name"),
    cell("Host", one.host),
    cell("Times", one.times, "number"),
    cell("What helps", `${one.how}: ${one.cure}`),
  );
}

function trouble(error) {
  byId("state").textContent = error.message;
  byId("state").className = "bad";
}

async function update() {
  try {
    const [status, decisions, waiting] =
      await Promise.all([ask("status"), ask(`decisions?after=${last}`), ask("held?limit=50")]);
    byId("state").className = "";
    byId("state").textContent =
      `${status.version}, ${status.mode}, on ${status.listen.join(", ")}, up for ${seconds(status.uptime)}`;
    figures(status);
    byId("distrust").hidden = status.distrusted.clients.length === 0;
    byId("distrusted").replaceChildren(...status.distrusted.clients.map(distrusted));
    byId("holding").hidden = waiting.length === 0;
    byId("held").replaceChildren(...waiting.map(held));
    byId("using").hidden = status.users.length === 0;
    byId("users").replaceChildren(...status.users.map(user));
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
