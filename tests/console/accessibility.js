// Returns what keeps people from using a page: missing names, languages, headings, landmarks and
// headers of tables, wrong references, and text with too little contrast (WCAG 2.2, level AA).
const faults = [];
const page = document.documentElement;
const CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary";
const shortened = (each) => each.outerHTML.slice(0, 110);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const isShown = (each) => each.checkVisibility({ visibilityProperty: true }) && each.getClientRects().length > 0;
const report = (each, text) => faults.push(`${shortened(each)} ${text}`);

// --- the page ---
if (!page.lang) faults.push("the page has no language");
if (!document.title.trim()) faults.push("the page has no title");
if (/user-scalable\s*=\s*no|maximum-scale/.test(document.querySelector("meta[name=viewport]")?.content)) faults.push("the page cannot be enlarged");
for (const [selector, count] of [["main", 1], ["h1", 1]])
  if (all(selector).filter(isShown).length !== count) faults.push(`the page has not ${count} ${selector}`);
let level = 0;
for (const each of all("h1, h2, h3, h4, h5, h6").filter(isShown)) {
  const own = Number(each.tagName[1]);
  if (own > level + 1) report(each, `follows a heading of level ${level}`);
  if (!each.textContent.trim()) report(each, "is empty");
  level = own;
}
const navigations = all("nav").filter(isShown).map((each) => each.ariaLabel || "");
if (new Set(navigations).size < navigations.length || navigations.includes("")) faults.push(`the landmarks nav have the names ${navigations.join(", ")}`);
for (const each of all("[role=region], section[aria-label]")) if (!each.ariaLabel && !each.getAttribute("aria-labelledby")) report(each, "has no name");

// --- ids and references ---
const ids = all("[id]").map((each) => each.id);
for (const id of new Set(ids.filter((each, place) => ids.indexOf(each) !== place))) faults.push(`the id ${id} is there twice`);
for (const attribute of ["for", "list", "aria-labelledby", "aria-describedby", "aria-controls"])
  for (const each of all(`[${attribute}]`))
    for (const id of each.getAttribute(attribute).split(" ")) if (!document.getElementById(id)) report(each, `refers to no element by ${attribute}`);

// --- names of controls and pictures ---
function labelText(each) {
  const copy = each.cloneNode(true);
  for (const inner of copy.querySelectorAll("input, select, textarea, datalist")) inner.remove();
  return copy.textContent.trim();
}
function nameOf(each) {
  if (each.ariaLabel) return each.ariaLabel.trim();
  const by = each.getAttribute("aria-labelledby");
  if (by) return by.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
  if (each.labels?.length) return [...each.labels].map(labelText).join(" ").trim();
  if (each.matches("input, select, textarea")) return "";
  return (each.textContent.trim() || all("img", each).map((image) => image.alt).join(" ")).trim();
}
const names = new Map();
for (const each of all(CONTROLS).filter(isShown)) {
  const name = nameOf(each);
  if (!name) report(each, "has no name");
  const text = each.innerText?.trim() ?? "";
  if (each.ariaLabel && text && !each.ariaLabel.includes(text)) report(each, "has a name without its text");
  if (each.matches("button")) {
    const form = each.form?.getAttribute("action") ?? "";
    const key = `${name} ${form} ${each.getAttribute("formaction") ?? ""}`;
    if (names.has(key)) report(each, "has the name of another button");
    names.set(key, each);
  }
  if (all(CONTROLS, each).length) report(each, "contains a control");
  if (each.closest("[aria-hidden=true]")) report(each, "is hidden from screen readers");
}
for (const each of all("[tabindex]")) if (each.tabIndex > 0) report(each, "changes the order of the keyboard");
for (const each of all("img:not([alt])")) report(each, "has no alternative text");
for (const each of all("svg[role=img]")) if (!each.querySelector("title")?.textContent.trim()) report(each, "has no title");

// --- tables and lists ---
for (const table of all("table")) {
  const heads = all("thead th", table);
  if (!heads.length) report(table, "has no headers");
  for (const each of heads) if (each.scope !== "col" || !each.textContent.trim()) report(each, "is no header of a column");
  if (!table.ariaLabel && !table.caption && !table.closest("[role=region][aria-label]")) report(table, "has no name");
  for (const row of all("tbody tr", table)) if (row.cells.length !== heads.length) report(row, `has ${row.cells.length} cells for ${heads.length} headers`);
}
for (const each of all("dl > *, dl > div > *")) if (!each.matches("dt, dd, div") || (each.matches("div > *") && each.matches("div"))) report(each, "is no part of its list");
for (const each of all(".scroll")) if (each.scrollWidth > each.clientWidth && each.tabIndex < 0) report(each, "cannot be scrolled by keyboard");

// --- contrast ---
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function rgba(text) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}
const over = (top, back) => [0, 1, 2].map((each) => top[each] * top[3] + back[each] * (1 - top[3])).concat(1);
const luminance = (color) => {
  const [r, g, b] = color.slice(0, 3).map((each) => (each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
function contrast(one, two) {
  const [high, low] = [luminance(one), luminance(two)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}
const backs = new Map();
function backOf(each) {
  if (!each) return [255, 255, 255, 1];
  if (!backs.has(each)) backs.set(each, over(rgba(getComputedStyle(each).backgroundColor), backOf(each.parentElement)));
  return backs.get(each);
}
const checked = new Set();
function checkContrast(each, color, back, least, what) {
  const ratio = contrast(over(rgba(color), back), back);
  const text = `${what} has a contrast of ${ratio.toFixed(2)}; ${least} is the least: ${color} on ${back.slice(0, 3).map(Math.round)}`;
  if (ratio < least && !checked.has(text)) report(each, text);
  checked.add(text);
}
for (const each of all("body *")) {
  const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!isShown(each) || each.matches(":disabled, option, script, style, title")) continue;
  const style = getComputedStyle(each);
  if (own) {
    const px = parseFloat(style.fontSize);
    const least = px >= 24 || (px >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    checkContrast(each, each.closest("svg") ? style.fill : style.color, backOf(each), least, "its text");
    if (!each.closest("main, header, footer, nav, .skip")) report(each, "is outside of the landmarks");
  }
  if (each.matches("input:not([type=hidden]), select, textarea")) {
    checkContrast(each, style.color, backOf(each), 4.5, "its text");
    if (each.placeholder) checkContrast(each, getComputedStyle(each, "::placeholder").color, backOf(each), 4.5, "its placeholder");
    if (each.type !== "checkbox") checkContrast(each, style.borderTopColor, backOf(each.parentElement), 3, "its border");
  }
}
return faults;
