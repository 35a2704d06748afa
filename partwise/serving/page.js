"use strict";

// Texts of others reach the page as text only, and their JSON as it came: numbers beyond 2^53 would change.
const at = (id) => document.getElementById(id);
let apiKey = "";
let name = "";
let chosen = null;
let asked = 0;

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, body) {
  const headers = {};
  if (apiKey) headers.Authorization = `Bearer ${apiKey}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, body, cache: "no-store" });
  } catch {
    throw new Refused(0, "The server does not answer.");
  }
  const text = await answer.text();
  if (answer.ok) return text;
  let message = text;
  try {
    message = JSON.parse(text).error || text;
  } catch {
    // A proxy's own page.
  }
  throw new Refused(answer.status, String(message).slice(0, 2000) || `The server answered ${answer.status}.`);
}

function made(tag, text = "", names = "") {
  const one = document.createElement(tag);
  one.textContent = text;
  if (names) one.className = names;
  return one;
}

function inIsolation(tag, text, names = "") {
  const one = made(tag, "", names);
  one.append(made("bdi", text));
  return one;
}

const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const shown = (value) => (value === null || value === undefined || value === "" ? "" : String(value));
const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(6))) : shown(value));
const moment = (text) => shown(text).slice(0, 19).replace("T", " ");

function tell(error) {
  const wantsKey = error.status === 401;
  at("access").hidden = !wantsKey;
  if (wantsKey) {
    at("inside").hidden = true;
    at("api-key").focus();
  }
  at("problem").textContent = wantsKey && !apiKey ? "" : error.message;
  at("problem").hidden = !at("problem").textContent;
}

async function attempt(work) {
  try {
    await work();
    at("problem").hidden = true;
  } catch (error) {
    tell(error);
  }
}

async function list() {
  const turn = ++asked;
  const found = JSON.parse(await ask(`keys?like=${encodeURIComponent(at("like").value)}`));
  if (turn !== asked) return; // a later text was asked for meanwhile
  name = found.name;
  at("access").hidden = true;
  at("inside").hidden = false;
  at("reference").textContent = found.reference;
  document.title = `${found.reference} · partwise`;
  const columns = found.key_columns.map((column) => `${column.name} (${column.class})`).join(", ");
  at("about").textContent = columns
    ? `${count(found.n_keys, "key")}, each with its own model, by ${columns}.`
    : "One model for all rows.";
  const more = found.n_found > found.keys.length ? `, of which ${found.keys.length} are shown` : "";
  at("found").textContent = `${count(found.n_found, "key")} found${more}.`;
  at("keys").replaceChildren(...found.keys.map(choice));
}

function choice(key) {
  const item = made("li");
  const button = inIsolation("button", key.text);
  button.type = "button";
  button.value = key.id;
  button.setAttribute("aria-pressed", String(chosen !== null && chosen.id === key.id));
  button.addEventListener("click", () => attempt(() => choose(key.id)));
  item.append(button);
  return item;
}

async function choose(id) {
  const turn = { id };
  chosen = turn;
  for (const button of at("keys").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.value === id));
  }
  const where = encodeURIComponent(id);
  const one = JSON.parse(await ask(`keys/one?key=${where}`));
  if (chosen !== turn) return;
  chosen = { ...one, turn };
  show(one);
  const columns = await columnsOf(one);
  if (chosen === null || chosen.turn !== turn) return;
  chosen.columns = columns;
  at("fields").replaceChildren(...columns.map(field));
  at("try").hidden = !columns.length;
  const history = JSON.parse(await ask(`keys/history?key=${where}`));
  if (chosen !== null && chosen.turn === turn) showHistory(history);
}

function show(one) {
  const champion = one.champion;
  at("chosen").hidden = false;
  at("answer").hidden = true;
  at("key").textContent = one.text;
  // Until that of this key is there, the history of the key before would stand below its name.
  at("history").replaceChildren();
  at("versions").textContent = "";
  const marks = [];
  if (champion.retired) marks.push("Retired: it has no model; a further level may answer.");
  if (champion.pinned) marks.push("Pinned: it keeps its model until it is unpinned.");
  if (champion.unseen_since) marks.push(`Not in the data since version ${champion.unseen_since}.`);
  at("marks").textContent = marks.join(" ");
  const facts = [
    ["Run", champion.run_id],
    ["Generation", champion.generation],
    ["Since version", champion.since_version],
    ["Promoted (UTC)", moment(champion.promoted_at)],
    ["Rows", champion.rows],
    ["Margin", short(champion.margin)],
    ["Compared in", champion.comparison],
    ["Reason", champion.reason],
  ].filter(([, value]) => shown(value) !== "");
  at("facts").replaceChildren(
    ...facts.map(([label, value]) => {
      const fact = made("div");
      fact.append(made("dt", label), inIsolation("dd", shown(value)));
      return fact;
    }),
  );
  const metrics = Object.entries(one.metrics).map(([metric, value]) => {
    const item = inIsolation("span", metric);
    item.append(" ", made("b", short(value)));
    return item;
  });
  at("metrics").replaceChildren(...(metrics.length ? metrics : [made("span", "none", "muted")]));
  at("try").hidden = true;
}

// Those of its model; of none, where no level has one.
async function columnsOf(one) {
  const query = one.json === null ? "" : `?key=${encodeURIComponent(one.json)}`;
  try {
    return JSON.parse(await ask(`v2/models/${encodeURIComponent(name)}${query}`)).inputs;
  } catch (error) {
    if (error.status === 404) return [];
    throw error;
  }
}

function field(column, place) {
  const one = made("div");
  const label = inIsolation("label", column.name);
  label.append(" ", made("small", column.datatype));
  label.htmlFor = `column-${place}`;
  const input = made(column.categories || column.datatype === "BOOL" ? "select" : "input");
  if (input.tagName === "SELECT") {
    const values = column.categories || [false, true];
    input.append(new Option("", ""), ...values.map((value) => new Option(String(value), JSON.stringify(value))));
  } else {
    input.type = "text";
    input.autocomplete = "off";
    if (column.datatype !== "BYTES") {
      input.inputMode = "decimal";
      input.pattern = "\\s*-?[0-9]+(\\.[0-9]+)?([eE][+\\-]?[0-9]+)?\\s*";
      input.title = "A number, such as 19.9";
    }
  }
  input.id = label.htmlFor;
  one.append(label, input);
  return one;
}

function question() {
  const members = chosen.columns.map((column, place) => {
    const input = at(`column-${place}`);
    let value = input.value === "" ? "null" : input.value;
    if (input.tagName === "INPUT" && input.value !== "") {
      value = column.datatype === "BYTES" ? JSON.stringify(value) : value.trim().replace(/^(-?)0+(?=[0-9])/, "$1");
    }
    return `${JSON.stringify(column.name)}: ${value || "null"}`;
  });
  const key = chosen.json === null ? "" : `, "key": ${chosen.json}`;
  return `{"rows": [{${members.join(", ")}}]${key}}`;
}

async function predict() {
  const body = question();
  const text = await ask(`predict/${encodeURIComponent(name)}`, body);
  const answer = JSON.parse(text);
  const values = Object.values(answer.outputs).map((output) => output[0]);
  const model = answer.models[answer.used[0]];
  at("prediction").textContent = values.map((value) => (value === null ? "none" : short(value))).join(", ");
  at("by").textContent = model ? `${answer.reference}, level ${model.level}, run ${model.run || "none"}` : answer.reference;
  at("exchange").textContent = `${body}\n\n${text}`;
  at("answer").hidden = false;
}

function showHistory(history) {
  const left = history.n_versions - history.versions.length;
  at("versions").textContent = history.n_versions
    ? `${count(history.n_versions, "version")} changed it${left ? `; the newest ${history.versions.length} are shown` : ""}.`
    : "A run has no history.";
  at("history").replaceChildren(
    ...history.versions.map((version) => {
      const row = made("tr");
      const mark = [version.pinned && "pinned", version.retired && "retired"].filter(Boolean).join(", ");
      row.append(
        made("td", shown(version.version), "n"),
        made("td", moment(version.made_at)),
        inIsolation("td", `${version.action}, ${version.who}`),
        inIsolation("td", shown(version.run_id)),
        made("td", short(version.margin), "n"),
        inIsolation("td", shown(version.reason)),
        made("td", mark),
      );
      return row;
    }),
  );
}

// A link would not send the API key.
async function openDocs(event) {
  if (!apiKey) return;
  event.preventDefault();
  const tab = window.open("about:blank");
  const page = new Blob([await ask("docs")], { type: "text/html" });
  tab.location = URL.createObjectURL(page);
}

let waiting = 0;
at("docs").addEventListener("click", (event) => attempt(() => openDocs(event)));
at("like").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => attempt(list), 150);
});
at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  apiKey = at("api-key").value;
  at("api-key").value = "";
  attempt(list);
});
at("row").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(predict);
});
attempt(list);
