"use strict";
// Links: to every part of the page, from the list of contents beside it, and onto the clipboard.

// What the address names.
function linked() {
  return location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
}

// What the address names is unfolded and brought to the top.
function reveal() {
  const target = linked();
  if (!target) return;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  target.scrollIntoView({ behavior: "instant" });
}
addEventListener("hashchange", () => {
  if (linked()?.closest("details:not([open])")) reveal();
});

// Returns what brings the part that the reader sees now back to where it stands.
function inView() {
  const part = [...document.querySelectorAll("section, .card, .tabled")].find((one) => one.checkVisibility() && one.getBoundingClientRect().top >= 0);
  const top = part?.getBoundingClientRect().top;
  return () => { if (part && scrollY) scrollBy({ top: part.getBoundingClientRect().top - top, behavior: "instant" }); };
}

// Beside a wide page stands the list of contents, open, and below it what the reader switches; on a narrow one both are
// where the page has them, the list folded.
const contents = document.getElementById("contents");
const controls = document.getElementById("controls");
const beforeControls = document.createComment("");
controls.before(beforeControls);
const wide = matchMedia("(min-width: 75rem)");
function place() {
  contents.open = wide.matches;
  if (wide.matches) document.querySelector("aside").append(controls); else beforeControls.after(controls);
}
wide.addEventListener("change", place);
place();
contents.addEventListener("click", ({ target }) => {
  if (!wide.matches && target.closest("a")) contents.open = false;
});

// The section in view is marked in the list, and so is the first of its figures that can be seen.
const entries = [...contents.querySelectorAll("a")].map((link) => ({ link, part: document.getElementById(decodeURIComponent(link.hash.slice(1))) }));
const sections = entries.filter(({ part }) => part.matches("section"));
let waiting = false;
function mark() {
  waiting = false;
  const tops = new Map(entries.filter(({ part }) => part.checkVisibility()).map((entry) => [entry, topOf(entry)]));
  const above = sections.filter((entry) => tops.get(entry) < innerHeight / 3);
  const section = above.at(-1) ?? sections[0];
  const inside = entries.filter((entry) => entry !== section && section.part.contains(entry.part) && tops.get(entry) >= -innerHeight / 4);
  const figure = inside.find((entry) => tops.get(entry) < innerHeight / 2);
  entries.forEach((entry) => {
    if (entry === section) entry.link.setAttribute("aria-current", "true"); else entry.link.removeAttribute("aria-current");
    entry.link.classList.toggle("near", entry === figure);
  });
  const list = contents.closest("nav");
  const { top, bottom } = (figure ?? section).link.getBoundingClientRect();
  const room = list.getBoundingClientRect();
  if (wide.matches && (top < room.top || bottom > room.bottom)) list.scrollTop += top - room.top - room.height / 3;
}
function topOf({ part }) {
  return part.getBoundingClientRect().top;
}
addEventListener("scroll", () => {
  if (!waiting) requestAnimationFrame(mark);
  waiting = true;
}, { passive: true });
mark();

// A link that is copied is also set as the address; without a clipboard the address alone.
document.addEventListener("click", ({ target }) => {
  const sign = target.closest(".link");
  if (!sign) return;
  navigator.clipboard?.writeText(sign.href).then(() => {
    document.getElementById("said").textContent = "Link copied";
    sign.classList.add("copied");
    setTimeout(() => sign.classList.remove("copied"), 1500);
  }, () => {});
});

setTheme(root.dataset.theme);
drawAll();
