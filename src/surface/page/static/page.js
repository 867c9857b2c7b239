// Keeps the page that is on the screen true: asks for it again and again, and puts in what has changed. What somebody
// has focused, opened or half typed stays. Without this script all of the page works; it only stands still.
"use strict";

(() => {
  const main = document.getElementById("main");
  const sign = document.getElementById("live");
  const every = Number(main && main.dataset.live) * 1000;
  if (!every || !sign) return;

  const PATIENCE = 10_000;
  const HIDDEN = 30_000;
  let tag = "";
  let failures = 0;
  let heard = new Date();
  let busy = false;
  let blind = main.hasAttribute("data-blind");

  // Those belong to whoever writes in them.
  const isField = (node) => node.matches("input:not([type=hidden]), textarea, select");

  // Whether somebody is at work in there: what they do must not be taken from under their hands.
  const isInUse = (node) => {
    if (node.contains(document.activeElement) && document.activeElement !== document.body) return true;
    const fields = node.querySelectorAll("input:not([type=hidden]), textarea");
    return [...fields].some((field) => field.value !== field.defaultValue);
  };

  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE && node.dataset.key) || "";

  // Makes the attributes those of `to`, but for what belongs to whoever looks: what is open, what is typed.
  const copyAttributes = (from, to) => {
    for (const { name, value } of [...to.attributes]) {
      if (name === "open" && from.tagName === "DETAILS") continue;
      if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    for (const { name } of [...from.attributes]) {
      if (to.hasAttribute(name)) continue;
      if (name === "open" && from.tagName === "DETAILS") continue;
      from.removeAttribute(name);
    }
  };

  // Takes away what is no longer wanted, unless somebody is at work in it.
  const drop = (node, kept) => {
    if (node.nodeType === Node.ELEMENT_NODE && isInUse(node)) {
      node.classList.add("stale");
      kept.add(node);
    } else {
      node.remove();
    }
  };

  // Makes the children of `from` those of `to`. Those with a key are found by it, the others by their place.
  const morphChildren = (from, to) => {
    const wantedKeys = new Set([...to.children].map(keyOf));
    const done = new Set();
    const keyed = new Map();
    for (const node of [...from.children]) {
      if (!keyOf(node)) continue;
      if (wantedKeys.has(keyOf(node))) keyed.set(keyOf(node), node);
      else drop(node, done);
    }
    let here = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      while (here && done.has(here)) here = here.nextSibling;
      const key = keyOf(wanted);
      const there = key ? keyed.get(key) : here && !keyOf(here) ? here : null;
      const found = there && there.nodeName === wanted.nodeName ? there : null;
      if (!found) {
        const added = document.importNode(wanted, true);
        if (key) added.classList.add("changed");
        from.insertBefore(added, here);
        done.add(added);
        continue;
      }
      // What is moved loses the focus.
      if (found !== here && !isInUse(found)) from.insertBefore(found, here);
      done.add(found);
      morph(found, wanted);
    }
    for (const node of [...from.childNodes]) if (!done.has(node)) drop(node, done);
  };

  const morph = (from, to) => {
    if (from.nodeType !== Node.ELEMENT_NODE) {
      if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
      return;
    }
    if (isField(from)) return;
    copyAttributes(from, to);
    morphChildren(from, to);
  };

  const say = (text, state) => {
    if (sign.textContent !== text) sign.textContent = text;
    sign.className = state;
  };

  // There is no way on but to log in, and to come back to this page.
  const sayOver = (text) => {
    say(text, "off");
    const login = document.createElement("a");
    login.href = `/login?to=${encodeURIComponent(location.pathname + location.search)}`;
    login.textContent = "log in";
    sign.append(" ", login);
  };

  // What somebody was at work in stays on the screen; where it stays in a list, the list is not empty.
  const hideDenials = () => {
    for (const denial of main.querySelectorAll("[data-denies]")) {
      const denied = denial.parentElement.querySelector(denial.dataset.denies);
      denial.hidden = Boolean(denied);
    }
  };

  const look = async () => {
    const headers = { "x-leafhopper-poll": "1" };
    if (tag) headers["if-none-match"] = tag;
    const answer = await fetch(location.href, {
      headers,
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
      signal: AbortSignal.timeout(PATIENCE),
    });
    if (answer.status === 304) return;
    if (answer.status === 401) throw new Error("your session is over");
    const isPage = (answer.headers.get("content-type") || "").startsWith("text/html");
    if (!isPage) throw new Error(`status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const wanted = page.getElementById("main");
    if (!wanted) throw new Error(`status ${answer.status}`);
    morph(main, wanted);
    blind = main.hasAttribute("data-blind");
    hideDenials();
    document.title = page.title;
    tag = answer.headers.get("etag") || "";
  };

  const turn = async () => {
    busy = true;
    try {
      await look();
      failures = 0;
      heard = new Date();
      if (blind) say("the database does not answer", "off");
      else say("live", "on");
    } catch (error) {
      failures += 1;
      const clock = heard.toTimeString().slice(0, 8);
      if (error.message.startsWith("your session")) sayOver(`not live since ${clock}: ${error.message},`);
      else say(`not live since ${clock}`, "off");
    }
    busy = false;
    const pause = document.hidden ? HIDDEN : every;
    timer = setTimeout(turn, Math.min(HIDDEN, pause * 2 ** Math.min(failures, 4)));
  };

  let timer = setTimeout(turn, every);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden || busy) return;
    clearTimeout(timer);
    timer = setTimeout(turn, 100);
  });
})();
