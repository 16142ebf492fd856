"use strict";
// The page works without this: it filters, sorts, opens what a link leads to, and unpacks long texts.
const every = (what, root = document) => [...root.querySelectorAll(what)];

async function unpack(pre) {
  const packed = pre.dataset.z;
  if (!packed) return;
  delete pre.dataset.z;
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  pre.textContent = await new Response(stream).text();
}
document.addEventListener("toggle", (event) => {
  if (event.target.open) every(":scope > pre", event.target).forEach(unpack);
}, true);

function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let each = target; each; each = each.parentElement) {
    if (each.tagName === "DETAILS") each.open = true;
    each.hidden = false;
  }
  target.scrollIntoView({ block: target.closest("tr") ? "center" : "start" });
}
addEventListener("hashchange", reveal);
reveal();

const box = document.createElement("input");
box.type = "search";
box.placeholder = "filter nodes, kernels, instructions";
box.setAttribute("aria-label", "filter");
document.querySelector("header").append(box);
let rows = null;
box.addEventListener("input", () => {
  rows ??= every("table.sorts tbody tr, details.kernel").map((row) =>
    [row, (row.dataset.name ?? row.textContent).toLowerCase()]);
  const words = box.value.toLowerCase().split(/\s+/);
  for (const [row, text] of rows) row.hidden = !words.every((word) => text.includes(word));
});

const key = (cell) => {
  const text = cell?.textContent ?? "", number = parseFloat(text);
  return Number.isNaN(number) ? [1, text] : [0, number];
};
for (const head of every("table.sorts th")) {
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0], column = head.cellIndex;
    const first = head.classList.contains("n") ? "descending" : "ascending";
    const turned = { ascending: "descending", descending: "ascending" }[head.ariaSort] ?? first;
    every("th", head.parentElement).forEach((each) => { each.ariaSort = null; });
    head.ariaSort = turned;
    const sign = turned === "ascending" ? 1 : -1;
    const keyed = [...body.rows].map((row) => [key(row.cells[column]), row]);
    keyed.sort(([a], [b]) => sign * (a[0] - b[0] || (a[0] ? a[1].localeCompare(b[1]) : a[1] - b[1])));
    body.append(...keyed.map(([, row]) => row));
  });
}
