// The picture of memory over events: dygraphs draws it, from at most two rows a pixel.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const grouped = number => Math.round(number).toLocaleString('en-US');
const MARKS_APART = 28;  // pixels: a mark and the number beside it

function inUnits(bytes) {
  let unit = 0, value = Math.abs(bytes);
  while (value >= 1024 && unit + 1 < UNITS.length) { value /= 1024; ++unit; }
  return (bytes < 0 ? '-' : '') + (unit ? value.toFixed(2) : value) + ' ' + UNITS[unit];
}
const exactly = bytes => `${grouped(bytes)} bytes`;
function duration(ns) {
  for (const [unit, name] of [[3.6e12, 'h'], [6e10, 'min'], [1e9, 's'], [1e6, 'ms'], [1e3, 'us']])
    if (ns >= unit) return `${(ns / unit).toFixed(ns / unit < 10 ? 3 : 2)} ${name}`;
  return `${ns} ns`;
}
const colourOf = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
  return element;
}
const inSvg = (tag, properties) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  return element;
};
const swatch = (name, kind = '') => h('i', {class: `swatch ${kind}`, style: `--colour:var(--${name})`});
/** A piece of a line as the picture has it, dashes and all. */
function lineSwatch({colour, dash, width}) {
  const svg = inSvg('svg', {viewBox: '0 0 26 4', class: 'swatch line', 'aria-hidden': true});
  svg.append(inSvg('path', {d: 'M0 2H26', style: `stroke:var(--${colour});stroke-width:${width || 2};stroke-dasharray:${(dash || []).join(' ')}`}));
  return svg;
}

/** Ticks at 1, 2, 4, 8, ... times a power of two. */
function byteTicks(least, most, pixels) {
  let step = 1;
  while ((most - least) / step > Math.max(2, pixels / 55)) step *= 2;
  const ticks = [];
  for (let value = Math.ceil(least / step) * step; value <= most; value += step)
    ticks.push({v: value, label: inUnits(value).replace('.00 ', ' ').replace(/(\.\d)0 /, '$1 ')});
  return ticks;
}

/** Fills what lies between a curve of steps and the axis. The areas behind were drawn before. */
function areaPlotter(draw) {
  const points = draw.points, context = draw.drawingContext, area = draw.plotArea, bottom = area.y + area.h;
  if (!points.length) return;
  context.beginPath();
  context.moveTo(points[0].canvasx, bottom);
  for (let i = 0; i < points.length; ++i) {
    context.lineTo(points[i].canvasx, points[i].canvasy);
    const next = i + 1 < points.length ? points[i + 1].canvasx : area.x + area.w;
    context.lineTo(next, points[i].canvasy);
  }
  context.lineTo(area.x + area.w, bottom);
  context.closePath();
  context.fillStyle = draw.color;
  context.fill();
}

/** Draws a curve of steps as one path. dygraphs draws each step by itself, so that dashes begin anew at each. */
function stepsPlotter(draw) {
  const {points, drawingContext: context} = draw, end = draw.plotArea.x + draw.plotArea.w;
  const option = name => draw.dygraph.getOption(name, draw.setName);
  context.save();
  context.strokeStyle = draw.color;
  context.lineWidth = option('strokeWidth');
  context.setLineDash(option('strokePattern') || []);
  context.beginPath();
  let y = NaN;
  for (const point of points) {
    const at = point.canvasy;
    if (at === y) continue;
    if (!Number.isNaN(y)) context.lineTo(point.canvasx, y);
    if (Number.isFinite(at)) context[Number.isNaN(y) ? 'moveTo' : 'lineTo'](point.canvasx, at);
    y = Number.isFinite(at) ? at : NaN;
  }
  if (!Number.isNaN(y)) context.lineTo(Math.min(end, points[points.length - 1].canvasx + 2), y);
  context.stroke();
  context.restore();
}

/** One trace's chart. `on` is told of what a person does: {cursor(event), shown()}. */
class Chart {
  constructor(events, on) {
    this.events = events;
    this.on = on;
    this.axis = 'event';
    this.cursor = 0;
    this.hover = null;
    this.plot = document.getElementById('plot');
    this.over = document.getElementById('over');
    this.element = document.getElementById('chart');
    this.strip = document.getElementById('overview');
    this.frameTimes = [];
  }

  /** `lines`: [{name, steps, colour, dash, width}], `marks`: [{event, words}], `levels`: [{name, bytes, colour}]. */
  setCurves({live, groups, lines, levels, marks, iterations}) {
    Object.assign(this, {live, groups, lines, levels, marks, iterations});
    this.most = Math.max(1, live.over(0, this.events.count).max, ...lines.map(line => line.steps.over(0, this.events.count).max));
    // A limit far above everything would press the rest flat.
    this.shownLevels = levels.filter(level => level.bytes <= this.most * 1.7);
    if (this.window === undefined) this.window = [0, this.end()];
    if (this.graph) this.graph.destroy();
    this.graph = null;
    this.draw();
  }

  setAxis(axis) {
    const [from, to] = this.window.map(x => this.eventAt(x));
    this.axis = axis;
    this.window = this.window[0] <= 0 && to >= this.events.count - 1 ? [0, this.end()] : [this.x(from), Math.max(this.x(to), this.x(from) + this.least())];
    this.draw();
  }

  end() { return this.axis === 'event' ? this.events.count : Math.max(1e-9, this.events.time[this.events.count - 1] / 1e9 * 1.0005); }
  least() { return this.axis === 'event' ? Math.min(8, this.events.count) : this.end() / Math.max(1, this.events.count) * 2; }
  x(event) { return this.axis === 'event' ? event : this.events.time[Math.min(event, this.events.count - 1)] / 1e9; }
  /** The last event at or before a place on the axis. */
  eventAt(x) {
    const last = this.events.count - 1;
    if (this.axis === 'event') return Math.max(0, Math.min(last, Math.floor(x)));
    return Math.max(0, Math.min(last, upperBound(this.events.time, x * 1e9, last + 1) - 1));
  }

  /** The events that a pixel column stands for: [from, to). */
  column(x, width) {
    if (this.axis === 'event') {
      const from = Math.max(0, Math.floor(x));
      return [Math.min(from, this.events.count - 1), Math.max(from + 1, Math.min(this.events.count, Math.floor(x + width)))];
    }
    const from = this.eventAt(x), to = upperBound(this.events.time, (x + width) * 1e9, this.events.count);
    return [from, Math.max(from + 1, to)];
  }

  rows() {
    const [x0, x1] = this.window, width = Math.max(50, this.plot.clientWidth - 80);
    const [from] = this.column(x0, 0), to = Math.min(this.events.count, this.eventAt(x1) + 2);
    const rows = [], areas = this.groups.names.length;
    const row = (x, sums, live, least, values) => {
      const out = [x];
      for (let group = 0, sum = sums.reduce((a, b) => a + b, 0); group < areas; ++group) {  // the highest first
        out.push(sum);
        sum -= sums[areas - 1 - group];
      }
      out.push(live, least, ...values);
      for (const level of this.shownLevels) out.push(level.bytes);
      rows.push(out);
    };
    if (to - from <= 2 * width) {
      for (let event = from; event < to; ++event)
        row(this.x(event), this.groups.at(event), this.live.at(event), null, this.lines.map(line => line.steps.at(event)));
      if (this.axis === 'event' && to === this.events.count) rows.push([to, ...rows[rows.length - 1].slice(1)]);
    } else {
      const step = (x1 - x0) / width;
      for (let i = 0; i < width; ++i) {
        const x = x0 + i * step, [a, b] = this.column(x, step);
        if (a >= this.events.count) break;
        const live = this.live.over(a, Math.min(b, this.events.count));
        row(x, this.groups.at(live.event), live.max, live.min, this.lines.map(line => line.steps.over(a, b).max));
      }
    }
    return rows;
  }

  draw() {
    if (!this.plot.clientWidth) return;
    const began = performance.now(), areas = this.groups.names.length, rows = this.rows();
    let most = 1;
    for (const row of rows) for (let i = 1; i < row.length; ++i) if (row[i] > most) most = row[i];
    const labels = ['x'], series = {}, colours = [];
    for (let group = areas - 1; group >= 0; --group) {
      labels.push(`area ${group}`);
      colours.push(colourOf(this.groups.colour(group)));
      series[`area ${group}`] = {plotter: areaPlotter};
    }
    labels.push('live');
    colours.push(colourOf('live'));
    series.live = {strokeWidth: 1, plotter: stepsPlotter};
    labels.push('least live');  // where a pixel is many events: the areas and all other lines show the most
    colours.push(colourOf('live'));
    series['least live'] = {strokeWidth: .6, plotter: stepsPlotter};
    for (const line of [...this.lines, ...this.shownLevels]) {
      labels.push(line.name);
      colours.push(colourOf(line.colour));
      series[line.name] = {strokeWidth: line.width || 1.5, strokePattern: line.dash || null, plotter: stepsPlotter};
    }
    const options = {
      file: rows, labels, series, colors: colours, dateWindow: this.window, valueRange: [0, most * 1.04], stepPlot: true,
      axes: {
        x: {axisLabelFormatter: x => this.axis === 'event' ? grouped(x) : duration(Math.round(x * 1e9)), pixelsPerLabel: 90, drawGrid: false,
            ticker: (a, b, pixels) => this.ticks(a, b, pixels)},
        y: {ticker: (a, b, pixels) => byteTicks(a, b, pixels), axisLabelWidth: 66, gridLineColor: colourOf('grid'), independentTicks: true},
      },
      axisLineColor: colourOf('line'),
      drawPoints: false, highlightCircleSize: 0, legend: 'never', showLabelsOnHighlight: false, interactionModel: {}, animatedZooms: false,
    };
    if (this.graph) {
      this.graph.updateOptions(options);
    } else {
      const {file, ...rest} = options;
      this.graph = new Dygraph(this.plot, file, rest);
    }
    this.drawOver();
    this.drawStrip();
    this.frameTimes.push(performance.now() - began);
    this.on.shown();
  }

  ticks(a, b, pixels) {
    const unit = this.axis === 'event' ? 1 : 1e-9;
    let step = unit;
    for (let i = 0; (b - a) / step > Math.max(2, pixels / 95); ++i) step *= [2, 2.5, 2][i % 3];
    const out = [];
    for (let i = Math.ceil(a / step); i * step <= b; ++i)
      out.push({v: i * step, label: this.axis === 'event' ? grouped(i * step) : this.timeLabel(i * step, step)});
    return out;
  }
  timeLabel(x, step) {
    const [scale, unit] = this.end() >= 1 ? [1, 's'] : this.end() >= 1e-3 ? [1e-3, 'ms'] : [1e-6, 'us'];
    const digits = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
    return `${(x / scale).toFixed(Math.min(9, digits))} ${unit}`;
  }

  /** Cursor, hover and failures, over the picture. */
  drawOver() {
    const scale = devicePixelRatio || 1, width = this.over.clientWidth, height = this.over.clientHeight;
    if (this.over.width !== Math.round(width * scale) || this.over.height !== Math.round(height * scale)) {
      this.over.width = Math.round(width * scale);
      this.over.height = Math.round(height * scale);
    }
    const context = this.over.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    if (!this.graph) return;
    const area = this.graph.getArea(), place = x => area.x + (x - this.window[0]) / (this.window[1] - this.window[0]) * area.w;
    const inside = x => x >= this.window[0] && x <= this.window[1];
    context.fillStyle = colourOf('quiet');
    for (const event of this.iterations) {
      if (inside(this.x(event))) context.fillRect(place(this.x(event)), area.y + area.h - 6, 1, 6);
    }
    // Marks that would bury the curve become one, with their number.
    const clusters = this.clusters = [];
    for (const mark of this.marks) {
      const x = this.x(mark.event);
      if (!inside(x)) continue;
      const before = clusters[clusters.length - 1];
      if (before && place(x) - before.at < MARKS_APART) ++before.count; else clusters.push({at: place(x), count: 1, mark});
    }
    for (const {at: last, count, mark} of clusters) {
      if (count > 1) {
        context.font = '10px system-ui, sans-serif';
        context.fillStyle = colourOf(mark.colour);
        context.fillText(String(count), Math.min(last + 7, area.x + area.w - 16), area.y + 9);
      }
      context.strokeStyle = context.fillStyle = colourOf(mark.colour);
      context.globalAlpha = .55;
      context.beginPath();
      context.moveTo(last, area.y + 9);
      context.lineTo(last, area.y + area.h);
      context.stroke();
      context.globalAlpha = 1;
      context.beginPath();
      context.moveTo(last - 6, area.y);
      context.lineTo(last + 6, area.y);
      context.lineTo(last, area.y + 10);
      context.fill();
    }
    const line = (event, colour, dash) => {
      if (event === null || !inside(this.x(event))) return;
      context.strokeStyle = colour;
      context.setLineDash(dash);
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(place(this.x(event)), area.y);
      context.lineTo(place(this.x(event)), area.y + area.h);
      context.stroke();
      context.setLineDash([]);
    };
    line(this.hover, colourOf('quiet'), [3, 3]);
    line(this.cursor, colourOf('accent'), []);
  }

  /** The whole trace in a strip, and the part of it that is shown. */
  drawStrip() {
    const canvas = this.strip, scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const end = this.end(), key = `${this.axis} ${width}`;
    if (this.stripKey !== key || this.stripLive !== this.live) {
      this.stripKey = key;
      this.stripLive = this.live;
      this.stripMost = Array.from({length: Math.ceil(width)}, (_, i) => {
        const [a, b] = this.column(end * i / width, end / width);
        return a < this.events.count ? this.live.over(a, Math.min(b, this.events.count)).max : 0;
      });
    }
    const most = Math.max(1, ...this.stripMost);
    context.fillStyle = colourOf('free');
    context.fillRect(0, 0, width, height);
    context.fillStyle = colourOf('other');
    this.stripMost.forEach((value, i) => context.fillRect(i, height - value / most * (height - 3), 1, height));
    const from = this.window[0] / end * width, to = this.window[1] / end * width;
    context.fillStyle = colourOf('card');
    context.globalAlpha = .65;
    context.fillRect(0, 0, from, height);
    context.fillRect(to, 0, width - to, height);
    context.globalAlpha = 1;
    context.strokeStyle = colourOf('accent');
    context.lineWidth = 2;
    context.strokeRect(from + 1, 1, Math.max(2, to - from - 2), height - 2);
  }

  setWindow(from, to) {
    const end = this.end(), width = Math.min(end, Math.max(this.least(), to - from));
    from = Math.max(0, Math.min(end - width, from + (to - from - width) / 2));
    this.window = [from, from + width];
    this.later(true);
  }
  zoom(factor, x = (this.window[0] + this.window[1]) / 2) {
    const [from, to] = this.window;
    this.setWindow(x - (x - from) * factor, x + (to - x) * factor);
  }
  pan(by) {
    const width = this.window[1] - this.window[0], from = Math.max(0, Math.min(this.end() - width, this.window[0] + by));
    this.setWindow(from, from + width);
  }
  /** Moves what is shown so that an event is in it. */
  reveal(event) {
    const x = this.x(event), [from, to] = this.window;
    if (x < from || x > to) this.pan(x - (from + to) / 2);
  }
  setCursor(event) {
    this.cursor = Math.max(0, Math.min(this.events.count - 1, event));
    this.later(false);
  }
  /** At most one drawing a frame: of all, or of what lies over the picture. */
  later(all) {
    this.all = this.all || all;
    if (this.requested) return;
    this.requested = requestAnimationFrame(() => {
      const {all} = this;
      this.requested = this.all = false;
      if (all) this.draw(); else this.drawOver();
    });
  }

  /** The place on the axis of a pixel, and the event there: that with most live of those that share the pixel. */
  placeOf(clientX) {
    const area = this.graph.getArea(), box = this.element.getBoundingClientRect();
    const share = (clientX - box.left - area.x) / area.w;
    return this.window[0] + Math.max(0, Math.min(1, share)) * (this.window[1] - this.window[0]);
  }
  eventOf(clientX) {
    const x = this.placeOf(clientX), pixel = (this.window[1] - this.window[0]) / this.graph.getArea().w;
    const [from, to] = this.column(x, pixel);
    if (to - from <= 1) return Math.min(from, this.events.count - 1);
    return this.events.momentOf(this.live.over(from, Math.min(to, this.events.count)).event);
  }

  listen() {
    const element = this.element, pointers = new Map();
    let moved = 0, spread = 0;
    element.addEventListener('pointerdown', event => {
      if (event.button > 0) return;
      pointers.set(event.pointerId, event);
      element.setPointerCapture(event.pointerId);
      moved = 0;
    });
    element.addEventListener('pointermove', event => {
      if (!this.graph) return;
      const before = pointers.get(event.pointerId);
      if (!before) {
        this.hover = this.eventOf(event.clientX);
        this.on.hover(this.hover, event);
        this.later(false);
        return;
      }
      pointers.set(event.pointerId, event);
      const scale = (this.window[1] - this.window[0]) / this.graph.getArea().w;
      if (pointers.size === 2) {
        const [a, b] = [...pointers.values()], now = Math.max(20, Math.abs(a.clientX - b.clientX));
        if (spread) this.zoom(spread / now, this.placeOf((a.clientX + b.clientX) / 2));
        spread = now;
      } else {
        moved += Math.abs(event.clientX - before.clientX);
        this.pan((before.clientX - event.clientX) * scale);
      }
    });
    const up = event => {
      if (pointers.delete(event.pointerId) && event.type === 'pointerup' && moved < 4 && !pointers.size && !spread)
        this.on.cursor(this.eventOf(event.clientX));
      if (!pointers.size) spread = 0;
    };
    element.addEventListener('pointerup', up);
    element.addEventListener('pointercancel', up);
    element.addEventListener('pointerleave', () => {
      this.hover = null;
      this.on.hover(null);
      this.later(false);
    });
    element.addEventListener('wheel', event => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        this.pan(event.deltaX * (this.window[1] - this.window[0]) / this.graph.getArea().w);
      } else {
        this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 180), this.placeOf(event.clientX));
      }
    }, {passive: false});
    element.addEventListener('dblclick', () => this.setWindow(0, this.end()));
    const to = event => {
      const box = this.strip.getBoundingClientRect(), width = this.window[1] - this.window[0];
      const x = (event.clientX - box.left) / box.width * this.end();
      this.setWindow(Math.max(0, Math.min(this.end() - width, x - width / 2)), Math.max(0, Math.min(this.end() - width, x - width / 2)) + width);
    };
    this.strip.addEventListener('pointerdown', event => { this.strip.setPointerCapture(event.pointerId); to(event); });
    this.strip.addEventListener('pointermove', event => { if (event.buttons) to(event); });
  }
}
