"use strict";
// Sorts, filters and unfolds what the page has. Without it, all is there in the order of the report.
(() => {
  const DELAY_MS = 120;
  const words = new Intl.Collator("en", { numeric: true });

  // A browser that runs scripts keeps what stands in `noscript` as one text; Python has escaped it.
  function unfold(details) {
    const folded = details.querySelector(":scope > noscript");
    if (!folded) return;
    const holder = document.createElement("template");
    holder.innerHTML = folded.textContent;
    folded.replaceWith(holder.content);
  }

  function follow() {
    const target = document.getElementById(location.hash.slice(1));
    const details = target && target.closest("details");
    if (!details) return;
    unfold(details);
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

  function makeSortable(table) {
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
      });
    });
  }

  function makeFilterable(list, table) {
    const form = list.querySelector("form");
    const shown = list.querySelector("[role=status]");
    const sections = Array.from(document.querySelectorAll(`[data-of="${list.dataset.list}"] > details`));
    const rows = Array.from(table.tBodies[0].rows, (row, place) => ({
      row,
      details: sections[place],
      text: `${row.cells[0].textContent} ${row.cells[0].dataset.text}`.toLowerCase(),
    }));
    const total = rows.length.toLocaleString("en");

    function filter() {
      const wanted = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const { status, device, kernel } = form.elements;
      let count = 0;
      for (const { row, details, text } of rows) {
        const { dataset } = row;
        const bad = dataset.outcome === "fail" || dataset.outcome === "error";
        const fits =
          (!status.value || (status.value === "bad" ? bad : dataset.status === status.value)) &&
          (!device.value || dataset.device === device.value) &&
          (!kernel.value || dataset.kernel === kernel.value) &&
          wanted.every((word) => text.includes(word));
        row.hidden = details.hidden = !fits;
        count += fits;
      }
      shown.textContent = `${count.toLocaleString("en")} of ${total} shown`;
    }

    let later = 0;
    form.addEventListener("input", () => {
      clearTimeout(later);
      later = setTimeout(filter, DELAY_MS);
    });
    form.addEventListener("reset", () => setTimeout(filter));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    // A browser that goes back fills forms in again.
    if (Array.from(form.elements).some((field) => field.value)) filter();
  }

  for (const list of document.querySelectorAll("[data-list]")) {
    const table = list.querySelector("table");
    makeFilterable(list, table);
    makeSortable(table);
  }
  document.addEventListener("toggle", (event) => event.target.open && unfold(event.target), true);
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", () => document.querySelectorAll("details[open]").forEach(unfold));
  follow();
})();
