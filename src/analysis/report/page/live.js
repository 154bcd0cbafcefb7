// What was live after an event: a flame graph and a table.

/** Calls back with each memory of the program that is live after an event. */
function eachLive(events, event, device, back) {
  events.eachHeld(event, i => {
    if (events.death[i] > event && events.kind[i] === KIND.device && (device === null || events.deviceOf(i) === device)) back(i);
  });
}

class Live {
  constructor(events) {
    this.events = events;
    this.root = '';
    this.size = 25;
  }

  show(event, device, groups, state) {
    this.args = [event, device, groups, state];
    const events = this.events, bySite = new Map();
    let bytes = 0, count = 0;
    eachLive(events, event, device, i => {
      const site = events.siteOf(i);
      let sum = bySite.get(site);
      if (!sum) bySite.set(site, sum = {site, bytes: 0, count: 0});
      sum.bytes += events.size[i];
      ++sum.count;
      bytes += events.size[i];
      ++count;
    });
    this.bytes = bytes;
    this.count = count;
    this.flame([...bySite.values()], bytes);
    this.table(bySite, bytes, groups);
  }

  table(bySite, total, groups) {
    const byName = new Map();
    for (const each of bySite.values()) {
      const name = this.events.siteNames[each.site], sum = byName.get(name);
      if (sum) { sum.bytes += each.bytes; sum.count += each.count; } else byName.set(name, {name, ...each});
    }
    let rows = [...byName.values()];
    const sized = rows.length === 1 && this.events.siteFrames.length <= 1;
    if (sized) rows = this.bySize();
    rows.sort((a, b) => b.bytes - a.bytes || b.count - a.count);
    const shown = rows.slice(0, this.size), rest = rows.slice(this.size);
    const line = (name, bytes, count) => h('tr', {}, h('td', {}, name), h('td', {class: 'n', title: exactly(bytes)}, inUnits(bytes)),
        h('td', {class: 'n exact'}, grouped(bytes)), h('td', {class: 'n'}, grouped(count)), h('td', {class: 'n'}, total ? `${(100 * bytes / total).toFixed(1)} %` : ''));
    document.getElementById('live-table').replaceChildren(
        h('thead', {}, h('tr', {}, h('th', {}, sized ? 'Size' : 'Call site'), h('th', {class: 'n'}, 'Live'), h('th', {class: 'n exact'}, 'Bytes'),
                         h('th', {class: 'n'}, 'Allocations'), h('th', {class: 'n'}, 'Share'))),
        h('tbody', {}, line(h('b', {}, 'All'), this.bytes, this.count),
          shown.map(row => line([!sized && groups && groups.names.includes(row.name) ? swatch(groups.colour(groups.names.indexOf(row.name))) : null, row.name].filter(Boolean), row.bytes, row.count)),
          rest.length ? line(h('button', {onclick: () => { this.size = rest.length + 25; this.show(...this.args); }}, `${grouped(rest.length)} more ...`),
                             rest.reduce((sum, row) => sum + row.bytes, 0), rest.reduce((sum, row) => sum + row.count, 0)) : null));
  }

  bySize() {
    const sums = new Map(), [event, device] = this.args;
    eachLive(this.events, event, device, i => {
      const size = this.events.size[i], sum = sums.get(size);
      if (sum) { sum.bytes += size; ++sum.count; } else sums.set(size, {name: exactly(size), bytes: size, count: 1});
    });
    return [...sums.values()];
  }

  /** Frames as a tree, the outermost at the top; a click makes a frame the whole width. */
  flame(sites, total) {
    const element = document.getElementById('flame'), tree = {name: 'all', bytes: total, count: 0, children: new Map()};
    element.previousElementSibling.hidden = element.hidden = this.events.frames.length === 0;
    if (element.hidden) return;
    for (const {site, bytes, count} of sites) {
      let at = tree;
      at.count += count;
      const frames = this.events.siteFrames[site].map(frame => this.events.frames[frame]);
      if (!frames.length) frames.push(this.events.siteNames[site]);
      for (let i = frames.length; i-- > 0;) {
        let next = at.children.get(frames[i]);
        if (!next) at.children.set(frames[i], next = {name: frames[i], bytes: 0, count: 0, children: new Map()});
        next.bytes += bytes;
        next.count += count;
        at = next;
      }
    }
    let top = tree;
    const path = this.root ? this.root.split('\n') : [];
    for (const name of path) top = [...top.children.values()].find(child => child.name === name) || top;
    const boxes = [], width = element.clientWidth || 600;
    let depth = 0;
    const place = (node, left, right, row, here) => {
      if ((right - left) * width < 1.5) return;
      boxes.push({node, left, right, row, path: here});
      depth = Math.max(depth, row);
      let at = left;
      for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
        const share = node.bytes ? child.bytes / node.bytes * (right - left) : 0;
        place(child, at, at + share, row + 1, node === tree ? child.name : `${here}\n${child.name}`);
        at += share;
      }
    };
    place(top, 0, 1, 0, this.root);
    if (top !== tree) boxes.unshift({node: {name: '‹ all of it', bytes: total, count: tree.count}, left: 0, right: 1, row: -1, path: ''});
    const shift = top !== tree ? 1 : 0;
    element.style.height = `${(depth + 1 + shift) * 21}px`;
    element.replaceChildren(...boxes.slice(0, 3000).map(({node, left, right, row, path: here}) => h('button', {
      style: `left:${left * 100}%;width:${(right - left) * 100}%;top:${(row + shift) * 21}px;background:${flameColour(node.name)}`,
      title: `${node.name}\n${inUnits(node.bytes)} (${exactly(node.bytes)}) in ${grouped(node.count)} allocations`,
      tabindex: (right - left) * width > 40 ? 0 : -1,
      'aria-label': `${node.name}, ${inUnits(node.bytes)}`,
      onclick: () => { this.root = here; this.show(...this.args); },
    }, (right - left) * width > 30 ? shortFrame(node.name) : '')));
  }
}

const shortFrame = name => name.replace(/^.*[/\\](?=[^/\\]*:\d+ )/, '');
function flameColour(name) {
  let hash = 0;
  for (let i = 0; i < name.length; ++i) hash = hash * 31 + name.charCodeAt(i) | 0;
  const near = Math.abs(hash);
  return `hsl(${28 + near % 26} ${62 + near % 23}% ${66 + (near >> 5) % 12}%)`;
}
