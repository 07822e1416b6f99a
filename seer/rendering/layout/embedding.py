"""Explicit embeddings, overrides and isolates of the Unicode bidirectional algorithm (UAX #9, rules X1 to X10).

    base = base_level(codes)                     # a paragraph with characters such as U+2067
    levels, overridden = embedding_levels(codes, base)
    isolating_runs(codes, levels, base)          # the stretches over which the other rules run

Hardly any text has these characters, so `seer.rendering.layout.bidi` resolves other paragraphs without this module. Rule names in
the comments are those of https://www.unicode.org/reports/tr9/.
"""

from __future__ import annotations

import unicodedata

_LRE, _RLE, _PDF, _LRO, _RLO = range(0x202A, 0x202F)
_LRI, _RLI, _FSI, _PDI = range(0x2066, 0x206A)
_EMBEDDINGS, _OVERRIDES, _ISOLATES = {_LRE, _RLE}, {_LRO, _RLO}, {_LRI, _RLI, _FSI}
_MAX_DEPTH = 125


def base_level(codes: list[int]) -> int:
    """Return the level of a paragraph by its first strong character (P2, P3); isolates are skipped."""
    depth = 0
    for code in codes:
        if code in _ISOLATES:
            depth += 1
        elif code == _PDI:
            depth = max(0, depth - 1)
        elif depth == 0 and (kind := unicodedata.bidirectional(chr(code)) or "L") in ("L", "R", "AL"):
            return int(kind != "L")
    return 0


def embedding_levels(codes: list[int], base: int) -> tuple[list[int], list[str]]:
    """Apply X1 to X8: return the level of each character, and the class that an override gives it or an empty string."""
    matches = _matching_isolates(codes)
    levels, overridden = [], []
    stack: list[tuple[int, str, bool]] = [(base, "", False)]
    overflown_isolates = overflown_embeddings = valid_isolates = 0
    for k, code in enumerate(codes):
        level, override, _ = stack[-1]
        if code in _EMBEDDINGS or code in _OVERRIDES:  # X2 to X5
            levels.append(level)
            overridden.append("")
            new = _next_level(level, odd=code in (_RLE, _RLO))
            if new <= _MAX_DEPTH and not overflown_isolates and not overflown_embeddings:
                stack.append((new, {_LRO: "L", _RLO: "R"}.get(code, ""), False))
            elif not overflown_isolates:
                overflown_embeddings += 1
        elif code in _ISOLATES:  # X5a to X5c
            levels.append(level)
            overridden.append(override)
            odd = code == _RLI or (code == _FSI and base_level(codes[k + 1 : matches.get(k, len(codes))]) == 1)
            new = _next_level(level, odd=odd)
            if new <= _MAX_DEPTH and not overflown_isolates and not overflown_embeddings:
                valid_isolates += 1
                stack.append((new, "", True))
            else:
                overflown_isolates += 1
        elif code == _PDI:  # X6a
            if overflown_isolates:
                overflown_isolates -= 1
            elif valid_isolates:
                overflown_embeddings = 0
                while not stack[-1][2]:
                    stack.pop()
                stack.pop()
                valid_isolates -= 1
            level, override, _ = stack[-1]
            levels.append(level)
            overridden.append(override)
        elif code == _PDF:  # X7
            if not overflown_isolates:
                if overflown_embeddings:
                    overflown_embeddings -= 1
                elif not stack[-1][2] and len(stack) > 1:
                    stack.pop()
            levels.append(stack[-1][0])
            overridden.append("")
        elif unicodedata.bidirectional(chr(code)) == "B":  # X8
            levels.append(base)
            overridden.append("")
        else:  # X6
            levels.append(level)
            overridden.append(override)
    return levels, overridden


def is_removed(code: int) -> bool:
    """Return whether rule X9 removes a character: embeddings and boundary neutrals take no part in the rules that follow."""
    return code in _EMBEDDINGS or code in _OVERRIDES or code == _PDF or unicodedata.bidirectional(chr(code)) == "BN"


def isolating_runs(codes: list[int], levels: list[int], base: int) -> list[tuple[list[int], int, int]]:
    """Return the isolating run sequences (X10): the places of their characters, and the levels before and after each."""
    kept = [k for k, code in enumerate(codes) if not is_removed(code)]
    matches = _matching_isolates(codes)
    closers = {closer: opener for opener, closer in matches.items()}
    runs: list[list[int]] = []
    for k in kept:
        if runs and levels[runs[-1][-1]] == levels[k]:
            runs[-1].append(k)
        else:
            runs.append([k])
    by_start = {run[0]: run for run in runs}
    sequences = []
    for run in runs:
        if run[0] in closers:
            continue  # it continues the run of its isolate initiator
        places = list(run)
        while places[-1] in matches and matches[places[-1]] in by_start:
            places += by_start[matches[places[-1]]]
        sequences.append(places)
    position = {k: place for place, k in enumerate(kept)}
    out = []
    for places in sequences:
        before = position[places[0]] - 1
        after = position[places[-1]] + 1
        ends_open = codes[places[-1]] in _ISOLATES
        last = base if ends_open or after >= len(kept) else levels[kept[after]]
        level = levels[places[0]]
        first = base if before < 0 else levels[kept[before]]
        out.append((places, max(level, first), max(level, last)))
    return out


def _next_level(level: int, *, odd: bool) -> int:
    return level + 1 + ((level + 1) % 2 != odd)


def _matching_isolates(codes: list[int]) -> dict[int, int]:
    """Return the place of the PDI that ends each isolate (BD9)."""
    matches, stack = {}, []
    for k, code in enumerate(codes):
        if code in _ISOLATES:
            stack.append(k)
        elif code == _PDI and stack:
            matches[stack.pop()] = k
        elif unicodedata.bidirectional(chr(code)) == "B":
            stack.clear()
    return matches
