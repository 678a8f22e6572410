"""`matrix.md`: per data source the table of arms, every seed by itself, and paired comparisons; then the cells.

The comparisons are those of an arm with GRPO alone, with GRPO's two-pass self-cascade and with the cooperative pair, as
far as the matrix has them. p and its interval are over problems, with the seeds of a problem taken together; a second
interval draws seeds as well. Holm's correction is over the comparisons of one arm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agon_verl.evaluate import statistics
from agon_verl.evaluate.markdown import decimal, number, percent, signed, span, table
from agon_verl.evaluate.results import RESULTS, Results
from agon_verl.evaluate.summary import CASCADE, POST_HOC, Summary, sources, summaries
from agon_verl.game.roles import BASE
from agon_verl.matrix.cells import EVALUATED, FAILED, CellState
from agon_verl.matrix.plan import Plan
from agon_verl.matrix.rows import PAIR, REFERENCES, rows

_SEED = "A seed sets the initial weights, the sampling and the order of the data."


@dataclass(frozen=True)
class Row:
    """One way in which an arm answers. `by_seed` has the seeds that are evaluated; the base has one, 0.

    `equal` are those with the same budget as the other arms, which are compared.
    """

    arm: str
    method: str
    name: str
    way: str
    by_seed: Mapping[int, Results]
    equal: frozenset[int]
    planned: int
    failed: int

    def summary(self, source: str) -> Summary | None:
        return summaries(list(self.by_seed.values()), source).get(self.way)

    def of_seed(self, source: str, seed: int) -> Summary | None:
        return summaries([self.by_seed[seed]], source).get(self.way) if seed in self.by_seed else None


def table_rows(plan: Plan, states: Mapping[str, CellState]) -> list[Row]:
    untrained = plan.out / BASE / "eval" / RESULTS
    base = {0: Results.read(untrained)} if untrained.exists() else {}
    ways = {way for source in sources(list(base.values())) for way in summaries(list(base.values()), source)}
    made = [Row(BASE, BASE, name, way, base, frozenset(base), 1, 0) for name, way in rows(BASE) if way in ways]
    for arm in plan.arms:
        own = {seed: states[f"{arm.name}/seed_{seed}"] for seed in plan.seeds}
        results = {
            s: Results.read(plan.out / arm.name / f"seed_{s}" / "eval") for s in own if own[s].state == EVALUATED
        }
        equal = frozenset(s for s in results if _equal(own[s]))
        failed = sum(state.state == FAILED for state in own.values())
        label = arm.label or ("" if arm.name == arm.method else arm.name)
        counts = (results, equal, len(own), failed)
        planned = [(name, way) for name, way in rows(arm.method, label) if way not in PAIR or way in arm.evaluated]
        made += [Row(arm.name, arm.method, name, way, *counts) for name, way in planned]
    return made


def _equal(cell: CellState) -> bool:
    return cell.parity in (None, "ok")


def summary(plan: Plan, states: Mapping[str, CellState]) -> str:
    made = table_rows(plan, states)
    parts: list[str] = []
    for source in sources([results for row in made for results in row.by_seed.values()]):
        parts += [f"## {source}", _main(made, source), _by_seed(made, plan.seeds, source)]
        parts += [compared] if (compared := _comparisons(made, source)) else []
    unequal = [f"{key}: {cell.parity}" for key, cell in states.items() if not _equal(cell)]
    parts += [f"**Unequal budgets, not compared:** {'; '.join(unequal)}"] if unequal else []
    parts.append(f"{len(plan.seeds)} seeds per arm are planned; deviation and range are over those evaluated. {_SEED}")
    return "\n\n".join([*parts, "## Cells", _cells(states)]) + "\n"


def _main(made: Sequence[Row], source: str) -> str:
    lines = []
    for row in made:
        count = f"{len(row.by_seed)}" + ("" if len(row.by_seed) == row.planned else f" of {row.planned}")
        line = [row.name, count + (f" ({row.failed} failed)" if row.failed else "")]
        if found := row.summary(source):
            over = found.spread
            line += [percent(over.mean), span(found.interval), percent(over.deviation)]
            line += [f"{percent(over.low)} to {percent(over.high)}"]
            line += [number(found.length), number(found.generated), number(found.prefilled)]
            line += [decimal(found.correlation)]
        lines.append(line if found else [*line, *["–"] * 8])
    head = ["arm", "seeds", "mean pass@1 %", "95 % interval", "deviation", "range", "final length"]
    note = (
        "Tokens are means per problem: of the final stage, then generated and prefilled by all stages. The last column "
        "is the correlation of the errors of A and B, each alone, over problems."
    )
    return table([*head, "generated", "prefilled", "errors A, B"], lines) + f"\n\n{note}"


def _by_seed(made: Sequence[Row], seeds: Sequence[int], source: str) -> str:
    """Every cell with its interval over problems, and that of the first samples, which is exact."""
    lines, several = [], False
    for row in made:
        line = [row.name]
        for seed in seeds if row.arm != BASE else [0]:
            found = row.of_seed(source, seed)
            if found is None:
                line.append("–")
                continue
            first = [samples[0] for samples in found.outcomes.values() if samples]
            several = several or any(len(samples) > 1 for samples in found.outcomes.values())
            exact = statistics.exact_interval(sum(first), len(first))
            mode = f" {found.modes[0][0]}" if row.way in (CASCADE, POST_HOC) else ""
            line.append(f"{percent(found.shares[0])}{mode}; {percent(sum(first) / len(first))} {span(exact)}")
        lines.append([*line, *["–"] * (1 + len(seeds) - len(line))])
    what = "pass@1 % with the direction of the cascade; then that of the first samples" if several else "pass@1 %"
    return f"Every seed: {what}, with its exact interval over problems.\n\n" + table(
        ["arm", *(f"seed {seed}" for seed in seeds)], lines
    )


def _comparisons(made: Sequence[Row], source: str) -> str:
    by_way = {(row.method, row.way): row for row in reversed(made)}  # of several arms of a method, the first
    references = [by_way[name] for name in REFERENCES if name in by_way and by_way[name].summary(source)]
    lines = []
    for row in [row for row in made if row.way != POST_HOC and row.arm != BASE and row.summary(source)]:
        tests = [(other, _paired(row, other, source)) for other in references if other.arm != row.arm]
        usable = [(other, test) for other, test in tests if test is not None]
        corrected = statistics.holm([test.p for _, test in usable])
        for (other, test), p in zip(usable, corrected, strict=True):
            shared = sorted(row.equal & other.equal)
            own, theirs = ([_outcomes(each, source, seed) for seed in shared] for each in (row, other))
            wider = statistics.over_seeds(own, theirs)
            each = [signed(t.difference) for a, b in zip(own, theirs, strict=True) if (t := statistics.paired(a, b))]
            lines.append(
                [f"{row.name} − {other.name}", signed(test.difference), span(test.interval), span(wider)]
                + [f"{test.p:.2g}", f"{p:.2g}", ", ".join(each), str(test.problems), test.test]
            )
    head = ["comparison", "points", "95 % over problems", "95 % over seeds too", "p", "p, Holm", "each seed"]
    note = (
        "A difference is the mean over the seeds that both arms have. Holm's correction is for the comparisons of the "
        "arm that comes first."
    )
    return table([*head, "problems", "test"], lines) + f"\n\n{note}" if lines else ""


def _outcomes(row: Row, source: str, seed: int) -> statistics.Outcomes:
    found = row.of_seed(source, seed)
    return found.outcomes if found else {}


def _paired(row: Row, other: Row, source: str) -> statistics.Paired | None:
    """On the seeds that both have: with different seeds the difference would be partly one of seeds."""
    shared = sorted(row.equal & other.equal)
    first, second = (summaries([each.by_seed[seed] for seed in shared], source).get(each.way) for each in (row, other))
    return statistics.paired(first.outcomes, second.outcomes) if first and second else None


def _short(commit: str | None) -> str:
    """The first digits of a commit, and the mark of changes if it has one."""
    return "–" if commit is None else commit[:12] + commit[40:]


def _cells(states: Mapping[str, CellState]) -> str:
    lines = [
        [key, state.state, number(state.step), state.parity or "–", _short(state.commit), state.log or "–"]
        for key, state in states.items()
    ]
    commands = "\n".join(state.command for state in states.values() if state.command)
    listed = table(["cell", "state", "step", "budget", "commit", "log"], lines)
    return f"{listed}\n\n```bash\n{commands}\n```" if commands else listed
