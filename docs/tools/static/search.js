// The search of the site: sections, keys, flags and commands with excerpts, from an index that is a script,
// since a page that is opened as a file can fetch nothing.
"use strict";
function bareboatSearch(query) {
  const root = document.documentElement.dataset.content_root;
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const out = document.getElementById("search-results");
  const plain = (text) => text.toLowerCase().replace(/^-+/, "").replaceAll("-", "_");
  const score = ([, page, title, text]) => {
    const names = [title, page, text].map((each) => each.toLowerCase());
    let sum = 0;
    for (const word of words) {
      const exact = names[0].split(/[\s,=]+/), first = exact.map(plain);
      if (exact.includes(word)) sum += 200;
      else if (first.some((each) => each === plain(word) || each.endsWith("." + plain(word)))) sum += 100;
      else if (names[0].includes(word)) sum += 30;
      else if (names[1].includes(word)) sum += 10;
      else if (names[2].includes(word)) sum += 3;
      else return 0;
    }
    return sum;
  };
  const excerpt = (text) => {
    const element = document.createElement("p");
    const at = Math.max(0, ...words.map((word) => text.toLowerCase().indexOf(word)));
    const begin = Math.max(0, text.lastIndexOf(" ", Math.max(0, at - 60)));
    const cut = text.slice(begin, begin + 200), isCut = text.length > begin + 200;
    const shown = (begin ? "… " : "")
      + (isCut ? `${cut.slice(0, cut.lastIndexOf(" "))} …` : cut).trim();
    const marks = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
    for (const part of shown.split(new RegExp(`(${marks})`, "gi"))) {
      const isWord = words.includes(part.toLowerCase());
      const child = document.createElement(isWord ? "mark" : "span");
      child.textContent = part;
      element.append(child);
    }
    return element;
  };
  window.setSections = (sections) => {
    const found = sections.map((each) => [score(each), each]).filter(([points]) => points)
      .sort((a, b) => b[0] - a[0]).slice(0, 50);
    const title = document.createElement("h2");
    title.textContent = found.length ? `${found.length} results` : "No results";
    const list = document.createElement("ul");
    list.className = "search found";
    for (const [, [address, page, name, text]] of found) {
      const item = document.createElement("li"), link = document.createElement("a");
      link.href = root + address;
      link.textContent = name === page || !page ? name : `${name} — ${page}`;
      item.append(link, excerpt(text));
      list.append(item);
    }
    out.replaceChildren(title, list);
  };
  const script = document.createElement("script");
  script.src = root + "_static/sections.js";
  document.body.append(script);
}
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search !== "undefined") Search.performSearch = bareboatSearch;
});
