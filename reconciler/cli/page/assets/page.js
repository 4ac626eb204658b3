// Filters, sorting and copying for the plan's page. Without it the whole table is there, only not so handy.
// Nothing here makes markup of text: it sets textContent, attributes and order.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const table = byId("rows"), body = table.tBodies[0];
  const number = (text) => (text === undefined || text === "" ? null : Number(text));
  const rows = Array.from(body.rows, (element, place) => ({
    element, place, data: element.dataset, text: null,
    person: element.classList.contains("p"),
  }));
  const textOf = (row) => (row.text ??= searched(row.element));
  function searched(element) {
    const text = element.textContent.toLowerCase();
    return text + " " + text.replace(/(\d),(?=\d{3})/g, "$1");
  }

  // ---- filters
  const filter = byId("filter"), person = byId("person");
  const chips = Array.from(document.querySelectorAll("#verdicts button"));
  const count = byId("count"), none = byId("none");
  function apply() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = new Set(chips.filter((chip) => chip.ariaPressed === "true").map((chip) => chip.value));
    let shown = 0;
    for (const row of rows) {
      const fits = (!person.checked || row.person) && (!wanted.size || wanted.has(row.data.v)) &&
        words.every((word) => textOf(row).includes(word));
      if (row.element.hidden === fits) row.element.hidden = !fits;
      if (fits) shown += 1;
    }
    const all = `${rows.length.toLocaleString("en")} ${rows.length === 1 ? "row" : "rows"}`;
    const said = shown === rows.length ? all : `${shown.toLocaleString("en")} of ${all}`;
    if (count.textContent !== said) count.textContent = said;
    none.hidden = shown > 0 || !rows.length;
  }
  function reset() {
    filter.value = "";
    person.checked = false;
    for (const chip of chips) chip.ariaPressed = "false";
    apply();
  }
  filter.addEventListener("input", apply);
  person.addEventListener("change", apply);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.ariaPressed = chip.ariaPressed === "true" ? "false" : "true";
      apply();
    });
  }
  byId("reset").addEventListener("click", () => { reset(); filter.focus(); });

  // ---- sorting
  const collator = new Intl.Collator("en", { numeric: true });
  const keys = {
    partition: (row) => row.element.cells[0].textContent,
    job: (row) => row.element.cells[1].textContent,
    verdict: (row) => Number(row.data.v) + (row.person ? 100 : 0),
    stored: (row) => number(row.data.s),
    resume: (row) => number(row.data.r),
    again: (row) => number(row.data.a),
    proof: (row) => row.element.cells[6].textContent,
  };
  function compare(one, other) {
    if (one === null || other === null) return (one === null) - (other === null);
    return typeof one === "string" ? collator.compare(one, other) : one - other;
  }
  function sort(head, name) {
    // Numbers and verdicts are first looked for at their large end.
    const first = ["partition", "job", "proof"].includes(name) ? "ascending" : "descending";
    const order = head.ariaSort === "ascending" || head.ariaSort === "descending"
      ? (head.ariaSort === "ascending" ? "descending" : "ascending") : first;
    for (const other of table.tHead.rows[0].cells) if (other.ariaSort) other.ariaSort = "none";
    head.ariaSort = order;
    const sign = order === "ascending" ? 1 : -1;
    const keyed = rows.map((row) => [keys[name](row), row]);
    keyed.sort((one, other) => {
      const by = compare(one[0], other[0]);
      const absent = one[0] === null || other[0] === null; // rows without a number stay at the end
      return (absent ? by : sign * by) || one[1].place - other[1].place;
    });
    body.append(...keyed.map((pair) => pair[1].element));
  }
  for (const head of table.tHead.rows[0].cells) {
    const name = head.dataset.sort;
    if (!name) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(head, name));
    head.replaceChildren(button);
    head.ariaSort = head.ariaSort || "none";
  }

  // ---- keys: / goes to the filter, Escape clears it
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      filter.focus();
      filter.select();
    } else if (event.key === "Escape" && document.activeElement === filter) {
      reset();
    }
  });

  // ---- copying
  const said = byId("said");
  function offerCopies(within) {
    for (const box of within.querySelectorAll(".command")) {
      if (box.querySelector("button")) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", () => copy(box.querySelector("pre"), button));
      box.append(button);
    }
  }
  async function copy(source, button) {
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
      said.textContent = "The command was copied.";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected";
      said.textContent = "The command is selected.";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }
  offerCopies(byId("next"));
  for (const open of body.querySelectorAll("details[open]")) offerCopies(open);
  body.addEventListener("toggle", (event) => offerCopies(event.target), true);

  // ---- how long the plan is still good
  const left = byId("left"), until = Date.parse(byId("until").dateTime);
  if (!Number.isNaN(until)) {
    const tell = () => {
      const minutes = Math.round((until - Date.now()) / 60000), away = Math.abs(minutes);
      const span = away < 120 ? `${away} min` : away < 2880 ? `${Math.round(away / 60)} h` : `${Math.round(away / 1440)} days`;
      left.textContent = minutes > 0 ? ` (${span} left)` : ` (expired ${span} ago: apply refuses it, make a new plan)`;
      left.className = minutes > 0 ? "muted" : "expired";
    };
    tell();
    setInterval(tell, 30000);
  }

  byId("tools").hidden = false;
  apply();
})();
