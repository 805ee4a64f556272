"use strict";
// Filters of the ledger, a panel for nodes, edges of the node at hand. Without it links lead to the list of nodes.
(() => {
  const form = document.querySelector(".filters"), rows = [...document.querySelectorAll("#claims tbody tr")];
  const filter = () => {
    const wanted = Object.fromEntries(new FormData(form)), words = wanted.words.toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const fits = (!wanted.verdict || row.dataset.verdict === wanted.verdict)
        && (!wanted.source || row.dataset.source === wanted.source)
        && (!wanted.attention || row.dataset.attention.split(" ").includes(wanted.attention))
        && row.textContent.toLowerCase().includes(words);
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length} statements`;
  };
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", event => event.preventDefault());
  filter();

  const panel = document.getElementById("panel"), text = document.getElementById("panel-text");
  const open = target => {
    document.getElementById("panel-title").textContent = target.dataset.title;
    text.replaceChildren(...[...target.cloneNode(true).childNodes]);
    if (!panel.open) panel.showModal();
    panel.scrollTop = 0;
  };
  const reveal = target => {
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.scrollIntoView();
  };
  document.getElementById("close").addEventListener("click", () => panel.close());
  panel.addEventListener("click", event => { if (event.target === panel) panel.close(); });
  document.addEventListener("click", event => {
    const link = event.target.closest("a[href^='#']");
    const target = link && document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
    if (!target) return;
    if (target.id.startsWith("node-")) { event.preventDefault(); open(target); }
    else if (target.id.startsWith("proof-")) { event.preventDefault(); panel.close(); history.pushState(null, "", "#" + target.id); reveal(target); }
  });
  const follow = () => { const target = document.getElementById(decodeURIComponent(location.hash.slice(1))); if (target) reveal(target); };
  addEventListener("hashchange", follow);
  follow();

  const arcs = [...document.querySelectorAll(".arcs path")];
  const mark = name => {
    for (const arc of arcs) {
      arc.classList.toggle("up", arc.dataset.user === name);
      arc.classList.toggle("down", arc.dataset.used === name);
    }
  };
  for (const node of document.querySelectorAll("#graph a")) {
    for (const event of ["focus", "pointerenter"]) node.addEventListener(event, () => mark(node.dataset.name));
    for (const event of ["blur", "pointerleave"]) node.addEventListener(event, () => mark(""));
  }
})();
