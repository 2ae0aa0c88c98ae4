// Draws what LiveChart sends: one or more small uPlot charts side by side. The bundle puts uPlot before this text.
//
// `frame` names what `data` holds: for each chart its series with their lengths, then all numbers as float64, each
// series as its x values followed by its y values. Frames may arrive far faster than a screen can show: only the
// newest one is drawn, at the browser's next animation frame.

const HEIGHT = 220;
const TABLE_ROWS = 50;
const ROWS = { incrs: [1], space: 20, grid: { show: false } };
const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e4, 1e5, 1e6];
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', sans-serif";
const TEXT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

const format = (value) => (Number.isFinite(value) ? (Math.abs(value) < 100 ? TEXT : WHOLE).format(value) : "–");

function make(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

/** The line of a legend entry, in the pen's own colour and dashes. */
function sample(pen) {
  const line = `<line x1="1" y1="5" x2="31" y2="5" stroke="${pen.colour}" stroke-width="2.5"`;
  const holder = make("span", "labkit-sample");
  holder.innerHTML = `<svg width="32" height="10" aria-hidden="true">${line} stroke-dasharray="${pen.dash}"/></svg>`;
  return holder;
}

/** The bar of a legend entry. */
function bar({ colour }) {
  const holder = make("span", "labkit-sample");
  holder.innerHTML = `<svg width="20" height="10" aria-hidden="true"><rect width="20" height="10" fill="${colour}"/></svg>`;
  return holder;
}

class Plot {
  constructor(spec, pens, parent) {
    Object.assign(this, { spec, pens, names: null, levels: [], data: [[]], uplot: null });
    this.root = parent.appendChild(make("figure", spec.bars ? "labkit-plot labkit-wide" : "labkit-plot"));
    const heading = this.root.appendChild(make("figcaption", "labkit-title", spec.title));
    heading.append(make("span", "labkit-axis", spec.y));
    this.picture = this.root.appendChild(make("div", "labkit-picture"));
    this.picture.setAttribute("role", "img");
    this.legend = this.root.appendChild(make("ul", "labkit-legend"));
    if (spec.caption) this.root.append(make("p", "labkit-caption", spec.caption));
    this.details = this.root.appendChild(make("details", "labkit-data"));
    this.details.append(make("summary", "", "Data as a table"));
    this.table = this.details.appendChild(make("div", "labkit-table"));
    this.details.addEventListener("toggle", () => this.tabulate());
  }

  /** Take a part of a frame: names and levels, and one [x, y] pair of arrays per series. */
  show(part, curves) {
    const renamed = JSON.stringify(part.names) !== JSON.stringify(this.names);
    this.names = part.names;
    this.levels = part.levels;
    this.now = part.now;
    this.curves = curves;
    this.data = curves.length ? uPlot.join(curves.map((curve) => this.positive(curve))) : [[]];
    this.picture.setAttribute("aria-label", part.alt);
    this.root.classList.toggle("labkit-empty", !curves.some(([x]) => x.length));
    if (renamed || !this.uplot) this.build();
    else this.uplot.setData(this.data);
    this.label();
    this.tabulate();
  }

  /** A logarithmic axis has no place for what is not above zero. */
  positive([x, y]) {
    const { log_x, log_y } = this.spec;
    if (!log_x && !log_y) return [x, y];
    const kept = [...x.keys()].filter((i) => !(log_x && x[i] <= 0) && !(log_y && y[i] <= 0));
    return [kept.map((i) => x[i]), kept.map((i) => y[i])];
  }

  get width() {
    return this.picture.clientWidth;
  }

  resize() {
    if (this.uplot && this.width > 0) this.uplot.setSize({ width: this.width, height: HEIGHT });
  }

  build() {
    this.uplot?.destroy();
    const style = getComputedStyle(this.root);
    const ink = () => style.color;
    const faint = () => style.getPropertyValue("--labkit-faint").trim() || "#8884";
    const axis = { stroke: ink, font: FONT, labelFont: FONT, grid: { stroke: faint, width: 1 }, ticks: { stroke: faint } };
    const values = (_, splits) => splits.map((value) => (value == null ? "" : format(value)));
    const widest = (_, texts) => 16 + 7 * Math.max(2, ...(texts ?? []).map((text) => text?.length ?? 0));
    const options = {
      width: this.width || 320,
      height: HEIGHT,
      legend: { show: false },
      padding: [10, 12, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { time: false, distr: this.spec.log_x ? 3 : 1 },
        y: {
          distr: this.spec.log_y ? 3 : 1,
          dir: this.spec.bars ? -1 : 1,
          range: this.spec.log_y ? undefined : (_, low, high) => this.range(low, high),
        },
      },
      axes: [
        { ...axis, label: this.spec.x, labelSize: 18, size: 30, values, space: 60, ...this.counts() },
        { ...axis, size: widest, values, space: 36, ...(this.spec.bars ? ROWS : {}) },
      ],
      series: [{}, ...this.names.map((name, index) => this.line(name, index, ink))],
      hooks: {
        draw: [this.drawBars, this.drawMarks, this.drawLevels].map((each) => (plot) => each.call(this, plot, ink())),
        setCursor: [() => this.label()],
      },
    };
    this.uplot = new uPlot(options, this.data, this.picture);
  }

  /** What has no unit is counted: stages, rows. There is nothing between 1 and 2. */
  counts() {
    return this.spec.log_x || this.spec.x.endsWith(")") ? {} : { incrs: WHOLE_STEPS };
  }

  line(label, index, ink) {
    const pen = this.pens[index % this.pens.length];
    const stroke = pen.colour === "currentColor" ? ink : pen.colour;
    const style = { label, stroke, width: 2, dash: pen.dash, points: { size: this.spec.dots ? 7 : 4, fill: stroke, stroke } };
    if (this.spec.bars) return { ...style, paths: () => null, points: { show: false } };
    return this.spec.dots ? { ...style, paths: () => null, points: { ...style.points, show: true } } : style;
  }

  /** Zero is always in sight; a level is, unless it would flatten the curves (the legend then says where it is). */
  range(low, high) {
    if (this.spec.bars) return [(low ?? 0) - 0.6, (high ?? 0) + 0.6];
    const top = high ?? 0;
    const near = this.levels.map(([, value]) => value).filter((value) => high == null || value <= 3 * top);
    return [Math.min(0, low ?? 0), Math.max(...near, top, Number.MIN_VALUE) * 1.08 || 1];
  }

  /** A bar for each pair of points, a little short, so that neighbours can be told apart. */
  drawBars(plot, ink) {
    if (!this.spec.bars) return;
    const { ctx } = plot;
    const height = Math.abs(plot.valToPos(0.32, "y", true) - plot.valToPos(-0.32, "y", true));
    this.curves.forEach(([x, y], series) => {
      const { colour } = this.pens[series % this.pens.length];
      ctx.fillStyle = colour === "currentColor" ? ink : colour;
      for (let i = 0; i + 1 < x.length; i += 2) {
        const left = plot.valToPos(x[i], "x", true);
        const width = plot.valToPos(x[i + 1], "x", true) - left - 1.5 * devicePixelRatio;
        ctx.fillRect(left, plot.valToPos(y[i], "y", true) - height / 2, Math.max(width, devicePixelRatio), height);
      }
    });
  }

  /** A curve of one point is a mark, and must not be overlooked. */
  drawMarks(plot, ink) {
    const { ctx } = plot;
    this.curves.forEach(([x, y], series) => {
      if (this.spec.bars || x.length !== 1) return;
      const { colour } = this.pens[series % this.pens.length];
      ctx.fillStyle = colour === "currentColor" ? ink : colour;
      ctx.beginPath();
      ctx.arc(plot.valToPos(x[0], "x", true), plot.valToPos(y[0], "y", true), 6 * devicePixelRatio, 0, 2 * Math.PI);
      ctx.fill();
    });
  }

  drawLevels(plot, ink) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    Object.assign(ctx, { strokeStyle: ink, fillStyle: ink, lineWidth: devicePixelRatio, textAlign: "right" });
    ctx.font = FONT.replace("12px", `${12 * devicePixelRatio}px`);
    for (const [label, value] of this.levels) {
      const y = Math.round(plot.valToPos(value, "y", true));
      ctx.setLineDash([10, 6].map((length) => length * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.fillText(label, bbox.left + bbox.width - 6 * devicePixelRatio, y - 5 * devicePixelRatio);
    }
    ctx.restore();
  }

  /** The legend says each series' value under the pointer, else the one it stands at. */
  label() {
    if (!this.names) return;
    const index = this.uplot?.cursor.idx;
    const entries = this.names.map((name, series) => {
      const value = index == null ? this.now[series] : this.data[series + 1]?.[index];
      const pen = this.pens[series % this.pens.length];
      return this.spec.bars ? this.entry(bar(pen), name, "") : this.entry(sample(pen), name, format(value ?? NaN));
    });
    const top = this.uplot?.scales.y.max ?? Infinity;
    const levels = this.levels.map(([label, value]) =>
      this.entry(sample({ colour: "currentColor", dash: "5 3" }), label, format(value) + (value > top ? " ↑" : "")),
    );
    this.legend.replaceChildren(...entries, ...levels);
  }

  entry(line, name, value) {
    const item = make("li", "");
    item.append(line, make("span", "labkit-name", name), make("b", "", value));
    return item;
  }

  tabulate() {
    if (!this.details.open || !this.names) return;
    const [x, ...ys] = this.data;
    const first = Math.max(0, x.length - TABLE_ROWS);
    const table = make("table", "");
    const head = table.createTHead().insertRow();
    for (const name of [this.spec.x, ...this.names]) head.append(make("th", "", name));
    const body = table.createTBody();
    for (let row = x.length - 1; row >= first; row--) {
      const cells = body.insertRow();
      for (const column of [x, ...ys]) cells.append(make("td", "", format(column[row] ?? NaN)));
    }
    const note = first ? `The newest ${TABLE_ROWS} of ${x.length} rows, newest first.` : `${x.length} rows, newest first.`;
    this.table.replaceChildren(make("p", "", note), table);
  }
}

export function render({ model, el }) {
  const root = el.appendChild(make("div", "labkit-charts"));
  const plots = model.get("charts").map((spec) => new Plot(spec, model.get("pens"), root));
  root.append(make("p", "labkit-lost", "The kernel behind these charts is gone. Run the cell again."));
  let queued = false;

  function draw() {
    queued = false;
    const frame = model.get("frame");
    const view = model.get("data");
    const numbers = new Float64Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
    const counts = frame.parts.flatMap((part) => part.counts);
    const points = counts.reduce((sum, count) => sum + count, 0);
    // While a page is being restored a frame may meet the data of another one; the right pair follows at once.
    if (2 * points !== numbers.length || !root.clientWidth) return;
    let start = 0;
    const take = (count) => numbers.subarray(start, (start += count));
    frame.parts.forEach((part, index) => plots[index].show(part, part.counts.map((count) => [take(count), take(count)])));
    Object.assign(root.dataset, { points, revision: frame.revision, drawnMs: Date.now() });
  }

  function schedule() {
    if (!queued) requestAnimationFrame(draw);
    queued = true;
  }

  const sizes = new ResizeObserver(() => {
    for (const plot of plots) plot.resize();
    schedule();
  });
  // A theme's colours may arrive a little later than its name.
  const themes = new MutationObserver(() => [0, 300, 1000].forEach((wait) => setTimeout(repaint, wait)));
  const repaint = () => plots.forEach((plot) => plot.uplot?.redraw(false, true));
  sizes.observe(root);
  themes.observe(document.body, { attributes: true });
  model.on("change:frame", schedule);
  model.on("change:data", schedule);
  schedule();
  return () => {
    sizes.disconnect();
    themes.disconnect();
    for (const plot of plots) plot.uplot?.destroy();
  };
}
