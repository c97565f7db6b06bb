"""Turns what probes saw, and the answers to their sets of inputs, into the probes' results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_cgins.config import ProbeException, Repeatability, Tolerance
from pytest_cgins.core.bitwise import all_same, as_real, distances
from pytest_cgins.core.call_text import call_line
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.failure_kinds import DEVICE_FAULTS, cause_of
from pytest_cgins.core.text import counted, inputs_phrase
from pytest_cgins.core.verdict import Check, Probe, Reason
from pytest_cgins.verify.changed_rows import changed_rows
from pytest_cgins.verify.compare import ExpectedSet, accepts
from pytest_cgins.verify.diagnosis import Answered, Diagnosis
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.messages import RaisedError, SetAnswer
from pytest_cgins.verify.probes import (
    arguments,
    autotuner,
    content_cache,
    device_order,
    integrity,
    invariance,
    l2_carve_out,
    layouts,
    libraries,
    memory_leak,
    memory_use,
    on_stream,
    op_callback,
    plain_outputs,
    ranks,
    recompiles,
    repeat,
    second_precision,
    sizes,
    snooping,
    special_values,
)
from pytest_cgins.verify.probes.registry import PROBE_SPECS

FACTS: Mapping[str, Callable[[Any], str]] = {
    integrity.NAME: integrity.judge,
    libraries.NAME: libraries.judge,
    snooping.NAME: snooping.judge,
    memory_leak.NAME: memory_leak.judge,
    content_cache.NAME: content_cache.judge,
    l2_carve_out.NAME: l2_carve_out.judge,
    on_stream.NAME: on_stream.judge,
    recompiles.NAME: recompiles.judge,
}
"""Judges of what `Watch.observed` tells, by probe: facts → message, "" if all is well."""


_SHOWN = 300  # characters of what a worker tells
_PATTERNS = (Reason.NAN_PATTERN, Reason.INFINITE_PATTERN, Reason.UNWRITTEN)
_REMEDIES = {
    sizes.NAME: "be right for this size too, or return an error for it: a size that is refused fails nothing",
    arguments.NAME: "be right for these values too, or return an error for them: what is refused fails nothing",
    invariance.NAME: "compute each row from itself alone, whatever the batch and its other rows are",
    layouts.NAME: "go by the tensor's strides and address, or return an error for those that the kernel does not take",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviatingAnswer:
    """An answer that deviates from the first one to the same inputs."""

    probe: str
    expected: ExpectedSet
    first: Sequence[Tensor]
    """The answer that was given at first; () if there was none."""
    given: Sequence[Tensor]
    """The answer that deviates; () if there is none."""
    error: str
    """What the kernel raised instead; "" if nothing."""
    reused: bool = False
    """For `late_work`: a later call's answer lies on the same memory. For `fresh_memory`: see `verify.probes.fresh_memory`."""
    about: str = ""
    """For `autotuner`: the config; for `device_order`: what the call was made between."""


@dataclass(slots=True)
class ProbeResults:
    """Collects what probes trip with, in one case."""

    wanted: Sequence[str]
    tolerance: Tolerance
    exceptions: Sequence[ProbeException] = ()
    """Probes that the kernel is excused from."""
    repeatability: Repeatability = field(default_factory=Repeatability)
    """How far its answers may differ from each other."""
    claims: Sequence[str] = ()
    """Layouts that it must not refuse, and that bits of a row do not depend on the batch."""
    found: dict[str, list[str]] = field(default_factory=dict)
    """Messages by probe."""
    reasons: dict[str, Reason] = field(default_factory=dict)
    """Reasons that are not the probe's usual one."""
    not_run: dict[str, str] = field(default_factory=dict)
    """Why a probe that is switched on does not apply, by its name."""
    own_calls: Mapping[str, int] = field(default_factory=dict)
    """What torch's own op runs: see `verify.probes.op_callback`."""
    own_memory: Callable[[str], int] = lambda _: 0
    """What torch's own op takes on a set of inputs: see `verify.probes.memory_use`."""
    answered: set[str] = field(default_factory=set)
    """Probes of whose sets the kernel answered one at least."""
    varying: list[bool] = field(default_factory=list)
    """Whether answers that differ from the first ones, for no reason that is known, are right."""

    def trip(self, probe: str, message: str, reason: Reason | None = None) -> None:
        """Note what a probe saw; nothing for "" and for probes that are not switched on."""
        if message and probe in self.wanted:
            self.found.setdefault(probe, []).append(message)
            if reason is not None:
                self.reasons.setdefault(probe, reason)

    def add_conduct(self, answer: SetAnswer, inputs: str, names: Sequence[str]) -> None:
        """What the worker saw while the kernel answered one set of inputs."""
        if answer.overrun:
            self.trip("guards", f"the kernel wrote out of bounds: {answer.overrun} ({inputs_phrase(inputs)})")
        of = ", ".join(names)
        if answer.inputs_changed:
            self.trip(
                "inputs_unchanged",
                f"the kernel changed input tensors {[*answer.inputs_changed]}{f' (of {of})' if of else ''}, which the op leaves as "
                f"they are ({inputs_phrase(inputs)})\n→ write to memory of its own; if the op may change them, name the argument: "
                "semantics: {mutated: [NAME]}",
            )
        self.trip("plain_outputs", plain_outputs.judge(answer.unlike))

    def add_checks(self, checks: Iterable[Check]) -> None:
        """Poison that was found in the answers."""
        unwritten = next((check for check in checks if check.reason is Reason.UNWRITTEN), None)
        if unwritten is not None:
            self.trip("poison", unwritten.message)

    def add_facts(self, observed: Mapping[str, Any]) -> None:
        """What the watch of the worker tells: facts by probe, or `not_run`, why there are none.

        Raises:
            ProtocolError: if facts are not what our own watch would tell.
        """
        judges: dict[str, Callable[[Any], str]] = {
            **FACTS,
            op_callback.NAME: lambda facts: op_callback.judge(facts, self.own_calls),
            memory_use.NAME: lambda facts: memory_use.judge(facts, self.own_memory),
        }
        for probe, facts in observed.items():
            if isinstance(facts, Mapping) and "not_run" in facts:
                self.not_run[probe] = str(facts["not_run"])[:_SHOWN]
                continue
            if probe in judges:
                try:
                    self.trip(probe, judges[probe](facts))
                except (TypeError, KeyError, ValueError, AttributeError) as error:
                    raise ProtocolError(f"what the probe {probe} observed is malformed: {error}") from error

    def add_error(self, input_set: InputSet, error: RaisedError) -> None:
        """What a kernel raised on a probe's set, or died of.

        A refusal is an error that the kernel itself gives: whoever dies, or launches nothing, did not refuse. What a
        kernel is said to take it must not refuse.
        """
        name, message = input_set.expected.name, error.message.partition("\n")[0]
        died = error.phase == "died" or cause_of(error.kind, error.message) in DEVICE_FAULTS
        died = died or _fails_on_nothing(input_set, error)
        if not died and not (input_set.probe == layouts.NAME and layouts.claim_of(input_set) in self.claims):
            self.not_run.setdefault(input_set.probe, f"the kernel refuses {name}: {message}")
            return
        what = "died" if died else "refuses what its claims in cgins.yaml say it takes"
        if error.kind == Reason.TIMED_OUT.value:
            what = "timed out, because it hangs or is slow"
        message = f"on {inputs_phrase(name, 'the ')} the kernel {what}: {message}{_called(input_set)}"
        self.trip(input_set.probe, message, _reason(input_set))

    def add_answer(self, answered: Answered, cause: Diagnosis | None, half: ExpectedSet) -> None:
        """The checks of the answer to a probe's set, by a kernel that is right on the sets that decide; `half` is of its numbers in the case's own precision."""
        input_set = answered.inputs
        if not answered.checks:
            return
        failed = [check for check in answered.checks if not check.passed]
        if input_set.probe == second_precision.NAME:
            hidden, unknown = second_precision.judge(half, answered.checks, answered.got, self.tolerance)
            self.trip(input_set.probe, hidden)
            if unknown:
                self.not_run.setdefault(input_set.probe, unknown)
            return
        if input_set.probe == special_values.NAME:
            # Its numbers were looked at before; a wrong shape would have been seen there, too.
            failed = [check for check in failed if check.reason in _PATTERNS]
        if not _is_smaller(input_set):
            self.answered.add(input_set.probe)
        if failed:
            words = f" {cause.words}" if cause is not None and cause.words else ""
            reason = cause.reason if cause is not None and cause.reason else _reason(input_set, failed[0])
            self.trip(input_set.probe, f"{failed[0].message}{words}{_called(input_set)}", reason)

    def add_other_seed(self, answered: Sequence[Answered]) -> None:
        """A random op's answer with another seed, which is never the same one."""
        given = {one.inputs.expected.name: one for one in answered}
        other = given.get(arguments.OTHER_SEED)
        first = given.get(other.inputs.origin.expected.name) if other and other.inputs.origin else None
        if other is None or first is None or len(first.got) != len(other.got):
            return
        for output, old, new in zip(first.inputs.expected.outputs, first.got, other.got, strict=True):
            if output.draws is not None and output.draws.vary and all_same([old], [new]):
                message = (
                    f"output {output.index} is the same, bit for bit, with two seeds of torch's generator: it is drawn with a "
                    "seed of the kernel's own\n→ take the seed from the call, or numbers from torch's generator"
                )
                self.trip(arguments.NAME, message, Reason.ARGUMENT_IGNORED)

    def wrong_alone(self, answered: Sequence[Answered]) -> dict[str, tuple[Check, ...]]:
        """The first failed check of each set, by probe, where nothing but these answers tripped it."""
        wrong: dict[str, tuple[Check, ...]] = {}
        for one in answered:
            for check in [check for check in one.checks if not check.passed][:1]:
                wrong[one.inputs.probe] = (*wrong.get(one.inputs.probe, ()), check)
        return {
            probe: checks for probe, checks in wrong.items() if len(self.found.get(probe, ())) == len(checks)
        }

    def add_rows(self, answered: Sequence[tuple[InputSet, Sequence[Tensor]]]) -> list[str]:
        """Answers to the sets of `invariance` that are right; notes of rows whose bits changed as they may."""
        notes: list[str] = []
        for change in changed_rows(answered):
            trial, on = change.inputs.rows, inputs_phrase(change.inputs.expected.name)
            assert trial is not None
            finite = not change.inputs.expected.name.endswith(invariance.INFINITE)
            exact = self.repeatability.kind == "exact" and change.greatest > 0
            strict = finite and trial.torch_keeps_bits and exact
            claimed = invariance.CLAIM in self.claims
            if trial.base and (strict or claimed):
                held = "torch's keep theirs" if trial.torch_keeps_bits else "its entry claims batch_invariant"
                self.trip(
                    invariance.NAME,
                    f"the bits of a row change with what other rows hold, or rows that are not read ({on}: {change.words}); {held}"
                    "\n→ read no other row; if this variation is intended, set `repeatable: tolerance` in cgins.yaml",
                    Reason.ROW_LEAK,
                )
            elif claimed:
                self.trip(
                    invariance.NAME,
                    f"the kernel's entry claims batch_invariant, and the bits of a row change with the batch ({on}: {change.words})"
                    "\n→ add up in an order that neither the number of rows nor a row's position decides, or drop the claim",
                    Reason.BATCH_VARIANT,
                )
            elif not trial.base and not notes:
                notes.append(
                    "the bits of a row change with the batch, within the tolerance, as they may without "
                    f"`claims: [batch_invariant]`; torch's {'do not' if trial.torch_keeps_bits else 'do as well'}"
                )
        return notes if invariance.NAME in self.wanted else []

    def add_rerun(self, second: DeviatingAnswer) -> None:
        """An answer that was given later, or to the same tensors with other numbers."""
        on = inputs_phrase(second.expected.name)
        if cause_of("", second.error) is Reason.OUT_OF_MEMORY:
            message = (
                f"no memory was left to run it again ({on}): {second.error[:_SHOWN]}\n→ end what else holds the device's memory; "
                "if nothing does, have the kernel take no more with each call"
            )
            self.trip(second.probe, message, Reason.OUT_OF_MEMORY)
        elif second.probe == autotuner.NAME:
            self._config(second, on)
        elif second.error:
            message = f"run again on the {on}, the kernel raised {second.error}"
            self.trip(second.probe, message, Reason.NOT_REPEATABLE)
        elif second.probe == "late_work":
            message = (
                f"the kernel returned memory that a later call overwrites ({on}; {_differing(second)}): clone it, or "
                "return new memory from every call"
                if second.reused
                else f"the answer changed after the call had returned and its stream was done ({on}; "
                f"{_differing(second)}): wait for all streams and threads before returning"
            )
            self.trip("late_work", message)
        elif second.probe == "fresh_memory":
            self._fresh_memory(second, on)
        elif second.probe == ranks.NAME:
            self._late(second, on)
        elif self._may_differ(second):
            return
        elif second.probe == device_order.NAME:
            self._device_order(second, on)
        else:
            self.varying.append(self._right(second))
            message = f"two answers to the same {on} differ ({_differing(second)}){self._repeatable(second)}"
            self.trip(second.probe, message)

    def _late(self, second: DeviatingAnswer, on: str) -> None:
        """An answer while ranks come late; a stale one may be within the tolerance and is wrong all the same."""
        reason = Reason.STALE_ANSWER if second.reused else Reason.RANK_RACE
        if second.reused or not self._may_differ(second):
            parts = "parts of it are of the call before" if second.reused else _differing(second)
            message = f"the answer is another one {second.about[:_SHOWN]} ({on}; {parts})\n→ {ranks.REMEDIES[reason]}"
            self.trip(ranks.NAME, message, reason)

    def _device_order(self, second: DeviatingAnswer, on: str) -> None:
        """An answer beside other work; nothing if answers vary as much without it."""
        if self.varying and (self._right(second) or not all(self.varying)):
            return
        message = f"the answer is another one beside {second.about[:_SHOWN]} ({on}; {_differing(second)}){device_order.REMEDY}"
        self.trip(device_order.NAME, message)

    def _config(self, second: DeviatingAnswer, on: str) -> None:
        """An answer with a config that the kernel's autotuner may choose."""
        if second.error:
            self.trip(autotuner.NAME, f"with {second.about}, the kernel raised {second.error} ({on})")
        elif not second.given:
            self.not_run[autotuner.NAME] = second.about[:_SHOWN]
        elif not self._right(second):
            message = f"with {second.about}, which the autotuner may choose, the answer is wrong ({on}; {_differing(second)})"
            self.trip(
                autotuner.NAME,
                f"{message}\n→ correct the kernel for it, or take it out of the autotuner's configs",
            )

    def _fresh_memory(self, second: DeviatingAnswer, on: str) -> None:
        if self._right(second):
            return  # not repeatable, but of these inputs
        late = "late_work" in self.found  # the cause: until it is there, the memory holds the answer before
        if second.reused and not late:
            self.trip(
                "fresh_memory",
                f"new values in the same tensors gave a stale answer ({on}; {_differing(second)}): the kernel caches "
                "by tensor address or identity",
                Reason.STALE_ANSWER,
            )
        elif not self._may_differ(second):
            self.trip(
                repeat.NAME if late else "fresh_memory",
                f"two answers to the same {on} differ, and the second came from tensors that had held other "
                f"numbers ({_differing(second)}){self._repeatable(second)}",
                Reason.NOT_REPEATABLE,
            )

    def _repeatable(self, second: DeviatingAnswer) -> str:
        """What the second answer is by itself, and what would let it pass, if anything would."""
        right = self._right(second)
        if right and self._right(replace(second, given=second.first)):
            return (
                "\n→ the second is within the tolerance as well: if this variation is intended (unordered atomics), "
                "set `repeatable: tolerance` in cgins.yaml"
            )
        on_gpu = any(tensor.is_cuda for tensor in second.given)
        look = "\n→ look for races in shared memory: --cgins-sanitize=racecheck" if on_gpu else ""
        return f"; the {'first' if right else 'second'} is not within the tolerance{look}"

    def _may_differ(self, second: DeviatingAnswer) -> bool:
        """Whether the op, or the kernel's entry, allows the answer to differ from the first one as it does."""
        if any(output.draws is not None for output in second.expected.outputs) or _differs_in_ties(second):
            return self._right(second)
        allowed = self.repeatability
        if allowed.kind == "tolerance":
            return self._right(second)
        return allowed.kind == "explicit" and _close(second, allowed)

    def _right(self, second: DeviatingAnswer) -> bool:
        return bool(second.given) and accepts(
            second.expected, [as_real(tensor) for tensor in second.given], self.tolerance
        )

    def probes(self) -> tuple[Probe, ...]:
        """One result a probe, in the registry's order."""
        excused = {exception.probe: exception.reason for exception in self.exceptions}
        results = []
        for name in PROBE_SPECS:
            held = Probe(name=name, outcome="held", reason=Reason.OK)
            if name in excused:
                results.append(replace(held, outcome="excused", message=excused[name]))
            elif name in self.found:
                reason = self.reasons.get(name, PROBE_SPECS[name].reason)
                first, *more = self.found[name]
                line, newline, rest = first.partition("\n")
                message = f"{line} (and {len(more)} more like it){newline}{rest}" if more else first
                results.append(Probe(name=name, outcome="tripped", reason=reason, message=message))
            elif name in self.not_run and name in self.wanted and name not in self.answered:
                results.append(replace(held, outcome="not-run", message=self.not_run[name]))
            elif name in self.wanted:
                results.append(held)
        return tuple(results)


def _fails_on_nothing(input_set: InputSet, error: RaisedError) -> bool:
    """Whether a kernel launched no blocks, or divided by no rows: that is no refusal of an empty batch."""
    empty = input_set.probe == sizes.NAME and any(0 in meta.shape for meta in input_set.layout.metas)
    return empty and (error.kind == "ZeroDivisionError" or "invalid configuration argument" in error.message)


def _reason(input_set: InputSet, check: Check | None = None) -> Reason | None:
    if _is_smaller(input_set):
        return Reason.SIZE_DEPENDENT
    if input_set.probe == layouts.NAME and layouts.claim_of(input_set) == layouts.MISALIGNED:
        return Reason.ALIGNMENT_DEPENDENT
    if input_set.rows is not None and not _is_of_other_keys(input_set):
        return Reason.ROW_LEAK if input_set.rows.base else Reason.BATCH_VARIANT
    if input_set.rows is not None:
        return Reason.ARGUMENT_IGNORED
    if input_set.probe == special_values.NAME and check is not None and check.reason in _PATTERNS[:2]:
        return check.reason
    return None


def _called(input_set: InputSet) -> str:
    """The probe's call, which is not the recorded one, and what to do."""
    probe = arguments.NAME if _is_of_other_keys(input_set) else input_set.probe
    probe = sizes.NAME if _is_smaller(input_set) else probe
    remedy = f"\n→ {_REMEDIES[probe]}" if probe in _REMEDIES else ""
    return f"\ncalled  {call_line(input_set.call, input_set.layout.metas)}{remedy}"


def _is_smaller(input_set: InputSet) -> bool:
    """Whether it is of the probe of layouts, and lies as the call's own arguments do."""
    return input_set.probe == layouts.NAME and input_set.expected.name == layouts.AS_IT_LIES


def _is_of_other_keys(input_set: InputSet) -> bool:
    """Whether it is the call with other excluded keys, before these hold anything but numbers: a mask as any other."""
    return input_set.rows is not None and input_set.rows.axis != 0 and not input_set.rows.base


def _differs_in_ties(second: DeviatingAnswer) -> bool:
    """Whether two answers may be two orders of equal values: all but these are the same, bit for bit."""
    expected = second.expected
    if len(second.first) != len(second.given) or len(second.given) != len(expected.outputs):
        return False
    if expected.arrangement is not None:
        return True  # any order is as good, or any of the values that come most often
    pairs = zip(second.first, second.given, expected.outputs, strict=True)
    return all(output.indices is not None or all_same([old], [new]) for old, new, output in pairs)


def _differing(second: DeviatingAnswer) -> str:
    """How much of an answer differs from the first one, and by how much at most."""
    if len(second.first) != len(second.given) or not second.given:
        return f"{counted(len(second.given), 'tensor')} instead of {len(second.first)}"
    for index, (old, new) in enumerate(zip(second.first, second.given, strict=True)):
        if all_same([old], [new]):
            continue
        if old.shape != new.shape or old.dtype != new.dtype:
            return f"output {index} has shape {tuple(new.shape)} instead of {tuple(old.shape)}"
        apart = distances(as_real(old), as_real(new))
        count, greatest = int(apart.count_nonzero()), float(apart.max())
        by = f", by up to {greatest:.3g}" if count else " in the sign of a zero or a NaN"
        return f"{count} of {counted(apart.numel(), 'element')} of output {index}{by}"
    return "no element"


def _close(second: DeviatingAnswer, allowed: Repeatability) -> bool:
    if [(one.shape, one.dtype) for one in second.first] != [(one.shape, one.dtype) for one in second.given]:
        return False
    near = partial(torch.allclose, rtol=allowed.rtol, atol=allowed.atol, equal_nan=True)
    wide = ([as_real(one).to(torch.float64) for one in answer] for answer in (second.given, second.first))
    return all(map(near, *wide))
