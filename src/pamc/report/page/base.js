"use strict";
// Elements, text, numbers, colors and the theme. Text of the user is always inserted as text, never as markup.

const pamc = {};

pamc.el = (tag, options = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, part] of Object.entries(value)) node.style.setProperty(key, part);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
};

pamc.svg = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

// A name of the user: shortened in the middle if long, isolated from the direction of the text around it.
pamc.cut = (text, most = 48) => {
  if (text.length <= most) return text;
  const letters = Array.from(text.slice(0, 4 * most)), last = Array.from(text.slice(-4 * most));
  if (text.length <= 4 * most && letters.length <= most) return text;
  const tail = Math.floor(most / 3);
  return `${letters.slice(0, most - tail - 1).join("")}…${last.slice(-tail).join("")}`;
};
pamc.name = (text, most = 48) => {
  const whole = String(text) || "(empty)", shown = pamc.cut(whole, most);
  return pamc.el("bdi", { dir: "auto", class: "name", text: shown, title: shown === whole ? null : whole });
};

const whole = new Intl.NumberFormat("en-US");
pamc.count = (value) => whole.format(value);
pamc.counted = (value, what) => `${pamc.count(value)} ${value === 1 ? what : `${what}s`}`;
pamc.number = (value, digits = 3) => {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  // Smaller values are rounding errors.
  if (size < 1e-12) return "0";
  if (Number.isInteger(value) && size < 1e15) return pamc.count(value).replace("-", "−");
  const text = size >= 1e12 || size < 1e-4 ? value.toExponential(digits - 1) : value.toLocaleString("en-US", { maximumSignificantDigits: digits });
  return text.replace("-", "−");
};
// A value in the units of the user, rounded to about a hundredth of the spread of its column.
pamc.measured = (value, spread) => {
  const power = Math.round(Math.log10(spread)) - 2, step = 10 ** power, digits = Math.max(0, -power);
  if (!(spread > 0) || digits > 9 || Math.abs(value) >= 1e15) return pamc.number(value);
  if (Math.abs(value) < step / 2) return "0";
  const rounded = power > 0 ? Math.round(value / step) * step : value;
  return rounded.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
};
pamc.percent = (value, digits = 1) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`);
// A share in whole percent that is 0 only for none and 100 only for all.
pamc.share = (value) => {
  const share = Math.round(1e9 * value) / 1e9 + 0;
  return share > 0 && share < 0.005 ? "less than 1 %" : share < 1 && share >= 0.995 ? "more than 99 %" : pamc.percent(share, 0);
};

// Typed arrays out of base64.
const views = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array };
pamc.unpack = (packed) => {
  const text = atob(packed.base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new views[packed.kind](bytes.buffer);
};
pamc.ids = (packed) => {
  if (packed.text) return (i) => packed.text[i];
  const numbers = pamc.unpack(packed.numbers);
  return (i) => String(numbers[i]);
};

// Ten colors that people with color blindness can tell apart, then hues by the golden angle at three lightnesses.
const first = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7a5cc0", "#a89400", "#8c5a3c", "#6e7b8b"];
const channel = (value) => Math.round(255 * Math.min(1, Math.max(0, value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055)));
const oklch = (lightness, chroma, turn) => {
  const a = chroma * Math.cos(turn), b = chroma * Math.sin(turn);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3, m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s].map(channel);
};
pamc.rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
pamc.palette = (n) => Array.from({ length: n }, (_, i) =>
  i < first.length ? pamc.rgb(first[i]) : oklch([0.62, 0.72, 0.5][i % 3], 0.125, 0.35 + 2.39996 * i));
pamc.css = (rgb) => `rgb(${rgb.join(" ")})`;
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
// Black or white, whichever is readable on the color: one of them always has a contrast above 4.5.
pamc.on = (rgb) => (luminance(rgb) > 0.179 ? "#000" : "#fff");
// The group of rows in no cluster on the page of a run, null without noise.
pamc.noise = null;
pamc.clusterText = (cluster) => (cluster === pamc.noise ? "in no cluster" : `cluster ${cluster}`);
pamc.dot = (label, rgb) => pamc.el("span", { class: "dot", text: pamc.noise !== null && label === pamc.noise ? "–" : label, style: { background: pamc.css(rgb), color: pamc.on(rgb) } });
pamc.variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
pamc.ramp = () => {
  const low = pamc.rgb(pamc.variable("--low")), high = pamc.rgb(pamc.variable("--high"));
  return (share) => low.map((value, i) => Math.round(value + share * (high[i] - value)));
};

// Light or dark: as the system is set, until the reader chooses.
pamc.isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
pamc.onTheme = [];
pamc.themeButton = () => {
  const button = pamc.el("button", { class: "button", type: "button" });
  const update = () => { button.textContent = pamc.isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", `Switch to ${pamc.isDark() ? "light" : "dark"} colors`); };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = pamc.isDark() ? "light" : "dark";
    try { localStorage.setItem("pamc-theme", document.documentElement.dataset.theme); } catch (denied) { /* forgotten with the page */ }
    update();
    pamc.onTheme.forEach((redraw) => redraw());
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { update(); pamc.onTheme.forEach((redraw) => redraw()); });
  update();
  return button;
};

// A section with its heading; null without content. `pamc.part` is a section of the technical details.
const sectionWith = (tag) => (id, title, about, ...children) => {
  const content = children.flat().filter(Boolean);
  if (!content.length) return null;
  return pamc.el("section", { id, "aria-labelledby": `${id}-title` }, pamc.el(tag, { id: `${id}-title`, text: title }),
    about ? pamc.el("p", { class: "about", text: about }) : null, content);
};
pamc.section = sectionWith("h2");
pamc.part = sectionWith("h3");
const links = (sections) => sections.map((section) => pamc.el("a", { href: `#${section.id}`, text: section.querySelector("h2, h3").textContent }));
// The parts that only experts need, behind one heading.
pamc.technical = (about, parts) => pamc.el("section", { id: "technical", "aria-labelledby": "technical-title" },
  pamc.el("details", { class: "technical" }, pamc.el("summary", {}, pamc.el("h2", { id: "technical-title", text: "Technical details" }), pamc.el("span", { class: "quiet", text: about })),
    pamc.el("nav", { class: "nav", "aria-label": "Technical details" }, links(parts)), parts));
// The links at the top. A link to something inside a closed part opens it.
pamc.contents = (sections) => {
  document.getElementById("contents").append(...links(sections));
  const open = () => {
    let node = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (node?.id === "technical") node = node.firstElementChild;
    for (let part = node; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    node?.scrollIntoView();
  };
  addEventListener("hashchange", open);
  if (location.hash) open();
};
pamc.scroll = (label, child) => pamc.el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, child);
// A button that copies a table as it is shown, so that it can be pasted into a slide or a spreadsheet.
pamc.copyTable = (table) => {
  const button = pamc.el("button", { class: "button copy", type: "button", text: "Copy", "aria-label": "Copy the table" });
  button.addEventListener("click", () => {
    getSelection().selectAllChildren(table);
    const isCopied = document.execCommand("copy");
    if (isCopied) getSelection().removeAllRanges();
    button.textContent = isCopied ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return button;
};
pamc.copy = (label, text) => {
  const button = pamc.el("button", { class: "button copy", type: "button", text: "Copy", "aria-label": `Copy the ${label}` });
  const pre = pamc.el("pre", { text, tabindex: 0 });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch (denied) {
      // Some browsers deny the clipboard to pages from disk: select the text instead.
      getSelection().selectAllChildren(pre);
      button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return pamc.el("div", { class: "code" }, pre, button);
};
