// Lists of samples: picture (not for texts), similarity, label and name; each is a button that shows its neighbors.

export function make(kind, properties = {}, children = []) {
  const element = document.createElement(kind);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value; else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// A sample that cannot be shown comes as a tiny gray picture; the reason is in a header.
const MISSING = 8;
async function explain(picture) {
  if (picture.naturalWidth > MISSING) return;
  const said = (await fetch(picture.src).catch(() => null))?.headers.get("X-Problem");
  const words = `Not shown: ${said || "the file cannot be read"}`;
  picture.title = words; picture.alt = words;
  picture.after(make("span", { className: "why", textContent: words, title: words }));
}
export function pictured(run, row, properties = {}) {
  const picture = make("img", { src: thumbnail(run, row), alt: "", decoding: "async", ...properties });
  picture.addEventListener("load", () => explain(picture), { once: true });
  return picture;
}

export const thumbnail = (run, row) => `/api/thumbnail?run=${run}&row=${row}`;

let playing = null;
function player(run, row) {
  const button = make("button", { type: "button", className: "play", textContent: "Play" });
  button.setAttribute("aria-label", `Play sample ${row}`);
  button.addEventListener("click", () => {
    if (playing) playing.stop();
    const sound = new Audio(`/api/sound?run=${run}&row=${row}`);
    const stop = () => { sound.pause(); button.textContent = "Play"; playing = null; };
    sound.addEventListener("ended", stop); sound.addEventListener("error", () => { button.textContent = "cannot be played"; playing = null; });
    playing = { stop }; button.textContent = "Playing";
    sound.play().catch(() => undefined);
  });
  return button;
}

// samples: {row, name, label, similarity?}; options: {run, kind, both: Set of names, pick: function, tags: of a row}
export function listed(samples, { run, kind, both = null, pick, tags = () => [] }) {
  return samples.map((sample) => {
    const lines = kind === "text" ? [] : [pictured(run, sample.row, { width: 72, height: 72, loading: "lazy" })];
    if (sample.similarity !== undefined) lines.push(make("span", { className: "s", textContent: sample.similarity.toFixed(3) }));
    if (sample.label !== null) lines.push(make("span", { className: "l", textContent: sample.label }));
    lines.push(make("span", { className: "n", textContent: sample.name, title: sample.name }));
    const said = tags(sample.row);
    if (said.length) lines.push(make("span", { className: "t", textContent: said.join(", "), title: said.join(", ") }));
    const shared = both !== null && both.has(sample.name);
    if (shared) lines.push(make("span", { className: "b", textContent: "in both" }));
    const button = make("button", { type: "button", className: `hit ${kind}${shared ? " both" : ""}` }, lines);
    button.addEventListener("click", () => pick(run, sample.row));
    return make("li", {}, kind === "sound" ? [button, player(run, sample.row)] : [button]);
  });
}
