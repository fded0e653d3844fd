"""Answer the three questions for one or several scenarios, and say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specsim.analysis.advise import decide
from specsim.analysis.advise.options import (
    LOADS,
    Option,
    Trial,
    for_replicas,
    mean_in_batch,
    offered,
    options_of,
    peak_in_batch,
    run_trial,
    smaller_ks,
)
from specsim.analysis.advise.questions import (
    acceptance_answer,
    lints,
    measured_lints,
    peak_answer,
    stable_rate,
)
from specsim.analysis.advise.vllm_config import speculative_config
from specsim.analysis.predict import predict
from specsim.analysis.prepare import SEED, prepared, provenance, scenario_json
from specsim.analysis.resolve import Deployment
from specsim.analysis.serving import largest_batch
from specsim.analysis.simulation.load import OfferedLoad
from specsim.analysis.simulation.served import ServedArm
from specsim.analysis.simulation.simulate import Executor, default_loop, served_arms
from specsim.analysis.simulation.statistics import Served
from specsim.analysis.simulation.tails import tail_causes
from specsim.errors import UsageError
from specsim.schema.advice import Action, Advice, OptionResult, Peak, ScenarioAdvice
from specsim.schema.calibration import Calibration
from specsim.schema.results import Prediction
from specsim.schema.scenario import Load, Scenario
from specsim.schema.simulation import ArmSimulation
from specsim.schema.slo import Slo

NUM_REQUESTS, REPLICATIONS = 2000, 3
_PEAK_PERCENTILE = 99.0


@dataclass(frozen=True)
class _Case:
    """A scenario with what is known of it before options are compared."""

    scenario: Scenario
    deployment: Deployment
    arms: dict[str, ServedArm]
    load: OfferedLoad
    off: list[Served]
    rejected: int
    peak: Peak
    prediction: Prediction
    """On a closed loop, at whole loads and at the peak."""
    provenance: dict[str, Any]

    def ks(self) -> set[int]:
        """Return the smaller numbers of draft tokens that are best up to the peak."""
        k = self.deployment.num_speculative_tokens
        return smaller_ks(self.prediction, k, self.peak.concurrency)


def advise(
    scenarios: Scenario | Sequence[Scenario],
    *,
    slo: Slo | None = None,
    search: Sequence[Path] = (),
    calibration: Calibration | Path | str | None = None,
    num_requests: int = NUM_REQUESTS,
    replications: int = REPLICATIONS,
    seed: int = SEED,
    executor: Executor | None = None,
) -> Advice:
    """Answer what to ask before speculation is switched on, and say what to do.

    How many requests are in flight at peak, against the crossover; how deterministic is the
    output and what is accepted, against break-even at that peak; and which of off, on, a smaller
    k, k by batch and routing by load serves the same simulated requests best.

    Parameters
    ----------
    scenarios : Scenario or sequence of Scenario
        Often a pair: two endpoints of one deployment. The highest load of each is its peak.
    slo : Slo, optional
        What the answers are held against; absent: against off's own p99.
    num_requests, replications : int
        Measured in each replication, and how many of these.
    seed : int
        The same seed gives the same answer, whatever the executor.
    executor : Executor, optional
        Absent: in this process.

    Raises
    ------
    UsageError
        There is no scenario, or one that does not speculate.
    """
    asked = [scenarios] if isinstance(scenarios, Scenario) else list(scenarios)
    if not asked:
        raise UsageError("no scenario to advise on; give at least one file")
    if num_requests < 1 or replications < 1:
        raise UsageError(
            f"{num_requests} requests, {replications} replications: give at least 1 of each"
        )
    run = _Run(slo, tuple(search), calibration, num_requests, replications, seed, executor)
    cases = [run.case(scenario) for scenario in asked]
    # What one endpoint would cap k at is tried on the other: they may have to share a server.
    ks = set().union(*(case.ks() for case in cases))
    names = told_apart([s.name or f"scenario {i + 1}" for i, s in enumerate(asked)])
    answers = tuple(run.answer(case, ks, name) for case, name in zip(cases, names, strict=True))
    return Advice(scenarios=answers, together=decide.together(answers), slo=slo, seed=seed)


def told_apart(names: Sequence[str]) -> list[str]:
    """Return names, with a number where several scenarios have the same.

    >>> told_apart(["chat", "code", "chat"])
    ['chat #1', 'code', 'chat #2']
    """
    return [
        f"{name} #{names[: i + 1].count(name)}" if names.count(name) > 1 else name
        for i, name in enumerate(names)
    ]


@dataclass(frozen=True)
class _Run:
    """What all scenarios of one call share."""

    slo: Slo | None
    search: tuple[Path, ...]
    calibration: Calibration | Path | str | None
    num_requests: int
    replications: int
    seed: int
    executor: Executor | None

    def case(self, scenario: Scenario) -> _Case:
        """Serve the off arm, and predict the closed loop that its peak comes to."""
        deployment, laid = prepared(scenario, self.search, self.calibration)
        if deployment.method == "none":
            raise UsageError(
                f"{scenario.name or 'the scenario'} does not speculate, so there is nothing to "
                "advise on; give it a speculation: docs/scenario.md"
            )
        arms = served_arms(deployment, laid.point())
        load = offered(deployment, list(arms.values()), self.num_requests)
        baseline = Option("off", "off", 0, (arms["baseline"],))
        [(off, rejected)] = self.serve([baseline], arms, load)
        given = scenario.load.concurrency
        if given is not None:
            concurrency, basis = max(given), "as given"
        else:
            concurrency = max(peak_in_batch(off, _PEAK_PERCENTILE), 1.0)
            basis = f"p{_PEAK_PERCENTILE:g} over time, simulated with speculation off"
        mean = mean_in_batch(off)
        workload, arm = deployment.scenario.workload, arms["baseline"].arm
        stable = stable_rate(arm, workload)
        if load.request_rate is not None and load.request_rate > stable:
            # The run says how long it was; the server is as full as it gets.
            concurrency = mean = float(np.max(largest_batch(arm, workload)[0]))
            basis = f"overloaded: a replica serves {stable:.3g} requests/s; all that run at a time"
        most = deployment.speculative_max_num_seqs
        loads = sorted({*(float(n) for n in LOADS if n <= most), float(concurrency)})
        prediction = self.closed_loop(scenario, loads)
        assert prediction.crossover is not None, "the scenario speculates"
        peak = peak_answer(concurrency, mean, basis, prediction.crossover)
        return _Case(
            scenario, deployment, arms, load, off, rejected, peak, prediction,
            provenance(deployment, laid),
        )  # fmt: skip

    def closed_loop(self, scenario: Scenario, loads: Sequence[float]) -> Prediction:
        """Predict a scenario at numbers of requests kept in the system."""
        closed = scenario.model_copy(update={"load": Load(concurrency=tuple(loads))})
        return predict(closed, search=self.search, calibration=self.calibration)

    def serve(
        self, options: Sequence[Option], arms: dict[str, ServedArm], load: OfferedLoad
    ) -> list[tuple[list[Served], int]]:
        """Serve every replication of the requests with every option, here or elsewhere."""
        loop = default_loop((load.num_requests + 2 * load.warm_up) * self.replications)
        every = tuple(arms.values())
        trials = [
            Trial(
                option.replicas,
                every,
                for_replicas(load, len(option.replicas)),
                child,
                loop,
                option.pools,
            )
            for option in options
            for child in np.random.SeedSequence(self.seed).spawn(self.replications)
        ]
        if self.executor is None:
            done = [run_trial(trial) for trial in trials]
        else:
            futures = [self.executor.submit(run_trial, trial) for trial in trials]
            done = [future.result() for future in futures]
        n = self.replications
        groups = [done[i : i + n] for i in range(0, len(done), n)]
        return [([reply for reply, _ in g], sum(refused for _, refused in g)) for g in groups]

    def answer(self, case: _Case, ks: set[int], name: str) -> ScenarioAdvice:
        """Compare the options of a scenario and decide."""
        deployment, arms = case.deployment, case.arms
        k = deployment.num_speculative_tokens
        off = Option("off", "off", 0, (arms["baseline"],))
        given = Option(f"on, k = {k}", "on", k, (arms["speculative"],))
        more = options_of(
            case.scenario, deployment, case.prediction, ks, arms, self.search, self.calibration
        )
        # What is routed between two replicas is held against two replicas without speculation.
        pair = (
            [replace(off, name="off, two replicas", replicas=off.replicas * 2)]
            if any(o.pools for o in more)
            else []
        )
        tried = [given, *more]
        served = self.serve([*pair, *tried], arms, case.load)
        slo, closed = self.slo, case.load.is_closed

        def result(
            option: Option, replies: tuple[list[Served], int], against: ArmSimulation | None
        ) -> tuple[OptionResult, ArmSimulation]:
            return decide.option_result(
                option, replies[0], against, slo, closed=closed, rejected=replies[1]
            )

        first, of_off = result(off, (case.off, case.rejected), None)
        results = [first]
        of_pair = of_off
        for option, replies in zip([*pair, *tried], served, strict=True):
            if option.kind == "off":
                reference, of_pair = result(option, replies, None)
                continue
            against = of_pair if len(option.replicas) > 1 else of_off
            results.append(result(option, replies, against)[0])
        if pair:
            results.insert(-1, reference)
        acceptance = acceptance_answer(deployment, case.prediction, case.peak.concurrency)
        found = lints(
            case.scenario,
            deployment,
            (arms["baseline"].arm, arms["speculative"].arm),
            self.closed_loop(case.scenario, [case.peak.concurrency]),
            case.peak,
            acceptance,
        )
        found += measured_lints(
            case.deployment.scenario.workload,
            self.slo,
            first.tpot_ms,
            requests=case.load.num_requests,
            replications=self.replications,
        )
        return ScenarioAdvice(
            name=name,
            scenario=scenario_json(deployment),
            load=self._load(case.load),
            peak=case.peak,
            acceptance=acceptance,
            action=self._action(
                case,
                results,
                served[len(pair)][0],
                decide.overload(case.load.request_rate, self._most(case, [off, *tried])),
            ),
            options=tuple(results),
            lints=found,
            defaults=deployment.defaults,
            provenance=case.provenance,
        )

    def _most(self, case: _Case, options: Sequence[Option]) -> float:
        """Return the largest rate that a replica serves with any option. [requests/s]."""
        workload = case.deployment.scenario.workload
        return max(stable_rate(r.arm, workload) for o in options for r in o.replicas)

    def _action(
        self, case: _Case, results: list[OptionResult], on: list[Served], overloaded: str
    ) -> Action:
        chosen = decide.choose(results)
        hidden = decide.hidden_tail(results[1])
        tail = ""
        if hidden:
            causes = tail_causes(on, case.off)
            metric = "ttft" if hidden == ["ttft"] else "tpot"
            tail = next(cause.sentence for cause in causes if cause.metric == metric)
        return Action(
            decision=chosen.kind,
            k=chosen.k,
            schedule=chosen.schedule,
            route_above=chosen.route_above,
            speculative_config=speculative_config(
                case.scenario, case.deployment.scenario, chosen.k, chosen.schedule
            ),
            reason=decide.reason(chosen, results, self.slo, overloaded),
            size_first=bool(overloaded) or (self.slo is not None and not chosen.meets),
            tail=tail,
        )

    def _load(self, load: OfferedLoad) -> dict[str, Any]:
        return {
            "kind": "concurrency" if load.is_closed else "request_rate",
            "value": float(load.concurrency or load.request_rate or 0.0),
            "requests_measured": load.num_requests,
            "requests_before": load.warm_up,
            "replications": self.replications,
        }
