"""``gehost check-pass``: run a pass on instances and mutations of its pattern.

The host itself judges. An instance is good if it is a valid model that runs and the pass fires on
it. Then the result must give the same numbers, a second run must change nothing, and each mutation
of the instance must be refused or give the same numbers, too. A pattern without a running instance,
or with random numbers, is reported as not checked.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from gehost.diagnose.check_pass.candidates import one_of
from gehost.diagnose.check_pass.coverage import Coverage, Form
from gehost.diagnose.check_pass.effects import decides, parts_of, refused_by_types
from gehost.diagnose.check_pass.instances import Draw, Instance, NoInstance, draw
from gehost.diagnose.check_pass.mutations import (
    Mutation,
    both,
    mutated,
    mutations,
    untyped,
)
from gehost.diagnose.check_pass.sources import has_sources, instances_of, sources_at
from gehost.diagnose.check_pass.trial import Numbers, Outcome, Reference, Trial, UnsteadyError
from gehost.diagnose.check_pass.verdict import Finding, PassCheck, Wrong
from gehost.errors import GehostError, ModelError
from gehost.host.pipeline import SHAPE_INFERENCE, stages_before
from gehost.infer import infer_model
from gehost.ir.model import Model
from gehost.pattern.explain.reference_matcher import MatchFailure, why_not
from gehost.pattern.source import SourcePattern

OPSETS = (17, 13, 21, 11, 18, 23, 9, 15, 24, 7, 20, 12)
"""Opsets of instances, if the pass supports them; each pattern is tried at least at the first."""
_FALLBACK_OPSETS = tuple(range(7, 27))
_DRAWS = 400
"""Number of draws for one pattern without a good instance before it is given up."""
_DRAWS_BESIDE = 8
"""The same for a pattern that has an instance offered by the pass."""
_MOST_FINDINGS = 12
_PATIENCE = 12
"""Number of draws without a good instance after which the search varies earlier ones, and number of
failures after which it ends.
"""
_ALIKE = 4
"""Number of instances without a new feature that are skipped for each good one; half as many if
only the ranks of the operands are not new.
"""
_INDEPENDENT = 0.25
"""Share of draws that start from nothing although a good or refused instance is known."""
_SAME_PARAMETERS = 0.7
"""Share of the others that keep the parameters, too."""
_SHARE_OF_NEW = 0.75
"""Largest share of an instance's mutations that show forms not tried so far."""
_MOST_ATTEMPTS = 4
"""Number of instances on which a form is looked for."""
_PATIENCE_AT_OPSET = 24
"""Number of draws without a good instance after which an opset is not preferred any more."""
_PAIRS = 0.15
"""Share of double mutations."""
_SHOWN_REASONS = 6


def check_pass(
    trial: Trial,
    *,
    seed: int = 0,
    instances: int = 24,
    mutations: int = 40,
    progress: Callable[[str, int, int], None] = lambda _line, _done, _total: None,
) -> PassCheck:
    """Check one pass.

    Args:
        trial: the pass, alone in a host.
        seed: of all random choices.
        instances: number of good instances; at least one for each pattern.
        mutations: largest number for each instance; less if there are more patterns than instances.
        progress: called now and then with a line: the number of instances so far, and wanted.

    Raises:
        VendorError: a vendor's operator is wrong.
    """
    with trial.host.vendor_code():
        return _Check(trial, seed, instances, mutations, progress).run()


class _Check:
    def __init__(
        self,
        trial: Trial,
        seed: int,
        instances: int,
        mutations: int,
        progress: Callable[[str, int, int], None],
    ) -> None:
        self._trial = trial
        self._progress = progress
        self._spec = trial.spec
        self._seed = seed
        self._wanted = instances
        self._mutations = mutations
        self._rng = np.random.default_rng([seed, zlib.crc32(self._spec.name.encode())])
        provider = trial.comparing.provider
        self._result = PassCheck(self._spec.name, self._spec.origin, provider=provider)
        self._good: list[Draw] = []
        """Choices of good instances of all patterns."""
        self._offered: set[int] = set()
        """Patterns that have an instance offered by the pass."""
        self._sources: dict[int, list[list[SourcePattern]]] = {}
        self._coverage = Coverage(trial.host.ops)
        self._attempts: Counter[Form] = Counter()
        """On how many instances each form was looked for."""
        self._incomparable = ""
        """Why the first result that could not be compared could not."""

    def run(self) -> PassCheck:
        result = self._check()
        if self._incomparable and not result.instances:
            result.notes.append(f"its results cannot be compared: {self._incomparable}")
        if result.instances:
            opsets = self._opsets(_FALLBACK_OPSETS)
            result.not_varied = self._coverage.missing(min(opsets), max(opsets))
        return result

    def _check(self) -> PassCheck:
        result = self._result
        opsets = self._opsets(OPSETS) or self._opsets(_FALLBACK_OPSETS)
        last, first = _FALLBACK_OPSETS[-1], self._spec.min_opset or 0
        if not opsets and first > last:
            result.notes.append(f"it is for opset {first} and later ones, checks end at {last}")
            return result
        if not opsets:
            result.findings.append(
                Finding(
                    Wrong.NEVER_FIRES, "", "", f"it is for none of the opsets {_FALLBACK_OPSETS}"
                )
            )
            return result
        try:
            for opset in self._opsets(_FALLBACK_OPSETS):
                self._trial.run(_identity(opset))
        except ModelError:
            raise
        except GehostError as error:
            result.findings.append(Finding(Wrong.FAILS, "", "", str(error)))
            return result
        offered = self._check_offered()
        if not has_sources(self._spec, self._trial.host):
            if offered:
                return result
            result.notes.append(
                "it has no pattern (it walks the graph itself): instances cannot be built, check "
                "it with models"
            )
            return result
        self._check_patterns(opsets)
        return result

    def _check_offered(self) -> bool:
        """Check the instances that the pass offers; return whether it offers any."""
        offered = instances_of(self._spec, self._trial.host)
        for number, model in enumerate(offered):
            name = f"instance {number} of Instances()"
            try:
                outcome = self._trial.run(model)
                reference = Reference(model, self._seed, self._trial.comparing)
            except GehostError as error:
                self._find(Finding(Wrong.FAILS, name, "", str(error), model))
                continue
            if not outcome.replaced:
                reason = "; ".join(outcome.refusals) or outcome.message or "it does not match"
                self._find(Finding(Wrong.NEVER_FIRES, name, "", reason, model))
                continue
            opset = next(e.version for e in model.opset_import if e.domain in ("", "ai.onnx"))
            if has_sources(self._spec, self._trial.host):
                self._offered.update(
                    pattern
                    for pattern, variants in enumerate(self._sources_at(opset))
                    if any(None in _failures(model, source) for source in variants)
                )
            self._check_instance(Instance(model, opset, Draw(), name), outcome, reference)
        return bool(offered)

    def _opsets(self, among: Sequence[int]) -> list[int]:
        least, most = self._spec.min_opset or 0, self._spec.max_opset or max(_FALLBACK_OPSETS)
        newest = onnx.defs.onnx_opset_version()  # an older onnx refuses models of newer opsets
        return [opset for opset in among if least <= opset <= min(most, newest)]

    def _check_patterns(self, opsets: Sequence[int]) -> None:
        result = self._result
        count = max(len(self._sources_at(opset)) for opset in opsets)
        searches = [
            _Search(number, _DRAWS_BESIDE if number in self._offered else _DRAWS)
            for number in range(count)
        ]
        least, more = divmod(self._wanted, count)
        self._mutations = -(-self._mutations * self._wanted // max(self._wanted, count))
        for search in searches:
            goal = max(1, least + (search.number < more))
            first = search.number % len(opsets)
            self._search(search, [*opsets[first:], *opsets[:first]], goal)
        fired = [search for search in searches if search.good or search.number in self._offered]
        result.patterns = (len(fired), count)
        for search in searches:
            if search in fired or search.failures:  # failures have a finding already
                continue
            refused = self._refuses_one_that_runs(search)  # adds to the search's reasons
            if search.unsteady:
                problem = "numbers cannot be compared"
            elif not refused:
                problem = "no runnable instance was found"
            elif search.fired:
                problem = "no instance that it accepts runs"
            else:
                problem = "could not build an instance that it accepts"
            place = f"pattern {search.number + 1} of {count}"
            result.notes.append(f"{place}: {problem}: {search.reasons_text()}")

    def _refuses_one_that_runs(self, search: _Search) -> bool:
        """Whether the pass refused an instance that runs.

        Reasons why others do not run are recorded.
        """
        for model in search.pending:
            try:
                Reference(model, self._seed, self._trial.comparing)
            except UnsteadyError:
                return True
            except ModelError as error:
                search.reasons[f"not rewritten, and it does not run: {error}"] += 1
            else:
                return True
        return not search.expressible

    def _sources_at(self, opset: int) -> list[list[SourcePattern]]:
        if opset not in self._sources:
            self._sources[opset] = sources_at(self._spec, self._trial.host, opset)
        return self._sources[opset]

    # finding instances

    def _search(self, search: _Search, opsets: Sequence[int], goal: int) -> None:
        """Search instances of one pattern, and check each good one."""
        usable = [opset for opset in opsets if self._sources_at(opset)[search.number]]
        if not usable:
            search.reasons["no opset has its operators"] += 1
            search.expressible = False
            return
        while (
            len(search.good) < goal
            and search.tries < search.most
            and len(self._result.findings) < _MOST_FINDINGS
        ):
            search.tries += 1
            if search.tries % _PATIENCE == 0:
                self._show(f"pattern {search.number + 1}, draw {search.tries}")
            opset = self._opset_for(search, usable)
            variants = self._sources_at(opset)[search.number]
            source = variants[self._rng.integers(len(variants))]
            try:
                instance = draw(
                    source, opset, self._trial.host.ops, self._rng, self._draw_to_vary(search)
                )
            except NoInstance as error:
                search.reasons[str(error)] += 1
                continue
            try:
                outcome = self._trial.run(instance.model)
            except ModelError as error:
                search.reasons[f"no valid model: {error}"] += 1
                continue
            except GehostError as error:
                search.reasons[str(error)] += 1
                # a runtime takes the model, so the fault is the pass's
                if self._runs(instance.model):
                    self._find(Finding(Wrong.FAILS, str(instance), "", str(error), instance.model))
                    search.failures += 1
                if search.failures >= _PATIENCE and not search.good:
                    return
                continue
            if not outcome.replaced:
                if not search.good:
                    search.pending.append(instance.model)
                for reason in outcome.refusals:
                    search.note(f"refused: {reason}", instance)
                if not outcome.refusals:
                    search.note(
                        outcome.message
                        or f"it does not match: {_nearest_miss(instance.model, source)}",
                        instance,
                    )
                continue
            # instances of the same features find little: a few more while their ranks are new
            ranks, *others = features = instance.drawn.features
            most = 0 if ranks not in search.features else _ALIKE
            if search.alike < (most if search.features.issuperset(others) else most // 2):
                search.alike += 1
                continue
            try:
                reference = Reference(instance.model, self._seed, self._trial.comparing)
            except ModelError as error:
                search.fired = True
                search.unsteady |= isinstance(error, UnsteadyError)
                search.note(
                    str(error) if isinstance(error, UnsteadyError) else f"it does not run: {error}",
                    instance,
                )
                continue
            search.good.append(instance.drawn)
            search.features.update(features)
            search.tries = search.alike = 0
            self._good.append(instance.drawn)
            self._check_instance(instance, outcome, reference)

    def _opset_for(self, search: _Search, usable: Sequence[int]) -> int:
        """Return the opset of the next draw: one with untried versions of operators, if any."""
        turn = len(search.good) % len(usable)
        in_turn = [*usable[turn:], *usable[:turn]]
        if not search.good:
            return in_turn[0]

        def news(opset: int) -> int:
            variants = self._sources_at(opset)[search.number]
            ops = {op for source in variants for pattern in source.ops for op in pattern.ops}
            in_vain = search.draws[opset] >= _PATIENCE_AT_OPSET
            return 0 if in_vain else self._coverage.new_versions(ops, opset)

        opset = max([*in_turn, *self._opsets(_FALLBACK_OPSETS)], key=news)
        search.draws[opset] += 1
        return opset

    def _draw_to_vary(self, search: _Search) -> Draw:
        """Return choices to start from; none for an independent draw.

        They vary those of a good instance, or of one refused for a rare reason.
        """
        rng = self._rng
        samples = search.good
        if not samples and search.tries > _PATIENCE:
            samples = self._good
            if search.refused and (not samples or rng.random() < 0.5):
                rare = [1 / search.kinds[kind] for kind in search.refused]
                choice = rng.choice(len(rare), p=np.divide(rare, sum(rare)))
                samples = [list(search.refused.values())[choice]]
        if not samples or rng.random() < _INDEPENDENT:
            return Draw()
        like = one_of(rng, samples)
        like = like.varied(rng) if search.good and rng.random() < 0.5 else like.reopened(rng)
        return like if rng.random() < _SAME_PARAMETERS else replace(like, parameters=None)

    # checking instances

    def _show(self, step: str) -> None:
        count = min(self._result.instances, self._wanted)
        self._progress(f"{self._spec.name}: {step}", count, self._wanted)

    def _check_instance(self, instance: Instance, outcome: Outcome, reference: Reference) -> None:
        result = self._result
        self._coverage.add(instance.model, instance=True)
        same = self._compare(str(instance), "", instance.model, outcome, reference)
        if same is None:
            return
        result.instances += 1
        result.opsets.add(instance.opset)
        for number, part in parts_of(instance.model):
            form = Form(instance.model.graph.node[number].op_type, 0, part, "")
            one = Mutation("attribute", "", lambda _: None, form=form, node=number, parts=(part,))
            self._decide_parts(one, instance.model, outcome, instance)
        if not same:
            return  # most mutations would fail likewise
        self._show(f"{result.instances} instances, {result.tried} mutations")
        mutants = mutations(instance.model, self._rng)
        start = result.tried
        if self._mutations and self._spec.stage in stages_before(SHAPE_INFERENCE):
            self._check_mutation(instance, untyped(instance.model))
        for mutation in self._newest_first(mutants):
            if result.tried - start >= self._mutations * _SHARE_OF_NEW:
                break
            if self._news(mutation):
                self._check_mutation(instance, mutation)
        for mutation in mutants:
            if result.tried - start >= self._mutations:
                return
            if self._rng.random() < _PAIRS:
                mutation = both(mutation, mutants[int(self._rng.integers(len(mutants)))])
            self._check_mutation(instance, mutation)

    def _newest_first(self, mutants: Sequence[Mutation]) -> list[Mutation]:
        """Return the mutations that show forms not tried so far, new features first.

        A form that could not be shown on several instances is left out.
        """
        news = [
            (self._news(mutant), mutant)
            for mutant in mutants
            if mutant.form is not None and self._attempts[mutant.form] < _MOST_ATTEMPTS
        ]
        return [mutant for new, mutant in sorted(news, key=lambda pair: -pair[0]) if new]

    def _news(self, mutation: Mutation) -> int:
        """Return how new the form of a mutation is, 0 without one."""
        form = mutation.form
        return 0 if form is None else self._coverage.news(form, mutation.parts)

    def _check_mutation(self, instance: Instance, mutation: Mutation) -> None:
        """Run the pass on the first changed model that runs."""
        if mutation.form is not None:
            self._attempts[mutation.form] += 1
        described = f"{instance}; {mutation.what}"
        runs = False
        for changed in mutated(instance.model, mutation, described):
            runs = self._check_changed(described, mutation, changed, instance) or runs
            if runs and not self._open_parts(mutation):
                break
        self._result.invalid += not runs

    def _open_parts(self, mutation: Mutation) -> list[str]:
        """Return the parts that the pass was not tried with where they matter."""
        op = "" if mutation.form is None else mutation.form.op
        return [part for part in mutation.parts if self._coverage.is_open(op, part)]

    def _decide_parts(
        self, mutation: Mutation, changed: onnx.ModelProto, outcome: Outcome, instance: Instance
    ) -> None:
        """Record the parts of a mutation that matter in the changed model."""
        form, parts = mutation.form, self._open_parts(mutation)
        if form is None or not parts:
            return
        if refused_by_types(outcome):
            for part in parts:
                self._coverage.refuse_by_types(form.op, part)
            return
        original = instance.model.graph.node[mutation.node]
        if decides(self._trial, self._seed, changed, outcome, mutation, original):
            for part in parts:
                self._coverage.decide(form.op, part)

    def _check_changed(
        self, described: str, mutation: Mutation, changed: onnx.ModelProto, instance: Instance
    ) -> bool:
        """Run the pass on a changed model; return whether that is one that runs."""
        result = self._result
        try:
            outcome = self._trial.run(changed)
        except ModelError:
            return False
        except GehostError as error:
            if not self._runs(changed):
                return False
            result.wrong += 1
            self._coverage.add(changed)
            self._find(Finding(Wrong.FAILS, described, mutation.kind, str(error), changed))
            return True
        if not outcome.replaced:
            # inference accepts some models that no engine runs, which show nothing
            if self._news(mutation) and not self._runs(changed):
                return False
            result.refused += 1
            self._coverage.add(changed)
            self._decide_parts(mutation, changed, outcome, instance)
            return True
        try:
            reference = Reference(changed, self._seed, self._trial.comparing)
        except ModelError:
            return False
        same = self._compare(described, mutation.kind, changed, outcome, reference)
        if same is None:
            return False
        self._coverage.add(changed)
        self._decide_parts(mutation, changed, outcome, instance)
        if same:
            result.equal += 1
        else:
            result.wrong += 1
        return True

    def _compare(
        self, name: str, kind: str, model: onnx.ModelProto, outcome: Outcome, reference: Reference
    ) -> bool | None:
        """Whether numbers stay and a second run changes nothing; records findings.

        Returns None if they cannot be compared.
        """
        try:
            numbers: Numbers = reference.compare(outcome.model)
        except UnsteadyError as error:
            self._incomparable = self._incomparable or str(error)
            return None
        engine = str(reference.engine)
        self._result.engines[engine] += 1
        self._result.elsewhere.update(numbers.elsewhere)
        if numbers.difference:
            self._find(
                Finding(
                    Wrong.DIFFERS,
                    name,
                    kind,
                    f"{numbers.difference}, computed by {engine}",
                    model,
                    outcome.model,
                    numbers.feeds,
                )
            )
            return False
        try:
            again = self._trial.run(outcome.model)
        except GehostError as error:
            self._find(
                Finding(Wrong.FAILS, f"{name}; a second run", kind, str(error), outcome.model)
            )
            return False
        if again.replaced:
            self._find(
                Finding(
                    Wrong.FIRES_AGAIN,
                    name,
                    kind,
                    f"{again.replaced} more rewrites",
                    outcome.model,
                    again.model,
                )
            )
        return not again.replaced

    def _runs(self, model: onnx.ModelProto) -> bool:
        """Whether a pass must not fail on a model.

        Inference accepts some that no engine runs.
        """
        try:
            Reference(model, self._seed, self._trial.comparing)
        except UnsteadyError:
            return True
        except ModelError:
            return False
        return True

    def _find(self, finding: Finding) -> None:
        """Record a finding unless a similar one is known."""
        if all(
            (earlier.wrong, earlier.kind) != (finding.wrong, finding.kind)
            for earlier in self._result.findings
        ):
            self._result.findings.append(finding)


class _Search:
    """The state of the search for instances of one pattern."""

    def __init__(self, number: int, most: int) -> None:
        self.number = number
        self.most = most
        """Draws without a good instance after which the search is given up."""
        self.good: list[Draw] = []
        self.features: set[tuple[Any, ...]] = set()
        """Features of good instances."""
        self.tries = 0
        """Draws since the last good instance."""
        self.draws: Counter[int] = Counter()
        """All draws at each opset."""
        self.alike = 0
        """The number of them on which the pass fires, skipped for the lack of new features."""
        self.reasons: Counter[str] = Counter()
        """Reasons why instances were not good, with counts."""
        self.kinds: Counter[str] = Counter()
        self.pending: list[onnx.ModelProto] = []
        """Instances on which the pass did not fire."""
        self.fired = self.unsteady = False
        """Whether the pass fired on an instance that does not run or has random numbers; whether
        one had random numbers.
        """
        self.failures = 0
        """Number of instances that run and on which the pass failed."""
        self.expressible = True
        """Whether some opset has the pattern's operators."""
        self.refused: dict[str, Draw] = {}
        """The last choices for each kind of reason why an instance was not good."""

    def note(self, reason: str, instance: Instance) -> None:
        """Record why an instance was not good, and its choices."""
        self.reasons[reason] += 1
        # without its lists, numbers and names
        kind = re.sub(r"\[[^]]*\]|\d+|\"[^\"]*\"", "#", reason)
        self.kinds[kind] += 1
        self.refused[kind] = instance.drawn

    def reasons_text(self) -> str:
        """Return the kinds of reasons, most frequent first, each with an example."""
        groups: dict[str, tuple[int, str]] = {}
        for reason, count in self.reasons.items():
            total, example = groups.get(_group_key(reason), (0, reason))
            groups[_group_key(reason)] = (total + count, example)
        ordered = sorted(groups.values(), key=lambda group: -group[0])
        more = (
            [f"{len(ordered) - _SHOWN_REASONS} more reasons"]
            if len(ordered) > _SHOWN_REASONS
            else []
        )
        return "; ".join(
            [f"{count} × {example}" for count, example in ordered[:_SHOWN_REASONS]] + more
        )


def _group_key(reason: str) -> str:
    """Return the part shared by reasons that differ in names and numbers.

    It is the text before the second colon.
    """
    return ":".join(reason.split(":")[:2])


def _failures(proto: onnx.ModelProto, source: SourcePattern) -> list[MatchFailure | None]:
    """Return for each candidate why a pattern does not match, or None."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    model = Model(copy)
    infer_model(model, None)
    root = source.tensors[source.outputs[0]].producer
    assert root is not None
    return [why_not(source, node) for node in model.graph.nodes_of(*source.ops[root].ops)]


def _nearest_miss(proto: onnx.ModelProto, source: SourcePattern) -> str:
    """Return why a pattern does not match its own instance."""
    failures = _failures(proto, source)
    deepest = max(
        (failure for failure in failures if failure is not None),
        key=lambda failure: failure.depth,
        default=None,
    )
    return "another pattern does, and is refused" if deepest is None else str(deepest)


def _identity(opset: int) -> onnx.ModelProto:
    """Return a model that no pass should change.

    Errors in constructors and ``Patterns`` show on it.
    """
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "nothing",
        [info("x", 1, [2])],
        [info("y", 1, [2])],
    )
    imports = [onnx.helper.make_opsetid("", opset)]
    newest = onnx.helper.find_min_ir_version_for(imports)
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=max(8, newest))
