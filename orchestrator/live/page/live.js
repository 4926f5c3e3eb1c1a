// The live page: draws what the server tells once a second, and asks it to strike and to heal.
"use strict";

const TOKEN = new URLSearchParams(location.search).get("token") || "";
const NAMES = { "table.remote_entries": "remote entries", "table.local_entries": "local entries", "rate.notifications": "notifications / s", "rate.control": "control messages / s", "delay.end_to_end": "mean delay (s)" };
const HISTORY = 300; // seconds that sparklines show
const TAB_STOPS_MAX = 40; // brokers that Tab walks through; beyond, the list does
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
let tree = null, state = null, chosen = null, isOver = false;
const nodes = {}, lines = {}, series = {};

function make(tag, attributes = {}, parent = null, text = null) {
  const isSvg = ["svg", "g", "line", "circle", "text", "path", "title"].includes(tag);
  const it = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) it.setAttribute(name, value);
  if (text !== null) it.textContent = text;
  if (parent) parent.append(it);
  return it;
}

const shown = (value) => value === null || value === undefined ? "–" : Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 1 ? value.toFixed(2) : value.toFixed(3);

async function ask(path, body = null) {
  const options = { headers: { "X-Token": TOKEN } };
  if (body) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  const answer = await fetch(path, options);
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

async function act(path, body) {
  $("answer").textContent = "";
  try { await ask(path, body); } catch (error) { $("answer").textContent = error.message; }
}

// -- the drawing ------------------------------------------------------------------------------------------------------

function draw() {
  const names = Object.keys(tree.places), { radius, size: [width, height] } = tree;
  const svg = make("svg", { viewBox: `0 0 ${width} ${height + 12}`, role: "group", "aria-label": "the tree of brokers" }, $("drawing"));
  const isWalked = names.length <= TAB_STOPS_MAX;
  for (const [child, parent] of Object.entries(tree.parents)) {
    if (parent === null) continue;
    const [x1, y1] = tree.places[child], [x2, y2] = tree.places[parent];
    lines[child] = { line: make("line", { x1, y1, x2, y2, class: "link", "stroke-width": 1 }, svg) };
    const hit = lines[child].hit = make("line", { x1, y1, x2, y2, class: "hit", "stroke-width": 16, role: "button" }, svg);
    pickable(hit, `link ${child}`, isWalked);
  }
  for (const name of names) {
    const [x, y] = tree.places[name];
    const group = make("g", { class: "broker", role: "button", transform: `translate(${x} ${y})` }, svg);
    nodes[name] = { group, circle: make("circle", { r: radius }, group), title: make("title", {}, group) };
    if (tree.has_names) make("text", { y: radius + 15 }, group, name);
    pickable(group, `broker ${name}`, isWalked);
  }
  make("span", {}, $("legend"), "remote entries: 0");
  make("span", { class: "ramp" }, $("legend"));
  make("span", { id: "most" }, $("legend"), "");
}

function pickable(it, what, isWalked) {
  if (isWalked) it.setAttribute("tabindex", "0");
  it.addEventListener("click", () => choose(what));
  it.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(what); }
  });
}

function showTree() {
  const most = Math.max(1, ...Object.values(state.brokers).map((it) => it.remote));
  $("most").textContent = shown(most);
  for (const [name, it] of Object.entries(state.brokers)) {
    const { group, circle, title } = nodes[name];
    group.setAttribute("class", `broker ${it.state}${chosen === `broker ${name}` ? " picked" : ""}`);
    circle.style.fill = `color-mix(in oklab, var(--high) ${(100 * it.remote / most).toFixed(0)}%, var(--low))`;
    const text = `broker ${name}, ${it.state}, ${it.remote} remote and ${it.local} local entries, ${it.queue} messages wait`;
    group.setAttribute("aria-label", text);
    title.textContent = text;
  }
  const rates = Object.values(state.links).map((it) => sum(it.rates));
  const fastest = Math.max(1e-9, ...rates);
  for (const [child, it] of Object.entries(state.links)) {
    const { line, hit } = lines[child];
    line.setAttribute("stroke-width", (1 + (tree.widest_link - 1) * Math.sqrt(sum(it.rates) / fastest)).toFixed(1));
    line.setAttribute("class", it.connected && !it.cut ? "link" : "link down");
    hit.setAttribute("class", `hit${chosen === `link ${child}` ? " picked" : ""}`);
    hit.setAttribute("aria-label", `link ${child} to ${tree.parents[child]}, ${it.cut ? "cut" : it.connected ? "connected" : "not connected"}, ${shown(sum(it.rates))} messages per second`);
  }
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

// -- what is chosen ---------------------------------------------------------------------------------------------------

function choose(what) {
  chosen = what;
  $("answer").textContent = "";
  panel();
  if (state) { showTree(); showChosen(); }
}

function panel() {
  const place = $("chosen");
  place.replaceChildren();
  const label = make("label", {}, place, "Chosen: ");
  const list = make("select", { id: "pick" }, label);
  make("option", { value: "" }, list, "nothing");
  for (const name of Object.keys(tree.parents)) make("option", { value: `broker ${name}` }, list, `broker ${name}`);
  for (const child of Object.keys(lines)) make("option", { value: `link ${child}` }, list, `link ${child} – ${tree.parents[child]}`);
  list.value = chosen || "";
  list.addEventListener("change", () => choose(list.value || null));
  make("p", { id: "facts" }, place);
  if (!chosen) return;
  const [kind, name] = chosen.split(" ");
  const target = kind === "link" ? [name, tree.parents[name]] : name;
  for (const verb of kind === "link" ? ["cut"] : ["crash", "pause"]) {
    const button = make("button", { type: "button", class: "strike", "data-verb": verb }, place, `${verb} it now`);
    button.addEventListener("click", () => act("/strike", { verb, target }));
  }
  const repair = make("button", { type: "button", class: "repair", id: "repair" }, place, "repair it now");
  repair.addEventListener("click", () => { for (const it of openFaults()) act("/heal", { number: it.number }); });
  if (isOver) disable();
}

// There is nothing left to strike.
function disable() {
  for (const it of document.querySelectorAll("button")) it.disabled = true;
}

function openFaults() {
  const [kind, name] = chosen.split(" ");
  const ours = kind === "link" ? [`cut ${name}-${tree.parents[name]}`, `cut ${name}>${tree.parents[name]}`, `cut ${tree.parents[name]}>${name}`] : [`crash ${name}`, `pause ${name}`];
  return state.faults.filter((it) => ours.includes(it.what) && it.healed === undefined);
}

function showChosen() {
  if (!chosen) return;
  const [kind, name] = chosen.split(" ");
  const isStruck = openFaults().length > 0;
  for (const button of document.querySelectorAll("#chosen .strike")) button.hidden = isStruck;
  $("repair").hidden = !isStruck;
  if (kind === "broker") {
    const it = state.brokers[name];
    $("facts").textContent = `${it.state}; ${it.remote} remote and ${it.local} local entries, ${it.connections} connections, ${it.queue} messages wait`;
  } else {
    const it = state.links[name], [up, down, rest] = it.rates;
    $("facts").textContent = `${it.cut ? "cut" : it.connected ? "connected" : "not connected"}; notifications up ${shown(up)}/s, down ${shown(down)}/s, other messages ${shown(rest)}/s`;
  }
}

// -- tables -----------------------------------------------------------------------------------------------------------

function remember(name, value) {
  const kept = series[name] = series[name] || [];
  kept.push(value);
  if (kept.length > HISTORY) kept.shift();
  return kept;
}

function spark(place, values, label, zero = null) {
  let svg = place.querySelector("svg");
  if (!svg) {
    svg = make("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img" }, place);
    make("line", { x1: 0, x2: 100 }, svg);
    make("path", {}, svg);
  }
  svg.setAttribute("aria-label", label);
  const known = values.filter((value) => value !== null);
  const low = Math.min(zero ?? 0, ...known), high = Math.max(zero ?? 0, ...known, low + 1e-9);
  const y = (value) => 28 - 26 * (value - low) / (high - low);
  const points = values.map((value, at) => value === null ? null : `${(100 * at / Math.max(1, values.length - 1)).toFixed(1)} ${y(value).toFixed(1)}`).filter(Boolean);
  svg.querySelector("path").setAttribute("d", points.length ? `M${points.join("L")}` : "");
  const line = svg.querySelector("line");
  line.setAttribute("y1", y(zero ?? 0));
  line.setAttribute("y2", y(zero ?? 0));
}

// The row of this key, made with so many cells when it is first seen.
function row(table, key, cells, numeric) {
  const body = $(table).tBodies[0];
  let found = [...body.rows].find((it) => it.dataset.key === key);
  if (!found) {
    found = make("tr", { "data-key": key }, body);
    for (let at = 0; at < cells; at++) make(at ? "td" : "th", numeric.includes(at) ? { class: "n" } : at ? {} : { scope: "row" }, found);
  }
  return found.cells;
}

function showCompared() {
  for (const it of state.compared) {
    const name = `${NAMES[it.metric]} ${it.of}`.trim();
    const cells = row("compared", name, 5, [1, 2, 3]);
    const error = it.measured === null || !it.predicted ? null : it.measured / it.predicted - 1;
    cells[0].textContent = name;
    cells[1].textContent = shown(it.predicted);
    cells[2].textContent = shown(it.measured);
    cells[3].textContent = error === null ? "–" : `${error >= 0 ? "+" : "−"}${Math.abs(100 * error).toFixed(1)}%`;
    spark(cells[4], remember(name, error), `error of ${name} so far`, 0);
  }
}

function showPeers() {
  for (const it of state.peers) {
    const cells = row("peers", it.peer, 5, [1, 2]);
    cells[0].textContent = it.peer;
    cells[1].textContent = it.copies > 1 ? `${it.connected} of ${it.copies}` : it.connected ? "yes" : "no";
    cells[2].textContent = it.queue;
    spark(cells[3], remember(`peer ${it.peer}`, it.queue), `queue of ${it.peer}`);
    const open = state.faults.find((fault) => fault.what === `disconnect ${it.peer}` && fault.healed === undefined);
    const wanted = open ? "let it connect" : "disconnect";
    let button = cells[4].querySelector("button");
    if (!button) button = make("button", { type: "button" }, cells[4]);
    if (button.textContent === wanted) continue;
    button.textContent = wanted;
    button.className = open ? "repair" : "strike";
    button.setAttribute("aria-label", `${wanted}: ${it.peer}`);
    button.onclick = () => open ? act("/heal", { number: open.number }) : act("/strike", { verb: "disconnect", target: it.peer });
  }
}

function showFaults() {
  $("no-faults").hidden = state.faults.length > 0;
  for (const it of state.faults) {
    const cells = row("faults", String(it.number), 6, [1, 2, 3, 4]);
    cells[0].textContent = it.what;
    ["fault", "fault_confirmed", "healed", "heal_confirmed"].forEach((kind, at) => { cells[at + 1].textContent = it[kind] === undefined ? "–" : `${it[kind].toFixed(1)} s`; });
    let button = cells[5].querySelector("button");
    if (!button) {
      button = make("button", { type: "button", class: "repair", "aria-label": `repair: ${it.what}` }, cells[5], "repair");
      button.onclick = () => act("/heal", { number: it.number });
    }
    button.hidden = it.healed !== undefined;
  }
}

function show() {
  $("progress").value = Math.max(0, state.now_s / state.end_s);
  const phase = state.now_s < state.warmup_s ? "warming up, " : "";
  $("now").textContent = `${phase}${state.now_s.toFixed(0)} of ${state.end_s.toFixed(0)} s of model time`;
  showTree();
  showChosen();
  showCompared();
  showPeers();
  showFaults();
  spark($("queues"), remember("queues", sum(Object.values(state.brokers).map((it) => it.queue))), "messages that wait, all brokers");
}

async function begin() {
  try { tree = await ask("/tree"); } catch (error) { $("answer").textContent = error.message; return; }
  $("title").textContent = tree.scenario;
  document.title = `${tree.scenario}, live`;
  $("about").textContent = `${Object.keys(tree.parents).length} brokers, ${tree.routing} routing, seed ${tree.seed}, ${tree.speedup} seconds of model time per second`;
  draw();
  panel();
  const events = new EventSource(`/events?token=${encodeURIComponent(TOKEN)}`);
  events.onmessage = (event) => { state = JSON.parse(event.data); show(); };
  events.onerror = () => { $("now").textContent = "no connection to the run"; };
  events.addEventListener("over", () => {
    events.close();
    isOver = true;
    disable();
    $("now").textContent = "the measured time is over; the run goes on with the analysis";
  });
}

begin();
