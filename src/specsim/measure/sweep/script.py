"""The sweep as a bash script, for a machine that has vLLM and not specsim."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from specsim.measure.sweep.plan import SEED_OF_WARMUP, bench_words, metadata
from specsim.schema.sweep import SweepPlan

SCRIPT_FILE = "run.sh"

_HEAD = """\
#!/usr/bin/env bash
# The two-server sweep of {name}, written by `specsim measure plan`.
#
# Needs bash, curl and vllm. Run it where the servers run:
#     bash {script} [FOLDER]        FOLDER gets the results; default: where this file is
# Run it again after a crash: finished runs are not repeated. Bring FOLDER back, then:
#     specsim measure show FOLDER
#
# It needs {gpus} GPU(s) a server, with all servers up at once {n_arms} times as many. Nothing has
# to be edited: for local weights write the plan again with --model-path and --drafter-path, for
# flags of your servers with --serve-args; a gated model needs HF_TOKEN in the environment.
#
# Settings, from the environment:
#     VLLM=vllm            the executable
#     SERVERS={servers:<13}both, one or auto: all servers up at once, where there are GPUs for it
#     PORT=8100            of the first server; the next ones count on
#     START_TIMEOUT=1800   seconds that a server may take until it answers
set -euo pipefail

HERE="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
OUT="${{1:-$HERE}}"
VLLM="${{VLLM:-vllm}}"
SERVERS="${{SERVERS:-{servers}}}"
PORT="${{PORT:-8100}}"
START_TIMEOUT="${{START_TIMEOUT:-1800}}"
GIVEN_DEVICES="${{CUDA_VISIBLE_DEVICES-all}}"
export no_proxy="${{no_proxy:+$no_proxy,}}127.0.0.1" NO_PROXY="${{NO_PROXY:+$NO_PROXY,}}127.0.0.1"

ARMS=({arms})
LOADS=({loads})
PROMPTS=({prompts})
REPEATS={repeats}
GPUS_EACH={gpus}
LETTER={letter}
PIDS=({zeros})
BENCH=0
"""

_BODY = r"""
say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*"; }

# A server and its children form a process group (set -m), which is stopped as one.
stop_server() {
    local pid="${PIDS[$1]}" i
    [[ "$pid" == 0 ]] && return 0
    PIDS[$1]=0
    kill -TERM -- "-$pid" 2>/dev/null || return 0
    for ((i = 0; i < 40; i++)); do
        kill -0 -- "-$pid" 2>/dev/null || return 0
        sleep 0.5
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
}

stop_all() {
    local arm
    trap '' INT TERM HUP
    [[ "$BENCH" == 0 ]] || kill -TERM "$BENCH" 2>/dev/null || true
    for arm in "${!ARMS[@]}"; do stop_server "$arm"; done
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

died() {
    say "$1; the end of $2:" >&2
    tail -n 15 "$2" >&2 || true
    exit 1
}

url() { echo "http://127.0.0.1:$((PORT + $1))"; }

fetch() { curl --silent --show-error --fail --noproxy '*' --max-time 10 "$(url "$1")$2"; }

start_server() {
    local arm="$1" folder="$OUT/${ARMS[$1]}" log devices
    log="$folder/server.log"
    mkdir -p "$folder"
    # Whoever answers there would be measured in its place.
    if fetch "$arm" /health >/dev/null 2>&1 || fetch "$arm" /version >/dev/null 2>&1; then
        say "something answers at $(url "$arm") already; stop it, or set PORT=" >&2
        exit 1
    fi
    say "starting server ${ARMS[arm]}"
    devices="${DEVICES[arm]}"
    set -m
    (
        [[ -z "$devices" ]] || export CUDA_VISIBLE_DEVICES="$devices"
        serve "$arm"
    ) >>"$log" 2>&1 </dev/null &
    PIDS[arm]=$!
    set +m
}

wait_for_server() {
    local arm="$1" log="$OUT/${ARMS[$1]}/server.log" i
    for ((i = 0; i < START_TIMEOUT; i++)); do
        kill -0 "${PIDS[arm]}" 2>/dev/null || died "server ${ARMS[arm]} ended" "$log"
        if fetch "$arm" /health >/dev/null 2>&1; then
            kill -0 "${PIDS[arm]}" 2>/dev/null || died "server ${ARMS[arm]} ended" "$log"
            warm_up "$arm"
            return 0
        fi
        sleep 1
    done
    died "server ${ARMS[arm]} does not answer after $START_TIMEOUT s" "$log"
}

finished() { [[ -s "$OUT/${ARMS[$1]}/$2.json" ]]; }

one_run() {
    local arm="$1" load="$2" repeat="$3" folder="$OUT/${ARMS[$1]}" stem work version
    stem="$LETTER${LOADS[load]}_r$repeat"
    if finished "$arm" "$stem"; then
        return 0
    fi
    say "${ARMS[arm]} $stem"
    work="$folder/.running"
    rm -rf "$work"
    mkdir -p "$work"
    version="$(fetch "$arm" /version | sed -n 's/.*"version": *"\([^"]*\)".*/\1/p' || true)"
    fetch "$arm" /metrics >"$work/$stem.before.prom"
    describe "$arm"
    # The same prompts for all arms, others at each load and repeat.
    bench "$arm" "${LOADS[load]}" "${PROMPTS[load]}" "$((1000 * repeat + load + 1))" \
        --save-result --result-dir "$work" --result-filename "$stem.json" \
        --metadata "${METADATA[@]}" "repeat=$repeat" ${version:+"engine_version=$version"} \
        >>"$folder/bench.log" 2>&1 </dev/null &
    wait_for_bench "$folder/bench.log"
    [[ -s "$work/$stem.json" ]] || died "the bench left no result" "$folder/bench.log"
    fetch "$arm" /metrics >"$work/$stem.after.prom"
    mv "$work/$stem.before.prom" "$work/$stem.after.prom" "$folder/"
    # Last: a run is finished when its result is there.
    mv "$work/$stem.json" "$folder/"
    rmdir "$work"
}

# In the background, so that a signal is answered at once and not when the run is over.
wait_for_bench() {
    BENCH=$!
    wait "$BENCH" || died "the bench failed" "$1"
    BENCH=0
}

lacks_runs() {
    local load repeat
    for ((repeat = 1; repeat <= REPEATS; repeat++)); do
        for load in "${!LOADS[@]}"; do
            finished "$1" "$LETTER${LOADS[load]}_r$repeat" || return 0
        done
    done
    return 1
}

# Arms in order, or from the last to the first.
in_order() {
    local arm
    if [[ "$1" == forward ]]; then
        echo "${!ARMS[@]}"
    else
        for ((arm = ${#ARMS[@]} - 1; arm >= 0; arm--)); do echo "$arm"; done
    fi
}

# A B, B A, A B ... by load; the next pass starts with B A.
sweep_together() {
    local repeat load arm order
    for arm in "${!ARMS[@]}"; do
        lacks_runs "$arm" || continue
        start_server "$arm"
        # On devices of their own they may start at once; else each measures the free memory.
        [[ -n "${DEVICES[arm]}" ]] || wait_for_server "$arm"
    done
    for arm in "${!ARMS[@]}"; do
        [[ "${PIDS[arm]}" == 0 || -z "${DEVICES[arm]}" ]] || wait_for_server "$arm"
    done
    for ((repeat = 1; repeat <= REPEATS; repeat++)); do
        for load in "${!LOADS[@]}"; do
            order=backward
            (((repeat + load + 1) % 2)) || order=forward
            for arm in $(in_order "$order"); do one_run "$arm" "$load" "$repeat"; done
        done
    done
}

# A whole ladder per server: A, B, then B, A.
sweep_in_turn() {
    local repeat load arm other order
    for ((repeat = 1; repeat <= REPEATS; repeat++)); do
        order=backward
        ((repeat % 2 == 0)) || order=forward
        for arm in $(in_order "$order"); do
            for load in "${!LOADS[@]}"; do
                finished "$arm" "$LETTER${LOADS[load]}_r$repeat" && continue
                if [[ "${PIDS[arm]}" == 0 ]]; then
                    for other in "${!ARMS[@]}"; do stop_server "$other"; done
                    start_server "$arm"
                    wait_for_server "$arm"
                fi
                one_run "$arm" "$load" "$repeat"
            done
        done
    done
}

gpus() {
    if [[ "$GIVEN_DEVICES" != all ]]; then
        tr ',' '\n' <<<"$GIVEN_DEVICES" | sed '/^$/d'
    elif command -v nvidia-smi >/dev/null; then
        nvidia-smi --list-gpus | sed -n 's/^GPU \([0-9]*\):.*/\1/p'
    fi
}

DEVICES=()
mapfile -t VISIBLE < <(gpus)
enough=no
((${#VISIBLE[@]} < GPUS_EACH * ${#ARMS[@]})) || enough=yes
for arm in "${!ARMS[@]}"; do
    DEVICES[arm]=""
    if [[ "$enough" == yes && "$SERVERS" != one ]]; then
        own=("${VISIBLE[@]:$((arm * GPUS_EACH)):$GPUS_EACH}")
        DEVICES[arm]="$(IFS=,; echo "${own[*]}")"
    fi
done

mkdir -p "$OUT"
if [[ "$SERVERS" == both || ("$SERVERS" == auto && "$enough" == yes) || ${#ARMS[@]} == 1 ]]; then
    sweep_together
else
    sweep_in_turn
fi
say "all runs are there: specsim measure show $OUT"
"""


def script(plan: SweepPlan) -> str:
    """Return `run.sh` of a plan: it does what `specsim measure run` does."""
    hardware = plan.scenario.hardware
    head = _HEAD.format(
        # A line of a comment, whatever the name holds.
        name=" ".join((plan.scenario.name or plan.scenario.target.model).split())[:60],
        script=SCRIPT_FILE,
        servers=plan.servers,
        arms=_quoted(arm.name for arm in plan.arms),
        loads=_quoted(f"{load.value:g}" for load in plan.loads),
        prompts=_quoted(str(load.num_prompts) for load in plan.loads),
        repeats=plan.repeats,
        n_arms=len(plan.arms),
        gpus=hardware.tensor_parallel_size * hardware.pipeline_parallel_size,
        letter="c" if plan.load_kind == "concurrency" else "q",
        zeros=_quoted("0" for _ in plan.arms),
    )
    return "\n".join([head, _servers(plan), _metadata(plan), _bench(plan), _warm_up(plan)]) + _BODY


def _servers(plan: SweepPlan) -> str:
    lines = ["# The arms differ in speculation and in nothing else.", "serve() {", "    case $1 in"]
    for number, arm in enumerate(plan.arms):
        words = _quoted(arm.command[1:])
        lines.append(
            f'        {number}) exec "$VLLM" {words} --host 127.0.0.1 --port "$((PORT + $1))" ;;'
        )
    return "\n".join([*lines, "    esac", "}", ""])


def _metadata(plan: SweepPlan) -> str:
    lines = ["# What is written into an arm's results.", "describe() {", "    case $1 in"]
    for number, arm in enumerate(plan.arms):
        words = _quoted(f"{key}={value}" for key, value in metadata(plan, arm).items())
        lines.append(f"        {number}) METADATA=({words}) ;;")
    return "\n".join([*lines, "    esac", "}", ""])


def _bench(plan: SweepPlan) -> str:
    words = bench_words(plan, load="$2", num_prompts="$3", seed="$4")
    flags = " ".join(
        f'"{word}"' if word in ("$2", "$3", "$4") else shlex.quote(word) for word in words
    )
    return "\n".join([
        "# bench ARM LOAD PROMPTS SEED FLAGS... (run in the background: its process is the bench)",
        "bench() {",
        f'    exec "$VLLM" bench serve --host 127.0.0.1 --port "$((PORT + $1))" {flags} "${{@:5}}"',
        "}",
        "",
    ])  # fmt: skip


def _warm_up(plan: SweepPlan) -> str:
    closed = plan.model_copy(update={"load_kind": "concurrency"})
    count = str(plan.warmup_prompts)
    words = bench_words(closed, load=count, num_prompts=count, seed=str(SEED_OF_WARMUP))
    lines = ["warm_up() {"]
    if plan.warmup_prompts:
        lines += [
            '    say "warming up ${ARMS[$1]}"',
            '    "$VLLM" bench serve --host 127.0.0.1 --port "$((PORT + $1))" \\',
            f"        {_quoted(words)} \\",
            '        >>"$OUT/${ARMS[$1]}/bench.log" 2>&1 </dev/null &',
            '    wait_for_bench "$OUT/${ARMS[$1]}/bench.log"',
        ]
    else:
        lines.append("    :")
    return "\n".join([*lines, "}"])


def _quoted(words: Iterable[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)
