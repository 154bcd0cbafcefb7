// What other commands wrote with --json, the comparison of all that was given, and failures.

const short = path => path.replace(/^.*\//, '');
/** Gives each trace the end of its path by which it is told apart from all others: the file's name, where no other has that. */
function nameShortly(traces) {
  const end = (path, parts) => path.split('/').slice(-parts).join('/');
  const used = new Map();
  for (const trace of traces) {
    let parts = 1;
    const {path} = trace, most = path.split('/').length;
    while (parts < most && traces.some(other => other.path !== path && end(other.path, parts) === end(path, parts))) ++parts;
    const again = used.get(path) || 0;
    used.set(path, again + 1);
    trace.shortName = end(path, parts) + (again ? ` (${again + 1})` : '');
  }
}

/** The replays of a trace that other commands wrote: [{manager, from, summary}]. */
const replayResults = (about, results) => results.flatMap(({path, content}) => {
  if (content.comparisons) return replayResults(about, content.comparisons.map(each => ({path, content: each})));
  if (content.trace !== about.inspect.trace) return [];
  if (content.schema.startsWith('emmctl.replay/')) return [{manager: content.manager, from: path, summary: content}];
  if (content.schema.startsWith('emmctl.compare/')) return content.managers.filter(each => !each.cut_off).map(each => ({manager: each.manager, from: path, summary: {...each, device: content.device}}));
  return [];
});
const failedRequest = failure => `event ${grouped(failure.event)}, ${failure.op} of ${inUnits(failure.size)}: ${failure.error || failure.outcome}. ${inUnits(failure.live_bytes)} were live and ${inUnits(failure.reserved_bytes)} reserved.`;

/** Long settings break behind their commas and signs. */
const breakable = text => text.split(/(?<=[,;:=_/])(?=.)/).flatMap((part, i) => i ? [h('wbr'), part] : [part]);
const LONG = 24;  // characters, from which on a cell is wide enough for words, and breaks them anywhere
const isLong = value => (value && value.nodeType ? value.textContent.length : typeof value === 'string' ? value.length : 0) >= LONG;
const cells = (tag, values) => values.map((value, i) => h(tag, typeof value === 'number' || value && value.n !== undefined ? {class: 'n'} : isLong(value) && tag === 'td' ? {class: 'words'} : {},
    value && value.n !== undefined ? value.n : value && value.nodeType ? value : typeof value === 'number' ? grouped(value) : value === null || value === undefined ? '' : isLong(value) ? breakable(value) : String(value)));
/** A column that no row fills tells nothing. */
const isEmpty = value => value === null || value === undefined || value === '' || (value.nodeType ? !value.textContent && !value.querySelector('i') : value.n !== undefined && (value.n === '' || (value.n.nodeType && !value.n.textContent)));
function filled(heads, rows) {
  const kept = heads.map((_, i) => i === 0 || rows.some(row => !isEmpty(row[i])));
  const only = row => row.filter((_, i) => kept[i]);
  return [only(heads), rows.map(only)];
}
const table = (...all) => tableOf(...filled(...all));
const tableOf = (heads, rows) => h('div', {class: 'scroll'}, h('table', {}, h('thead', {}, h('tr', {}, cells('th', heads))), h('tbody', {}, rows.map(row => h('tr', {}, cells('td', row))))));
// Paragraphs of a printed text flow in the page's width, without the exact bytes. The page has tables of its own for what is set in columns.
const told = text => text.trim().split(/\n\n+/).filter(part => !/^\s/m.test(part)).map(part =>
  h('p', {class: 'prose'}, part.replace(/\s*\n\s*/g, ' ').replace(/ \([\d,]+ bytes\)/g, '')));
const amount = bytes => bytes === null || bytes === undefined ? '' : {n: h('span', {title: exactly(bytes)}, inUnits(bytes))};
const bar = (bytes, most, kind = '') => h('div', {class: 'track'}, h('i', {class: kind, style: `width:${most ? 100 * bytes / most : 0}%`}), h('b', {}, inUnits(bytes)));
const MOMENTS = 12;  // of one manager's failures that have a button
const numeric = text => ({n: text}), ofBar = () => h('span', {class: 'of-bar'});

/** What is reserved at most: a range where late frees may complete sooner or later. */
function reservedOf(each) {
  const low = each.peak_reserved_low_bytes, high = each.peak_reserved_high_bytes;
  return low === undefined || low === high ? amount(each.peak_reserved_bytes) : numeric(`${inUnits(low)} to ${inUnits(high)}`);
}

/** Copies a text, also where the browser lends a page that is opened as a file no clipboard. */
function copy(text) {
  const bySelection = () => {
    const area = h('textarea', {style: 'position:fixed;opacity:0'});
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done ? Promise.resolve() : Promise.reject();
  };
  return navigator.clipboard ? navigator.clipboard.writeText(text).catch(bySelection) : bySelection();
}
const isPasted = how => how.includes('=') || how.includes('(') || how.startsWith('unset ');
/** What can be pasted, with a button that copies it. */
function pasted(how) {
  const button = h('button', {class: 'copy', title: 'Copy what is to be pasted'}, 'Copy');
  const says = words => { button.textContent = words; setTimeout(() => { button.textContent = 'Copy'; }, 1500); };
  button.onclick = () => copy(how).then(() => says('Copied'), () => says('Not copied'));
  return h('span', {class: 'pasted'}, h('code', {}, breakable(how)), ' ', button);
}

/** In a few lines and above all else: what tune and explain advise first, and what would have served the one request. */
function whatToDo(remedies, first) {
  const more = remedies.find(each => each.what.startsWith('today') && each.served), ways = remedies.filter(each => each.served && each !== more).slice(0, 2);
  const fits = each => each.fit_bytes ? `, and the whole program fits into ${inUnits(each.fit_bytes)}` : '';
  const lines = first ? [[`${inShort(first.words).textContent} `, isPasted(first.how) ? pasted(first.how) : null]] : [];
  for (const each of ways) {
    if (!first || each.how !== first.how) lines.push([isPasted(each.how) ? pasted(each.how) : `${each.how} (${each.what})`, `: serves this request${fits(each)}`]);
  }
  if (more) lines.push([more.how, `: serves it with today's setting${fits(more)}`]);
  return lines.length ? [h('div', {class: 'to-do prose'}, h('h3', {}, 'What to do ', h('small', {}, 'each tried by a replay')), h('ol', {}, lines.map(line => h('li', {}, line))))] : [];
}

/** The settings of a ranking that are seen before it is opened. */
const SETTINGS = 8;

/** The settings that the failure's own table has. */
function settingsShown(tuned) {
  const today = tuned.ranking.find(each => each.today);
  return [...tuned.ranking.filter(each => each.served && !each.today && each.fit_bytes).slice(0, 5), ...(today ? [today] : [])];
}

/** The words of a finding, without the exact bytes: a pointer that rests on them sees those. */
const inShort = words => h('span', {title: words}, (words || '').replace(/ \([0-9,]+ bytes\)/g, ''));

/** What went wrong in a trace, and what would have been enough. */
function showFailure(about, results, goTo) {
  const section = document.getElementById('failure'), body = section.querySelector('.body');
  const explained = results.map(result => result.content).find(content => content.schema.startsWith('emmctl.explain/') && content.trace === about.inspect.trace);
  const explain = explained || about.explain, failures = (explain && explain.failures) || [];
  const failed = about.managers.filter(manager => manager.failed.length), elsewhere = replayResults(about, results).filter(each => each.summary.first_failure);
  section.hidden = !failures.length && !about.explain_text && !failed.length && !elsewhere.length;
  if (section.hidden) return;
  body.replaceChildren();
  section.querySelector('h2').textContent = failures.length || failed.length || elsewhere.length ? 'What failed' : 'What was held';
  const advice = explained && explained.remedies ? explained : about.advice || {}, {remedies} = advice;
  const tuned = results.map(result => result.content).find(content => content.schema.startsWith('emmctl.tune/') && content.trace === about.inspect.trace);
  if (failures.length) {
    const [failure] = failures;
    body.append(...whatToDo(remedies || [], (tuned && tuned.advice) || advice.advice));
    body.append(h('div', {class: 'verdict prose'}, h('p', {}, h('b', {}, `Event ${grouped(failure.event)}: a request of ${inUnits(failure.size)} was refused. `), inShort(failure.words)),
        h('button', {onclick: () => goTo(failure.event)}, 'Show this moment')));
  }
  if (!failures.length && about.explain_text) body.append(...told(about.explain_text));
  for (const manager of failed) {
    const failure = manager.summary.first_failure;
    body.append(h('div', {class: 'verdict prose'},
        h('p', {}, h('b', {}, `${manager.name} failed ${grouped(manager.failed.length)} ${manager.failed.length === 1 ? 'request' : 'requests'}. `),
          failure ? `The first is ${failedRequest(failure)}` : ''),
        h('p', {class: 'buttons'}, manager.failed.slice(0, MOMENTS).map((event, i) => h('button', {onclick: () => goTo(event)}, i || manager.failed.length > 1 ? `Event ${grouped(event)}` : 'Show this moment')),
          manager.failed.length > MOMENTS ? ` and ${grouped(manager.failed.length - MOMENTS)} more, marked in the picture` : null)));
  }
  for (const {manager, from, summary: {failures: count, first_failure: failure}} of elsewhere) {
    body.append(h('div', {class: 'verdict prose'}, h('p', {}, h('b', {}, `${manager} failed ${grouped(count)} ${count === 1 ? 'request' : 'requests'} (${short(from)}). `), `The first is ${failedRequest(failure)}`),
        failure.event < about.events ? h('button', {onclick: () => goTo(failure.event)}, 'Show this moment') : null));
  }
  if (remedies && remedies.length) {
    // A setting stands in one table: that of the settings has what the whole program needs with each.
    const ranked = new Set(tuned ? tuned.ranking.map(each => each.how) : []), others = remedies.filter(each => !ranked.has(each.how));
    if (others.length) body.append(h('h3', {}, 'What would have helped'), table(['Remedy', 'How', 'Serves this request', numeric('Reserves'), numeric('Whole program fits into')],
        others.map(each => [each.what, each.how, each.served === null ? 'not tried' : each.served ? 'yes' : 'no', reservedOf(each), amount(each.fit_bytes)])));
  }
  if (tuned && failures.length) {
    const today = tuned.ranking.find(each => each.today), useful = settingsShown(tuned).filter(each => !each.today);
    body.append(h('h3', {}, 'Settings that serve every request, and the memory that they need'), table(['Do this', numeric('Serves all requests with'), numeric(today && today.fit_bytes ? 'Against today' : ''), numeric('Reserves without a limit')],
        [...useful, ...(today ? [today] : [])].map(each => [each.today ? 'today' : pasted(each.how), amount(each.fit_bytes),
          numeric(today && today.fit_bytes && each.fit_bytes && !each.today ? `${(100 * (each.fit_bytes / today.fit_bytes - 1)).toFixed(1)} %` : ''), reservedOf(each)])));
  }
  if (advice.gap && advice.gap.length) {
    body.append(h('h3', {}, 'Why the manager held more than was live'), table(['Cause', numeric('Bytes'), 'Call site'],
        advice.gap.map(each => [each.cause, amount(each.bytes), typeof each.site === 'string' ? each.site : (each.site && each.site.call_site) || ''])));
  }
  if (failures.length > 1) {
    body.append(h('details', {open: failures.length < 4}, h('summary', {}, `${grouped(failures.length - 1)} more`), h('div', {class: 'prose'}, failures.slice(1, 200).map(each =>
        h('p', {}, h('button', {onclick: () => goTo(each.event)}, `Event ${grouped(each.event)}`), ` a request of ${inUnits(each.size)}. `, inShort(each.words))))));
  }
  if (failures.length && about.explain_text) body.append(h('details', {}, h('summary', {}, 'What emmctl explain prints'), ...told(about.explain_text)));
}

/** What of the inactive memory PyTorch gives back before a request fails, and what is stuck, by pool, stream and device. */
function showInactive(about) {
  const section = document.getElementById('inactive'), body = section.querySelector('.body');
  const devices = ((about.explain && about.explain.devices) || []).filter(({at_end: end}) => end.returnable_bytes !== null && end.inactive_bytes);
  section.hidden = !devices.length;
  if (section.hidden) return;
  const several = about.explain.devices.length > 1, head = several ? ['Device'] : [], row = (device, ...rest) => several ? [device, ...rest] : rest;
  const rows = devices.flatMap(({device, at_end: end}) => [
    ...end.inactive.map(each => row(device, each.pool, each.stream === 0 ? 'default' : String(each.stream), amount(each.returnable_bytes), amount(each.stuck_bytes))),
    row(device, h('b', {}, 'All'), '', amount(end.returnable_bytes), amount(end.stuck_bytes))]);
  body.replaceChildren(
      h('p', {class: 'prose'}, 'PyTorch gives what is returnable back before a request fails: segments that are wholly free, and whole free pages of expandable ones. The rest is stuck in segments that are partly in use.',
        devices.some(({at_end: end}) => end.inactive.some(each => each.private && each.returnable_bytes)) ? ' A private pool keeps its memory as long as a graph or a MemPool uses it.' : ''),
      table([...head, 'Pool', 'Stream', numeric('Returnable'), numeric('Stuck')], rows),
      ...devices.filter(({at_end: end, capacity_bytes: capacity}) => capacity !== null && end.largest_request_bytes !== null).map(({device, at_end: end, capacity_bytes: capacity}) =>
          h('p', {class: 'prose'}, `With ${inUnits(capacity)}${several ? ` on device ${device}` : ''}, `, end.largest_request_bytes ? ['the largest request that would be served is ', h('b', {title: exactly(end.largest_request_bytes)}, inUnits(end.largest_request_bytes)), '.'] : 'no request would be served.')),
      ...(devices.some(({capacity_bytes: capacity}) => capacity === null) && about.is_state ? [h('p', {class: 'hint'}, 'A page that is made with --capacity SIZE says which request would be served.')] : []));
}

/** A small picture of a run: live as an area, reserved as a line, all on one scale. */
function smallPicture(live, reserved, most, words) {
  const W = 260, H = 110, xOf = (i, n) => (i / n * W).toFixed(1), yOf = value => (H - value / most * (H - 4)).toFixed(1);
  const path = values => values.map((value, i) => `${i ? 'L' : 'M'}${xOf(i, values.length)} ${yOf(value)}H${xOf(i + 1, values.length)}`).join('');
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', `0 0 ${W} ${H + 1}`);
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', words);
  const add = (d, style) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    element.setAttribute('d', d);
    element.setAttribute('style', style);
    svg.append(element);
  };
  for (const tick of byteTicks(0, most, H)) add(`M0 ${yOf(tick.v)}H${W}`, 'stroke:var(--grid);fill:none');
  if (live) add(`${path(live)}V${H}H0Z`, 'fill:var(--c0);fill-opacity:.55');
  if (reserved) add(path(reserved), 'stroke:var(--l0);stroke-width:1.6;fill:none');
  return svg;
}

/** Every run that the page knows: each trace as recorded, and each of its replays. */
function runsOf(traces) {
  const runs = [];
  traces.forEach((about, trace) => {
    const peak = about.inspect.peak_live.bytes, backing = about.inspect.backing;
    const needs = about.devices.map(device => device.no_wait || 0), capacity = about.devices.map(device => device.capacity || 0);
    const summed = about.devices.length > 1 ? `, ${about.devices.length} devices summed` : '';
    const base = {trace, about, live: peak, noWait: needs.reduce((a, b) => a + b, 0), capacity: capacity.reduce((a, b) => a + b, 0)};
    runs.push({...base, name: about.shortName, manager: (backing ? 'as recorded' : 'live alone') + summed, overview: about.reserved_overview,
               reserved: backing ? backing.peak_reserved.bytes : null, failures: about.inspect.failed});
    about.managers.forEach(manager => runs.push({...base, name: about.shortName, manager: manager.name + summed, overview: manager.overview,
                                                 reserved: manager.summary.peak_reserved_bytes, failures: manager.summary.failures}));
  });
  return runs;
}

function showComparison(traces, choose) {
  const section = document.getElementById('compare'), body = section.querySelector('.body');
  const runs = runsOf(traces).filter(run => run.reserved !== null || traces.length > 1);
  section.hidden = runs.length < 2;
  if (section.hidden) return;
  // Each trace has a scale of its own: a large one would flatten the others.
  const mostOf = trace => Math.max(1, ...runs.filter(run => run.trace === trace).map(run => Math.max(run.live, run.reserved || 0)));
  const pictures = runs.filter(run => !run.about.is_state).slice(0, 60).map(run => h('figure', {},
      h('figcaption', {}, traces.length > 1 ? h('button', {onclick: () => choose(run.trace)}, run.name) : null, traces.length > 1 ? ` ${run.manager}` : h('b', {}, run.manager),
        h('br'), `live ${inUnits(run.live)}`, run.reserved === null ? '' : `, reserved ${inUnits(run.reserved)}`, run.failures ? h('span', {class: 'bad'}, `, ${grouped(run.failures)} failed`) : ''),
      smallPicture(run.about.live_overview, run.overview, mostOf(run.trace), `${run.name}, ${run.manager}: live ${inUnits(run.live)} at most` + (run.reserved === null ? '' : `, reserved ${inUnits(run.reserved)} at most`))));
  body.replaceChildren(
      h('p', {class: 'legend'}, h('span', {}, swatch('c0'), 'live'), h('span', {}, lineSwatch({colour: 'l0'}), 'reserved'), h('span', {}, traces.length > 1 ? 'every picture reaches from 0 to the most of its trace, and over its whole run' : `every picture reaches from 0 to ${inUnits(mostOf(0))}, and over its whole run`)),
      h('div', {class: 'small-multiples'}, pictures),
      table([traces.length > 1 ? 'Trace' : '', 'Manager', numeric('Peak live'), numeric('Peak reserved'), ofBar(), numeric('Reserved / live'), numeric('Reserved / no-wait need'), numeric('Failures')].filter((_, i) => i || traces.length > 1),
            runs.map(run => [run.name, run.manager, amount(run.live), amount(run.reserved), bar(run.reserved || run.live, mostOf(run.trace), run.reserved === null ? 'live' : ''),
                             numeric(run.reserved === null || !run.live ? '' : (run.reserved / run.live).toFixed(3)),
                             numeric(run.reserved === null || !run.noWait ? '' : (run.reserved / run.noWait).toFixed(3)),
                             numeric(h('span', {class: run.failures ? 'bad' : ''}, grouped(run.failures)))].filter((_, i) => i || traces.length > 1))));
}

// Beside a ratio below 1, as `emmctl compare` has it.
const SIGNS = {not_served: '!', not_counted: '~', hazard: '?', waits: '*'};
const BELOW = {
  not_served: 'less: not all that the trace asks for was served', not_counted: 'less than is live: it serves some with memory that the device does not count',
  hazard: 'less: it handed on memory that another stream could still use', waits: 'less: it waits for work on other streams, or has them wait',
};

const DOUBTS = {
  other_work: 'not the same operations served', few_rounds: 'too few rounds', wide_interval: 'the interval is too wide to tell', no_time: 'no round took any time',
};

const RESULTS = {
  replay(content) {
    const failure = content.first_failure;
    return [h('p', {class: 'prose'}, `${content.manager} on ${content.device}: ${grouped(content.events)} events, ${grouped(content.allocs)} allocations, ${grouped(content.failures)} failures, ${grouped(content.hazards)} hazards.`),
            table(['', numeric('')], [['Peak live', amount(content.peak_live_bytes)], ['Peak reserved', amount(content.peak_reserved_bytes)], ['Leaked', amount(content.leaked_bytes)],
                                     [content.clock === 'simulated' ? 'Driver calls, by the model, an event' : 'Time an event', numeric(duration(Math.round(content.ns_per_event)))]]),
            failure ? h('div', {class: 'verdict prose'}, h('p', {}, h('b', {}, `Event ${grouped(failure.event)} failed: `), `${failure.op} of ${failure.id}, ${inUnits(failure.size)}: ${failure.error || failure.outcome}. ${inUnits(failure.live_bytes)} were live and ${inUnits(failure.reserved_bytes)} reserved.`)) : null];
  },
  compare(content) {
    const ran = content.managers.filter(each => !each.cut_off), {recorded} = content, first = content.managers[0].manager;
    const most = Math.max(1, ...ran.map(each => each.peak_reserved_bytes), recorded ? recorded.peak_reserved_bytes : 0);
    const ns = value => value < 100 ? `${value.toFixed(1)} ns` : duration(Math.round(value));
    // No time of a clock that is a model means no call of the driver, which the text has as "-".
    const time = interval => interval.median || content.clock !== 'simulated' ? ns(interval.median) + (interval.low < interval.high ? `, ${ns(interval.low)} to ${ns(interval.high)}` : '') : '-';
    // Of two managers of one name the verdicts stand in the order of the managers.
    const against = (content.verdicts || []).filter(each => each.against === first), WORDS = {ns_per_event: 'time', reserved: 'reserved'};
    const words = ({verdict, ratio, doubt}) => [h('span', {class: {worse: 'bad', better: 'good'}[verdict] || ''}, verdict), ratio && ratio.median && verdict !== 'same' ? ` ${ratio.median.toFixed(2)}` : '', doubt ? `: ${DOUBTS[doubt] || doubt}` : ''];
    const verdicts = (each, i) => i === 0 ? '' : h('span', {}, against.filter(verdict => verdict.manager === each.manager && WORDS[verdict.measure]).slice(0, 2).map(verdict =>
      h('div', {}, `${WORDS[verdict.measure]} `, words(verdict))));
    const besideRecorded = each => h('span', {}, (content.verdicts || []).filter(verdict => recorded && verdict.manager === each.manager && verdict.against === recorded.manager).slice(0, 1).map(words));
    const ratios = (each, of, below) => numeric(each.devices.map(device => device[of] === null || device[of] === undefined ? '' : device[of].toFixed(3) + (SIGNS[device[below]] || '')).join(', '));
    const row = (each, i) => each.cut_off ? [each.manager, numeric('cut off'), '', '', '', '', '', ''] : [each.manager, amount(each.peak_reserved_bytes), bar(each.peak_reserved_bytes, most),
      ratios(each, 'reserved_over_peak_live', 'below_peak_live'), ratios(each, 'reserved_over_no_wait_need', 'below_no_wait_need'),
      numeric(time(each.ns_per_event)), numeric(time(each.first_ns_per_event)), numeric(h('span', {class: each.failures ? 'bad' : ''}, grouped(each.failures)))];
    const withRecorded = recorded ? [[recorded.manager, amount(recorded.peak_reserved_bytes), bar(recorded.peak_reserved_bytes, most),
      ratios({devices: recorded.devices || []}, 'reserved_over_peak_live', 'below_peak_live'), ratios({devices: recorded.devices || []}, 'reserved_over_no_wait_need', 'below_no_wait_need'), '', '', '']] : [];
    const beside = [...(recorded ? [h('span', {}, breakable(`Against ${recorded.manager}`))] : []), ...(content.managers.length > 1 ? [h('span', {}, breakable(`Against ${first}`))] : [])];
    const besides = (each, i) => [...(recorded ? [each.cut_off ? '' : besideRecorded(each)] : []), ...(content.managers.length > 1 ? [each.cut_off ? '' : verdicts(each, i)] : [])];
    const signs = Object.entries(BELOW).filter(([name]) => [...ran, recorded || {}].some(each => (each.devices || []).some(device => [device.below_peak_live, device.below_no_wait_need].includes(name))));
    return [h('p', {class: 'prose'}, `${content.trace} on ${content.device}. Times are of the ${content.clock} clock, an event.`),
            table(['Manager', numeric('Peak reserved'), ofBar(), numeric('/ live'), numeric('/ no-wait'), numeric('Time an event'), numeric('First pass'), numeric('Failures'), ...beside],
                  [...withRecorded.map(each => [...each, ...beside.map(() => '')]), ...content.managers.map((each, i) => [...row(each, i), ...besides(each, i)])]),
            signs.map(([name, why]) => h('p', {class: 'hint'}, `${SIGNS[name]} ${why}`))];
  },
  'compare-set'(content) { return content.comparisons.map(each => [h('h3', {}, short(each.trace)), RESULTS.compare(each)]); },
  tune(content) {
    const hasFailed = trace => about.traces.some(each => each.inspect.trace === trace && each.explain && (each.explain.failures || []).length);
    const above = hasFailed(content.trace) ? settingsShown(content) : [];
    const rows = (content.ranking || []).filter(each => !above.includes(each)), most = Math.max(1, ...rows.map(each => each.peak_reserved_bytes || 0));
    const settings = rows => table(['Setting', 'Serves it', numeric('Peak reserved'), ofBar(), numeric('Fits into'), numeric('Retries'), numeric('Device calls'), 'How'],
        rows.map(each => [each.manager, each.served ? 'yes' : h('span', {class: 'bad'}, each.fails_at === null || each.fails_at === undefined ? 'no' : `fails at event ${grouped(each.fails_at)}`),
          reservedOf(each), bar(each.peak_reserved_bytes || 0, most), amount(each.fit_bytes), each.retries, each.device_calls, h('code', {}, breakable(typeof each.how === 'string' ? each.how : JSON.stringify(each.how || '')))]));
    const first = rows.filter((each, i) => i < SETTINGS || each.today), rest = rows.filter(each => !first.includes(each));
    return [above.length ? h('p', {class: 'hint'}, `The best ${grouped(above.length)} stand under "What failed".`) : '', settings(first),
            rest.length ? h('details', {}, h('summary', {}, `${grouped(rest.length)} more settings`), settings(rest)) : ''];
  },
  sweep(content) {
    // A row of each trace, a column of all else that the matrix varies.
    const varied = ['manager', 'setting', 'capacity', 'device'].filter(key => new Set(content.cells.map(cell => cell[key])).size > 1);
    const column = cell => varied.map(key => cell[key] || '-').join(' ') || cell.manager || 'result';
    const columns = [...new Set(content.cells.map(column))], traces = [...new Set(content.cells.map(cell => cell.trace))];
    const size = cell => cell.capacity_bytes || cell.fit_bytes || cell.peak_reserved_bytes;
    const known = new Map(content.cells.map(cell => [`${cell.trace}\n${column(cell)}`, cell]));
    const row = trace => {
      const all = columns.map(name => known.get(`${trace}\n${name}`)), served = all.filter(cell => cell && cell.done && !cell.failures && size(cell));
      const least = Math.min(...served.map(size)), live = Math.max(...all.map(cell => cell && cell.peak_live_bytes || 0));
      return [short(trace), amount(live || null), ...all.map(cell => !cell ? '' : !cell.done ? numeric('to do') : cell.failures ? numeric(h('span', {class: 'bad'}, `${grouped(cell.failures)} failed`)) :
        numeric(h(size(cell) === least ? 'b' : 'span', {title: exactly(size(cell) || 0)}, size(cell) ? inUnits(size(cell)) : '-')))];
    };
    const done = content.cells.filter(cell => cell.done).length;
    return [h('p', {class: 'prose'}, `${grouped(done)} of ${grouped(content.cells.length)} cells are done. Each shows what is reserved at most, or the capacity that is enough; the least of a trace is bold.`),
            table(['Trace', numeric('Peak live'), ...columns.map(name => numeric(h('span', {}, breakable(name))))], traces.map(row))];
  },
  conformance(content) {
    const order = {fail: 0, inconclusive: 1, not_applicable: 2, pass: 3};
    const told = content.clauses.filter(clause => clause.verdict === 'fail' || clause.verdict === 'inconclusive').sort((a, b) => order[a.verdict] - order[b.verdict]);
    const STORY = ['done', 'seen', 'expected', 'why'], known = ['id', 'rule', 'source', 'level', 'scope', 'verdict', ...STORY];
    const story = clause => [h('dl', {class: 'story'}, STORY.filter(key => clause[key]).flatMap(key => [h('dt', {}, key), h('dd', {}, clause[key])])),
        ...Object.entries(clause).filter(([key, value]) => !known.includes(key) && value !== null && value !== '').map(([key, value]) =>
          h('details', {}, h('summary', {}, key.replaceAll('_', ' ')), h('pre', {}, typeof value === 'string' ? value : JSON.stringify(value, null, 2))))];
    return [h('div', {class: 'figures'}, [['Passed', content.pass], ['Failed', content.fail], ['Not applicable', content.not_applicable], ['Inconclusive', content.inconclusive]].map(
                ([name, count]) => h('div', {class: name === 'Failed' && count ? 'figure bad' : 'figure'}, h('b', {}, grouped(count)), h('span', {}, name)))),
            h('p', {class: 'prose'}, `${content.subject} on ${content.device}, profile ${content.profile}, seed ${content.seed}.`),
            told.map(clause => h('details', {open: clause.verdict === 'fail' ? content.fail <= 12 : told.length <= 12}, h('summary', {}, h('b', {class: clause.verdict === 'fail' ? 'bad' : ''}, `${clause.verdict} ${clause.id}`), ` ${clause.rule}`),
                                 h('div', {class: clause.verdict === 'fail' ? 'verdict' : 'verdict unknown'}, h('p', {class: 'hint'}, `${clause.level}; ${clause.scope}; ${clause.source}`), story(clause)))),
            h('details', {}, h('summary', {}, `All ${grouped(content.clauses.length)} clauses`),
              table(['Clause', 'Verdict', 'Rule', 'Level'], content.clauses.map(clause => [clause.id, h('span', {class: clause.verdict === 'fail' ? 'bad' : clause.verdict === 'pass' ? 'good' : ''}, clause.verdict.replace('_', ' ')), clause.rule, clause.level])))];
  },
  explain(content) { return [(content.failures || []).map(each => h('p', {class: 'prose'}, h('b', {}, `Event ${grouped(each.event)}: `), each.words))]; },
};

function showResults(results) {
  // The figures of a comparison are what was asked for: they come first.
  const isFirst = ({content}) => /^emmctl\.(compare|compare-set|sweep)\//.test(content.schema);
  document.getElementById('first-results').replaceChildren(...results.filter(isFirst).map(showResult));
  document.getElementById('results').replaceChildren(...results.filter(each => !isFirst(each)).map(showResult));
}

function showResult({path, content}) {
  const kind = content.schema.replace(/^emmctl\./, '').replace(/\/.*$/, ''), known = RESULTS[kind];
  let body;
  try {
    body = known ? known(content) : null;
  } catch (error) {
    body = null;  // written by another version: shown as it is
  }
  return h('section', {class: `result ${kind}`}, h('h2', {}, `${kind[0].toUpperCase()}${kind.slice(1)} `, h('span', {class: 'at'}, short(path))),
           body || h('pre', {}, JSON.stringify(content, null, 2).slice(0, 20000)));
}
