"""Random sequences of what Numba's managers are asked, each from its seed alone: the same with every Python.

A sequence is a list of tuples; each is a line of text for sequence_player:

    I                      initialize
    A slot size            memalloc
    H slot size flags      memhostalloc: 1 portable, 2 mapped, 4 write-combined
    P slot region size m   mempin of one of four regions; m: mapped
    M slot size global     memallocmanaged
    V slot of start stop   a view of device or managed memory, or of a view
    O slot of              one more owner of it
    D slot                 the object goes
    F slot                 its free()
    C                      the queue is flushed
    ( )                    a deferral begins, the innermost ends
    R                      reset; views end before it
    G                      memory info
    X mask first later     of the next step's driver calls, those in mask fail: the first with one code, later ones with another
"""

TOTAL = 64 << 20
LIMIT = TOTAL // 5  # what may wait, in bytes
REGIONS, REGION_SIZE = 4, 1 << 16
MASK = (1 << 64) - 1


class Random:
    """SplitMix64."""

    def __init__(self, seed):
        self._state = (seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & MASK

    def next(self):
        self._state = (self._state + 0x9E3779B97F4A7C15) & MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() % n

    def one_in(self, n):
        return self.below(n) == 0


def size(random, divisor):
    kind = random.below(12)
    if kind == 0:
        chosen = LIMIT + 1
    elif kind == 1:
        chosen = LIMIT - 1
    elif kind == 2:
        chosen = LIMIT
    elif kind == 3:
        chosen = 1 + random.below(TOTAL)
    elif kind == 4:
        chosen = 1
    else:
        chosen = LIMIT // (1 + random.below(5))
    return max(2, chosen // divisor)


def sequence(seed):
    """Of moods: many small blocks, a full device, deferrals, host memory, resets, failures."""
    random = Random(seed)
    divisor = (1, 1, 40, 1000)[random.below(4)]
    faults = (0, 0, 30, 8)[random.below(4)]
    weights = [["A", 24], ["H", 10], ["P", 6], ["M", 8], ["V", 6], ["O", 4], ["D", 34], ["F", 5], ["C", 2], ["(", 3],
               [")", 3], ["R", 1], ["G", 1], ["I", 1]]
    mood = random.below(4)
    for weight in weights:
        if mood == 1 and weight[0] in "()":
            weight[1] *= 3
        if mood == 2 and weight[0] in "HP":
            weight[1] *= 3
        if mood == 3 and weight[0] in "RC":
            weight[1] *= 4
    total = sum(weight for _, weight in weights)
    steps, held, viewable, views = [], [], [], set()
    slots = 0
    if not random.one_in(10):
        steps.append(("I",))
    for _ in range(10 + random.below(90)):
        drawn, kind = random.below(total), ""
        for kind, weight in weights:
            if drawn < weight:
                break
            drawn -= weight
        if kind in "VO" and not viewable or kind in "DF" and not held:
            kind = "A"
        if faults and kind in "AHPMDFCRIG" and random.one_in(faults):
            mask = 0
            for _ in range(1 + random.below(3)):
                mask |= 1 << random.below(4 if random.one_in(2) else 12)
            codes = [(2, 2, 2, 1, 700, 999)[random.below(6)] for _ in range(2)]
            steps.append(("X", mask, *codes))
        if kind in "AHPMVO":
            slot = slots
            slots += 1
            if kind == "A":
                steps.append((kind, slot, size(random, divisor)))
            elif kind == "H":
                steps.append((kind, slot, min(size(random, divisor), 4 << 20), random.below(8)))
            elif kind == "P":
                steps.append((kind, slot, random.below(REGIONS), 1 + random.below(REGION_SIZE), random.below(2)))
            elif kind == "M":
                steps.append((kind, slot, size(random, divisor), random.below(2)))
            elif kind == "V":
                of = viewable[random.below(len(viewable))]
                start, length = (0, 0) if of in views else (random.below(2), random.below(2))
                steps.append((kind, slot, of, start, start + length))
            else:
                owned = [one for one in viewable if one not in views]  # one more owner of a view keeps nothing alive
                steps.append((kind, slot, owned[random.below(len(owned))]) if owned else ("A", slot, size(random, divisor)))
            held.append(slot)
            if kind in "AMVO":
                viewable.append(slot)
            if kind == "V":
                views.add(slot)
        elif kind in "DF":
            at = random.below(len(held))
            slot = held[at]
            steps.append((kind, slot))
            if kind == "D":
                held.pop(at)
                views.discard(slot)
                viewable = [one for one in viewable if one != slot]
        elif kind == "R":
            for slot in sorted(views):
                steps.append(("D", slot))
                held.remove(slot)
                viewable.remove(slot)
            views.clear()
            steps.append((kind,))
        else:
            steps.append((kind,))
    return steps


def text(seed):
    return "".join(" ".join(map(str, step)) + "\n" for step in sequence(seed))
