// Called after each press of the Tab key: returns the place of the focus among the controls of the
// page, and what is wrong with its look. `begin` collects the controls and stops the live updates.
const [begin] = arguments;
const STOPS = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
if (begin) {
  dispatchEvent(new Event("pagehide"));
  window.stops = [...document.querySelectorAll(STOPS)].filter((each) =>
    each.tabIndex >= 0 && !each.disabled && each.checkVisibility({ visibilityProperty: true }) && each.getClientRects().length > 0);
  scrollTo(0, 0);
  window.stops[0]?.focus();
}
const focus = document.activeElement;
const place = window.stops.indexOf(focus);
let fault = "";
if (place >= 0) {
  const style = getComputedStyle(focus);
  const box = focus.getBoundingClientRect();
  const outline = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  if (!begin && !outline) fault = "shows no focus";
  if (!begin && (box.bottom <= 0 || box.top >= innerHeight || box.right <= 0 || box.left >= innerWidth)) fault = "is not in view while it has the focus";
}
return { place, count: window.stops.length, fault, text: focus.outerHTML.slice(0, 110) };
