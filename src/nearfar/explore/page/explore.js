// The page: sends requests to the API and shows the answers on the map and in the lists.

import { colourOf } from "./colours.js";
import { Curation } from "./curation.js";
import { listed, make, thumbnail } from "./lists.js";
import { Live } from "./live.js";
import { PointMap } from "./map.js";

const at = (id) => document.getElementById(id);
const page = { runs: [], limits: {}, run: 0, labels: [], selection: [], label: "", over: -1 };
const LISTED = 60; // of a selection
const LEGEND = 200; // labels with a button
let turn = 0; // of the newest request: answers to older ones are dropped

function setStatus(text, wrong = false) { at("status").textContent = text; at("status").classList.toggle("wrong", wrong); }

async function ask(path, options) {
  const answer = await fetch(path, options);
  if (answer.ok) return answer;
  const detail = (await answer.json().catch(() => ({}))).detail;
  throw new Error(detail ?? `the server answered ${answer.status}`);
}
const json = async (path, options) => (await ask(path, options)).json();

async function showErrors(work) {
  try { await work(); } catch (error) { setStatus(error.message, true); }
}

const info = () => page.runs[page.run];
const tagsOf = (run) => (row) => (run === page.run ? curation.tags(row) : []);
const shownRuns = (able) => page.runs.filter((run) => !run.training && able(run)).map((run) => run.run);
const count = () => Math.min(200, Math.max(1, Math.round(Number(at("k").value)) || 20));
const asked = (run) => {
  const parameters = new URLSearchParams({ run, k: count() });
  if (page.label && run === page.run) parameters.set("label", page.label);
  return parameters;
};

// Nearest

async function show(words, picture, question, able = () => true) {
  const mine = ++turn;
  setStatus("searching");
  await showErrors(async () => {
    const answers = await Promise.allSettled(shownRuns(able).map(async (run) => [run, (await question(run)).results]));
    if (mine !== turn) return;
    const found = answers.filter((each) => each.status === "fulfilled").map((each) => each.value);
    if (!found.length) throw answers[0].reason;
    const names = found.map(([, hits]) => new Set(hits.map((hit) => hit.name)));
    const both = found.length > 1 ? new Set([...names[0]].filter((name) => names.every((each) => each.has(name)))) : null;
    at("query").replaceChildren(...(picture ? [make("img", { src: picture, alt: "the query" })] : []), make("span", { textContent: words }));
    const failed = answers.filter((each) => each.status === "rejected").map((each) => make("p", { className: "quiet", textContent: each.reason.message }));
    at("found").replaceChildren(...found.map(([run, hits]) => make("div", {}, [
      ...(page.runs.length > 1 ? [make("h3", { textContent: page.runs[run].name })] : []),
      make("ol", { className: "hits" }, listed(hits, { run, kind: page.runs[run].kind, both, pick: neighbours, tags: tagsOf(run) }))])), ...failed);
    const own = found.find(([run]) => run === page.run);
    map.mark(own ? own[1].map((hit) => hit.row) : [], page.own);
    setStatus(both ? `${both.size} of ${found[0][1].length} are in both` : `${found[0][1].length} found`);
  });
}

const named = async (run, row) => (await json(`/api/samples?run=${run}&row=${row}`)).samples[0].name;

async function neighbours(run, row) {
  page.own = run === page.run ? row : -1;
  const text = page.runs[run].kind === "text";
  const words = text ? `“${await named(run, row).catch(() => `sample ${row}`)}”` : `neighbors of sample ${row}`;
  return show(words, text ? null : thumbnail(run, row), (within) => {
    const parameters = asked(within);
    parameters.set("run", run); parameters.set("row", row); parameters.set("within", within);
    return json(`/api/neighbours?${parameters}`);
  });
}

function byText(text) {
  page.own = -1;
  const body = JSON.stringify({ text });
  return show(`“${text}”`, null, (run) => json(`/api/search?${asked(run)}`, { method: "POST", body, headers: { "Content-Type": "application/json" } }), (run) => run.texts);
}

let preview = null;
function byFile(file) {
  if (file.size > page.limits.upload) return setStatus(`${file.name} has more than ${Math.floor(page.limits.upload / 2 ** 20)} MB`, true);
  if (preview) URL.revokeObjectURL(preview);
  preview = info().uploads === "image" ? URL.createObjectURL(file) : null;
  page.own = -1;
  const kind = file.type || "application/octet-stream";
  return show(file.name, preview, (run) => json(`/api/search?${asked(run)}`, { method: "POST", body: file, headers: { "Content-Type": kind } }), (run) => run.uploads === info().uploads);
}

// Selection

function select(rows) {
  if (rows.length) at("selection").open = true;
  page.selection = rows;
  map.select(rows);
  at("selected").textContent = rows.length ? `${rows.length.toLocaleString("en")} of ${info().rows.toLocaleString("en")} samples${rows.length > LISTED ? `, the first ${LISTED} below` : ""}` : "nothing selected";
  if (document.body.dataset.run !== undefined) setStatus(rows.length ? `${rows.length.toLocaleString("en")} selected` : "nothing selected");
  at("export").disabled = at("clear").disabled = !rows.length;
  at("selected-list").replaceChildren();
  if (!rows.length) return;
  const run = page.run, few = rows.slice(0, LISTED);
  showErrors(async () => {
    const { samples } = await json(`/api/samples?run=${run}&${few.map((row) => `row=${row}`).join("&")}`);
    if (page.selection === rows) at("selected-list").replaceChildren(...listed(samples, { run, kind: info().kind, pick: neighbours, tags: tagsOf(run) }));
  });
}

function save() {
  return showErrors(async () => {
    const options = { method: "POST", body: JSON.stringify({ rows: page.selection }), headers: { "Content-Type": "application/json" } };
    const url = URL.createObjectURL(await (await ask(`/api/export?run=${page.run}`, options)).blob());
    make("a", { href: url, download: `${info().name}-selection.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    setStatus(`${page.selection.length.toLocaleString("en")} rows exported`);
  });
}

const curation = new Curation({ at, json, guarded: showErrors, chosen: () => page, select, say: setStatus });

// Labels

function filter(name) {
  page.label = name;
  at("label").value = name;
  for (const button of at("legend").children) button.setAttribute("aria-pressed", String(button.dataset.name === name));
  const number = page.labels.findIndex((label) => label.name === name);
  map.filter(name ? number : -2);
  setStatus(name ? `${page.labels[number].rows.toLocaleString("en")} samples of ${name}` : "");
}

function paintLegend() {
  const dark = map.dark.matches;
  at("legend").replaceChildren(...page.labels.slice(0, LEGEND).map((label, number) => {
    const dot = make("i"); dot.style.background = colourOf(number, dark, page.labels.length);
    const button = make("button", { type: "button", title: label.name }, [dot, label.name]);
    button.dataset.name = label.name; button.setAttribute("aria-pressed", String(page.label === label.name));
    button.addEventListener("click", () => filter(page.label === label.name ? "" : label.name));
    for (const come of ["pointerenter", "focus"]) button.addEventListener(come, () => map.highlight(number));
    for (const go of ["pointerleave", "blur"]) button.addEventListener(go, () => map.highlight(-2));
    return button;
  }));
}

// Duplicates

async function findDuplicates() {
  const run = page.run;
  await showErrors(async () => {
    at("duplicates").disabled = true;
    let job = await json(`/api/duplicates?run=${run}`, { method: "POST", body: "{}", headers: { "Content-Type": "application/json" } });
    while (job.state === "running") {
      at("duplicates-progress").hidden = false; at("duplicates-progress").max = job.total; at("duplicates-progress").value = job.done;
      await new Promise((resolve) => setTimeout(resolve, 400));
      job = await json(`/api/duplicates?run=${run}`);
    }
    if (job.state === "failed") throw new Error(job.detail);
    at("duplicates-said").textContent = `${job.count.toLocaleString("en")} groups of near-duplicates, cosine at least ${job.threshold.toFixed(4)}`;
    at("duplicates-use").hidden = !job.count;
    at("duplicates-found").replaceChildren(...job.groups.slice(0, 30).map((group) => make("div", { className: "group" }, [
      make("p", { className: "quiet", textContent: `${group.rows} samples` }),
      make("ol", { className: "hits" }, listed(group.samples, { run, kind: page.runs[run].kind, pick: neighbours }))])));
  });
  at("duplicates").disabled = false; at("duplicates-progress").hidden = true;
}

// Runs

async function open(number) {
  delete document.body.dataset.run; // set again when everything is loaded
  turn++;
  page.run = number; page.own = -1; page.label = "";
  at("duplicates-use").hidden = true; at("duplicates-found").replaceChildren(); at("duplicates-list").replaceChildren();
  at("query").replaceChildren(); at("found").replaceChildren(make("p", { className: "quiet", textContent: "Search, or click a point of the map." }));
  const run = info();
  at("by-text").hidden = !run.texts; at("by-file").hidden = !run.uploads;
  at("file-label").textContent = run.uploads === "sound" ? "By sound" : "By image";
  at("file").accept = run.uploads === "sound" ? "audio/*" : "image/*";
  for (const id of ["map-section", "search", "results", "selection", "duplicates-section"]) at(id).hidden = run.training;
  at("about").textContent = run.training ? `${run.name}: ${run.state === "stopped" ? "stopped before its end" : "in training"}` : `${run.name}: ${run.rows.toLocaleString("en")} samples of ${run.data ?? "unknown data"}, vectors of ${run.dim}`;
  live.show(run.live ? number : null, run.training);
  if (run.training) { document.body.dataset.run = number; return; }
  const [table, { labels }] = await Promise.all([ask(`/api/map?run=${number}`).then((answer) => answer.arrayBuffer()), json(`/api/labels?run=${number}`)]);
  if (page.run !== number) return; // another run was chosen meanwhile
  page.labels = labels;
  await showErrors(() => curation.load(number));
  if (page.run !== number) return;
  at("label-choice").hidden = !labels.length;
  at("label").replaceChildren(make("option", { value: "", textContent: "all labels" }), ...labels.map((label) => make("option", { value: label.name, textContent: `${label.name} (${label.rows})` })));
  map.load(new Float32Array(table), labels.length, run.kind === "text" ? null : (row) => thumbnail(number, row));
  select([]); filter(""); paintLegend();
  document.body.dataset.run = number;
}

const map = new PointMap(at("points"), at("marks"), {
  pick: (row) => neighbours(page.run, row),
  select,
  hover(row, x, y) {
    const box = at("hover");
    box.hidden = row < 0;
    if (row < 0) { page.over = -1; return; }
    const text = info().kind === "text", label = page.labels[map.table[3 * row + 2]]?.name ?? `sample ${row}`;
    at("hover-picture").hidden = text;
    at("hover-label").textContent = label;
    if (!text) at("hover-picture").src = thumbnail(page.run, row);
    else if (row !== page.over) named(page.run, row).then((name) => { if (page.over === row) at("hover-label").textContent = `${label}: ${name.slice(0, 160)}`; }, () => undefined);
    page.over = row;
    box.style.left = `${Math.min(x + 14, map.width - 120)}px`; box.style.top = `${Math.min(y + 14, map.height - 130)}px`;
  },
});

// A run in training gets its map when it is finished and the server has embedded its data.
let waiting = false;
async function finish(number) {
  if (waiting || !page.runs[number].training) return;
  waiting = true;
  setStatus(`${page.runs[number].name} is trained; embedding its samples`);
  await showErrors(async () => {
    for (;;) {
      const { runs } = await json("/api/runs");
      if (runs[number].problem) throw new Error(runs[number].problem);
      if (!runs[number].training) { page.runs = runs; break; }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
    if (page.run === number) await open(number);
    setStatus(`${page.runs[number].name} is ready`);
  });
  waiting = false;
}
const live = new Live(at("live"), { state: at("live-state"), charts: at("live-charts"), verdicts: at("live-verdicts"), finish });
at("no-map").hidden = Boolean(map.gl);
map.dark.addEventListener("change", paintLegend);
window.nearfarMap = map; // for measuring frame rates

at("lasso").addEventListener("click", () => {
  const on = at("lasso").getAttribute("aria-pressed") !== "true";
  at("lasso").setAttribute("aria-pressed", String(on)); map.lasso(on);
});
at("select-view").addEventListener("click", () => map.selectView());
at("zoom-in").addEventListener("click", () => map.zoomBy(1.4));
at("zoom-out").addEventListener("click", () => map.zoomBy(1 / 1.4));
at("whole").addEventListener("click", () => map.whole());
at("export").addEventListener("click", save);
at("clear").addEventListener("click", () => select([]));
at("label").addEventListener("change", () => filter(at("label").value));
at("duplicates").addEventListener("click", findDuplicates);
at("run").addEventListener("change", () => showErrors(() => open(Number(at("run").value))));
at("search").addEventListener("submit", (event) => { event.preventDefault(); const text = at("text").value.trim(); if (text) byText(text); });
at("file").addEventListener("change", () => { if (at("file").files.length) byFile(at("file").files[0]); });
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
document.addEventListener("drop", (event) => {
  event.preventDefault(); document.body.classList.remove("dropping");
  const file = event.dataTransfer?.files[0];
  if (file && info().uploads) byFile(file);
});

showErrors(async () => {
  const answer = await json("/api/runs");
  page.runs = answer.runs; page.limits = answer.limits;
  at("run-choice").hidden = page.runs.length < 2;
  at("run").replaceChildren(...page.runs.map((run) => make("option", { value: run.run, textContent: run.name })));
  await open(0);
});
