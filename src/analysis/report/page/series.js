// Curves over events that answer at once what they are at an event, and what is least and most in a range.

const FAN = 16;

/** A value that changes at some events and stays between them. */
class Steps {
  constructor(event, value, count = event.length) {
    this.event = event;
    this.value = value;
    this.count = count;
    this.levels = [{min: value, max: value, count}];
    for (let below = this.levels[0]; below.count > FAN; below = this.levels[this.levels.length - 1]) {
      const size = Math.ceil(below.count / FAN), min = new Float64Array(size), max = new Float64Array(size);
      for (let i = 0; i < size; ++i) {
        let least = Infinity, most = -Infinity;
        for (let j = i * FAN, end = Math.min(j + FAN, below.count); j < end; ++j) {
          if (below.min[j] < least) least = below.min[j];
          if (below.max[j] > most) most = below.max[j];
        }
        min[i] = least;
        max[i] = most;
      }
      this.levels.push({min, max, count: size});
    }
  }

  at(event) {
    const place = upperBound(this.event, event, this.count);
    return place ? this.value[place - 1] : 0;
  }

  /** Over the events from `from` up to `to`, exclusive: {min, max, event}, the event being the first with the most. */
  over(from, to) {
    let first = upperBound(this.event, from, this.count), last = upperBound(this.event, to - 1, this.count);
    const before = first ? this.value[first - 1] : 0;
    let min = before, max = before, node = null;
    for (let level = 0; first < last; ++level) {
      const {min: mins, max: maxs} = this.levels[level];
      const look = i => {
        if (mins[i] < min) min = mins[i];
        const start = i * FAN ** level;  // of several that have the most, the first counts
        if (maxs[i] > max || (node && maxs[i] === max && start < node[2])) { max = maxs[i]; node = [level, i, start]; }
      };
      if (level + 1 === this.levels.length) {
        for (; first < last; ++first) look(first);
        break;
      }
      for (; first < last && first % FAN; ++first) look(first);
      for (; first < last && last % FAN;) look(--last);
      first /= FAN;
      last /= FAN;
    }
    let event = from;
    if (node) {
      let [level, i] = node;
      while (level > 0) {
        i *= FAN;
        --level;
        while (this.levels[level].max[i] !== max) ++i;
      }
      event = this.event[i];
    }
    return {min, max, event};
  }
}

/** Sums the bytes of the changes of some kinds. */
function stepsOf(events, device, kinds) {
  const {changeEvent, changeKind, changeBy, changeMemory} = events, n = changeEvent.length, counts = Uint8Array.from(CHANGES, kind => kinds.includes(kind) ? 1 : 0);
  const event = new Uint32Array(n), value = new Float64Array(n);
  let count = 0, sum = 0, last = -1;
  for (let i = 0; i < n; ++i) {
    if (counts[changeKind[i]] === 0 || (device !== null && events.deviceOf(changeMemory[i]) !== device)) continue;
    sum += changeBy[i];
    const at = changeEvent[i];
    if (at === last) --count;
    event[count] = last = at;
    value[count++] = sum;
  }
  return new Steps(event.subarray(0, count), value.subarray(0, count));
}

const liveSteps = (events, device) => stepsOf(events, device, [CHANGE.begin, CHANGE.end, CHANGE.asked]);
const reservedSteps = (events, device) => stepsOf(events, device, [CHANGE.held, CHANGE.given]);

/** What a manager reserved: of one device, or of all. */
function managerSteps(byDevice, device) {
  const parts = [...byDevice].filter(([each]) => device === null || each === device).map(([, part]) => part);
  if (parts.length === 1) return new Steps(Uint32Array.from(parts[0].event), Float64Array.from(parts[0].value));
  const all = [];
  for (const part of parts) {
    part.event.forEach((event, i) => all.push([event, part.value[i] - (i ? part.value[i - 1] : 0)]));
  }
  all.sort((a, b) => a[0] - b[0]);
  const event = [], value = [];
  let sum = 0;
  for (const [at, by] of all) {
    sum += by;
    if (event.length && event[event.length - 1] === at) { event.pop(); value.pop(); }
    event.push(at);
    value.push(sum);
  }
  return new Steps(Uint32Array.from(event), Float64Array.from(value));
}

const GROUPS = 8;
const BANDS = [[4096, 'up to 4 KiB'], [65536, 'up to 64 KiB'], [1048576, 'up to 1 MiB'], [16777216, 'up to 16 MiB'],
               [134217728, 'up to 128 MiB'], [1073741824, 'up to 1 GiB'], [Infinity, 'above 1 GiB']];
const LIVES = [[10, 'fewer than 10 events'], [100, '10 to 99 events'], [1000, '100 to 999 events'], [10000, '1,000 to 9,999 events'],
               [100000, '10,000 to 99,999 events'], [NEVER, '100,000 events or more'], [Infinity, 'to the end']];

/** What memory is for, as the recording names it: parameters, gradients, activations. Bytes may go from one category to another while
    their memory lives, so that a category is a curve and no set of memory. */
class Categories {
  constructor(events, live, peakEvent) {
    const curves = events.categories.map(({name, event, value}) => ({name, steps: new Steps(Uint32Array.from(event), Float64Array.from(value))}));
    curves.sort((a, b) => b.steps.at(peakEvent) - a.steps.at(peakEvent));
    this.curves = curves;
    this.live = live;
    this.names = curves.map(({name}) => name);
    this.of = new Uint8Array(events.memories);
    // A writer may leave out the category of some memory.
    const {event, count} = live;
    this.hasOthers = false;
    for (let i = 0, every = Math.max(1, Math.floor(count / 4096)); i < count && !this.hasOthers; i += every) this.hasOthers = this.rest(event[i]) > 0;
    if (this.hasOthers) this.names.push('no category');
  }

  rest(event) { return Math.max(0, this.live.at(event) - this.curves.reduce((sum, {steps}) => sum + steps.at(event), 0)); }
  at(event) {
    const now = this.curves.map(({steps}) => steps.at(event));
    if (this.hasOthers) now.push(this.rest(event));
    return Float64Array.from(now);
  }
  colour(group) { return this.hasOthers && group === this.names.length - 1 ? 'other' : `c${group % GROUPS}`; }

  /** The names, and what each has: at the cursor, at the peak of all, at its own peak, at the end. */
  show(event, peakEvent, events, go) {
    const last = events.count - 1, now = this.at(event), atPeak = this.at(peakEvent), atEnd = this.at(last), total = now.reduce((a, b) => a + b, 0);
    const bytes = value => h('td', {class: 'n', title: exactly(value)}, inUnits(value));
    document.getElementById('category-table').replaceChildren(
        h('thead', {}, h('tr', {}, h('th', {}, 'Category'), h('th', {class: 'n'}, 'Live'), h('th', {class: 'n exact'}, 'Bytes'), h('th', {class: 'n'}, 'Share'), h('th', {class: 'n'}, 'At the peak'),
                         h('th', {class: 'n'}, 'Own peak'), h('th', {class: 'n exact'}, 'After event'), h('th', {class: 'n'}, 'At the end'))),
        h('tbody', {}, this.names.map((name, i) => {
          const own = events.about.inspect.categories.find(each => each.name === name), at = own && own.peak_event;  // of moments between events, too
          return h('tr', {}, h('td', {}, swatch(this.colour(i)), name), bytes(now[i]), h('td', {class: 'n exact'}, grouped(now[i])), h('td', {class: 'n'}, total ? `${(100 * now[i] / total).toFixed(1)} %` : ''), bytes(atPeak[i]),
                   own ? bytes(own.peak_live_bytes) : h('td', {class: 'n'}), h('td', {class: 'n exact'}, own ? h('button', {onclick: () => go(at)}, grouped(at)) : ''), bytes(atEnd[i]));
        })));
  }
}

/** Divides memory into groups, at most GROUPS and all others. Knows what each group holds at any event. */
class Groups {
  constructor(events, by, device, peakEvent) {
    this.events = events;
    const of = this.of = new Uint8Array(events.memories);
    if (by === 'size' || by === 'life') {
      const bands = by === 'size' ? BANDS : LIVES;
      this.names = bands.map(band => band[1]);
      for (let i = 0, count = of.length; i < count; ++i) {
        const measure = by === 'size' ? events.size[i]
            : events.death[i] === NEVER ? Infinity : events.death[i] - events.birth[i];
        let band = 0;
        while (by === 'size' ? measure > bands[band][0] : band + 1 < bands.length && measure >= bands[band][0]) ++band;
        of[i] = band;
      }
      this.keepUsed(device);
    } else {
      const devices = events.about.devices.map(each => each.device), placeOf = new Map(devices.map((each, i) => [each, i]));
      const all = by === 'site' ? events.siteNames : by === 'stream' ? events.about.streams : devices.map(each => `device ${each}`);
      const numberOf = by === 'site' ? i => events.siteOf(i) : by === 'stream' ? i => events.streamOf(i) : i => placeOf.get(events.deviceOf(i));
      const keyOf = i => all[numberOf(i)];
      const bytes = new Map();
      for (let i = 0, end = events.madeBy(peakEvent); i < end; ++i) {
        if (events.kind[i] === KIND.device && events.death[i] > peakEvent && events.isOn(device, i))
          bytes.set(keyOf(i), (bytes.get(keyOf(i)) || 0) + events.size[i]);
      }
      const most = [...bytes].sort((a, b) => b[1] - a[1]).slice(0, GROUPS).map(([name]) => name);
      this.names = by === 'device' ? all.slice(0, GROUPS) : most;  // devices keep their order
      const places = new Map(this.names.map((name, i) => [name, i]));
      const groupOf = all.map(name => places.has(name) ? places.get(name) : this.names.length);
      this.names.push(`all other ${{site: 'call sites', stream: 'streams', device: 'devices'}[by]}`);
      for (let i = 0; i < of.length; ++i) of[i] = groupOf[numberOf(i)];
      if (!groupOf.includes(this.names.length - 1)) this.names.pop();
      if (!this.names.length) this.names = ['nothing'];
    }
    this.hasOthers = by !== 'size' && by !== 'life' && this.names[this.names.length - 1].startsWith('all other');
    this.setCheckpoints(device);
  }

  /** Leaves out the bands that nothing is in. */
  keepUsed(device) {
    const used = this.names.map(() => false), {events, of} = this, {kind} = events;
    for (let i = 0, count = of.length; i < count; ++i) if (kind[i] === KIND.device && (device === null || events.isOn(device, i))) used[of[i]] = true;
    let kept = 0;
    const place = used.map(each => each ? kept++ : 0);
    this.names = this.names.filter((_, band) => used[band]);
    if (!this.names.length) this.names = ['nothing'];
    if (kept < place.length) for (let i = 0, count = of.length; i < count; ++i) of[i] = place[of[i]];
  }

  setCheckpoints(device) {
    const EVERY = this.every = 512, {events, of} = this, {changeKind, changeMemory, changeBy} = events, width = this.names.length, n = changeKind.length;
    this.device = device;
    const sums = this.sums = new Float64Array((Math.floor(n / EVERY) + 1) * width), now = new Float64Array(width);
    for (let i = 0; i < n; ++i) {
      if ((i & EVERY - 1) === 0) for (let group = 0, at = i / EVERY * width; group < width; ++group) sums[at + group] = now[group];
      if (changeKind[i] > CHANGE.asked) continue;
      const memory = changeMemory[i];
      if (device === null || events.isOn(device, memory)) now[of[memory]] += changeBy[i];
    }
    if (n % EVERY === 0) sums.set(now, n / EVERY * width);
  }

  /** The bytes of each group after an event. */
  at(event) {
    const events = this.events, width = this.names.length, end = events.changesTo(event);
    const checkpoint = Math.floor(end / this.every);
    const now = this.sums.slice(checkpoint * width, (checkpoint + 1) * width);
    for (let i = checkpoint * this.every; i < end; ++i) {
      if (events.changeKind[i] > CHANGE.asked) continue;
      const memory = events.changeMemory[i];
      if (this.device === null || events.isOn(this.device, memory)) now[this.of[memory]] += events.changeBy[i];
    }
    return now;
  }

  colour(group) { return this.hasOthers && group === this.names.length - 1 ? 'other' : `c${group % GROUPS}`; }
}
