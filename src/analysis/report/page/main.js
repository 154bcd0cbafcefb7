// What a person sees and does: one state, and what follows from it.

const about = JSON.parse(document.getElementById('about').textContent);
const $ = id => document.getElementById(id);
const state = {trace: 0, device: null, cursor: 0, stack: 'site', mapOf: null, events: null, chart: null, live: null, map: null, gap: null};
const page = {state, ready: null, timings: {}};  // for whoever looks at the page with a program
window.emmctl = page;

const DEVICES_APART = 8, LINES = ['l0', 'l1', 'l2', 'l3', 'l4'], DASHES = [null, [8, 3], [3, 3], [10, 3, 2, 3], [2, 2], [14, 4]];
/** Of the recorded manager (0) and of each replayed one: no two of the first thirty are alike. */
const styleOf = n => ({colour: LINES[n % LINES.length], dash: DASHES[n % DASHES.length], width: 2});

function figures() {
  const trace = about.traces[state.trace];
  const figure = (value, words, bad = false, exact = null) => h('div', {class: bad ? 'figure bad' : 'figure', title: exact}, h('b', {}, value), h('span', {}, words));
  if (!trace) { $('figures').replaceChildren(); return; }
  const {inspect} = trace, out = [figure(grouped(trace.events), 'events'), figure(inUnits(inspect.peak_live.bytes), `peak live, after event ${grouped(inspect.peak_live.event)}`, false, exactly(inspect.peak_live.bytes))];
  if (inspect.backing) {
    const {bytes} = inspect.backing.peak_reserved;
    out.push(figure(inUnits(bytes), `peak reserved${inspect.peak_live.bytes ? `, ${(bytes / inspect.peak_live.bytes).toFixed(3)} of live` : ''}`, false, exactly(bytes)));
  }
  for (const manager of trace.managers.slice(0, 3)) out.push(figure(inUnits(manager.summary.peak_reserved_bytes), `peak reserved by ${manager.name}`, false, exactly(manager.summary.peak_reserved_bytes)));
  if (trace.devices.length > 1) for (const [device, peak] of Object.entries(inspect.peak_live_by_device || {}).slice(0, DEVICES_APART)) out.push(figure(inUnits(peak.bytes), `peak live on device ${device}`, false, exactly(peak.bytes)));
  if (trace.has_times && inspect.span_ns) out.push(figure(duration(inspect.span_ns), 'from the first event to the last'));
  if (inspect.failed) out.push(figure(grouped(inspect.failed), inspect.failed === 1 ? 'request failed' : 'requests failed', true));
  const capacity = Math.max(...trace.devices.map(device => device.capacity || 0));
  if (capacity) out.push(figure(inUnits(capacity), 'capacity of the device', false, exactly(capacity)));
  $('figures').replaceChildren(...out);
}

/** Everything that follows from the trace, the device and the way of stacking. */
function setCurves() {
  const {events, device} = state, trace = events.about;
  state.liveSteps = liveSteps(events, device);
  const peak = state.peak = events.momentOf(state.liveSteps.over(0, events.count).event);
  state.categories = events.categories.length ? new Categories(events, state.liveSteps, peak) : null;
  state.groups = state.stack === 'category' ? state.categories : new Groups(events, state.stack, device, peak);
  const lines = [];
  if (trace.has_backing) lines.push({name: 'reserved, as recorded', steps: reservedSteps(events, device), ...styleOf(0)});
  trace.managers.forEach((manager, i) => lines.push({name: `reserved by ${manager.name}`, steps: managerSteps(events.managers[i], device), ...styleOf(i + 1)}));
  // The devices of one machine are told apart: a line each, beside the sums.
  const apart = device === null && trace.devices.length > 1 && trace.devices.length <= DEVICES_APART ? trace.devices.map(each => each.device) : [];
  for (const [i, each] of apart.entries()) {
    const style = {colour: `c${i}`, dash: [1, 2], width: 1.5};
    if (trace.has_backing) lines.push({name: `reserved, as recorded, device ${each}`, steps: reservedSteps(events, each), ...style});
    trace.managers.forEach((manager, m) => lines.push({name: `reserved by ${manager.name}, device ${each}`, steps: managerSteps(events.managers[m], each), ...style}));
  }
  state.lines = lines;
  const devices = trace.devices.filter(each => device === null || each.device === device), levels = [];
  // A limit is that of one device; the sum of several is none.
  const one = devices.length === 1 ? devices[0] : {}, noWait = one.no_wait || 0, least = one.peak_needed || 0;
  if (noWait > least) levels.push({name: 'no-wait need', bytes: noWait, colour: 'quiet', dash: [2, 3]});
  const capacity = one.capacity || 0;
  if (capacity) levels.push({name: 'capacity', bytes: capacity, colour: 'limit', dash: [8, 4]});
  const others = replayResults(trace, about.results);
  const replayed = new Set([...trace.managers.map(manager => manager.summary), ...others.map(each => each.summary)].map(
      summary => devices.length === 1 ? Number((/capacity=(\d+)/.exec(summary.device) || [])[1]) : 0));
  for (const bytes of replayed) if (bytes > 0 && bytes !== capacity && bytes < 8 * trace.inspect.peak_live.bytes) levels.push({name: 'capacity in the replays', bytes, colour: 'limit', dash: [8, 4]});
  const limit = devices.length === 1 ? limitFound(trace, devices[0].device, state.lines) : null;
  if (limit) levels.push(limit);
  state.levels = levels;
  const marks = [];
  for (let i = 0; i < events.memories; ++i) {
    if (events.kind[i] === KIND.refused && events.isOn(device, i)) marks.push({event: events.birth[i], colour: 'bad', size: events.size[i], words: `a request of ${inUnits(events.size[i])} was refused`});
  }
  const isHere = event => device === null || [null, device].includes(events.deviceAt(event));
  trace.managers.forEach((manager, i) => manager.failed.filter(isHere).forEach(event => marks.push({event, colour: styleOf(i + 1).colour, words: `${manager.name} failed a request`})));
  for (const {manager, from, summary} of others) {
    const failure = summary.first_failure;
    if (failure && failure.event < events.count && isHere(failure.event)) marks.push({event: failure.event, colour: 'bad', words: `${manager} failed a request first here (${short(from)})`});
  }
  state.marks = marks.sort((a, b) => a.event - b.event);
  $('to-failure').hidden = !marks.length;
  state.chart.setCurves({live: state.liveSteps, groups: state.groups, lines, levels, marks, iterations: trace.iterations});
}

/** What refused requests while the device had room: the manager held as much before, and with the request it would have been too much. */
function limitFound(trace, device, lines) {
  const refused = ((trace.explain && trace.explain.failures) || []).filter(each => each.cause === 'limit' && each.device === device && each.enough_bytes);
  const reserved = lines.find(line => line.name === 'reserved, as recorded');
  if (!refused.length || !reserved) return null;
  const last = refused.reduce((most, each) => Math.max(most, each.event), 0), bytes = reserved.steps.over(0, last + 1).max;
  return {name: `the limit that refused: this or more, and below ${inUnits(Math.min(...refused.map(each => each.enough_bytes)))}`, bytes, colour: 'limit', dash: [3, 4]};
}

function readout(event) {
  const {events, groups} = state, sums = groups.at(event);
  $('readout-at').textContent = `After event ${grouped(event)}` + (events.time ? `, ${duration(events.time[event])}` : '');
  const row = (mark, name, bytes) => h('tr', {}, h('td', {}, mark, name), h('td', {class: 'n'}, inUnits(bytes), h('small', {}, grouped(bytes))));
  const marks = state.marks.filter(mark => mark.event === event);
  const gap = ((state.gap && state.gap.sums(event, state.device)) || []).map((bytes, cause) => ({name: events.about.gap_causes[cause], bytes})).filter(({bytes}) => bytes).sort((a, b) => b.bytes - a.bytes);
  const beyond = gap.reduce((sum, {bytes}) => sum + bytes, 0);
  $('readout').tBodies[0].replaceChildren(
      row(lineSwatch({colour: 'live'}), 'live', state.liveSteps.at(event)),
      ...state.lines.map(line => row(lineSwatch(line), line.name, line.steps.at(event))),
      ...state.levels.map(level => row(lineSwatch(level), level.name + (state.chart.shownLevels.includes(level) ? '' : ' (above the picture)'), level.bytes)),
      ...marks.map(mark => h('tr', {}, h('td', {colspan: 2, class: 'bad'}, mark.words))),
      ...(gap.length ? [h('tr', {class: 'of-gap'}, h('td', {colspan: 2}, `Reserved, as recorded, beyond what is live: ${inUnits(beyond)}`)),
                        ...gap.map(({name, bytes}) => row('', name, bytes)), h('tr', {class: 'of-gap'}, h('td', {colspan: 2}, 'Live'))] : []),
      ...groups.names.map((name, i) => row(swatch(groups.colour(i)), name, sums[i])));
}

let slow = null;
/** The numbers at once; lists and maps of large traces as soon as a person rests. */
function setCursor(event, reveal = false) {
  const {events, chart} = state;
  state.cursor = Math.max(0, Math.min(events.count - 1, Math.round(event)));
  chart.setCursor(state.cursor);
  if (reveal) chart.reveal(state.cursor);
  readout(state.cursor);
  for (const slider of document.querySelectorAll('.cursor')) {
    slider.value = state.cursor;
    slider.setAttribute('aria-valuetext', `event ${grouped(state.cursor)}, ${inUnits(state.liveSteps.at(state.cursor))} live`);
  }
  for (const at of document.querySelectorAll('section .at')) if (at.closest('#gap, #categories, #live, #map')) at.textContent = `after event ${grouped(state.cursor)}`;
  clearTimeout(slow);
  if (events.memories < 400000) {
    if (!state.queued) state.queued = requestAnimationFrame(() => { state.queued = 0; showMoment(); });
  } else {
    slow = setTimeout(showMoment, 120);
  }
}

function showMoment() {
  if (state.categories) state.categories.show(state.cursor, state.peak, state.events, event => setCursor(event, true));
  if (state.gap) state.gap.show(state.cursor, state.device);
  state.live.show(state.cursor, state.device, state.groups, state);
  // Devices of several processes may have the same addresses: the map is of one.
  const {devices} = state.events.about, device = state.device === null && devices.length > 1 ? devices[0].device : state.device;
  if (state.mapOf !== null && state.placed) state.map.show(state.cursor, device, state.mapOf === 'recorded' ? 'recorded' : Number(state.mapOf), state.groups);
}

/** The packed events stand at the end of the page: the first pictures need not wait for them. */
function wholePage() {
  return document.readyState === 'loading' ? new Promise(done => document.addEventListener('DOMContentLoaded', done, {once: true})) : null;
}

/** Where memory lay is unpacked when all else is shown. */
async function placeMemory(events, which) {
  $('map-words').textContent = 'Unpacking the addresses ...';
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  await events.readPlaces(document.querySelectorAll('.places')[which].textContent.trim());
  if (state.events !== events) return;
  state.placed = true;
  state.gap = events.gap.length ? new Gap(events) : null;
  readout(state.cursor);
  showMoment();
  page.timings.placed = performance.now();
}

async function chooseTrace(which) {
  state.trace = which;
  const trace = about.traces[which], began = performance.now();
  $('trace').value = which;
  $('wait').hidden = false;
  figures();
  showInactive(trace);
  showFailure(trace, about.results, event => {
    const {chart} = state, width = Math.max(chart.least(), chart.end() / 40);
    chart.setWindow(chart.x(event) - width / 2, chart.x(event) + width / 2);
    setCursor(event);
    $('memory').scrollIntoView({block: 'start'});
    $('chart').focus({preventScroll: true});
  });
  // The most of each part of the trace, while the events are unpacked.
  if (trace.live_overview && !trace.is_state) {
    const all = [trace.live_overview, trace.reserved_overview || [], ...trace.managers.map(manager => manager.overview)];
    $('wait').replaceChildren(h('div', {class: 'preview'}, smallPicture(trace.live_overview, trace.reserved_overview || (trace.managers[0] || {}).overview,
        Math.max(1, ...all.flat()), 'A first look')), 'Unpacking the events ...');
  }
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  page.timings.preview = performance.now();
  for (const id of ['memory', 'categories', 'live', 'map']) $(id).hidden = true;
  if (!trace.events) { $('wait').textContent = 'This trace has no events.'; return; }
  await wholePage();
  const events = state.events = await Events.read(trace, document.querySelectorAll('.payload')[which].textContent.trim());
  page.timings.unpacked = performance.now() - began;
  $('wait').hidden = true;
  state.device = null;
  $('device-choice').hidden = trace.devices.length < 2;
  $('device').replaceChildren(h('option', {value: ''}, 'all'), ...trace.devices.map(each => h('option', {value: each.device}, each.device)));
  $('axis').value = 'event';
  $('axis').disabled = !events.time;
  $('memory').hidden = $('live').hidden = false;
  $('memory').classList.toggle('state', trace.is_state);
  for (const slider of document.querySelectorAll('.slider')) slider.style.display = trace.is_state ? 'none' : '';
  const sited = events.siteNames.length > 1 || (events.siteNames[0] && !events.siteNames[0].startsWith('(no'));
  // A category's bytes are of no device: of several they cannot be told apart.
  const categorised = events.categories.length > 0 && trace.devices.length < 2;
  if (!categorised) events.categories = [];
  state.stack = categorised ? 'category' : trace.devices.length > 1 ? 'device' : sited ? 'site' : 'size';
  $('categories').hidden = !categorised;
  $('stack').querySelector('[value=category]').hidden = !categorised;
  $('stack').querySelector('[value=device]').hidden = trace.devices.length < 2;
  $('stack').value = state.stack;
  state.live = new Live(events);
  state.map = new AddressMap(events);
  state.map.listen();
  state.placed = false;
  state.gap = null;
  $('gap').hidden = true;
  const choices = state.map.choices();
  state.mapOf = choices.length ? choices[0][0] : null;
  $('map').hidden = !choices.length;
  $('map-of').replaceChildren(...choices.map(([value, name]) => h('option', {value}, name)));
  for (const slider of document.querySelectorAll('.cursor')) slider.max = events.count - 1;
  if (state.chart) state.chart.graph && state.chart.graph.destroy();
  const window = state.chart;
  state.chart = window || new Chart(events, {cursor: event => setCursor(event), hover: showTip, shown: () => {}});
  if (!window) state.chart.listen();
  Object.assign(state.chart, {events, axis: 'event', window: undefined, graph: null, stripKey: null});
  setCurves();
  setCursor(state.marks.length ? state.marks[0].event : state.peak);
  page.timings.first = performance.now() - began;
  page.timings.shown = performance.now();
  page.placed = state.mapOf === null && !trace.has_backing ? null : placeMemory(events, which);
}

function showTip(event, pointer) {
  const tip = $('tip');
  tip.hidden = event === null;
  if (tip.hidden) return;
  const mark = state.marks.find(each => Math.abs(each.event - event) <= (state.chart.axis === 'event' ? (state.chart.window[1] - state.chart.window[0]) / 200 : 0));
  tip.textContent = `after event ${grouped(event)}` + (state.events.time ? `, ${duration(state.events.time[event])}` : '') + `\nlive ${inUnits(state.liveSteps.at(event))} (${exactly(state.liveSteps.at(event))})` +
      state.lines.map(line => `\n${line.name} ${inUnits(line.steps.at(event))} (${exactly(line.steps.at(event))})`).join('') + (mark ? `\nevent ${grouped(mark.event)}: ${mark.words}` : '');
  const box = $('chart').getBoundingClientRect(), left = pointer.clientX - box.left;
  tip.style.left = `${left > box.width / 2 ? Math.max(0, left - tip.offsetWidth - 14) : Math.min(box.width - tip.offsetWidth, left + 14)}px`;
  tip.style.top = `${Math.max(0, pointer.clientY - box.top - tip.offsetHeight - 10)}px`;
}

function nextFailure() {
  const next = state.marks.find(mark => mark.event > state.cursor) || state.marks[0];
  if (next) setCursor(next.event, true);
}

function listen() {
  $('trace').addEventListener('change', () => page.ready = chooseTrace(Number($('trace').value)));
  $('device').addEventListener('change', () => { state.device = $('device').value === '' ? null : Number($('device').value); setCurves(); setCursor(state.cursor); });
  $('axis').addEventListener('change', () => { $('axis-word').textContent = $('axis').value === 'time' ? 'time' : 'events'; state.chart.setAxis($('axis').value); });
  $('stack').addEventListener('change', () => { state.stack = $('stack').value; setCurves(); setCursor(state.cursor); });
  $('map-of').addEventListener('change', () => { state.mapOf = $('map-of').value; showMoment(); });
  $('zoom-in').addEventListener('click', () => state.chart.zoom(.5, state.chart.x(state.cursor)));
  $('zoom-out').addEventListener('click', () => state.chart.zoom(2));
  $('zoom-all').addEventListener('click', () => state.chart.setWindow(0, state.chart.end()));
  $('to-peak').addEventListener('click', () => setCursor(state.peak, true));
  $('to-failure').addEventListener('click', nextFailure);
  for (const slider of document.querySelectorAll('.cursor')) slider.addEventListener('input', () => setCursor(Number(slider.value), true));
  for (const step of document.querySelectorAll('.step')) step.addEventListener('click', () => setCursor(state.cursor + Number(step.dataset.step), true));
  $('chart').addEventListener('keydown', event => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const {chart} = state, part = Math.max(1, Math.round((chart.eventAt(chart.window[1]) - chart.eventAt(chart.window[0])) / 100));
    const actions = {
      ArrowLeft: () => setCursor(state.cursor - (event.shiftKey ? part : 1), true), ArrowRight: () => setCursor(state.cursor + (event.shiftKey ? part : 1), true),
      PageUp: () => setCursor(state.cursor - 10 * part, true), PageDown: () => setCursor(state.cursor + 10 * part, true),
      Home: () => setCursor(0, true), End: () => setCursor(state.events.count - 1, true),
      '+': () => chart.zoom(.5, chart.x(state.cursor)), '=': () => chart.zoom(.5, chart.x(state.cursor)), '-': () => chart.zoom(2, chart.x(state.cursor)),
      0: () => chart.setWindow(0, chart.end()), p: () => setCursor(state.peak, true), f: nextFailure,
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });
  let width = innerWidth;
  const again = () => { if (state.chart) { state.chart.stripKey = null; if (state.chart.graph) state.chart.graph.resize(); state.chart.draw(); showMoment(); } };
  addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; again(); } });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
  // Paper is white: what is drawn takes the colours of day for as long.
  for (const [event, printing] of [['beforeprint', true], ['afterprint', false]])
    addEventListener(event, () => { document.documentElement.classList.toggle('printing', printing); again(); });
}

function begin() {
  $('title').textContent = about.title;
  nameShortly(about.traces);
  const origin = [['Command', h('code', {}, about.command)], ['emmctl', about.version], ['Made', about.time], ['Machine', about.machine],
                  ...about.traces.map(trace => ['Trace', `${trace.path}${trace.name ? ` (${trace.name})` : ''}${trace.recorded_with ? `, recorded with ${trace.recorded_with}` : ''}`]), ...about.results.map(result => ['Result', `${result.path} (${result.content.schema})`]),
                  ...about.traces.flatMap(trace => trace.managers.map(manager => ['Replay', `${manager.name} on ${manager.summary.device}, ${trace.shortName}`])),
                  ['Charts', 'dygraphs 2, copyright Google, Inc., Dan Vanderkam and others, under the MIT licence: https://dygraphs.com/']];
  $('origin').append(...origin.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
  showResults(about.results);
  showComparison(about.traces, which => { page.ready = chooseTrace(which); $('memory').scrollIntoView(); });
  $('trace').append(...about.traces.map((trace, i) => h('option', {value: i}, trace.shortName)));
  $('trace-choice').hidden = about.traces.length < 2;
  if (!about.traces.length) { $('wait').hidden = true; page.ready = Promise.resolve(); return; }
  if (typeof DecompressionStream === 'undefined') { $('wait').textContent = 'This browser cannot unpack the events: it needs DecompressionStream, which Chrome 80, Firefox 113 and Safari 16.4 have.'; return; }
  listen();
  page.ready = chooseTrace(0);
}
begin();
