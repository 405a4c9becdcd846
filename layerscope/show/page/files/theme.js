"use strict";
// Before anything is painted: a reader who likes it dark sees no white first.
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
