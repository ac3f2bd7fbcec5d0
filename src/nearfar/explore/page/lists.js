// Lists of samples: picture (not for texts), similarity, label and name; each is a button that shows its neighbours.

export function make(kind, properties = {}, children = []) {
  const element = document.createElement(kind);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value; else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
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

// samples: {row, name, label, similarity?}; options: {run, kind of the samples, both: Set of names, pick: function}
export function listed(samples, { run, kind, both = null, pick }) {
  return samples.map((sample) => {
    const lines = kind === "text" ? [] : [make("img", { src: thumbnail(run, sample.row), alt: "", width: 72, height: 72, loading: "lazy", decoding: "async" })];
    if (sample.similarity !== undefined) lines.push(make("span", { className: "s", textContent: sample.similarity.toFixed(3) }));
    if (sample.label !== null) lines.push(make("span", { className: "l", textContent: sample.label }));
    lines.push(make("span", { className: "n", textContent: sample.name, title: sample.name }));
    const shared = both !== null && both.has(sample.name);
    if (shared) lines.push(make("span", { className: "b", textContent: "in both" }));
    const button = make("button", { type: "button", className: `hit ${kind}${shared ? " both" : ""}` }, lines);
    button.addEventListener("click", () => pick(run, sample.row));
    return make("li", {}, kind === "sound" ? [button, player(run, sample.row)] : [button]);
  });
}
