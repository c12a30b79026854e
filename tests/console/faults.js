// Returns what is wrong with the look of a page: elements with text that overlap although neither
// contains the other, and elements beyond the page.
const faults = [];
const page = document.documentElement;
if (page.scrollWidth > innerWidth) faults.push(`the page is ${page.scrollWidth} px wide`);
const shown = [...document.querySelectorAll("main *, header *")].filter((each) => {
  const box = each.getBoundingClientRect();
  const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const hidden = each.closest("svg, pre, details:not([open]) > :not(summary), thead, .skip");
  return own && !hidden && box.width > 1 && box.height > 1 && getComputedStyle(each).visibility === "visible";
});
const boxes = shown.map((each) => [each, each.getClientRects()]);
for (let i = 0; i < boxes.length; i++) {
  const [one, first] = boxes[i];
  for (const a of first) {
    if (a.left < -1 || (a.right > innerWidth + 1 && !one.closest(".scroll, pre, nav"))) faults.push(`${one.outerHTML.slice(0, 90)} is beyond the page`);
    for (let j = i + 1; j < Math.min(i + 40, boxes.length); j++) {
      const [two, second] = boxes[j];
      if (one.contains(two) || two.contains(one)) continue;
      for (const b of second) {
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (x > 2 && y > 4) faults.push(`${one.outerHTML.slice(0, 90)} overlaps ${two.outerHTML.slice(0, 90)}`);
      }
    }
  }
}
return faults;
