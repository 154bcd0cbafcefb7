// The address space after an event. Regions follow one another in rows, as lines of text do.

const GAP_MOST = 2 << 20;  // between blocks of one run, where there are no segments
const ROW = 15, ROW_GAP = 4;

/** Stripes: what is not of a group is told apart by more than a colour. The stylesheet has the same for the legend. */
function hatched(context, scale, colour, thick, falling) {
  const size = Math.round(6 * scale), tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const on = tile.getContext('2d');
  on.fillStyle = colourOf('card');
  on.fillRect(0, 0, size, size);
  on.strokeStyle = colourOf(colour);
  on.lineWidth = thick * scale;
  on.beginPath();
  for (const at of [-size, 0, size]) {
    on.moveTo(at - size, falling ? -size : 2 * size);
    on.lineTo(at + 2 * size, falling ? 2 * size : -size);
  }
  on.stroke();
  const pattern = context.createPattern(tile, 'repeat');
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  return pattern;
}

class AddressMap {
  constructor(events) {
    this.events = events;
    this.canvas = document.getElementById('map-canvas');
    this.tip = document.getElementById('map-tip');
  }

  /** Which memories of this trace have addresses: the recorded manager's, and those of each replay. */
  choices() {
    const out = [];
    if (this.events.about.has_addresses) out.push(['recorded', 'the recorded manager']);
    this.events.about.managers.forEach((manager, i) => out.push([String(i), manager.name]));
    return out;
  }

  /** The regions after an event: [{address, size, blocks: [{address, size, memory, pending}], mapped, pool, stream}]. */
  regions(event, device, of) {
    const events = this.events, address = of === 'recorded' ? events.address : events.placed[of];
    const blocks = [], segments = [];
    let elsewhere = 0;
    events.eachHeld(event, i => {
      const pending = of === 'recorded' && events.death[i] <= event;
      if ((of !== 'recorded' && events.death[i] <= event) || !events.isOn(device, i)) return;
      if (events.kind[i] === KIND.backing && of !== 'recorded') return;
      const size = of === 'recorded' ? events.grantedOf(i) : events.size[i];
      if (!address[i] || !size) { elsewhere += pending || events.kind[i] === KIND.backing ? 0 : events.size[i]; return; }
      (events.kind[i] === KIND.device ? blocks : segments).push({address: address[i], size, memory: i, pending});
    });
    if (of === 'recorded') {
      for (const segment of segments) Object.assign(segment, {mapped: events.isMapped(segment.memory), stream: events.streamOf(segment.memory), pool: events.poolOf(segment.memory)});
    }
    const byAddress = (a, b) => a.address - b.address || a.memory - b.memory;
    blocks.sort(byAddress);
    const again = of === 'recorded' ? [] : this.held(segments, events.held[of], event, device);
    if (again.length) this.moveToFirst(blocks, again);
    blocks.sort(byAddress);
    segments.sort(byAddress);
    const regions = [];
    if (segments.length) {
      for (const segment of segments) {
        const before = regions[regions.length - 1], {mapped, stream, pool} = segment;
        if (before && segment.address < before.address + before.size) continue;  // said twice
        // Pieces of an expandable segment are one region, with what is not mapped between them.
        const same = before && mapped && before.mapped && before.stream === stream && before.pool === pool;
        const gap = same ? segment.address - before.address - before.size : 0;
        if (same && gap <= 2 ** 36) {
          if (gap) before.unmapped.push({address: before.address + before.size, size: gap});
          before.size += gap + segment.size;
        } else {
          regions.push({address: segment.address, size: segment.size, blocks: [], unmapped: [], mapped, stream, pool});
        }
      }
    } else {
      for (const block of blocks) {
        const before = regions[regions.length - 1], end = before ? before.address + before.size : 0;
        if (!before || block.address >= end + GAP_MOST) {
          regions.push({address: block.address, size: block.size, blocks: [], unmapped: [], mapped: false, stream: 0, pool: 0});
        } else {
          before.size = Math.max(end, block.address + block.size) - before.address;
        }
      }
    }
    let at = 0;
    for (const block of blocks) {
      while (at < regions.length && regions[at].address + regions[at].size <= block.address) ++at;
      const region = regions[at];
      if (!region || block.address < region.address) { elsewhere += block.size; continue; }
      const before = region.blocks[region.blocks.length - 1];
      if (before && before.address + before.size > block.address) {
        before.size = block.address - before.address;
        if (!before.size) region.blocks.pop();
      }
      block.size = Math.min(block.size, region.address + region.size - block.address);
      region.blocks.push(block);
    }
    for (const region of regions) this.sum(region);
    return {regions, elsewhere, segments: segments.length > 0};
  }

  /** Adds the segments that a manager held then. Returns those that map physical memory which one of them has already. */
  held(segments, all, event, device) {
    const first = new Map(), again = [];
    for (const held of all) {
      if (held.birth > event || event >= held.death || (device !== null && held.device !== device)) continue;
      const key = held.handle && `${held.device} ${held.handle}`, there = key && first.get(key);
      if (there) { again.push({address: held.address, size: held.size, first: there}); continue; }
      if (key) first.set(key, held);
      segments.push({address: held.address, size: held.size, memory: segments.length, mapped: held.handle !== 0, stream: null, pool: 0});
    }
    return again.sort((a, b) => a.address - b.address);
  }

  /** Blocks that lie in second mappings are where the memory was mapped first, in as many parts as there are. */
  moveToFirst(blocks, again) {
    const moved = [];
    let at = 0, kept = 0;
    for (const block of blocks) {
      while (at < again.length && again[at].address + again[at].size <= block.address) ++at;
      const before = moved.length, end = block.address + block.size;
      for (let i = at; i < again.length && again[i].address < end; ++i) {
        const from = Math.max(block.address, again[i].address), to = Math.min(end, again[i].address + again[i].size);
        moved.push({...block, address: again[i].first.address + from - again[i].address, size: to - from});
      }
      if (moved.length === before) blocks[kept++] = block;
    }
    blocks.length = kept;
    blocks.push(...moved);
  }

  sum(region) {
    Object.assign(region, {used: 0, pending: 0, free: 0, largest: 0, gone: region.unmapped.reduce((sum, gap) => sum + gap.size, 0), holes: []});
    const taken = [...region.blocks, ...region.unmapped].sort((a, b) => a.address - b.address);
    let at = region.address;
    const hole = to => {
      if (to <= at) return;
      region.free += to - at;
      region.largest = Math.max(region.largest, to - at);
      region.holes.push({address: at, size: to - at});
    };
    for (const each of taken) {
      hole(each.address);
      if (each.memory !== undefined) region[each.pending ? 'pending' : 'used'] += each.size;
      at = Math.max(at, each.address + each.size);
    }
    hole(region.address + region.size);
  }

  show(event, device, of, groups) {
    const {regions, elsewhere, segments} = this.regions(event, device, of);
    this.shown = regions;
    const total = key => regions.reduce((sum, region) => sum + region[key], 0);
    const size = total('size') - total('gone');
    const largest = regions.reduce((most, region) => Math.max(most, region.largest), 0);
    this.totals = {size, used: total('used'), pending: total('pending'), free: total('free'), largest, regions: regions.length};
    document.getElementById('map-words').textContent = regions.length
      ? `${device !== null && this.events.about.devices.length > 1 ? `Device ${device}: ` : ''}${inUnits(size)} in ${grouped(regions.length)} ${segments ? 'segment' : 'run'}${regions.length === 1 ? '' : 's'}${segments ? '' : ' of addresses'}: ${inUnits(total('used'))} used, ` +
        (total('pending') ? `${inUnits(total('pending'))} freed and waiting, ` : '') + `${inUnits(total('free'))} free, the largest free piece ${inUnits(largest)}` +
        (total('gone') ? `; ${inUnits(total('gone'))} of addresses between them are not mapped` : '') + (elsewhere ? `; ${inUnits(elsewhere)} are live elsewhere` : '') + '.'
      : 'Nothing that has an address is live then.';
    this.paint(regions, groups);
    const names = [...groups.names.map((name, i) => [groups.colour(i), name]), ['free', 'free']];
    if (total('pending')) names.push(['quiet', 'freed, waiting for another stream', 'waiting']);
    if (total('gone')) names.push(['unmapped', 'addresses that are not mapped', 'unmapped']);
    if (regions.some(region => region.pool)) names.push(['pool', 'segment of a private pool', 'pool']);
    const legend = names.map(([colour, name, kind]) => h('span', {}, swatch(colour, kind), name.length > 60 ? name.slice(0, 57) + '...' : name));
    document.getElementById('map-legend').replaceChildren(...legend);
    this.table(regions);
  }

  /** Lays the regions out and paints them. `flow` is where a region begins, in bytes from the first. */
  paint(regions, groups) {
    const canvas = this.canvas, scale = devicePixelRatio || 1, width = canvas.parentElement.clientWidth;
    if (!width) return;
    // A gap between addresses is drawn, and never longer than all the rest.
    const held = regions.reduce((sum, region) => sum + region.size - region.gone, 0);
    const lengthOf = piece => Math.min(piece.size, held / 12);
    const rows = regions.length ? Math.max(3, Math.min(26, Math.ceil(Math.sqrt(regions.length) * 3), Math.ceil(held / (1 << 16)))) : 1;
    const all = held + regions.reduce((sum, region) => sum + region.unmapped.reduce((s, gap) => s + lengthOf(gap), 0), 0);
    const between = all / (rows * width) * 3, perRow = (all + between * regions.length) / rows || 1;
    const height = rows * (ROW + ROW_GAP);
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext('2d');
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    this.pieces = [];
    const rectangle = (from, length, draw) => {
      for (let left = from, rest = length; rest > 0;) {
        const row = Math.floor(left / perRow + 1e-12), inRow = left - row * perRow, part = Math.min(rest, perRow - inRow);
        if (part <= perRow * 1e-12) { left = (row + 1) * perRow; continue; }
        draw(inRow / perRow * width, row * (ROW + ROW_GAP), part / perRow * width);
        left += part;
        rest -= part;
      }
    };
    const colours = groups.names.map((_, i) => colourOf(groups.colour(i)));
    this.drawn = 0;
    const free = colourOf('free'), line = colourOf('quiet'), pool = colourOf('pool');
    const unmapped = hatched(context, scale, 'unmapped', 1, false), pending = hatched(context, scale, 'quiet', 2, true);
    let flow = 0;
    for (const region of regions) {
      const begin = flow, gaps = region.unmapped;
      let gap = 0, saved = 0;
      // From an address of the region to its place in the flow: gaps may be drawn shorter than they are.
      const pieces = [...region.blocks.map(block => ({...block, kind: 'block'})), ...gaps.map(each => ({...each, kind: 'unmapped'})),
                      ...region.holes.map(each => ({...each, kind: 'free'}))].sort((a, b) => a.address - b.address);
      const length = region.size - gaps.reduce((sum, each) => sum + each.size - lengthOf(each), 0);
      context.fillStyle = free;
      rectangle(begin, length, (x, y, w) => context.fillRect(x, y, w, ROW));
      let batch = null;  // neighbours of one colour, painted at once: their seams then do not show
      const flush = () => {
        if (!batch) return;
        context.fillStyle = batch.colour;
        rectangle(batch.from, batch.length, (x, y, w) => context.fillRect(x, y, w, ROW));
        batch = null;
      };
      for (const piece of pieces) {
        const from = begin + piece.address - region.address - saved, long = piece.kind === 'unmapped' ? lengthOf(piece) : piece.size;
        this.pieces.push({from, to: from + long, piece, region});
        if (piece.kind === 'free') { flush(); continue; }
        if (piece.kind === 'unmapped') saved += piece.size - long;
        const colour = piece.kind === 'unmapped' ? unmapped : piece.pending ? pending : colours[groups.of[piece.memory]];
        if (batch && batch.colour === colour && Math.abs(batch.from + batch.length - from) < 1) {
          batch.length += long;
        } else {
          flush();
          batch = {colour, from, length: long};
        }
      }
      flush();
      // Each region has an edge, also where it is narrower than a pixel.
      context.strokeStyle = region.pool ? pool : line;
      ++this.drawn;
      context.lineWidth = region.pool ? 2 : 1;
      rectangle(begin, length, (x, y, w) => context.strokeRect(x + .5, y + .5, Math.max(1, w - 1), ROW - 1));
      flow = begin + length + between;
    }
    this.layout = {perRow, width};
    this.choose(null);
  }

  /** Marks a piece, wherever its rows are, and says what it is. */
  choose(place) {
    const picture = this.canvas.parentElement, {perRow, width} = this.layout;
    for (const mark of picture.querySelectorAll('.map-chosen')) mark.remove();
    this.chosen = place;
    this.tip.hidden = place === null;
    if (place === null) return;
    const found = this.pieces[place];
    let first = null;
    for (let left = found.from; left < found.to;) {
      const row = Math.floor(left / perRow + 1e-12), right = Math.min(found.to, (row + 1) * perRow);
      const box = {left: (left - row * perRow) / perRow * width, top: row * (ROW + ROW_GAP), width: (right - left) / perRow * width};
      if (right - left > perRow * 1e-9 || first === null) {
        picture.append(h('div', {class: 'map-chosen', style: `left:${box.left - 1}px;top:${box.top - 1}px;width:${box.width + 2}px;height:${ROW + 2}px`}));
        first = first || box;
      }
      if (right <= left) break;
      left = right;
    }
    this.tell(found, first.left, first.top + ROW + 4);
  }

  tell(found, left, top) {
    this.tip.hidden = false;
    this.tip.textContent = this.words(found);
    this.tip.style.left = `${Math.max(0, Math.min(this.layout.width - this.tip.offsetWidth, left))}px`;
    this.tip.style.top = `${top}px`;
  }

  /** The piece that a key leads to. */
  stepTo(key) {
    const {pieces} = this, last = pieces.length - 1, at = this.chosen;
    if (key === 'Home' || (at === null && key !== 'End' && key !== 'm')) return 0;
    if (key === 'End') return last;
    if (key === 'm') {
      let most = -1;
      pieces.forEach(({piece}, i) => { if (piece.kind === 'free' && (most < 0 || piece.size > pieces[most].piece.size)) most = i; });
      return most < 0 ? at : most;
    }
    if (key === 'ArrowRight') return Math.min(last, at + 1);
    if (key === 'ArrowLeft') return Math.max(0, at - 1);
    const {region} = pieces[at], by = key === 'ArrowDown' ? 1 : -1;
    let to = at;
    while (to + by >= 0 && to + by <= last && pieces[to].region === region) to += by;
    while (by < 0 && to > 0 && pieces[to - 1].region === pieces[to].region) --to;
    return to;
  }

  pieceAt(x, y) {
    if (!this.pieces || !this.pieces.length) return null;
    const flow = Math.floor(y / (ROW + ROW_GAP)) * this.layout.perRow + x / this.layout.width * this.layout.perRow;
    let low = 0, high = this.pieces.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.pieces[middle].from <= flow) low = middle + 1; else high = middle;
    }
    const found = this.pieces[low - 1];
    return found && flow < found.to + this.layout.perRow / this.layout.width ? found : null;
  }

  words({piece, region}) {
    const events = this.events, where = `0x${piece.address.toString(16)}, ${inUnits(piece.size)} (${exactly(piece.size)})`;
    const last = `${inUnits(region.size)} at 0x${region.address.toString(16)}` + (region.pool ? `, pool ${events.about.pools[region.pool]}` : '');
    if (piece.kind === 'free') return `free\n${where}\nin ${last}`;
    if (piece.kind === 'unmapped') return `not mapped\n${where}`;
    const memory = piece.memory, death = events.death[memory];
    return `${events.siteNames[events.siteOf(memory)]}\n${where}\nrequested ${exactly(events.size[memory])}, stream ${events.about.streams[events.streamOf(memory)]}\n` +
        `from event ${grouped(events.birth[memory])} ${death === NEVER ? 'to the end' : `to event ${grouped(death)}`}${piece.pending ? ', freed and waiting' : ''}\nin ${last}`;
  }

  listen() {
    // One map follows another when a person chooses another trace: the last one answers.
    this.canvas.onpointermove = event => {
      const box = this.canvas.getBoundingClientRect(), found = this.pieceAt(event.clientX - box.left, event.clientY - box.top);
      this.tip.hidden = !found;
      if (found) this.tell(found, event.clientX - box.left + 12, event.clientY - box.top + 16);
    };
    this.canvas.onpointerleave = () => this.tip.hidden = true;
    const picture = this.canvas.parentElement;
    picture.onkeydown = event => {
      if (event.ctrlKey || event.altKey || event.metaKey || !this.pieces || !this.pieces.length) return;
      if (event.key === 'Escape') { this.choose(null); return; }
      if (!['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End', 'm'].includes(event.key)) return;
      event.preventDefault();
      this.choose(this.stepTo(event.key));
    };
    picture.onblur = () => { if (this.pieces) this.choose(null); };
  }

  table(regions) {
    const events = this.events, most = 200;
    const shown = [...regions].sort((a, b) => b.size - a.size).slice(0, most);
    const bytes = (name, key) => ({name, n: true, of: region => inUnits(region[key]), title: region => exactly(region[key]), known: regions.some(region => region[key])});
    const words = (name, of) => ({name, of, title: () => null, known: regions.some(of)});
    const columns = [words('Address', region => `0x${region.address.toString(16)}`), bytes('Size', 'size'), bytes('Used', 'used'), bytes('Waiting', 'pending'), bytes('Free', 'free'),
                     bytes('Largest free', 'largest'), bytes('Not mapped', 'gone'), words('Stream', region => region.stream === null ? '' : events.about.streams[region.stream] || ''),
                     {...words('Pool', region => events.about.pools[region.pool] || 'default'), known: regions.some(region => region.pool)}].filter(column => column.known);
    const kind = column => column.n ? {class: 'n'} : {};
    document.getElementById('map-table').replaceChildren(
        h('thead', {}, h('tr', {}, columns.map(column => h('th', kind(column), column.name)))),
        h('tbody', {}, shown.map(region => h('tr', {}, columns.map(column => h('td', {...kind(column), title: column.title(region)}, column.of(region))))),
          regions.length > most ? h('tr', {}, h('td', {colspan: columns.length}, `and ${grouped(regions.length - most)} smaller ones`)) : null));
  }
}
