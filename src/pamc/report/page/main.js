// What every page has, and its beginning.

pamc.heading = (data, headline, tiles) => {
  document.getElementById("top").append(
    pamc.el("div", { class: "brand" }, pamc.el("span", { class: "word", text: "pamc" }), pamc.el("span", { text: data.format === "pamc-comparison" ? "comparison" : "report" }), pamc.el("span", { class: "grow" }),
      pamc.el("button", { class: "button", type: "button", text: "Print", onclick: () => print() }), pamc.themeButton()),
    pamc.el("h1", {}, pamc.name(data.title, 90)), pamc.el("p", { class: "lede" }, headline.filter(Boolean).map((text) => pamc.el("span", {}, pamc.name(text, 80)))),
    pamc.el("nav", { class: "nav", id: "contents", "aria-label": "Sections" }),
    tiles.length ? pamc.el("dl", { class: "tiles" }, tiles.map(([term, value, why]) => pamc.el("div", { class: "tile" }, pamc.el("dt", { text: term }), pamc.el("dd", {}, value, pamc.el("span", { class: "why", text: why }))))) : "",
    notes(data.notes, "notes", "Notes"), notes(data.record?.warnings, "notes warnings", "Warnings"));
  document.getElementById("bottom").append(`Written by pamc ${data.pamc || data.record?.environment?.pamc || ""} on ${data.written}. This page holds all its data and loads nothing.`);
};
const notes = (said, kind, label) => (said?.length ? pamc.el("ul", { class: kind, "aria-label": label }, said.map((text) => pamc.el("li", { text }))) : "");
pamc.contents = (sections) => {
  document.getElementById("contents").append(...sections.map((section) => pamc.el("a", { href: `#${section.id}`, text: section.querySelector("h2").textContent })));
};

// On paper everything is open, and dark on light.
matchMedia("print").addEventListener("change", () => pamc.onTheme.forEach((tell) => tell()));
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.map-table)").forEach((part) => { part.dataset.was = part.open; part.open = true; }));
addEventListener("afterprint", () => document.querySelectorAll("details[data-was]").forEach((part) => { part.open = part.dataset.was === "true"; delete part.dataset.was; }));

const island = JSON.parse(document.getElementById("pamc-data").textContent);
pamc.page = island.format === "pamc-comparison" ? new pamc.Comparison(island) : new pamc.Report(island);
pamc.page.build();
requestAnimationFrame(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); });
