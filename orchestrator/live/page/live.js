// The live page: draws what the server tells once a second, and asks it to strike and to heal.
"use strict";

const TOKEN = new URLSearchParams(location.search).get("token") || "";
const NAMES = { "table.remote_entries": "remote entries", "table.local_entries": "local entries", "table.advertisements": "advertisements", "rate.notifications": "notifications / s", "rate.control": "control messages / s", "delay.end_to_end": "mean delay (s)", "delay.round_trip": "mean round trip (s)" };
const HISTORY = 300; // seconds that sparklines show
const TAB_STOPS_MAX = 40; // brokers that Tab walks through; beyond, the list does
const WIDTHS_SHOWN = [0.1, 0.5, 1]; // of the fastest link, in the legend
const LETTERS_PX = 13, LETTER_SHARE = 0.65; // size of names in the drawing; how wide a letter is at most
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
let tree = null, state = null, chosen = null, isOver = false;
const nodes = {}, lines = {}, series = {}, times = [];

function make(tag, attributes = {}, parent = null, text = null) {
  const isSvg = ["svg", "g", "line", "circle", "text", "path", "title"].includes(tag);
  const it = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) it.setAttribute(name, value);
  if (text !== null) it.textContent = text;
  if (parent) parent.append(it);
  return it;
}

const shown = (value) => value === null || value === undefined ? "–" : value === 0 ? "0" : Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 1 ? value.toFixed(2) : value.toFixed(3);

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
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "the tree of brokers" }, $("drawing"));
  const isWalked = names.length <= TAB_STOPS_MAX;
  for (const [child, parent] of Object.entries(tree.parents)) {
    if (parent === null) continue;
    const [x1, y1] = tree.places[child], [x2, y2] = tree.places[parent];
    lines[child] = { line: make("line", { x1, y1, x2, y2, class: "link", "stroke-width": 1 }, svg) };
    const hit = lines[child].hit = make("line", { x1, y1, x2, y2, class: "hit", "stroke-width": 16, role: "button" }, svg);
    pickable(hit, `link ${child}`, isWalked);
    lines[child].rate = make("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2, "aria-hidden": "true", class: "rate" });
  }
  svg.append(...Object.values(lines).map((it) => it.rate));
  for (const name of names) {
    const [x, y] = tree.places[name];
    const group = make("g", { class: "broker", role: "button", transform: `translate(${x} ${y})` }, svg);
    nodes[name] = { group, circle: make("circle", { r: radius }, group), title: make("title", {}, group) };
    nodes[name].label = make("text", {}, group, name);
    pickable(group, `broker ${name}`, isWalked);
  }
  legend();
  new ResizeObserver(() => requestAnimationFrame(fit)).observe($("drawing"));
}

function legend() {
  for (const share of WIDTHS_SHOWN) {
    const item = make("span", {}, $("legend"));
    const sample = make("svg", { viewBox: "0 0 36 16", "aria-hidden": "true" }, item);
    make("line", { x1: 8, x2: 28, y1: 8, y2: 8, class: "link", "stroke-width": linkWidth(share) }, sample);
    make("span", { class: "width", "data-share": share }, item, "–");
  }
  const ramp = make("span", {}, $("legend"));
  make("span", {}, ramp, "remote entries: 0");
  make("span", { class: "ramp" }, ramp);
  make("span", { id: "most" }, ramp, "");
}

const linkWidth = (share) => (1 + (tree.widest_link - 1) * Math.sqrt(share)).toFixed(1);

// The drawing shrinks with the window, its letters do not: those for which there is no room are left out.
function fit() {
  const svg = $("drawing").querySelector("svg"), { radius, size: [width, height] } = tree;
  const letters = LETTERS_PX * Math.max(1, width / svg.clientWidth);
  svg.style.fontSize = `${letters}px`;
  svg.setAttribute("viewBox", `0 0 ${width} ${height + 1.2 * letters}`);
  const longest = Math.max(...Object.keys(nodes).map((name) => name.length));
  const hasRoom = (count) => tree.has_names && nearest() >= count * LETTER_SHARE * letters;
  for (const { label } of Object.values(nodes)) {
    label.setAttribute("y", radius + 1.1 * letters);
    label.style.display = hasRoom(longest) ? "" : "none";
  }
  const isTall = least([...new Set(Object.values(tree.places).map(([, y]) => y))]) >= 2 * radius + 2.4 * letters;
  for (const { rate } of Object.values(lines)) rate.style.display = isTall && hasRoom(6) ? "" : "none";
}

// The least distance of two brokers that stand side by side.
function nearest() {
  const rows = {};
  for (const [x, y] of Object.values(tree.places)) (rows[y] = rows[y] || []).push(x);
  return Math.min(tree.size[0], ...Object.values(rows).map(least));
}

const least = (values) => Math.min(Infinity, ...values.sort((a, b) => a - b).slice(1).map((value, at) => value - values[at]));

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
  for (const it of document.querySelectorAll("#legend .width")) it.textContent = `${shown(it.dataset.share * fastest)} messages/s`;
  for (const [child, it] of Object.entries(state.links)) {
    if (it.parent !== tree.parents[child]) moveLink(child, it.parent);
    const { line, hit, rate } = lines[child];
    line.setAttribute("stroke-width", linkWidth(sum(it.rates) / fastest));
    rate.textContent = `${shown(sum(it.rates))}/s`;
    line.setAttribute("class", it.connected && !it.cut ? "link" : "link down");
    hit.setAttribute("class", `hit${chosen === `link ${child}` ? " picked" : ""}`);
    hit.setAttribute("aria-label", `link ${child} to ${tree.parents[child]}, ${it.cut ? "cut" : it.connected ? "connected" : "not connected"}, ${shown(sum(it.rates))} messages per second`);
  }
}

/** A broker has another parent. Brokers stay where they are drawn. */
function moveLink(child, parent) {
  tree.parents[child] = parent;
  const [x1, y1] = tree.places[child], [x2, y2] = tree.places[parent];
  for (const it of [lines[child].line, lines[child].hit]) {
    it.setAttribute("x2", x2);
    it.setAttribute("y2", y2);
  }
  lines[child].rate.setAttribute("x", (x1 + x2) / 2);
  lines[child].rate.setAttribute("y", (y1 + y2) / 2);
  panel();
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

// -- what is chosen ---------------------------------------------------------------------------------------------------

function choose(what) {
  chosen = what;
  $("answer").textContent = "";
  panel();
  if (state) { showTree(); showSelected(); }
}

function panel() {
  const place = $("chosen");
  place.replaceChildren();
  const label = make("label", {}, place, "Selected: ");
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
  for (const verb of tree.verbs[kind]) {
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
  const parent = tree.parents[name];
  const targets = kind === "link" ? [`${name}-${parent}`, `${name}>${parent}`, `${parent}>${name}`] : [name];
  const ours = tree.verbs[kind].flatMap((verb) => targets.map((target) => `${verb} ${target}`));
  return state.faults.filter((it) => ours.includes(it.what) && it.healed === undefined);
}

function showSelected() {
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

function spark(place, values, label, zero = null, least = 1e-9) {
  let svg = place.querySelector("svg");
  if (!svg) {
    svg = make("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img" }, place);
    make("line", { x1: 0, x2: 100 }, svg);
    make("path", {}, svg);
  }
  svg.setAttribute("aria-label", label);
  const known = values.filter((value) => value !== null);
  const low = Math.min(zero ?? 0, ...known), high = Math.max(zero ?? 0, ...known, low + least);
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
    const heads = $(table).tHead.rows[0].cells;
    make("th", { scope: "row" }, found);
    for (let at = 1; at < cells; at++) make("td", { class: numeric.includes(at) ? "n" : "", "data-label": heads[at].textContent }, found);
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
    if (it.places) make("small", {}, cells[0], `at ${it.places}`);
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
  $("now").textContent = state.now_s < 0 ? "starting: model time has not begun" : `${phase}${state.now_s.toFixed(0)} of ${state.end_s.toFixed(0)} s of model time`;
  showTree();
  showSelected();
  showCompared();
  showPeers();
  showFaults();
  showQueues();
}

// A line with two axes: how many messages, and from which model time to which.
function showQueues() {
  const values = remember("queues", sum(Object.values(state.brokers).map((it) => it.queue)));
  times.push(Math.max(0, state.now_s));
  if (times.length > HISTORY) times.shift();
  spark($("queues-line"), values, `messages that wait, all brokers: now ${values.at(-1)}`, null, 1);
  $("queues-most").textContent = Math.max(1, ...values);
  $("queues-from").textContent = `${times[0].toFixed(0)} s`;
  $("queues-to").textContent = `${times.at(-1).toFixed(0)} s`;
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
