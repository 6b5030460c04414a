"""Mutants of outputs, inlined functions, columns and the mailbox."""

from tests.mutants.mutant import Mutant

OPERATORS = (
    Mutant(
        "side-output-dropped-at-flush",
        "core/chain/collector.py",
        "        if main.records:\n            self._output.collect(main)\n",
        "        if not main.records:\n            return\n        self._output.collect(main)\n",
        "a call that gives to a side output alone gives nothing",
        "tests/core/chain/test_collector.py",
    ),
    Mutant(
        "failed-call-leaves-its-values",
        "core/chain/collector.py",
        "        del self._records[kept:]\n        del self._times[kept:]\n",
        "        del self._times[kept:]\n",
        "values of a call that has failed go out with those of the next",
        "tests/core/operators/test_failing_records.py",
    ),
    Mutant(
        "late-records-sent-twice",
        "core/chain/late_records.py",
        "        self._records, self._times, self._until_ms = [], [], MAX_WATERMARK_MS\n",
        "        self._until_ms = MAX_WATERMARK_MS\n",
        "late records of a bundle come with every later one again",
        "tests/core/chain/test_late_records.py",
    ),
    Mutant(
        "inlined-loop-keeps-a-stale-kind",
        "core/chain/collector.py",
        "        kinds = [kind if (kind := type(item)) in ATOMS else None for item in items]\n"
        "        send(self._own(value) if None in kinds else value)\n",
        "        kinds: list[type | None] = [type(item) for item in items]\n"
        "        send(value if ATOMS.issuperset(kinds) else self._own(value))\n",
        "only the first list in a row of tuples is copied: the others change behind their readers",
        "tests/core/operators/test_process_loops.py",
    ),
    Mutant(
        "inlined-map-keeps-a-stale-kind",
        "core/chain/copies.py",
        "    kinds = [kind if (kind := type(item)) in ATOMS else None for item in items]\n"
        "    send(own(value) if None in kinds else value)\n",
        "    kinds: list[type | None] = [type(item) for item in items]\n"
        "    send(value if ATOMS.issuperset(kinds) else own(value))\n",
        "the same in the loops of map functions",
        "tests/core/inlining/test_loops.py::test_what_a_function_keeps_is_copied_before_it_goes_on",
    ),
    Mutant(
        "inlined-yield-without-pieces",
        "core/inlining/emissions.py",
        "        if looped:  # a function may yield more than memory holds\n",
        "        if not looped:  # a function may yield more than memory holds\n",
        "a function that yields without end fills the memory",
        "tests/core/inlining/test_emissions.py",
    ),
    Mutant(
        "inlined-self-set-once",
        "core/inlining/loops.py",
        "    if set(body.parameters[:bound]) & stored_names(body.statements):\n"
        "        return None  # ``self`` is set once for all records\n",
        "",
        "a method that assigns to its self breaks with the second record",
        "tests/core/inlining/test_loops.py::"
        "test_a_method_that_assigns_self_or_its_context_is_called",
    ),
    Mutant(
        "partial-merge-drops-nulls",
        "core/columns/aggregates.py",
        "        return right if left is None else left\n    return _EXACT",
        "        return None\n    return _EXACT",
        "a sum is null as soon as one batch has nothing but nulls",
        "tests/core/columns/test_aggregates.py",
    ),
    Mutant(
        "sum-wraps-around",
        "core/columns/aggregates.py",
        "for bound in bounds.values()) * len(column)",
        "for bound in bounds.values())",
        "a sum of large whole numbers wraps around",
        "tests/core/columns/test_aggregates.py",
    ),
    Mutant(
        "least-takes-nan",
        "core/columns/aggregates.py",
        "    if left is None or left != left:  # NaN counts only if there is nothing else\n",
        "    if left is None:\n",
        "one NaN hides every smaller value",
        "tests/core/columns/test_aggregates.py",
    ),
    Mutant(
        "pairs-out-of-order",
        "core/columns/matching.py",
        'self._order = np.argsort(right, kind="stable")',
        'self._order = np.argsort(right, kind="quicksort")',
        "pairs of a row come in another order than their rows on the right",
        "tests/core/columns/test_matching.py",
    ),
    Mutant(
        "outer-join-forgets-the-right",
        "core/columns/matching.py",
        'if how in ("right", "full"):',
        'if how == "right":',
        "a full join has no rows that are alone on the right",
        "tests/core/columns/test_matching.py",
    ),
    Mutant(
        "mail-of-this-lap-runs-at-once",
        "core/task/mailbox.py",
        "            if entry[1] >= last:\n",
        "            if entry[1] > last:\n",
        "a mail that a mail sends does not wait for the next lap, behind the records",
        "tests/core/task/test_mailbox.py",
    ),
    Mutant(
        "aligned-group-waits-for-the-ended",
        "control/watermark_alignment.py",
        "            if members.reached_ms.pop(task, None) is not None:\n",
        "            if members.reached_ms.get(task) is not None:\n",
        "sources wait for one that has ended",
        "tests/control/test_watermark_alignment.py",
    ),
    Mutant(
        "item-of-another-place",
        "core/inlining/apart.py",
        "    return name % length\n",
        "    return abs(name) % length\n",
        "a function that reads the last item gets the second",
        "tests/core/operators/test_apart.py tests/core/inlining/test_any_function.py",
    ),
    Mutant(
        "lists-taken-for-scalars",
        "core/operators/reduce.py",
        "            self._scalars = None\n            found.loop(*lists, *rest, send)\n",
        "            found.loop(*lists, *rest, send)\n",
        "a list that a reduce goes on to change is sent as it is",
        "tests/core/operators/test_apart.py",
    ),
    Mutant(
        "slice-taken-for-a-scalar",
        "core/inlining/scalars.py",
        "                return self.include(index)  # a slice would be a tuple\n",
        "                return True\n",
        "a part of a tuple that may hold lists is not looked at",
        "tests/core/inlining/test_scalars.py",
    ),
)
