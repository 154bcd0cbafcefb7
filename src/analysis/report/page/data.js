// Unpacks a trace's columns. src/analysis/report/columns.hpp and trace_part.cpp write them.

const NEVER = 0xffffffff;
const KIND = {device: 0, backing: 1, refused: 2};
const CHANGE = {begin: 0, end: 1, asked: 2, gone: 3, held: 4, given: 5, refused: 6};  // the first three are of what is live
const CHANGES = Object.values(CHANGE);
const CHECKPOINT_LEAST = 16384;  // memories between two lists of what is held

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);  // Chrome 140, Firefox 133, Safari 18.2
  const values = new Uint8Array(128);
  'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'.split('').forEach((c, i) => values[c.charCodeAt(0)] = i);
  let length = text.length;
  while (length && text.charCodeAt(length - 1) === 61) --length;
  const out = new Uint8Array(Math.floor(length * 3 / 4));
  let at = 0;
  for (let i = 0; i < length; i += 4) {
    const four = values[text.charCodeAt(i)] << 18 | values[text.charCodeAt(i + 1)] << 12 |
        (i + 2 < length ? values[text.charCodeAt(i + 2)] << 6 : 0) | (i + 3 < length ? values[text.charCodeAt(i + 3)] : 0);
    out[at++] = four >> 16;
    if (at < out.length) out[at++] = four >> 8;
    if (at < out.length) out[at++] = four;
  }
  return out;
}

async function unpack(base64) {
  const stream = new Blob([fromBase64(base64)]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads varints one by one. */
class Numbers {
  constructor(bytes) { this.bytes = bytes; this.at = 0; }
  get done() { return this.at >= this.bytes.length; }
  next() {
    let byte = this.bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127, scale = 128;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  }
  nextSigned() {
    const value = this.next();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }
}

/** Reads varints into an array. The loops of Numbers are here once more, because a page waits for these. */
function readNumbers(bytes, into) {
  const count = into.length;
  for (let i = 0, at = 0; i < count; ++i) {
    let byte = bytes[at++];
    if (byte < 128) { into[i] = byte; continue; }
    let value = byte & 127, scale = 128;
    do {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    into[i] = value;
  }
  return into;
}

async function unpackColumns(named, base64) {
  const bytes = await unpack(base64), columns = new Map();
  let at = 0;
  for (const [name, size] of named) {
    columns.set(name, bytes.subarray(at, at + size));
    at += size;
  }
  return columns;
}

/** All events of a trace: what changes when, and the memory that it changes. */
class Events {
  static async read(about, base64) { return new Events(about, await unpackColumns(about.columns, base64)); }

  constructor(about, columns) {
    this.about = about;
    this.count = about.events;
    const n = about.changes, m = about.memories;
    this.changeEvent = new Uint32Array(n);
    this.changeKind = new Uint8Array(n);
    this.changeMemory = new Uint32Array(n);  // which memory it begins or ends
    this.changeBy = new Float64Array(n);  // the bytes that it adds to what is live or reserved, or takes from it
    this.memories = m;
    this.birth = new Uint32Array(m);
    this.death = new Uint32Array(m).fill(NEVER);
    this.gone = new Uint32Array(m).fill(NEVER);
    this.kind = new Uint8Array(m);
    this.size = readNumbers(columns.get('sizes'), new Float64Array(m));
    this.site = this.numbersUnlessZero(columns.get('sites'), Uint32Array);
    this.stream = this.numbersUnlessZero(columns.get('streams'), Uint16Array);
    this.device = this.numbersUnlessZero(columns.get('devices'), Uint32Array);
    this.extra = this.flags = this.address = this.rounding = this.remainder = this.store = null;
    this.placed = [];
    this.walk(columns.get('steps'), columns.get('slots'));
    this.time = null;
    if (columns.has('times')) {
      const numbers = new Numbers(columns.get('times'));
      this.time = new Float64Array(this.count);
      for (let i = 0, now = 0; i < this.count; ++i) this.time[i] = (now += numbers.nextSigned()) * about.time_unit;
    }
    this.managers = about.managers.map((manager, i) => new Map(manager.devices.map(
        device => [device, readSteps(columns.get(`reserved ${i} ${device}`))])));
    this.categories = about.categories.map((name, i) => ({name, ...readSteps(columns.get(`category ${i}`))}));
    this.gap = [];
    const names = JSON.parse(new TextDecoder().decode(columns.get('site names')));
    this.siteNames = names.sites.map(site => site[0]);
    this.siteFrames = names.sites.map(site => site.slice(1));
    this.frames = names.frames;
  }

  /** Where memory lay, which only the map needs. */
  async readPlaces(base64) {
    const {about} = this, columns = await unpackColumns(about.place_columns, base64);
    this.extra = this.numbersUnlessZero(columns.get('extra'), Float64Array);
    this.flags = this.numbersUnlessZero(columns.get('flags'), Uint32Array);
    this.address = about.has_addresses ? this.sums(columns.get('addresses'), v => v ? (v - 1) * about.address_unit : 0) : null;
    this.placed = about.managers.map((_, i) => this.sums(columns.get(`placed ${i}`), v => v));
    this.held = about.managers.map((_, i) => readHeld(columns.get(`held ${i}`)));
    this.rounding = this.numbersUnlessZero(columns.get('rounding'), Float64Array);
    this.remainder = this.numbersUnlessZero(columns.get('remainders'), Float64Array);
    this.store = this.numbersUnlessZero(columns.get('stores'), Uint8Array);
    // What the recorded manager held beyond what was live, by device and cause.
    this.gap = about.place_columns.filter(([name]) => name.startsWith('gap ')).map(([name]) => {
      const [, device, cause] = name.split(' ').map(Number);
      return {device, cause, ...readSteps(columns.get(name))};
    });
  }

  /** Most traces have one stream, one device, one site; then the column is empty, and there is no array. */
  numbersUnlessZero(bytes, Type) { return bytes.length ? readNumbers(bytes, new Type(this.memories)) : null; }
  sums(bytes, to) {
    const out = readNumbers(bytes, new Float64Array(this.memories));
    for (let i = 0, sum = 0; i < out.length; ++i) {
      const value = out[i];
      out[i] = to(sum += value % 2 ? -(value + 1) / 2 : value / 2);
    }
    return out;
  }

  walk(stepBytes, slotBytes) {
    const steps = new Numbers(stepBytes), slots = new Numbers(slotBytes), {changeEvent, changeKind, changeMemory, changeBy, size, birth, death, gone} = this;
    const inSlot = new Uint32Array(this.about.slots), free = new Uint32Array(this.about.slots);
    let freeCount = 0, made = 0, memory = 0, event = 0;
    for (let i = 0, count = changeEvent.length; i < count; ++i) {
      const step = stepBytes[steps.at] < 128 ? stepBytes[steps.at++] : steps.next(), kind = step & 7;
      event += (step - kind) / 8;
      changeEvent[i] = event;
      changeKind[i] = kind;
      let which;
      if (kind === CHANGE.begin || kind === CHANGE.held || kind === CHANGE.refused) {
        which = memory++;
        birth[which] = event;
        changeBy[i] = size[which];
        if (kind === CHANGE.refused) {
          this.kind[which] = KIND.refused;
        } else {
          this.kind[which] = kind === CHANGE.begin ? KIND.device : KIND.backing;
          inSlot[freeCount ? free[--freeCount] : made++] = which;
        }
      } else {
        const slot = slotBytes[slots.at] < 128 ? slotBytes[slots.at++] : slots.next();
        which = inSlot[slot];
        changeBy[i] = -size[which];
        if (kind !== CHANGE.gone) death[which] = event;
        if (kind !== CHANGE.asked) {
          gone[which] = event;
          free[freeCount++] = slot;
        }
      }
      changeMemory[i] = which;
    }
  }

  siteOf(memory) { return this.site ? this.site[memory] : 0; }
  streamOf(memory) { return this.stream ? this.stream[memory] : 0; }
  deviceOf(memory) { return this.device ? this.device[memory] : this.about.devices.length === 1 ? this.about.devices[0].device : 0; }
  poolOf(memory) { return this.flags ? this.flags[memory] >>> 2 : 0; }
  isMapped(memory) { return this.flags ? (this.flags[memory] & 1) !== 0 : false; }
  /** Bytes that a request was rounded up by; that its block has besides; and the cause by which memory is free that lies around it. */
  roundingOf(memory) { return this.rounding ? this.rounding[memory] : 0; }
  remainderOf(memory) { return this.remainder ? this.remainder[memory] : 0; }
  storeOf(memory) { return this.store ? this.store[memory] : 0; }
  grantedOf(memory) { return this.size[memory] + (this.extra ? this.extra[memory] : 0); }
  isOn(device, memory) { return device === null || this.deviceOf(memory) === device; }

  /** What existed before the recording exists at one moment. The events that lay it out, up to the last of them, stand for that. */
  momentOf(event) { return Math.max(event, this.about.first_moment); }
  /** How many changes come at or before an event. */
  changesTo(event) { return upperBound(this.changeEvent, event, this.changeEvent.length); }
  /** How many memories are made at or before an event: the memories are in the order of their births. */
  madeBy(event) { return upperBound(this.birth, event, this.memories); }

  /**
   * Lists of what is held at some events, so that the answer for any event need not begin at the first. The next list comes when as
   * many memories were made as the last one has, and thousands at least: all lists together are no longer than the memories are many.
   */
  makeCheckpoints() {
    const {gone, kind, birth} = this;
    this.checkpoints = [];
    let held = new Uint32Array(0), from = 0;
    for (let to = CHECKPOINT_LEAST; to < this.memories; to += Math.max(CHECKPOINT_LEAST, held.length)) {
      // Memory that one event makes stays together.
      while (to < this.memories && birth[to] === birth[to - 1]) ++to;
      const next = [], event = birth[to - 1];
      for (const i of held) if (gone[i] > event) next.push(i);
      for (let i = from; i < to; ++i) if (gone[i] > event && kind[i] !== KIND.refused) next.push(i);
      held = Uint32Array.from(next);
      from = to;
      this.checkpoints.push({event, from, held});
    }
  }

  /** Calls back with each memory that is held after an event, in the order of births: until its address is free again. */
  eachHeld(event, back) {
    if (!this.checkpoints) this.makeCheckpoints();
    const {gone, kind, checkpoints} = this;
    let low = 0, high = checkpoints.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (checkpoints[middle].event <= event) low = middle + 1; else high = middle;
    }
    let from = 0;
    if (low) {
      const checkpoint = checkpoints[low - 1];
      for (const i of checkpoint.held) if (gone[i] > event) back(i);
      from = checkpoint.from;
    }
    for (let i = from, end = this.madeBy(event); i < end; ++i) if (gone[i] > event && kind[i] !== KIND.refused) back(i);
  }

  /** The device that an event's memory is of; of an event that makes none, nothing. */
  deviceAt(event) {
    const made = this.madeBy(event);
    return made && this.birth[made - 1] === event ? this.deviceOf(made - 1) : null;
  }
}

/** A value that changes at some events: {event, value}, as arrays. */
function readSteps(bytes) {
  const numbers = new Numbers(bytes), event = [], value = [];
  for (let e = 0, v = 0; !numbers.done;) {
    event.push(e += numbers.next());
    value.push(v += numbers.nextSigned());
  }
  return {event, value};
}

/** Segments that a manager held in a replay: [{address, size, birth, death, device, handle}], in the order of their births. What is
    mapped has the number of its physical memory, which may be mapped again elsewhere; what is not has 0. */
function readHeld(bytes) {
  const numbers = new Numbers(bytes), out = [];
  let birth = 0, address = 0;
  while (!numbers.done) {
    birth += numbers.next();
    const lives = numbers.next(), size = numbers.next();
    address += numbers.nextSigned();
    out.push({address, size, birth, death: lives ? birth + lives - 1 : NEVER, device: numbers.next(), handle: numbers.next()});
  }
  return out;
}

/** The first place in a sorted array whose value is above `value`. */
function upperBound(array, value, end) {
  let low = 0, high = end;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (array[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
}
