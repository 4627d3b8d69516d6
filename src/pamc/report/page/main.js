// What every page has, and the start of the page.

pamc.heading = (data, headline, facts) => {
  document.getElementById("top").append(
    pamc.el("div", { class: "brand" }, pamc.el("span", { class: "word", text: "pamc" }), pamc.el("span", { text: data.format === "pamc-comparison" ? "comparison" : "report" }), pamc.el("span", { class: "grow" }),
      pamc.el("button", { class: "button", type: "button", text: "Print", onclick: () => print() }), pamc.themeButton()),
    pamc.el("h1", {}, pamc.name(data.title, 90)), pamc.el("p", { class: "headline", text: headline }),
    pamc.el("p", { class: "lede" }, facts.filter(Boolean).map((text) => pamc.el("span", {}, pamc.name(text, 80)))),
    notes(data.notes, "notes", "Notes"), notes(data.record?.warnings, "notes warnings", "Warnings"),
    pamc.el("nav", { class: "nav", id: "contents", "aria-label": "Sections" }));
  document.getElementById("bottom").append(`Written by pamc ${data.pamc || data.record?.environment?.pamc || ""} on ${data.written}. This page contains all of its data and loads nothing.`);
};
const notes = (texts, kind, label) => (texts?.length ? pamc.el("ul", { class: kind, "aria-label": label }, texts.map((text) => pamc.el("li", { text }))) : "");

// On paper all parts are open, and the colors are dark on light.
matchMedia("print").addEventListener("change", () => pamc.onTheme.forEach((redraw) => redraw()));
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.map-table)").forEach((part) => { part.dataset.was = part.open; part.open = true; }));
addEventListener("afterprint", () => document.querySelectorAll("details[data-was]").forEach((part) => { part.open = part.dataset.was === "true"; delete part.dataset.was; }));

const island = JSON.parse(document.getElementById("pamc-data").textContent);
pamc.page = island.format === "pamc-comparison" ? new pamc.Comparison(island) : new pamc.Report(island);
pamc.page.build();
requestAnimationFrame(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); });
