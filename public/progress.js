// Keeps the page of an export up to date: swaps the card in place, ticks the clocks, says what happened.
// The page is complete without it.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const sign = $("export-sign");
  const status = $("export-say");
  let live = $("export-live");
  if (!live) return;
  const lang = document.documentElement.lang;
  const events = live.dataset.events;
  let skew = 0; // server's clock minus this machine's, in ms
  let heard = Date.now(); // last sign of life from the server
  let source, poll, held, pressed = false;
  let streamed = false; // whether streams get through here at all
  let reopen = 0; // not before this time

  // Times: the server writes UTC, people read their own zone.
  const two = (n) => String(n).padStart(2, "0");
  const named = (date, options) => new Intl.DateTimeFormat(lang, options).format(date);
  const format = (date, kind) => {
    const hm = two(date.getHours()) + ":" + two(date.getMinutes());
    if (kind === "hms") return hm + ":" + two(date.getSeconds());
    if (kind === "hm") return hm;
    const day = date.getDate(), year = date.getFullYear(), weekday = named(date, { weekday: "short" });
    return lang.startsWith("zh")
      ? `${year} 年 ${date.getMonth() + 1} 月 ${day} 日（${weekday}）${hm}`
      : `${weekday} ${day} ${named(date, { month: "short" })} ${year}, ${hm}`;
  };
  const zone = () => {
    const minutes = -new Date().getTimezoneOffset(), rest = Math.abs(minutes) % 60;
    return "UTC" + (minutes ? (minutes < 0 ? "-" : "+") + Math.floor(Math.abs(minutes) / 60) + (rest ? ":" + two(rest) : "") : "");
  };
  const localise = (root) => {
    for (const time of root.querySelectorAll("time[data-f]")) {
      time.textContent = format(new Date(time.dateTime), time.dataset.f);
    }
  };
  const minutes = (ms) => {
    const s = Math.max(0, Math.round(ms / 1000));
    return Math.floor(s / 60) + ":" + two(s % 60);
  };
  const tick = () => {
    const now = Date.now() + skew;
    for (const node of live.querySelectorAll("[data-until]")) {
      node.textContent = minutes(Math.ceil((Date.parse(node.dataset.until) - now) / 1000) * 1000);
    }
    for (const node of live.querySelectorAll("[data-since]")) {
      node.textContent = minutes(Math.floor((now - Date.parse(node.dataset.since)) / 1000) * 1000);
    }
  };

  // Makes `from` look like `to`. Nodes that mean the same stay the same nodes, so focus and selection stay too.
  const same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName &&
    (a.nodeType !== 1 || a.getAttribute("data-k") === b.getAttribute("data-k"));
  const morph = (from, to) => {
    if (from.nodeType !== 1) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    let old = from.firstChild;
    for (const next of [...to.childNodes]) {
      let match = old;
      while (match && !same(match, next)) match = match.nextSibling;
      if (!match) {
        from.insertBefore(next, old);
        continue;
      }
      while (old !== match) {
        const gone = old;
        old = old.nextSibling;
        gone.remove();
      }
      old = match.nextSibling;
      morph(match, next);
    }
    while (old) {
      const gone = old;
      old = old.nextSibling;
      gone.remove();
    }
  };

  let said = "", quarter = 0, stage = "";
  const say = (data) => {
    // A change of stage, each 25 percent, and the end.
    const now = Math.floor((Number(data.percent) || 0) / 25);
    const key = data.state + " " + data.stage;
    if (data.say && data.say !== said && (key !== stage || now > quarter)) status.textContent = data.say;
    said = data.say;
    quarter = key === stage ? Math.max(quarter, now) : now;
    stage = key;
  };

  const show = (card) => {
    const present = live.dataset, next = card.dataset;
    if (Number(next.version) < Number(present.version)) return;
    // Nothing changes between press and release of a button.
    if (pressed) {
      held = card;
      return;
    }
    localise(card);
    const focus = document.activeElement;
    const inside = live.contains(focus) && focus !== live;
    morph(live, card);
    tick();
    if (inside && !live.contains(document.activeElement)) {
      const head = live.querySelector("h1");
      head.tabIndex = -1;
      head.focus();
    }
    document.title = live.dataset.title;
    say(live.dataset);
    if (live.dataset.final) end();
  };
  const parse = (html, id) => new DOMParser().parseFromString(html, "text/html").getElementById(id);

  const notice = (text) => {
    sign.hidden = !text;
    const words = sign.querySelector("span");
    if (words.textContent !== text) words.textContent = text;
  };
  const alive = () => {
    heard = Date.now();
    notice(poll ? sign.dataset.polling : "");
  };

  // Streams are blocked or the stream was refused: look again every 15 s.
  const look = async () => {
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
      if (answer.status === 404 || answer.status === 410) return location.reload();
      if (!answer.ok) return;
      const card = parse(await answer.text(), "export-live");
      if (!card) return;
      alive();
      show(card);
      if (poll && streamed && !live.dataset.final) {
        clearInterval(poll);
        poll = 0;
        open();
      }
    } catch {
      // The sign below says so.
    }
  };
  const startPolling = () => {
    if (poll || live.dataset.final) return;
    poll = setInterval(look, 15000);
    look();
  };
  const end = () => {
    source?.close();
    clearInterval(poll);
    clearInterval(watch);
    poll = 0;
    notice("");
  };

  const watch = setInterval(() => {
    const silent = Date.now() - heard;
    // A connection that broke without a word looks open for ever.
    if (silent > 45000 && !poll && Date.now() > reopen) {
      reopen = Date.now() + 30000;
      source?.close();
      open();
    }
    if (navigator.onLine === false) notice(sign.dataset.offline);
    else if (silent > 30000) notice(sign.dataset.quiet.replace("{time}", format(new Date(heard), "hms")));
  }, 1000);

  const open = () => {
    if (!window.EventSource) return startPolling();
    let opened = false;
    const stream = source = new EventSource(events);
    const giveUp = () => {
      stream.close();
      if (stream === source) startPolling();
    };
    // A proxy that holds the stream back delivers nothing at all.
    const blocked = setTimeout(() => opened || giveUp(), 12000);
    stream.addEventListener("card", (event) => {
      opened = streamed = true;
      clearTimeout(blocked);
      alive();
      const card = parse(event.data, "export-live");
      if (!card) return;
      skew = Date.parse(card.dataset.now) - Date.now();
      show(card);
    });
    stream.addEventListener("beat", alive);
    stream.addEventListener("gone", () => location.reload());
    stream.onerror = () => {
      if (stream.readyState !== EventSource.CLOSED) return;
      clearTimeout(blocked);
      giveUp();
    };
  };

  const release = () => {
    pressed = false;
    if (!held) return;
    const card = held;
    held = undefined;
    show(card);
  };
  addEventListener("pointerdown", () => {
    pressed = true;
    // A release outside the window is never heard of.
    setTimeout(release, 3000);
  }, true);
  for (const name of ["pointerup", "pointercancel", "blur"]) addEventListener(name, () => setTimeout(release), true);
  addEventListener("online", look);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && poll) look();
  });

  // Copy link: a plain link without script, a copied one with it.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest?.("[data-copy]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || !navigator.clipboard) return;
    event.preventDefault();
    try {
      await navigator.clipboard.writeText(link.href);
      status.textContent = link.dataset.copy;
      const words = link.lastElementChild, before = words.textContent;
      words.textContent = link.dataset.copy;
      setTimeout(() => { words.textContent = before; }, 2000);
    } catch {
      location.assign(link.href);
    }
  });

  // "Brought you here" is said once: a reload does not say it again.
  const address = new URL(location.href);
  if (address.searchParams.has("again")) {
    address.searchParams.delete("again");
    history.replaceState(null, "", address);
  }

  skew = Date.parse(live.dataset.now) - Date.now();
  stage = live.dataset.state + " " + live.dataset.stage;
  quarter = Math.floor((Number(live.dataset.percent) || 0) / 25);
  localise(document);
  const footer = $("export-zone");
  footer.textContent = footer.dataset.local.replace("{zone}", zone());
  tick();
  setInterval(tick, 1000);
  if (!live.dataset.final) open();
  else clearInterval(watch);
})();
