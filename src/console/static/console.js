// Live updates of a page, the age of its values, copy buttons. Everything else is HTML.
"use strict";
(() => {
  const RETRY_MS = 2000;
  let source = null;
  let retry = 0;
  let updated = performance.now();
  let lost = false;
  let reported = "";  // the error of the cluster that the last event had

  const byId = (id) => document.getElementById(id);

  function age(ms) {
    const s = Math.floor(ms / 1000);
    if (s < 60) return `${s} s ago`;
    if (s < 3600) return `${Math.floor(s / 60)} min ago`;
    return `${Math.floor(s / 3600)} h ago`;
  }

  function showAge() {
    const shown = byId("age");
    if (!shown) return;
    const passed = performance.now() - updated;
    const text = passed < 5000 && !lost ? "now" : age(passed);
    const span = shown.querySelector("span");
    if (span.textContent !== text) span.textContent = text;
    shown.classList.toggle("old", lost);
  }

  // The text is the console's own: no value of the cluster is in it.
  function showLost(text) {
    lost = true;
    const box = document.createElement("div");
    box.className = "notice bad banner";
    box.append(text);
    byId("status").replaceChildren(box);
    showAge();
  }

  function fresh() {
    lost = false;
    reported = "";
    updated = performance.now();
    byId("status").replaceChildren();
    if (byId("age")) byId("age").hidden = false;
    showAge();
  }

  // Mark the field that an error begins with, or the only one.
  function markField(message) {
    const fields = [...document.querySelectorAll("main form[method=post] .field, main #target .field")];
    const isNamed = (each) => message.startsWith(each.querySelector("span").textContent.split(/[:,]/)[0].trim().toLowerCase());
    const isConfirmation = (each) => message.startsWith("not confirmed") && each.querySelector("[name=confirmation]");
    const wrong = fields.length === 1 ? fields[0] : fields.find((each) => isConfirmation(each) || isNamed(each));
    const box = wrong && wrong.querySelector("input, select, textarea");
    if (box) box.ariaInvalid = "true";
  }

  function focusable(live) {
    return [...live.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")];
  }

  // Replace the values. Focus, open details and scroll positions stay; a selection defers it.
  function replace(live, html, isLast) {
    const selection = document.getSelection();
    if (!isLast && selection && !selection.isCollapsed && live.contains(selection.anchorNode)) return;
    const focus = live.contains(document.activeElement) ? document.activeElement : null;
    const id = focus && focus.id;
    const href = focus && focus.getAttribute("href");
    const place = focus ? focusable(live).indexOf(focus) : -1;
    const open = [...live.querySelectorAll("details[open][id]")].map((each) => each.id);
    const scrolled = [...live.querySelectorAll(".scroll[id]")].map((each) => [each.id, each.scrollLeft, each.scrollTop]);
    const target = location.hash.slice(1);
    const hadTarget = target && byId(target);
    live.innerHTML = html;
    if (target && !hadTarget && byId(target)) byId(target).scrollIntoView();  // it was not there when the page opened
    for (const each of open) if (byId(each)) byId(each).open = true;
    for (const [each, x, y] of scrolled) if (byId(each)) byId(each).scrollTo(x, y);
    if (focus) {
      const all = focusable(live);
      const again = (id && byId(id)) || all.find((each) => href && each.getAttribute("href") === href) || all[Math.min(place, all.length - 1)];
      if (again) again.focus({ preventScroll: true });
    }
    window.htmx.process(live);
  }

  function close() {
    clearTimeout(retry);
    if (source) source.close();
    source = null;
  }

  function connect() {
    close();
    const live = byId("live");
    if (!live || document.hidden || "done" in live.dataset) return;
    const opened = new EventSource(live.dataset.live);
    source = opened;
    opened.addEventListener("live", (event) => { replace(live, event.data); fresh(); });
    opened.addEventListener("same", fresh);
    opened.addEventListener("done", (event) => { close(); live.dataset.done = ""; replace(live, event.data, true); fresh(); });
    opened.addEventListener("failed", (event) => {
      if (event.data !== reported) byId("status").innerHTML = reported = event.data;
      lost = true;
      showAge();
    });
    opened.addEventListener("ended", () => { close(); showLost("The session has ended. Open the URL that the console printed at its start."); });
    opened.onerror = () => {
      // A stream that ends after its error was written begins again: the error stays on the page.
      if (!reported) showLost("The console does not answer. The page shows the last values. It recovers by itself.");
      reported = "";
      if (opened.readyState === EventSource.CLOSED) {
        close();
        retry = setTimeout(check, RETRY_MS);
      }
    };
  }

  // A refused stream: find out if the session has ended.
  async function check() {
    try {
      const response = await fetch("/session");
      if (response.status === 401) {
        showLost("The session has ended. Open the URL that the console printed at its start.");
        return;
      }
    } catch { /* not reachable: try again */ }
    connect();
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = button.closest("figure").querySelector("pre").textContent;
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    button.ariaLabel = button.ariaLabel.replace("Copy", "Copied");
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : connect()));
  document.addEventListener("htmx:afterSettle", connect);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => { if (event.persisted) connect(); });

  const shown = byId("age");
  if (shown) {
    updated -= 1000 * Number(shown.dataset.age);
    lost = byId("status").childElementCount > 0;
    setInterval(showAge, 1000);
    showAge();
  }
  const start = document.querySelector("main [autofocus]");
  if (start && start.value && start.select) {
    if (start.dataset.caret === "end") start.setSelectionRange(start.value.length, start.value.length);
    else start.select();
  }
  const failure = byId("failure");
  if (failure) {
    markField(failure.textContent.trim().toLowerCase());
    failure.focus();
  }
  connect();
})();
