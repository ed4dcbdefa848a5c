"use strict";
// Makes the tables sortable and filterable, and draws the plots. All texts come from records and plugins:
// they are written with textContent and setAttribute, never as markup.
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const find = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const byId = (name) => document.getElementById(name);
const known = (value) => typeof value === "number" && Number.isFinite(value);

// Rows, from columns: each is a list of values, or the different values and which one each is. So is the shape of models.
function unpacked({ count, columns, shape }) {
  const shapes = shape && unpacked(shape.of);
  const read = Object.entries(columns).map(([key, one]) =>
    [key, Array.isArray(one) ? (i) => one[i] : (i) => one.of[one.at ? one.at[i] : 0]]);
  return Array.from({ length: count }, (_, i) => {
    const row = { ...Object.fromEntries(read.map(([key, of]) => [key, of(i)])), ...(shapes && shapes[shape.at[i]]) };
    if (row.command) row.command = command(row.command, row.config);
    return row;
  });
}

// A command, with the values of the options that its config has: "-M d" is "-M d=3" where it says "d=3".
function command(text, config) {
  const values = new Map(config.split(/\s+/).filter((word) => word.includes("=")).map((word) =>
    [word.slice(0, word.indexOf("=")), word]));
  return text.replace(/(?<= -M )([^\s=]+)(?= |$)/g, (name) => values.get(name) || name);
}

const models = unpacked(data.models);
for (const track of data.tracks) track.told = unpacked(track.told);
for (const table of data.tables) for (const kind of ["rows", "scores"]) table[kind] = unpacked(table[kind]);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// ---- what is shown -------------------------------------------------------------------------------------

const state = { words: [], task: "", protocol: "", counting: Object.keys(data.counts)[0], axis: "" };
const names = data.names; // in the order that gives each its look
const boards = all(".board").map((section) => {
  const table = data.tables[Number(section.dataset.table)];
  return { section, table, rows: linked(find("table.rows", section), table.rows, table.sorted_by),
           scores: linked(find("table.scores", section), table.scores, table.sorted_by) };
});

// Each row of data beside its row of the table, in the order of the board.
function linked(table, rows, by) {
  if (!table) return [];
  const keys = all("thead th", table).map((head) => head.dataset.key);
  const cell = (element) => (key) => element.cells[keys.indexOf(key)];
  return all("tbody tr", table).map((element, order) => ({ ...rows[order], element, cell: cell(element), order, by }));
}

const counted = () => `.n${Object.keys(data.counts).indexOf(state.counting)}`; // the class of what is counted so
const size = (row) => row[data.counts[state.counting].field];

// A number per parameter, by the way of counting that the reader chose.
function perParameter(row, key) {
  if (data.counts[state.counting].field === "parameters" || !known(row[key])) return row[key];
  return size(row) ? (row[key] * row.parameters) / size(row) : null;
}

function value(row, key) {
  if (data.per_parameter.includes(key)) return perParameter(row, key);
  if (key === "rank") return row.order;
  return row[key.startsWith("budget ") ? `${key} ${state.counting}` : key];
}

function matches(row) {
  const text = [row.architecture, row.config, row.origin, row.verification, row.id].join(" ").toLowerCase();
  return state.words.every((word) => text.includes(word));
}

function update() {
  root.dataset.counting = state.counting;
  let shown = 0;
  for (const board of boards) {
    const chosen = [["task", state.task], ["protocol", state.protocol]];
    const open = chosen.every(([key, name]) => !name || board.table[key] === name);
    board.shown = open ? board.rows.filter(matches) : [];
    shown += board.shown.length;
    reveal(board);
  }
  let total = boards.reduce((sum, board) => sum + board.rows.length, 0);
  for (const one of tracks) {
    const open = !state.protocol || one.track.protocol === state.protocol;
    shown += open ? chosenTasks(one.track).flatMap((task) => one.points[task.name].filter(matches)).length : 0;
    total += Object.values(one.points).flat().length;
  }
  byId("count").textContent = `${shown} of ${total} rows shown`;
  byId("nothing").hidden = shown > 0;
  draw();
  remember();
}

function reveal(board) {
  const present = new Set(board.shown.map((row) => row.architecture));
  for (const row of board.rows) row.element.hidden = !board.shown.includes(row);
  for (const row of board.scores) row.element.hidden = !present.has(row.architecture);
  board.section.hidden = board.shown.length === 0;
  const link = find(`.contents li[data-table="${board.section.dataset.table}"]`);
  if (link) link.hidden = board.section.hidden;
}

// ---- sorting -------------------------------------------------------------------------------------------

function sortable(table, rows) {
  for (const head of all("thead th", table)) {
    const button = html("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "ascending";
      const down = head.getAttribute("aria-sort") === "descending";
      order(table, rows, head, up || down ? (up ? "descending" : "ascending") : head.dataset.first);
    });
    explain(button, head.dataset.key);
  }
}

function order(table, rows, head, direction) {
  for (const other of all("thead th", table)) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", direction);
  const sign = direction === "ascending" ? 1 : -1;
  const sorted = [...rows].sort((one, other) => compare(one, other, head.dataset.key, sign) || one.order - other.order);
  find("tbody", table).append(...sorted.map((row) => row.element));
}

function compare(one, other, key, sign) {
  const a = value(one, key), b = value(other, key);
  const none = (known(b) || typeof b === "string") - (known(a) || typeof a === "string");
  if (none || a === b) return none; // what is not known comes last in either direction
  return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
}

// ---- tooltips ------------------------------------------------------------------------------------------

const tip = byId("tip");
let leaving = 0, tipped = null; // the element that the tooltip is about

function showTip(target, lines) {
  hideTip();
  tipped = target;
  tip.replaceChildren(...lines);
  tip.hidden = false;
  target.classList.add("near");
  target.setAttribute("aria-describedby", "tip");
  placeTip();
}

function placeTip() {
  if (!tipped) return;
  const at = tipped.getBoundingClientRect(), box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left + at.width / 2 - box.width / 2), root.clientWidth - box.width - 8);
  const above = at.top - box.height - 10;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 4 ? above : at.bottom + 10}px`;
}

function hideTip() {
  clearTimeout(leaving);
  tip.hidden = true;
  if (!tipped) return;
  tipped.classList.remove("near");
  tipped.removeAttribute("aria-describedby");
  tipped = null;
}

// A moment's grace lets the pointer move onto the tooltip, for who wants to copy from it.
const leaveTip = () => { clearTimeout(leaving); leaving = setTimeout(hideTip, 150); };
tip.addEventListener("pointerenter", () => clearTimeout(leaving));
tip.addEventListener("pointerleave", leaveTip);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
// The focus may scroll the page or a table, so the tooltip goes along.
document.addEventListener("scroll", placeTip, { passive: true, capture: true });

function explain(button, key) {
  const entry = all(".glossary > div").find((one) => one.dataset.key === key);
  if (!entry) return;
  const show = () => showTip(button, [html("span", {}, find("dd", entry).textContent)]);
  button.addEventListener("pointerenter", show);
  button.addEventListener("focus", show);
  button.addEventListener("pointerleave", leaveTip);
  button.addEventListener("blur", hideTip);
}

// The words of a row as its table says them, so that each number is formatted in one place only.
function said(row, key) {
  const cell = row.cell(key);
  return cell ? (find(counted(), cell) || cell.firstChild).textContent : "-";
}

function withInterval(row, key) {
  const below = find("small", row.cell(key));
  return `${said(row, key)}${below ? ` (${below.textContent})` : ""}`;
}

function wordsOf(row) {
  const lines = [
    `accuracy ${withInterval(row, "accuracy")}`,
    Object.values(data.counts).map((count) => `${said(row, count.field)} ${count.header}`).join(", "),
    `${said(row, "bits_per_parameter")} bits per parameter` + (known(row.load) ? ` at load ${said(row, "load")}` : ""),
  ];
  if (row.by === "kl") lines.unshift(`KL ${withInterval(row, "kl")}`);
  if (known(row.lower_bound)) lines.push(`proven accuracy ${said(row, "lower_bound")} (${row.lower_bound_name})`);
  const tags = find(".tags", row.element).textContent;
  return tags ? [...lines, tags] : lines;
}

// ---- plots ---------------------------------------------------------------------------------------------

// Shapes as in plot.py, in its order: circle, square, triangle, diamond, triangle down, plus, cross.
const SHAPES = [
  "M4.2 0A4.2 4.2 0 1 1-4.2 0A4.2 4.2 0 1 1 4.2 0Z", "M-3.8-3.8H3.8V3.8H-3.8Z", "M0-4.8L4.6 3.8H-4.6Z",
  "M0-5.2L5.2 0L0 5.2L-5.2 0Z", "M0 4.8L4.6-3.8H-4.6Z",
  "M-1.7-4.8H1.7V-1.7H4.8V1.7H1.7V4.8H-1.7V1.7H-4.8V-1.7H-1.7Z",
  "M-4.6-2.2L-2.2-4.6L0-2.4L2.2-4.6L4.6-2.2L2.4 0L4.6 2.2L2.2 4.6L0 2.4L-2.2 4.6L-4.6 2.2L-2.4 0Z",
];
const LOOKS = SHAPES.length;
const colour = (name) => `look-${names.indexOf(name) % LOOKS}`;
// Past the last colour, the same colours come with other shapes.
const shape = (name) => SHAPES[(names.indexOf(name) + Math.floor(names.indexOf(name) / LOOKS)) % LOOKS];

const PARAMETERS = () => data.counts[state.counting].words;
// What curves are drawn over: parameters, in the way they are counted, or another cost that the reader chose.
const COST = { name: () => data.axes[state.axis] || PARAMETERS(), of: (row) => (state.axis ? row[state.axis] : size(row)) };
const PLOTS = {
  accuracy: {
    title: () => `Accuracy against ${COST.name()}`,
    x: COST,
    y: { name: data.labels.accuracy, of: (row) => row.accuracy, ends: ["low", "high"], from: 0, to: 1 },
    bounds: true,
  },
  bits: {
    title: () => "Bits per parameter against load",
    x: { name: () => "load: bits in all the facts per parameter", of: (row) => perParameter(row, "load") },
    y: { name: data.labels.bits_per_parameter, of: (row) => perParameter(row, "bits_per_parameter"), from: 0 },
    ceiling: true,
  },
  kl: {
    title: () => `Divergence against ${COST.name()}`,
    x: COST,
    y: { name: data.labels.kl, of: (row) => row.kl, ends: ["kl_low", "kl_high"], from: 0 },
  },
};

function draw() {
  hideTip();
  for (const one of tracks) updateTrack(one);
  for (const board of boards) if (!board.section.hidden) drawBoard(board);
  later(compareTwo);
  for (const panel of all("#architectures details[open]")) drawPanel(panel);
}

function drawBoard(board) {
  const host = find(".plots", board.section);
  host.hidden = false;
  const kinds = (board.table.sorted_by === "kl" ? ["kl", "accuracy", "bits"] : ["accuracy", "bits"])
    .filter((kind) => placed(PLOTS[kind], board.shown).length);
  const figures = kinds.map((kind) => html("figure", {}, html("figcaption", {}, PLOTS[kind].title())));
  const old = find(".legend", board.section);
  if (old) old.remove();
  host.replaceChildren(...figures);
  host.after(legend(board.shown));
  kinds.forEach((kind, i) => {
    const width = figures[i].clientWidth, name = `plot-${board.section.dataset.table}-${kind}`;
    figures[i].append(plot(PLOTS[kind], board.shown, width, Math.round(Math.min(320, Math.max(250, width * 0.55))), name));
  });
}

// The rows that have a place on a plot.
const placed = (kind, rows) => rows.filter((row) => kind.x.of(row) > 0 && known(kind.y.of(row)));

function plot(kind, rows, width, height, name, small = false) {
  const points = placed(kind, rows);
  const frame = axes(kind, points, width, height, small);
  const marks = svg("g", {}, svg("title")); // empty, or browsers show the picture's title over our tooltips
  marks.append(...frame.lines);
  if (kind.bounds) marks.append(...references(points, frame));
  if (kind.ceiling) marks.append(ceiling(frame));
  const curves = groups(points);
  for (const [series, own] of curves) marks.append(curve(kind, series, own, frame));
  if (kind.bounds) for (const [series, own] of curves) marks.append(...proven(kind, series, own, frame));
  const targets = points.map((row) => target(kind, row, frame));
  for (const one of targets) marks.append(one.link);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-labelledby": `${name}-title ${name}-desc` },
    svg("title", { id: `${name}-title` }, kind.title()), svg("desc", { id: `${name}-desc` }, inWords(kind, curves)), marks);
  interactive(kind, picture, targets);
  return picture;
}

function inWords(kind, curves) {
  const parts = curves.map(([name, rows]) => {
    const values = rows.map(kind.y.of);
    return `${name}: ${rows.length} point${rows.length > 1 ? "s" : ""}, ${kind.y.name} from ${short(Math.min(...values))} to ${short(Math.max(...values))}`;
  });
  return `${parts.join(". ")}. The arrow keys move between points; the table has every number.`;
}

function groups(rows) {
  return names.map((name) => [name, rows.filter((row) => row.architecture === name)]).filter(([, own]) => own.length);
}

function axes(kind, rows, width, height, small) {
  const left = 50, right = width - 10, top = 12, bottom = height - (small ? 34 : 44);
  const xs = rows.map(kind.x.of), pad = xs.length > 1 && Math.max(...xs) > Math.min(...xs) ? 1.12 : 2;
  const low = Math.log(Math.min(...xs) / pad), high = Math.log(Math.max(...xs) * pad);
  const ys = rows.flatMap((row) => [kind.y.of(row), ...interval(kind, row)]);
  const from = Math.min(kind.y.from, ...ys), ticks = levels(from, kind.y.to || Math.max(...ys, 1e-3) * 1.05);
  const [floor, roof] = [Math.min(from, ticks[0]), Math.max(kind.y.to || 0, ticks[ticks.length - 1])];
  const x = (value) => left + ((Math.log(value) - low) / (high - low)) * (right - left);
  const y = (value) => bottom - ((value - floor) / (roof - floor)) * (bottom - top - 8); // room for a marker at the top
  const lines = ticks.flatMap((tick) => [
    svg("line", { class: "grid", x1: left, x2: right, y1: y(tick), y2: y(tick) }),
    svg("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, short(tick)),
  ]);
  for (const tick of decades(Math.exp(low), Math.exp(high), (right - left) / 55)) {
    lines.push(svg("line", { class: "axis", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4 }));
    lines.push(svg("text", { x: x(tick), y: bottom + 17, "text-anchor": "middle" }, short(tick)));
  }
  lines.push(svg("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` }));
  if (!small) {
    lines.push(svg("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, kind.x.name()));
    const middle = (top + bottom) / 2;
    lines.push(svg("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, kind.y.name));
  }
  return { x, y, left, right, roof, from: Math.exp(low), to: Math.exp(high), lines };
}

const short = (number) => Number(number.toPrecision(3)).toLocaleString("en-US", { maximumSignificantDigits: 4 });

function levels(from, to) {
  const rough = (to - from) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.99);
  const count = Math.ceil(to / step - 1e-9) - Math.floor(from / step + 1e-9);
  return Array.from({ length: count + 1 }, (_, i) => (Math.floor(from / step + 1e-9) + i) * step);
}

// Numbers that people read on a logarithmic axis: 1, 2 and 5, or fewer where there is no room.
function decades(from, to, room) {
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(from)); power <= Math.log10(to); power += 1)
      for (const step of steps) found.push(step * 10 ** power);
    const inside = found.filter((one) => one >= from && one <= to);
    if (inside.length <= room || steps.length === 1) return inside;
  }
}

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const along = (kind, rows) => [...rows].sort((one, other) => kind.x.of(one) - kind.x.of(other));

const interval = (kind, row) => (kind.y.ends || []).map((end) => row[end]).filter(known);

function curve(kind, name, rows, { x, y }) {
  const group = svg("g", { class: colour(name) });
  const sorted = along(kind, rows);
  group.append(svg("path", { class: "curve", d: path(sorted.map((row) => [x(kind.x.of(row)), y(kind.y.of(row))])) }));
  for (const row of sorted.filter((one) => interval(kind, one).length === 2)) {
    const at = x(kind.x.of(row)), [low, high] = interval(kind, row).map(y);
    group.append(svg("path", { class: "whisker", d: `M${at - 3} ${low}h6m-3 0V${high}m-3 0h6` }));
  }
  return group;
}

function proven(kind, name, rows, { x, y }) {
  const points = along(kind, rows).filter((row) => known(row.lower_bound)).map((row) => [x(kind.x.of(row)), y(row.lower_bound)]);
  if (!points.length) return [];
  const dots = points.map(([cx, cy]) => svg("circle", { class: "proven-at", cx, cy, r: 1.8 }));
  return [svg("g", { class: colour(name) }, svg("path", { class: "proven", d: path(points) }), ...dots)];
}

// What needs no memory, or no model exceeds: horizontal lines, where the rows know of them.
const referenceLines = (rows) =>
  data.lines.filter((line) => rows.some((row) => known(row[line.key]) && line.tables.includes(row.by)));
const lookOf = (line) => `reference ${line.key.replaceAll("_", "-")}`;

function references(rows, { y, left, right }) {
  return referenceLines(rows).map((line) => {
    const values = rows.map((row) => row[line.key]).filter(known);
    const at = y(values.reduce((sum, one) => sum + one, 0) / values.length);
    return svg("line", { class: lookOf(line), x1: left, x2: right, y1: at, y2: at });
  });
}

// A model that holds every fact has as many bits per parameter as the load.
function ceiling({ x, y, from, to, roof }) {
  const end = Math.min(to, roof);
  const points = Array.from({ length: 41 }, (_, i) => from * (end / from) ** (i / 40));
  return svg("path", { class: "reference all-held", d: end > from ? path(points.map((load) => [x(load), y(load)])) : "" });
}

function target(kind, row, { x, y }) {
  const at = [x(kind.x.of(row)), y(kind.y.of(row))];
  const link = svg("a", { href: `#${row.element.id}`, tabindex: "-1", class: colour(row.architecture),
    transform: `translate(${at[0].toFixed(1)} ${at[1].toFixed(1)})`,
    "aria-label": `${row.architecture} ${row.config}: ${(kind.words || wordsOf)(row).join("; ")}` },
    svg("circle", { class: "ring", r: 8 }), svg("path", { class: "marker", d: shape(row.architecture) }));
  return { row, at, link };
}

// One stop of the tab key for each plot, arrow keys within it; the pointer finds the nearest point.
function interactive(kind, picture, targets) {
  if (!targets.length) return;
  const ordered = [...targets].sort((one, other) =>
    names.indexOf(one.row.architecture) - names.indexOf(other.row.architecture) || one.at[0] - other.at[0]);
  ordered[0].link.setAttribute("tabindex", "0");
  const show = (one) => {
    showTip(one.link, [html("b", {}, one.row.architecture), html("span", { class: "config" }, one.row.config),
      ...(kind.words || wordsOf)(one.row).map((line) => html("span", {}, line)),
      ...(one.row.command ? [html("code", {}, one.row.command)] : [])]);
  };
  ordered.forEach((one, i) => {
    one.link.addEventListener("focus", () => show(one));
    one.link.addEventListener("blur", hideTip);
    one.link.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = ordered[(i + step + ordered.length) % ordered.length];
      one.link.setAttribute("tabindex", "-1");
      next.link.setAttribute("tabindex", "0");
      next.link.focus();
    });
  });
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect(), scale = picture.viewBox.baseVal.width / box.width;
    const here = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const far = (one) => Math.hypot(one.at[0] - here[0], one.at[1] - here[1]);
    const nearest = ordered.reduce((best, one) => (far(one) < far(best) ? one : best));
    if (far(nearest) > 22) leaveTip();
    else if (!nearest.link.classList.contains("near")) show(nearest);
    else clearTimeout(leaving);
  });
  picture.addEventListener("pointerleave", leaveTip);
}

function swatch(look, ...children) {
  return svg("svg", { class: `swatch ${look}`, viewBox: "-12 -8 24 16", "aria-hidden": "true" }, ...children);
}
const sample = (name) =>
  swatch(colour(name), svg("path", { class: "curve", d: "M-12 0H12" }), svg("path", { class: "marker", d: shape(name) }));

function legend(rows) {
  const list = html("ul", { class: "legend", "aria-label": "Legend of the plots" });
  for (const [name] of groups(rows)) list.append(html("li", {}, sample(name), name));
  const some = (key) => rows.some((row) => known(row[key]));
  const lines = [
    ...(some("lower_bound") ? [["proven, in the colour of its architecture", "proven"]] : []),
    ...referenceLines(rows).map((line) => [line.name, lookOf(line)]),
    ...(some("load") ? [["every fact held", "reference all-held"]] : []),
  ];
  for (const [text, look] of lines)
    list.append(html("li", {}, swatch("look-6", svg("path", { class: look, d: "M-12 0H12" })), text));
  return list;
}

// ---- tracks: architectures by tasks, and a small plot for each task -------------------------------------

const tracks = all(".track").map((section) => {
  const track = data.tracks[Number(section.dataset.track)];
  return { section, track, points: Object.fromEntries(track.tasks.map((task) => [task.name, pointsOf(track, task.name)])) };
});

// What architectures reached at each size of a track on one task, as rows that a plot can show.
function pointsOf(track, task) {
  return track.told.filter((told) => told.task === task).flatMap((told) => models.slice(told.first, told.end).map((cell) =>
    ({ ...cell, architecture: told.architecture, published: told.published, by: "track", element: { id: panelOf(told.architecture).id } })));
}

function panelOf(name) {
  return find(`#architectures details[data-architecture="${names.indexOf(name)}"]`);
}

const three = (number) => (known(number) ? number.toFixed(3) : "-");
const within = (one) => (known(one.low) && known(one.high) ? ` (${three(one.low)}-${three(one.high)})` : "");

function trackPlot(track, title) {
  const most = track.score === "accuracy" || track.score.startsWith("share") ? { to: 1 } : {};
  return {
    title: () => title,
    x: COST,
    y: { name: track.score, of: (row) => row.value, ends: ["low", "high"], from: 0, ...most },
    words: (row) => [
      `${track.score} ${three(row.value)}${within(row)}`,
      `${row.parameters.toLocaleString("en-US")} parameters`,
      ...(state.axis && known(row[state.axis]) ? [`${short(row[state.axis])} ${COST.name()}`] : []),
      ...(known(row.cpu_seconds) && state.axis !== "cpu_seconds" ? [`${short(row.cpu_seconds)} CPU seconds of one seed`] : []),
      ...(known(row.facts) ? [`${Math.round(row.facts).toLocaleString("en-US")} facts at 99 %`] : []),
      ...(known(row.peak) ? [`peak ${row.peak.toFixed(2)} bits per parameter`] : []),
      ...(known(row.kl) ? [`KL ${row.kl.toFixed(4)}`] : []),
    ],
  };
}

function multiples(host, { track, points }, chosen, name, tasks = track.tasks) {
  const some = tasks.map((task) => [task, placed(trackPlot(track), points[task.name].filter((row) => chosen(row.architecture)))])
    .filter(([, rows]) => rows.length);
  host.hidden = !some.length;
  const figures = some.map(([task]) => html("figure", {}, html("figcaption", {}, task.name)));
  host.replaceChildren(...figures);
  some.forEach(([task, rows], i) => {
    const kind = trackPlot(track, `${track.title}, ${task.name}`), width = figures[i].clientWidth;
    figures[i].append(plot(kind, rows, width, Math.round(Math.min(260, Math.max(190, width * 0.62))), `${name}-${i}`));
  });
  if (some.length) host.append(simpleLegend(some.flatMap(([, rows]) => rows)));
}

function simpleLegend(rows) {
  const list = html("ul", { class: "legend", "aria-label": "Legend of the plots" });
  for (const [name] of groups(rows)) list.append(html("li", {}, sample(name), name));
  return list;
}

const chosenTasks = (track) => track.tasks.filter((task) => !state.task || task.task === state.task);

// A track has the architectures whose name, or one of whose models, has the words that were typed.
function updateTrack(one) {
  const open = !state.protocol || one.track.protocol === state.protocol;
  const tasks = chosenTasks(one.track);
  const points = tasks.flatMap((task) => one.points[task.name]);
  const matching = new Set(points.filter(matches).map((row) => row.architecture));
  for (const row of all("tbody tr", one.section)) row.hidden = !matching.has(names[Number(row.dataset.architecture)]);
  one.section.hidden = !open || !matching.size;
  const link = find(`.contents li[data-track="${one.section.dataset.track}"]`);
  if (link) link.hidden = one.section.hidden;
  if (!one.section.hidden)
    multiples(find(".multiples", one.section), one, (name) => matching.has(name), one.section.id, tasks);
}

// ---- two architectures side by side --------------------------------------------------------------------

function compareTwo() {
  const pair = [byId("one").value, byId("other").value], host = byId("pair");
  const head = html("tr", {}, html("th", { scope: "col", class: "name" }, "track and task"),
    ...pair.map((name) => html("th", { scope: "col" }, sample(name), ` ${name}`)), html("th", { scope: "col" }, "difference"));
  const body = html("tbody"), plots = [];
  for (const one of tracks) {
    for (const task of one.track.tasks) {
      const told = pair.map((name) => one.track.told.find((score) => score.architecture === name && score.task === task.name));
      if (told.some(Boolean)) body.append(compared(`${one.track.title}: ${task.name}`, told));
    }
    const box = html("div", { class: "multiples" });
    plots.push([one, box]);
  }
  for (const board of boards.filter((one) => one.scores.length)) {
    const told = pair.map((name) => board.scores.find((row) => row.architecture === name)).map((row) =>
      row && { score: row.area, low: row.area_low, high: row.area_high });
    if (told.every(Boolean)) body.append(compared(`${board.table.task} (${board.table.task_config}), ${board.table.protocol}: area`, told));
  }
  const table = html("table", { class: "pair" },
    html("caption", { class: "unseen" }, `${pair[0]} beside ${pair[1]}`), html("thead", {}, head), body);
  host.replaceChildren(html("div", { class: "scroll" }, body.children.length ? table : html("p", {}, "Nothing that both were measured on.")),
    ...plots.flatMap(([one, box]) => [html("h3", {}, one.track.title), box]));
  for (const [one, box] of plots) {
    multiples(box, one, (name) => pair.includes(name), `pair-${one.track.track}`);
    box.previousSibling.hidden = box.hidden;
  }
}

function compared(what, [one, other]) {
  const apart = one && other && known(one.low) && known(other.low) && (one.low > other.high || other.low > one.high);
  const words = one && other ? `${one.score >= other.score ? "+" : ""}${three(one.score - other.score)}` : "-";
  return html("tr", {}, html("th", { scope: "row", class: "name" }, what),
    ...[one, other].map((told) => html("td", {}, told ? three(told.score) : "-", html("small", {}, told ? within(told).trim() : ""))),
    html("td", {}, words, html("small", {}, !one || !other ? "" : apart ? "intervals apart" : "intervals overlap")));
}

// What is further down is drawn when the browser has nothing better to do.
let waiting = 0;
function later(work) {
  if (byId("compare").hidden) return;
  const [wait, forget] = window.requestIdleCallback ? [requestIdleCallback, cancelIdleCallback] : [setTimeout, clearTimeout];
  forget(waiting);
  waiting = wait(work);
}

function startCompare() {
  if (names.length < 2) return;
  byId("other").selectedIndex = 1;
  find("form.pair").addEventListener("input", () => { compareTwo(); remember(); });
  find("form.pair").addEventListener("submit", (event) => event.preventDefault());
  byId("compare").hidden = false;
}

// ---- addresses, and rows to take away ------------------------------------------------------------------

const CHOICES = ["words", "task", "protocol", "counting", "axis", "one", "other"];

// What was chosen, in the address: whoever opens it sees the same.
function remember() {
  const chosen = new URLSearchParams();
  for (const key of CHOICES) {
    const control = byId(key), first = control.options ? control.options[key === "other" ? 1 : 0].value : "";
    if (control.value && control.value !== first) chosen.set(key, control.value);
  }
  const text = chosen.toString();
  byId("link").setAttribute("href", `#?${text}`);
  if (text || location.hash.startsWith("#?")) {
    try { history.replaceState(null, "", `#?${text}`); } catch { /* a page within another has no address of its own */ }
  }
}

function recall() {
  if (!location.hash.startsWith("#?")) return;
  const chosen = new URLSearchParams(location.hash.slice(2));
  for (const key of CHOICES) {
    const control = byId(key);
    if (!chosen.has(key)) continue;
    const known = !control.options || [...control.options].some((one) => one.value === chosen.get(key));
    if (known) control.value = chosen.get(key);
  }
}

function csvText() {
  const models = tracks.filter((one) => !one.section.hidden).flatMap((one) => chosenTasks(one.track).flatMap((task) =>
    one.points[task.name].filter(matches).map(({ element, by, architecture, ...cell }) =>
      ({ track: one.track.track, task: task.task, task_config: task.config, architecture, [one.track.score]: cell.value, ...cell }))));
  const rows = boards.flatMap((board) => board.shown.map((row) => data.tables[Number(board.section.dataset.table)].rows[row.order]));
  const shown = [...models.map(({ value, ...cell }) => cell), ...rows];
  const keys = [...new Set(shown.flatMap(Object.keys))];
  return [keys.map(quoted), ...shown.map((row) => keys.map((key) => quoted(row[key])))].map((row) => row.join(",")).join("\r\n");
}

// A text that begins like a formula would be run by a spreadsheet.
function quoted(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function startDownload() {
  byId("csv").addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([csvText()], { type: "text/csv" }));
    html("a", { href: address, download: "membench.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  });
}

// ---- panels, theme, and the start ----------------------------------------------------------------------

function drawPanel(panel) {
  const name = names[Number(panel.dataset.architecture)], host = find(":scope > .multiples", panel);
  if (host) drawOwn(host, name, panel.id);
  for (const part of all(".best", panel)) {
    const board = boards[Number(part.dataset.table)], host = find(".small", part);
    const own = board.rows.filter((row) => row.architecture === name), kind = PLOTS[board.table.sorted_by];
    host.hidden = !placed(kind, own).length;
    if (host.hidden) continue;
    const id = `panel-${panel.dataset.architecture}-${part.dataset.table}`;
    const figure = html("figure", {}, html("figcaption", {}, kind.title()));
    host.replaceChildren(figure);
    figure.append(plot(kind, own, figure.clientWidth, 170, id, true));
  }
}

// All tracks and tasks of one architecture.
function drawOwn(host, name, id) {
  const some = tracks.flatMap((one) => one.track.tasks.map((task) =>
    [one.track, task, placed(trackPlot(one.track), one.points[task.name].filter((row) => row.architecture === name))]))
    .filter(([, , rows]) => rows.length);
  host.hidden = !some.length;
  const figures = some.map(([track, task]) => html("figure", {}, html("figcaption", {}, `${track.track}: ${task.name}`)));
  host.replaceChildren(...figures);
  some.forEach(([track, task, rows], i) => {
    const kind = trackPlot(track, `${name}: ${track.title}, ${task.name}`);
    figures[i].append(plot(kind, rows, figures[i].clientWidth, 190, `${id}-${i}`));
  });
}

function copyButton(box) {
  const button = html("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(find("code", box).textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(find("code", box)); // a browser that keeps the clipboard to itself
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  box.append(button);
}

const remembered = { // a page from a file may have no storage
  get: () => { try { return localStorage.getItem("membench-theme"); } catch { return null; } },
  set: (name) => { try { localStorage.setItem("membench-theme", name); } catch { /* the choice lasts until reload */ } },
};

function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)"), button = byId("theme");
  const current = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const label = () => { button.textContent = current() === "dark" ? "Light theme" : "Dark theme"; };
  const stored = remembered.get();
  if (stored === "dark" || stored === "light") root.dataset.theme = stored;
  button.addEventListener("click", () => {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    remembered.set(root.dataset.theme);
    label();
  });
  system.addEventListener("change", label);
  label();
  button.hidden = false;
}

function read() {
  state.words = byId("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const key of ["task", "protocol", "counting", "axis"]) state[key] = byId(key).value;
}

function startControls() {
  const controls = byId("controls");
  controls.addEventListener("input", () => { read(); update(); });
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.reset(); // browsers keep a form's values over a reload, but not what they did
  controls.hidden = false;
}

function openTarget() {
  if (location.hash.startsWith("#?")) {
    recall();
    read();
    update();
    return;
  }
  const panel = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
  if (!panel || panel.tagName !== "DETAILS") return;
  panel.open = true;
  panel.scrollIntoView({ behavior: "instant" }); // what was drawn meanwhile has moved it
}

function startPanels() {
  for (const panel of all("#architectures details")) {
    find("h3", panel).prepend(sample(names[Number(panel.dataset.architecture)]), " ");
    panel.addEventListener("toggle", () => { if (panel.open) drawPanel(panel); });
  }
  for (const box of all(".command")) copyButton(box);
  window.addEventListener("hashchange", openTarget);
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    for (const panel of closed) panel.open = true;
  });
  window.addEventListener("afterprint", () => { for (const panel of closed) panel.open = false; });
}

function redrawWhenResized() {
  let width = root.clientWidth;
  window.addEventListener("resize", () => requestAnimationFrame(() => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    draw();
  }));
}

for (const board of boards) {
  for (const [kind, rows] of [["rows", board.rows], ["scores", board.scores]]) {
    const table = find(`table.${kind}`, board.section);
    if (table) sortable(table, rows);
  }
}
startTheme();
startControls();
startCompare();
startDownload();
startPanels();
recall();
read();
update();
if (!location.hash.startsWith("#?")) openTarget();
redrawWhenResized();
})();
