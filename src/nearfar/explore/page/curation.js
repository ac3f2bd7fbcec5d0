// Saved selections (tags), kept in a file beside the run, and duplicates as a list for the next run.

import { make } from "./lists.js";

const send = (body) => ({ method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

export class Curation {
  // at: element by id; json: asks the API; guarded: shows errors of work; chosen: {run, selection}; select: shows rows
  constructor({ at, json, guarded, chosen, select, say }) {
    Object.assign(this, { at, json, guarded, chosen, select, say });
    this.saved = []; this.ofRow = new Map();
    at("save-as").addEventListener("submit", (event) => { event.preventDefault(); this.save(at("tag").value.trim()); });
    for (const choice of ["merge", "drop"]) at(`duplicates-${choice}`).addEventListener("click", () => this.list(choice));
  }

  tags(row) { return this.ofRow.get(row) ?? []; }

  async load(run) {
    const { selections } = await this.json(`/api/selections?run=${run}`);
    if (run === this.chosen().run) this.show(selections);
  }
  show(selections) {
    this.saved = selections; this.ofRow = new Map();
    for (const { name, rows } of selections) for (const row of rows) this.ofRow.set(row, [...this.tags(row), name]);
    this.at("saved").replaceChildren(...selections.map(({ name, rows }) => {
      const show = make("button", { type: "button", textContent: `${name} (${rows.length.toLocaleString("en")})` });
      show.addEventListener("click", () => { this.at("tag").value = name; this.select(rows); });
      const gone = make("button", { type: "button", className: "remove", textContent: "×", title: `Delete ${name}` });
      gone.setAttribute("aria-label", `Delete the saved selection ${name}`);
      gone.addEventListener("click", () => this.write(name, [], `${name} is deleted`));
      return make("li", {}, [show, gone]);
    }));
  }
  save(name) {
    const { selection } = this.chosen();
    if (!name) return this.say("Give the selection a name", true);
    if (!selection.length) return this.say("Nothing is selected", true);
    return this.write(name, [...selection], `${selection.length.toLocaleString("en")} samples are saved as ${name}`);
  }
  write(name, rows, words) {
    const { run } = this.chosen();
    return this.guarded(async () => {
      const { selections } = await this.json(`/api/selections?run=${run}`, send({ name, rows }));
      if (run === this.chosen().run) this.show(selections);
      this.say(words);
    });
  }
  list(choice) {
    const { run } = this.chosen();
    return this.guarded(async () => {
      const found = await this.json(`/api/duplicates/list?run=${run}`, send({ choice }));
      const does = choice === "merge" ? "Samples of a group will not be negatives of each other" : "All but the first of each group will be left out";
      this.at("duplicates-list").replaceChildren(
        make("p", { textContent: `${found.samples.toLocaleString("en")} samples in ${found.groups.toLocaleString("en")} groups are listed. ${does} in the next run with:` }),
        make("code", { textContent: found.flag }));
      this.say("the list is written");
    });
  }
}
