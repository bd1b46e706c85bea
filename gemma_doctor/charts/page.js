"use strict";
// One canvas per head; every pixel shows the largest weight of its keys. Codes: see page.py.
const data = JSON.parse(document.getElementById("data").textContent);
const strips = document.getElementById("strips");
const reading = document.getElementById("reading");
const WRONG = 0x8000, ALLOWED = 0x4000, VALUE = 0x3fff;
const VIRIDIS = [[68, 1, 84], [71, 45, 123], [59, 82, 139], [44, 114, 142], [33, 145, 140], [40, 174, 128], [94, 201, 98],
  [173, 220, 48], [253, 231, 37]];
const drawn = [];

function decoded(text) {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Uint16Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true));
}

function weight(code) {
  const value = code & VALUE;
  if (value === 0) return NaN;
  return value === 1 ? 0 : 10 ** ((value - 2) / (VALUE - 2) * data.decades - data.decades);
}

function color(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
  const long = text.length === 3 ? [...text].map((one) => one + one).join("") : text;
  return [0, 2, 4].map((i) => parseInt(long.slice(i, i + 2), 16));
}

function shade(value) {
  if (data.kind === "mask") return value > 0 ? VIRIDIS[3] : color("--none");
  const level = data.scale === "log" ? 1 - Math.log10(Math.min(1, Math.max(value, data.lowest))) / Math.log10(data.lowest)
    : value / data.largest;
  const place = Math.min(level, 0.9999) * (VIRIDIS.length - 1), i = Math.floor(place);
  return VIRIDIS[i].map((one, c) => Math.round(one + (VIRIDIS[i + 1][c] - one) * (place - i)));
}

function painter() {
  const table = new Uint8ClampedArray(3 * 65536), none = color("--none"), outside = color("--outside"), wrong = color("--wrong");
  for (let code = 0; code < 65536; code++) {
    const value = code & VALUE;
    const one = code & WRONG ? wrong : value === 0 ? none
      : value === 1 && !(code & ALLOWED) && data.kind !== "mask" ? outside : shade(weight(code));
    table.set(one, 3 * code);
  }
  return table;
}

function rank(code) { // what a pixel shows of its keys: a fault, else the largest weight
  return (code & WRONG ? 1 << 16 : 0) + (code & VALUE) * 2 + (code & ALLOWED ? 1 : 0);
}

function paint(strip, table) {
  const { canvas, codes, rows, bins } = strip, width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
  const height = rows === 1 ? 18 : Math.min(10, Math.max(2, Math.floor(240 / rows)));
  canvas.width = width; canvas.height = rows * height; canvas.style.height = `${rows * height}px`;
  const context = canvas.getContext("2d"), image = context.createImageData(width, rows * height);
  for (let row = 0; row < rows; row++) {
    for (let x = 0; x < width; x++) {
      const first = Math.floor(x * bins / width), last = Math.max(first + 1, Math.floor((x + 1) * bins / width));
      let best = codes[row * bins + first];
      for (let i = first + 1; i < last; i++) if (rank(codes[row * bins + i]) > rank(best)) best = codes[row * bins + i];
      for (let y = row * height; y < (row + 1) * height; y++) {
        const at = 4 * (y * width + x);
        image.data.set([table[3 * best], table[3 * best + 1], table[3 * best + 2], 255], at);
      }
    }
  }
  context.putImageData(image, 0, 0);
  marks(strip, context, width, height);
}

function marks(strip, context, width, height) { // where reading should begin, what is wrong, where the cursor stands
  const { codes, rows, bins } = strip;
  context.fillStyle = `rgb(${color("--edge")})`;
  for (let row = 0; row < rows; row++) {
    const edge = codes.subarray(row * bins, (row + 1) * bins).findIndex((code) => code & ALLOWED);
    if (edge > 0) context.fillRect(Math.round(edge * width / bins) - 2, row * height, 2, height);
  }
  context.fillStyle = `rgb(${color("--wrong")})`;
  codes.forEach((code, i) => { // a single wrong key among thousands is still seen
    if (code & WRONG) context.fillRect(i % bins * width / bins, Math.floor(i / bins) * height, Math.max(4, width / bins), height);
  });
  if (strip.at) {
    context.strokeStyle = `rgb(${color("--wrong")})`;
    const cell = Math.max(3, width / bins);
    context.strokeRect(strip.at.bin * width / bins - 1, strip.at.row * height + 0.5, cell + 1, height - 1);
  }
}

function tell(strip, row, bin) {
  const first = strip.start + bin * strip.width, last = Math.min(first + strip.width, strip.stop) - 1;
  const code = strip.codes[row * strip.bins + bin], value = weight(code);
  const keys = Array.from({ length: Math.min(last - first + 1, 6) }, (_, i) =>
    `${(data.first + first + i).toLocaleString("en")} ${data.tokens[first + i]}`.trimEnd()).join(", ");
  const query = strip.height > 1 ? `queries from ${data.queries[row * strip.height]}` : `query ${data.queries[row]}`;
  const shown = Number.isNaN(value) ? "not handed to the kernel" : data.kind === "mask" ? (value > 0 ? "readable" : "not readable")
    : value === 0 ? "0" : value < 0.001 ? value.toExponential(2) : `${(100 * value).toFixed(2)} %`;
  const judged = code & WRONG ? ": WRONG" : code & ALLOWED ? "" : " (out of reach)";
  reading.textContent = `${strip.name}, ${query}; key ${keys}${last - first > 5 ? " ..." : ""}: ${shown}${judged}`;
}

function point(strip, row, bin) {
  strip.at = { row: Math.min(Math.max(row, 0), strip.rows - 1), bin: Math.min(Math.max(bin, 0), strip.bins - 1) };
  tell(strip, strip.at.row, strip.at.bin);
}

function listen(strip) {
  const { canvas } = strip;
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    point(strip, Math.floor((event.clientY - box.top) / box.height * strip.rows),
      Math.floor((event.clientX - box.left) / box.width * strip.bins));
  });
  canvas.addEventListener("keydown", (event) => {
    const { row, bin } = strip.at || { row: 0, bin: strip.bins - 1 };
    const to = { ArrowLeft: [row, bin - 1], ArrowRight: [row, bin + 1], ArrowUp: [row - 1, bin], ArrowDown: [row + 1, bin],
      PageUp: [row, bin - 50], PageDown: [row, bin + 50], Home: [row, 0], End: [row, strip.bins - 1] }[event.key];
    if (!to) return;
    event.preventDefault();
    point(strip, ...to);
    paint(strip, painter());
  });
  canvas.addEventListener("blur", () => { strip.at = null; paint(strip, painter()); });
}

function axis(canvas, start, stop) {
  const width = canvas.clientWidth, ratio = devicePixelRatio;
  canvas.width = width * ratio; canvas.height = 18 * ratio; canvas.style.height = "18px";
  const context = canvas.getContext("2d"), count = stop - start;
  context.scale(ratio, ratio);
  context.fillStyle = `rgb(${color("--faint")})`; context.font = "11px system-ui, sans-serif";
  let step = 1;
  for (let power = 1; count / step > width / 90; power *= 10) {
    for (const factor of [1, 2, 5]) if (count / (step = factor * power) <= width / 90) break;
  }
  for (let index = start; index < stop; index++) {
    if ((data.first + index) % step) continue;
    const x = (index + 0.5 - start) * width / count, text = (data.first + index).toLocaleString("en");
    context.fillRect(x, 0, 1, 4);
    context.fillText(text, Math.max(0, Math.min(x - context.measureText(text).width / 2, width - 40)), 15);
  }
}

function added(parent, tag, text, name) {
  const one = parent.appendChild(document.createElement(tag));
  if (text) one.textContent = text;
  if (name) one.className = name;
  return one;
}

function line(label) {
  const box = added(strips, "div", "", "strip");
  added(box, "label", label);
  return added(box, "canvas");
}

function build() {
  for (const group of data.groups) {
    added(strips, "h2", group.title);
    for (const panel of group.panels) {
      const canvas = line(panel.label);
      canvas.className = "marks"; canvas.tabIndex = 0;
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${panel.label}; arrow keys move over its keys`);
      const codes = decoded(panel.codes), strip = { ...group, ...panel, canvas, codes, rows: codes.length / group.bins };
      drawn.push(strip);
      listen(strip);
    }
    group.axis = line("key position");
  }
}

function legend() {
  const box = document.getElementById("legend");
  const top = data.scale === "log" ? 1 : data.largest, low = data.scale === "log" ? data.lowest : 0;
  if (data.kind !== "mask") {
    const ramp = added(box, "span"), bar = added(ramp, "i");
    bar.style.width = "12em";
    bar.style.background = `linear-gradient(90deg, ${VIRIDIS.map((one) => `rgb(${one})`)})`;
    ramp.append(`${low} to ${top} of the row, ${data.scale}`);
  }
  for (const [name, text] of data.legend) {
    const span = added(box, "span");
    added(span, "i").style.background = name === "readable" ? `rgb(${VIRIDIS[3]})` : `var(--${name})`;
    span.append(text);
  }
}

function redraw() {
  const table = painter();
  for (const strip of drawn) paint(strip, table);
  for (const group of data.groups) axis(group.axis, group.start, group.stop);
}

reading.textContent = "Point at a strip, or reach it with Tab and use the arrow keys.";
build();
legend();
redraw();
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
