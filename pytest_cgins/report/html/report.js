"use strict";
// Sorts, filters and unfolds what the page has. Without it, all is there in the order of the report.
(() => {
  const DELAY_MS = 120;
  // Rows that are laid out at first: more than anybody reads, and few enough for each click to be answered at once.
  const MOST_ROWS = 200;
  const words = new Intl.Collator("en", { numeric: true });

  // A browser that runs scripts keeps what stands in `noscript` as one text; Python has escaped it.
  function unfold(place) {
    const folded = document.getElementById(place);
    if (!folded || folded.localName !== "noscript") return;
    const holder = document.createElement("template");
    holder.innerHTML = folded.textContent;
    folded.replaceWith(holder.content);
  }

  function follow() {
    const place = location.hash.slice(1);
    unfold(place);
    const target = document.getElementById(place);
    const details = target && target.closest("details");
    if (!details) return;
    details.open = true;
    const title = details.querySelector("summary");
    title.scrollIntoView();
    title.focus({ preventScroll: true });
  }

  function key(row, column) {
    const cell = row.cells[column];
    if (cell.dataset.n !== undefined) return Number(cell.dataset.n);
    return cell.textContent === "–" ? null : cell.textContent;
  }

  function compare(one, other) {
    // What is not there comes last in both directions.
    if (typeof one === "number" && typeof other === "number") return one - other;
    return words.compare(String(one), String(other));
  }

  function sort(body, column, descending) {
    const pairs = Array.from(body.rows, (row) => [key(row, column), row]);
    const absent = pairs.filter(([value]) => value === null || Number.isNaN(value));
    const present = pairs.filter(([value]) => value !== null && !Number.isNaN(value));
    present.sort(([one], [other]) => (descending ? compare(other, one) : compare(one, other)));
    body.append(...[...present, ...absent].map(([, row]) => row));
  }

  function makeSortable(table, show) {
    const headings = Array.from(table.tHead.rows[0].cells);
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const descending = heading.getAttribute("aria-sort") === "ascending";
        for (const other of headings) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
        sort(table.tBodies[0], column, descending);
        show();
      });
    });
  }

  function makeFilterable(list, table) {
    const form = list.querySelector("form");
    const shown = list.querySelector("[role=status]");
    const more = list.querySelector(".more");
    const texts = new Map();
    for (const row of table.tBodies[0].rows) {
      const [name] = row.cells;
      texts.set(row, `${name.textContent} ${name.dataset.text}`.toLowerCase());
    }
    let all = false;
    const total = texts.size.toLocaleString("en");

    function filter() {
      const wanted = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const { status, device, kernel } = form.elements;
      let count = 0;
      for (const row of table.tBodies[0].rows) {
        const { dataset } = row;
        const bad = dataset.outcome === "fail" || dataset.outcome === "error";
        const fits =
          (!status.value || (status.value === "bad" ? bad : dataset.status === status.value)) &&
          (!device.value || dataset.device === device.value) &&
          (!kernel.value || dataset.kernel === kernel.value) &&
          wanted.every((word) => texts.get(row).includes(word));
        count += fits;
        row.hidden = !fits || (!all && count > MOST_ROWS);
      }
      more.hidden = all || count <= MOST_ROWS;
      const fitting = `${count.toLocaleString("en")} of ${total}`;
      shown.textContent = more.hidden ? `${fitting} shown` : `the first ${MOST_ROWS} shown of ${fitting} that fit`;
    }

    let later = 0;
    form.addEventListener("input", () => {
      clearTimeout(later);
      later = setTimeout(filter, DELAY_MS);
    });
    form.addEventListener("reset", () => {
      all = false;
      setTimeout(filter);
    });
    more.addEventListener("click", () => {
      all = true;
      filter();
      table.parentElement.focus();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    // A browser that goes back fills forms in again.
    filter();
    list.dataset.ready = "";
    return filter;
  }

  for (const list of document.querySelectorAll("[data-list]")) {
    const table = list.querySelector("table");
    makeSortable(table, makeFilterable(list, table));
  }
  // Links lead to what is folded too.
  for (const folded of document.querySelectorAll("noscript[data-place]")) folded.id = folded.dataset.place;
  for (const hint of document.querySelectorAll(".details > p[hidden]")) hint.hidden = false;
  addEventListener("hashchange", follow);
  follow();
})();
