// Carillon · search.js
// SPDX-License-Identifier: Apache-2.0

// Searches all pages. The index is a script that loads when the reader first needs it, because a
// page that was opened from a file cannot fetch.

(() => {
  const most = 14;
  const root = document.body.dataset.root;
  const box = document.querySelector(".search");
  const input = document.getElementById("query");
  const panel = document.querySelector(".found");
  const list = document.getElementById("results");
  const status = document.getElementById("found");
  // Rank these groups lower, because readers rarely look for them.
  const weights = new Map([
    ["Internals", 0.5], ["Paths of other systems", 0.6], ["REST, call by call", 0.85], ["Messages", 0.85],
  ]);
  // Words of questions; ignored unless the query has no others.
  const fillers = new Set(
    "a an and are can do does for how i in is it my of on or the to what when where which with".split(" "));

  let sections = null;
  let vocabulary = null;
  let selected = -1;

  // The index.

  let loading = null;

  /** Loads the index, once. */
  function load() {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${root}assets/search-index.js`;
      script.addEventListener("load", resolve);
      script.addEventListener("error", reject);
      document.head.append(script);
    }).then(() => {
      sections = globalThis.carillonPages.flatMap(([address, title, group, parts]) =>
        parts.map(([anchor, heading, prose, code], index) => ({
          address: anchor ? `${address}#${anchor}` : address,
          title, heading, group, prose, code,
          isPage: index === 0,
          weight: (weights.get(group) ?? 1) * (/^pages|schemas/.test(address) ? 0.5 : 1),
          fields: [title, heading, prose, code].map(lowered),
        })));
    });
    return loading;
  }

  // Matching.

  const lowered = (text) => text.toLowerCase().replaceAll("e-mail", "email");

  /** Splits a query into words of letters, digits and the signs that names have. */
  function words(text) {
    const all = lowered(text).match(/[\p{L}\p{N}_./:-]*[\p{L}\p{N}]/gu) ?? [];
    const telling = all.filter((word) => !fillers.has(word));
    return telling.length > 0 ? telling : all;
  }

  /** Cuts the ending of an English word, so that `retries` finds `retry`. */
  function stem(word) {
    const short = word.replace(/(?:ies|ing|ed|es|s|y|e)$/u, "");
    return short.length >= 4 ? short : word;
  }

  const isLetter = (character) => character !== undefined && /[\p{L}\p{N}]/u.test(character);

  /** Rates a word in a text: 1 for the whole word, less for a prefix or a part of another word. */
  function rate(text, word) {
    let best = 0;
    for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
      const begins = !isLetter(text[at - 1]);
      const ends = !isLetter(text[at + word.length]);
      best = Math.max(best, begins && ends ? 1 : begins ? 0.7 : 0.25);
      if (best === 1) return 1;
    }
    return best;
  }

  /** Rates a word in a text, by its stem if need be. */
  function rateAny(text, word) {
    const exact = rate(text, word);
    const cut = stem(word);
    return exact === 1 || cut === word ? exact : Math.max(exact, rate(text, cut) * 0.8);
  }

  /** How often a text has a word, at most five times. */
  function count(text, word) {
    let found = 0;
    for (let at = text.indexOf(word); at >= 0 && found < 5; at = text.indexOf(word, at + word.length)) found += 1;
    return found;
  }

  /** Rates a section for a query, titles most, then headings; 0 if a word is missing. */
  function score(section, terms, phrase) {
    const [title, heading, prose, code] = section.fields;
    let sum = 0;
    for (const term of terms) {
      const inTitle = rateAny(title, term) * (section.isPage ? 60 : 14);
      const inHeading = section.isPage ? 0 : rateAny(heading, term) * 40;
      const inProse = rateAny(prose, term) * (6 + count(prose, stem(term))) / (1 + prose.length / 6_000);
      const inCode = rateAny(code, term) * 4;
      const best = Math.max(inTitle, inHeading, inProse, inCode);
      if (best === 0) return 0;
      sum += best + (inProse + inHeading) * 0.25;
    }
    if (terms.length > 1 && heading.includes(phrase)) sum += 30;
    if (terms.length > 1 && prose.includes(phrase)) sum += 12;
    // A title that equals the query is the best hit.
    if ((section.isPage ? title : heading) === phrase) sum += 25;
    return sum * section.weight;
  }

  function ranked(terms) {
    const phrase = terms.join(" ");
    return sections
      .map((section) => ({ section, score: score(section, terms, phrase) }))
      .filter((hit) => hit.score > 0)
      .sort((one, other) => other.score - one.score);
  }

  // Mistakes.

  /** Whether one letter more, less, other or exchanged makes one word of the other. */
  function isClose(one, other) {
    if (Math.abs(one.length - other.length) > 1) return false;
    let start = 0;
    while (start < one.length && one[start] === other[start]) start += 1;
    const [left, right] = [one.slice(start), other.slice(start)];
    return left.slice(1) === right.slice(1) || left.slice(1) === right || left === right.slice(1)
      || (left[0] === right[1] && left[1] === right[0] && left.slice(2) === right.slice(2));
  }

  /** The most frequent word of the pages that differs by one mistake; null if there is none. */
  function corrected(word) {
    if (word.length < 4) return null;
    if (!vocabulary) {
      vocabulary = new Map();
      for (const { fields } of sections) {
        for (const each of `${fields[1]} ${fields[2]}`.match(/[\p{L}\p{N}_]{4,}/gu) ?? []) {
          vocabulary.set(each, (vocabulary.get(each) ?? 0) + 1);
        }
      }
    }
    let best = null;
    for (const [each, times] of vocabulary) {
      if (isClose(word, each) && times > (vocabulary.get(best) ?? 0)) best = each;
    }
    return best;
  }

  /** Returns the hits, and whether the query, a corrected one or some of its words found them. */
  function find(query) {
    const terms = words(query);
    if (terms.length === 0) return { hits: [], terms };
    const hits = ranked(terms);
    if (hits.length > 0) return { hits, terms };
    const known = terms.map((term) => (sections.some(({ fields }) => fields.some((text) => rateAny(text, term)))
      ? term : corrected(term)));
    const rest = known.filter(Boolean);
    if (rest.length === 0) return { hits, terms };
    const others = ranked(rest);
    if (others.length > 0) return { hits: others, terms: rest, note: `Showing ${rest.join(" ")}` };
    // If no section has all words, take those with the most.
    const any = new Map();
    for (const term of rest) {
      for (const hit of ranked([term])) any.set(hit.section, (any.get(hit.section) ?? 0) + hit.score);
    }
    const some = [...any].map(([section, sum]) => ({ section, score: sum })).sort((a, b) => b.score - a.score);
    return { hits: some, terms: rest, note: "No section has all words" };
  }

  // Showing.

  /** Returns a part of the text around the first word that is found. */
  function snippet({ prose }, terms) {
    const text = lowered(prose);
    const places = terms.flatMap((term) => [text.indexOf(term), text.indexOf(stem(term))]).filter((at) => at >= 0);
    const at = places.length > 0 ? Math.min(...places) : 0;
    let start = Math.max(0, at - 50);
    if (start > 0) start = prose.indexOf(" ", start) + 1;
    const end = start + 150 < prose.length ? prose.lastIndexOf(" ", start + 150) : prose.length;
    return `${start > 0 ? "… " : ""}${prose.slice(start, end)}${end < prose.length ? " …" : ""}`;
  }

  /** Appends text to an element, with the words of the query marked. */
  function appendMarked(element, text, terms) {
    const parts = terms.flatMap((term) => [term, stem(term)]).sort((one, other) => other.length - one.length)
      .map((term) => term.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
    const pattern = new RegExp(parts.join("|"), "giu");
    let end = 0;
    for (const match of text.matchAll(pattern)) {
      const mark = document.createElement("mark");
      mark.textContent = match[0];
      element.append(text.slice(end, match.index), mark);
      end = match.index + match[0].length;
    }
    element.append(text.slice(end));
  }

  function row({ section }, index, terms) {
    const link = document.createElement("a");
    link.className = "hit";
    link.id = `hit-${index}`;
    link.href = root + section.address;
    link.tabIndex = -1;
    link.setAttribute("role", "option");
    const [name, place, text] = ["strong", "small", "p"].map((tag) => document.createElement(tag));
    appendMarked(name, section.heading, terms);
    place.textContent = section.isPage ? section.group : `${section.group} › ${section.title}`;
    appendMarked(text, snippet(section, terms), terms);
    link.append(name, place, text);
    link.addEventListener("mousemove", () => select(index));
    link.addEventListener("click", () => close());
    return link;
  }

  function select(index) {
    const rows = [...list.children];
    rows[selected]?.setAttribute("aria-selected", "false");
    selected = rows.length > 0 ? (index + rows.length) % rows.length : -1;
    const chosen = rows[selected];
    if (!chosen) return input.removeAttribute("aria-activedescendant");
    chosen.setAttribute("aria-selected", "true");
    chosen.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", chosen.id);
  }

  function show() {
    const query = input.value.trim();
    if (!query || !sections) return close();
    const { hits, terms, note } = find(query);
    const shown = hits.slice(0, most);
    list.replaceChildren(...shown.map((hit, index) => row(hit, index, terms)));
    const number = hits.length === 1 ? "1 section" : `${hits.length} sections`;
    const kept = hits.length > most ? `the best ${most} of ${number}` : number;
    status.textContent = hits.length === 0 ? "Nothing found. Try another word." : note ? `${note}: ${kept}` : kept;
    panel.hidden = false;
    input.setAttribute("aria-expanded", "true");
    selected = -1;
    select(0);
  }

  function close() {
    panel.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function offer() {
    box.hidden = false;
    input.addEventListener("focus", () => load().then(() => input.value && show(), () => null));
    input.addEventListener("input", () => load().then(show, () => {
      status.textContent = "The search index is missing.";
      panel.hidden = false;
    }));
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        if (panel.hidden) show();
        else select(selected + (event.key === "ArrowDown" ? 1 : -1));
      } else if (event.key === "Enter") {
        event.preventDefault();
        list.children[selected]?.click();
      } else if (event.key === "Escape") {
        if (panel.hidden) input.blur();
        close();
      }
    });
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
      const isShortcut = event.key === "k" && (event.ctrlKey || event.metaKey);
      if (!isShortcut && (isTyping || event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey)) return;
      event.preventDefault();
      input.focus();
      input.select();
    });
    document.addEventListener("pointerdown", (event) => {
      if (!box.contains(event.target)) close();
    });
    box.addEventListener("focusout", (event) => {
      if (event.relatedTarget && !box.contains(event.relatedTarget)) close();
    });
  }

  offer();
})();
