// What the recorded manager held beyond what was live: by cause, call site and device. src/analysis/inspect/gap.cpp has the same.

const FIRST_FREE = 3;  // the causes from this one on are of what is free in segments

class Gap {
  /** Once the places are unpacked. */
  constructor(events) {
    this.events = events;
    this.causes = events.about.gap_causes;
    this.steps = events.gap.map(({device, cause, event, value}) => ({device, cause, steps: new Steps(Uint32Array.from(event), Float64Array.from(value))}));
  }

  /** The bytes of each cause, of one device or of all; nothing where the recording does not have all that its manager held. */
  sums(event, device) {
    const sums = this.causes.map(() => 0);
    for (const each of this.steps) {
      if (device !== null && each.device !== device) continue;
      const bytes = each.steps.at(event);
      if (bytes < 0) return null;
      sums[each.cause] += bytes;
    }
    return sums;
  }

  /** [{cause, device, site, bytes, blocks}], the greatest first: blocks by who asked for them, what is free by whom its segment was taken for. */
  parts(event, device) {
    const {events, steps} = this, parts = new Map(), segments = [], blocks = [];
    const add = (cause, on, site, bytes, count) => {
      if (!bytes) return;
      const key = `${cause} ${on} ${site}`, part = parts.get(key);
      if (part) { part.bytes += bytes; part.blocks += count; } else parts.set(key, {cause, device: on, site, bytes, blocks: count});
    };
    events.eachHeld(event, i => {
      const on = events.deviceOf(i), site = events.siteOf(i), at = events.address ? events.address[i] : 0;
      if (device !== null && on !== device) return;
      if (events.kind[i] === KIND.backing) {
        if (at) segments.push({address: at, end: at + events.size[i], free: events.size[i], cause: events.storeOf(i), device: on, site});
        return;
      }
      const rounding = events.roundingOf(i), rest = events.remainderOf(i), size = events.size[i] + rounding + rest;
      if (at) blocks.push({address: at, end: at + size, device: on});
      if (events.death[i] <= event) { add(2, on, site, size, 1); return; }
      add(0, on, site, rounding, 1);
      add(1, on, site, rest, 1);
    });
    const byAddress = (a, b) => a.device - b.device || a.address - b.address;
    segments.sort(byAddress);
    blocks.sort(byAddress);
    let first = 0;
    for (const block of blocks) {
      const before = segment => segment.device < block.device || (segment.device === block.device && segment.end <= block.address);
      while (first < segments.length && before(segments[first])) ++first;
      for (let i = first; i < segments.length && segments[i].device === block.device && segments[i].address < block.end; ++i)
        segments[i].free -= Math.min(segments[i].free, Math.min(block.end, segments[i].end) - Math.max(block.address, segments[i].address));
    }
    for (const {cause, device: on, site, free} of segments) add(cause, on, site, free, 0);
    // What is free of each cause is known besides: what the segments do not tell has no call site.
    for (const each of steps) {
      if (each.cause < FIRST_FREE || (device !== null && each.device !== device)) continue;
      const bytes = each.steps.at(event), own = [...parts].filter(([, part]) => part.cause === each.cause && part.device === each.device);
      const sum = own.reduce((total, [, part]) => total + part.bytes, 0);
      if (sum > bytes) for (const [key] of own) parts.delete(key);
      add(each.cause, each.device, this.siteless(), sum > bytes ? bytes : bytes - sum, 0);
    }
    return [...parts.values()].sort((a, b) => b.bytes - a.bytes);
  }

  siteless() { return this.events.siteNames.findIndex(name => name.startsWith('(no')); }

  show(event, device) {
    const section = document.getElementById('gap'), sums = this.sums(event, device);
    const parts = sums && sums.some(bytes => bytes) ? this.parts(event, device) : [];
    section.hidden = !parts.length;
    if (section.hidden) return;
    const {events} = this, several = device === null && events.about.devices.length > 1, most = 12;
    const nameOf = ({site}) => site < 0 || events.siteNames[site].startsWith('(no') ? '' : events.siteNames[site];
    const sited = parts.some(nameOf), counted = parts.some(part => part.blocks);
    section.querySelector('small').hidden = !sited;
    const shown = parts.slice(0, most), rest = parts.slice(most);
    const line = (cause, on, site, bytes, count) => h('tr', {}, h('td', {}, cause), several ? h('td', {class: 'n'}, on) : null, sited ? h('td', {}, site) : null,
        h('td', {class: 'n', title: exactly(bytes)}, inUnits(bytes)), h('td', {class: 'n exact'}, grouped(bytes)), counted ? h('td', {class: 'n'}, count ? grouped(count) : '') : null);
    document.getElementById('gap-table').replaceChildren(
        h('thead', {}, h('tr', {}, h('th', {}, 'Cause'), several ? h('th', {class: 'n'}, 'Device') : null, sited ? h('th', {}, 'Asked for by') : null,
                         h('th', {class: 'n'}, 'Beyond'), h('th', {class: 'n exact'}, 'Bytes'), counted ? h('th', {class: 'n'}, 'Blocks') : null)),
        h('tbody', {}, line(h('b', {}, 'All'), '', '', sums.reduce((a, b) => a + b, 0), 0),
          shown.map(part => line(this.causes[part.cause], part.device, nameOf(part), part.bytes, part.blocks)),
          rest.length ? line(`${grouped(rest.length)} other parts`, '', '', rest.reduce((sum, part) => sum + part.bytes, 0), rest.reduce((sum, part) => sum + part.blocks, 0)) : null));
  }
}
