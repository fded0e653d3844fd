"""`specsim measure run` and its script, with an executable that imitates vLLM."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LAB = str(Path(__file__).parents[2] / "tools" / "lab" / "scenario.yaml")

FAKE_VLLM = '''\
#!{python}
"""Imitates `vllm serve` and `vllm bench serve`; files in its folder say how to misbehave."""
import http.server, json, os, pathlib, subprocess, sys, time, urllib.request

HOME = pathlib.Path(__file__).parent
words = sys.argv[1:]

def value(flag):
    return words[words.index(flag) + 1]

def told(name):
    return (HOME / name).read_text().strip() if (HOME / name).exists() else ""

def log(name, text):
    with (HOME / name).open("a") as stream:
        stream.write(text + "\\n")

def serve():
    speculates = "--speculative-config" in words
    arm = "on" if speculates else "off"
    print("fake vllm starts", arm, flush=True)
    if told("die_at_start") == arm:
        print("ValueError: no room for the KV cache", flush=True)
        sys.exit(1)
    child = subprocess.Popen(["sleep", "600"])  # an engine core
    log("pids", f"{{os.getpid()}}\\n{{child.pid}}")
    log("calls", f"serve {{arm}} {{os.environ.get('CUDA_VISIBLE_DEVICES', '-')}}")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = {{"/health": "", "/version": '{{"version":"0.32.0"}}', "/arm": arm,
                    "/metrics": "# TYPE vllm:generation_tokens_total counter\\n"}}[self.path]
            if self.path == "/die":
                os._exit(9)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())
        def log_message(self, *args):
            pass
    address = (value("--host"), int(value("--port")))
    http.server.ThreadingHTTPServer(address, Handler).serve_forever()

def bench():
    url = f"http://{{value('--host')}}:{{value('--port')}}"
    with urllib.request.urlopen(url + "/arm") as answer:
        arm = answer.read().decode()
    saves = "--save-result" in words
    open_loop = "--request-rate" in words
    load = float(value("--request-rate" if open_loop else "--max-concurrency"))
    name = value("--result-filename") if saves else "warm-up"
    log("calls", f"bench {{arm}} {{name}} seed={{value('--seed')}}")
    if saves and told("hang_at") in (name, f"{{arm}}/{{name}}"):
        child = subprocess.Popen(["sleep", "600"])
        log("pids", f"{{os.getpid()}}\\n{{child.pid}}")
        (HOME / "hanging").touch()
        time.sleep(600)
    if saves and told("fail_at") == f"{{arm}}/{{name}}":
        print("ConnectionError: the engine is dead", flush=True)
        sys.exit(1)
    if not saves:
        return
    factor = {{"off": 1.0, "on": 1.6 / (1 + load / 10)}}[arm]
    rate = 20.0 * load ** 0.5 * factor
    result = {{
        "date": "20261130-010101", "backend": "openai", "endpoint_type": "openai",
        "model_id": value("--model"), "tokenizer_id": value("--tokenizer"),
        "num_prompts": int(value("--num-prompts")),
        "request_rate": load if open_loop else "inf", "burstiness": 1.0,
        "max_concurrency": None if open_loop else int(load), "duration": 10.0,
        "completed": 0 if told("all_fail") else int(value("--num-prompts")), "failed": 0,
        "total_input_tokens": 640, "total_output_tokens": 640, "request_throughput": 1.0,
        "output_throughput": rate, "total_token_throughput": 2 * rate,
    }}
    for metric in ("ttft", "tpot", "itl", "e2el"):
        for statistic in ("mean", "median", "std", "p50", "p90", "p95", "p99"):
            result[f"{{statistic}}_{{metric}}_ms"] = 1000.0 * load / rate
    if arm == "on":
        result |= {{
            "spec_decode_acceptance_rate": 51.0, "spec_decode_acceptance_length": 2.53,
            "spec_decode_num_drafts": 100, "spec_decode_draft_tokens": 300,
            "spec_decode_accepted_tokens": 153,
            "spec_decode_per_position_acceptance_rates": [0.7, 0.49, 0.34],
        }}
    if "--metadata" in words:
        for word in words[words.index("--metadata") + 1:]:
            key, _, text = word.partition("=")
            result[key] = text
    if arm == "on":
        k = int(result["k"])
        del result["spec_decode_per_position_acceptance_rates"][k:]
        result["spec_decode_draft_tokens"] = 100 * k
    path = pathlib.Path(value("--result-dir")) / name
    path.write_text(json.dumps(result))

serve() if words[0] == "serve" else bench()
'''


class Fake:
    """The imitation, and what it was asked."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir()
        self.path = home / "vllm"
        self.path.write_text(FAKE_VLLM.format(python=sys.executable))
        self.path.chmod(0o755)

    def tell(self, name: str, text: str) -> None:
        (self.home / name).write_text(text)

    def forget(self, name: str) -> None:
        (self.home / name).unlink()

    @property
    def calls(self) -> list[str]:
        path = self.home / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def runs(self) -> list[str]:
        """Runs that were asked for, in order: 'off c1_r1'."""
        words = [call.split() for call in self.calls]
        return [f"{w[1]} {w[2].removesuffix('.json')}" for w in words
                if w[0] == "bench" and w[2] != "warm-up"]  # fmt: skip

    @property
    def alive(self) -> list[int]:
        """Processes that it started and that still run."""
        path = self.home / "pids"
        pids = [int(line) for line in path.read_text().split()] if path.exists() else []
        return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"  # nobody may be there to reap a grandchild


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    made = Fake(tmp_path / "fake")
    yield made
    left = made.alive
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"left running: {left}"


def words(fake: Fake, out: Path, *more: str, loads: str = "1,2,4") -> list[str]:
    return [
        sys.executable, "-m", "specsim", "measure", "run", LAB, "--out", str(out),
        "--vllm", str(fake.path), "--model-path", "target", "--drafter-path", "drafter",
        "--max-concurrency", loads, "--warmup", "2", *more,
    ]  # fmt: skip


def run(*command: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=dict(os.environ) | extra
    )


def measure(fake: Fake, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run(*words(fake, out, *more))


def wait_for(condition: Callable[[], bool], *, what: str) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail(f"waited in vain: {what}")


def show(out: Path) -> Any:
    done = run(sys.executable, "-m", "specsim", "measure", "show", str(out), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ALTERNATING = [
    "off c1_r1", "on c1_r1", "on c2_r1", "off c2_r1", "off c4_r1", "on c4_r1",
    "on c1_r2", "off c1_r2", "off c2_r2", "on c2_r2", "on c4_r2", "off c4_r2",
]  # fmt: skip
BY_LADDER = [
    "off c1_r1", "off c2_r1", "off c4_r1", "on c1_r1", "on c2_r1", "on c4_r1",
    "on c1_r2", "on c2_r2", "on c4_r2", "off c1_r2", "off c2_r2", "off c4_r2",
]  # fmt: skip


def test_a_sweep_alternates_and_leaves_a_folder_that_show_reads(fake: Fake, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    done = measure(fake, out)
    assert done.returncode == 0, done.stderr
    assert fake.runs == ALTERNATING
    assert not fake.alive
    for arm in ("off", "on_k3"):
        names = {path.name for path in (out / arm).iterdir()}
        assert {"server.log", "bench.log"} <= names
        for stem in ("c1_r1", "c4_r2"):
            assert {f"{stem}.json", f"{stem}.before.prom", f"{stem}.after.prom"} <= names
        assert not [name for name in names if name.startswith(".")]
    result = json.loads((out / "on_k3" / "c2_r1.json").read_text())
    said = {key: result[key] for key in ("arm", "k", "method", "repeat", "engine_version")}
    assert said == {"arm": "on", "k": "3", "method": "draft_model", "repeat": "1",
                    "engine_version": "0.32.0"}  # fmt: skip
    assert "[12/12]" in done.stderr
    found = show(out)
    assert [curve["arm"] for curve in found["curves"]] == ["off", "on"]
    assert [point["runs"] for point in found["curves"][0]["points"]] == [2, 2, 2]
    assert found["comparisons"][0]["points"][0]["speedup"] == pytest.approx(1.6 / 1.1, rel=1e-4)


def test_both_arms_get_the_same_prompts_and_each_run_others(fake: Fake, tmp_path: Path) -> None:
    assert measure(fake, tmp_path / "sweep").returncode == 0
    seeds: dict[str, set[str]] = {}
    for call in fake.calls:
        parts = call.split()
        if parts[0] == "bench" and parts[2] != "warm-up":
            seeds.setdefault(parts[2], set()).add(parts[3])
    assert all(len(own) == 1 for own in seeds.values())
    assert len({seed for own in seeds.values() for seed in own}) == len(seeds)


def test_a_broken_off_sweep_goes_on_without_repeating(fake: Fake, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    fake.tell("fail_at", "off/c2_r1.json")
    done = measure(fake, out)
    assert done.returncode == 2
    assert "exit code 1" in done.stderr
    assert "the engine is dead" in done.stderr
    assert not fake.alive
    before = fake.runs
    fake.forget("fail_at")
    # What a crash may leave: a result that is cut off is no result.
    result = out / "off" / "c1_r1.json"
    result.write_text(result.read_text()[:100])
    done = measure(fake, out)
    assert done.returncode == 0, done.stderr
    assert "2 of 12 runs are there already" in done.stderr
    finished = ["on c1_r1", "on c2_r1"]
    assert fake.runs[len(before) :] == [each for each in ALTERNATING if each not in finished]
    again = len(fake.calls)
    assert measure(fake, out).returncode == 0
    assert len(fake.calls) == again, "nothing to do, so no server is started"


def test_another_draft_length_is_added_to_a_finished_sweep(fake: Fake, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    assert measure(fake, out, "--repeats", "1").returncode == 0
    before = len(fake.runs)
    done = measure(fake, out, "--repeats", "1", "--k", "1,3")
    assert done.returncode == 0, done.stderr
    assert len(fake.runs) - before == 3
    assert {path.name for path in out.iterdir()} == {"off", "on_k1", "on_k3", "plan.yaml"}
    assert len(show(out)["comparisons"]) == 2


def test_another_sweep_is_not_mixed_into_a_folder(fake: Fake, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    assert measure(fake, out, "--repeats", "1").returncode == 0
    done = measure(fake, out, "--input-len", "128")
    assert done.returncode == 2
    assert "the prompts" in done.stderr
    done = measure(fake, out, "--serve-args", "--block-size 32")
    assert done.returncode == 2
    assert "arm off" in done.stderr


def test_a_server_that_dies_at_start_shows_its_log(fake: Fake, tmp_path: Path) -> None:
    fake.tell("die_at_start", "on")
    done = measure(fake, tmp_path / "sweep")
    assert done.returncode == 2
    assert "no room for the KV cache" in done.stderr
    assert "server on_k3 ended with exit code 1" in done.stderr
    assert not fake.alive


def test_a_server_that_dies_under_a_run_ends_it(fake: Fake, tmp_path: Path) -> None:
    fake.tell("hang_at", "off/c2_r1.json")
    process = subprocess.Popen(
        words(fake, tmp_path / "sweep"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for((fake.home / "hanging").exists, what="a run that hangs")
    for server in fake.alive[0:4:2]:  # which one started first is not said
        os.kill(server, signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "ended with exit code -9" in said
    assert not fake.alive


def test_a_run_without_answers_is_not_finished(fake: Fake, tmp_path: Path) -> None:
    fake.tell("all_fail", "yes")
    done = measure(fake, tmp_path / "sweep")
    assert done.returncode == 2
    assert "no result with answers" in done.stderr
    assert not list((tmp_path / "sweep").rglob("c*.json"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_servers_and_bench(
    fake: Fake, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "sweep"
    fake.tell("hang_at", "on/c2_r1.json")
    # Whoever runs the tests in the background may ignore signals, which is inherited.
    process = subprocess.Popen(
        words(fake, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )  # fmt: skip
    wait_for((fake.home / "hanging").exists, what="a run that hangs")
    assert len(fake.alive) == 6, "two servers and a bench, each with a child"
    process.send_signal(number)
    assert process.wait(timeout=60) == 130
    assert not fake.alive
    assert not list(out.rglob(".running*"))
    fake.forget("hang_at")
    done = measure(fake, out)
    assert done.returncode == 0, done.stderr
    assert "2 of 12 runs" in done.stderr


def test_one_server_at_a_time_takes_whole_ladders(fake: Fake, tmp_path: Path) -> None:
    done = measure(fake, tmp_path / "sweep", "--servers", "one")
    assert done.returncode == 0, done.stderr
    assert fake.runs == BY_LADDER
    started = [call.split()[1] for call in fake.calls if call.startswith("serve")]
    assert started == ["off", "on", "off"], "on stays up between its two ladders"


def test_gpus_are_split_between_the_servers(fake: Fake, tmp_path: Path) -> None:
    command = words(fake, tmp_path / "sweep", "--gpu", "h100_sxm", "--repeats", "1", loads="1")
    assert run(*command, CUDA_VISIBLE_DEVICES="2,5").returncode == 0
    started = [call for call in fake.calls if call.startswith("serve")]
    assert sorted(started) == ["serve off 2", "serve on 5"]


def test_an_open_loop_has_a_ladder_of_rates(fake: Fake, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    command = words(fake, out)
    at = command.index("--max-concurrency")
    command[at : at + 2] = ["--request-rate", "0.5,2"]
    done = run(*command, "--repeats", "1")
    assert done.returncode == 0, done.stderr
    assert fake.runs == ["off q0.5_r1", "on q0.5_r1", "on q2_r1", "off q2_r1"]
    assert show(out)["load_kind"] == "request_rate"


def test_no_vllm_is_said_in_a_line(fake: Fake, tmp_path: Path) -> None:
    command = words(fake, tmp_path / "sweep")
    command[command.index("--vllm") + 1] = "no-such-vllm"
    done = run(*command)
    assert done.returncode == 2
    assert "--vllm" in done.stderr


def script(fake: Fake, out: Path, *more: str) -> Path:
    command = words(fake, out, *more)
    command[4] = "plan"
    at = command.index("--vllm")
    done = run(*command[:at], *command[at + 2 :])
    assert done.returncode == 0, done.stderr
    return out / "run.sh"


def script_environment(fake: Fake, **extra: str) -> dict[str, str]:
    port = str(20000 + os.getpid() % 20000)
    return {"VLLM": str(fake.path), "PORT": port, "CUDA_VISIBLE_DEVICES": "0,1", **extra}


@pytest.mark.parametrize(("servers", "order"), [("auto", ALTERNATING), ("one", BY_LADDER)])
def test_the_script_does_what_the_command_does(
    fake: Fake, tmp_path: Path, servers: str, order: list[str]
) -> None:
    path = script(fake, tmp_path / "plan")
    out = tmp_path / "results"
    done = run("bash", str(path), str(out), **script_environment(fake, SERVERS=servers))
    assert done.returncode == 0, done.stderr
    assert fake.runs == order
    assert not fake.alive
    result = json.loads((out / "on_k3" / "c2_r1.json").read_text())
    assert (result["arm"], result["k"], result["engine_version"]) == ("on", "3", "0.32.0")
    assert (out / "off" / "c4_r2.after.prom").read_text()
    assert len(show(out)["curves"]) == 2
    (out / "off" / "c1_r2.json").unlink()
    done = run("bash", str(path), str(out), **script_environment(fake, SERVERS=servers))
    assert done.returncode == 0, done.stderr
    assert fake.runs[len(order) :] == ["off c1_r2"]


def test_the_script_says_what_failed_and_stops_servers(fake: Fake, tmp_path: Path) -> None:
    path = script(fake, tmp_path / "plan")
    fake.tell("fail_at", "off/c2_r1.json")
    done = run("bash", str(path), str(tmp_path / "results"), **script_environment(fake))
    assert done.returncode == 1
    assert "the engine is dead" in done.stderr
    assert not fake.alive
    fake.tell("die_at_start", "on")
    done = run("bash", str(path), str(tmp_path / "results"), **script_environment(fake))
    assert done.returncode == 1
    assert "no room for the KV cache" in done.stderr
    assert not fake.alive


def test_the_script_answers_a_signal(fake: Fake, tmp_path: Path) -> None:
    path = script(fake, tmp_path / "plan")
    fake.tell("hang_at", "on/c2_r1.json")
    process = subprocess.Popen(
        ["bash", str(path), str(tmp_path / "results")],
        env=dict(os.environ) | script_environment(fake),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for((fake.home / "hanging").exists, what="a run that hangs")
    process.terminate()
    assert process.wait(timeout=60) == 143
    # The imitation's bench leaves a child of its own, which the real one does not have.
    servers = fake.alive[:-1] if fake.alive else []
    for pid in fake.alive:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not fake.alive, what="the end of the bench's child")
    assert not servers


def test_the_script_is_clean(fake: Fake, tmp_path: Path) -> None:
    path = script(fake, tmp_path / "plan", "--k", "1,3")
    assert run("bash", "-n", str(path)).returncode == 0
    checker = shutil.which("shellcheck") or shutil.which(
        "shellcheck", path=str(Path(sys.executable).parent)
    )
    if checker is None:
        pytest.skip("shellcheck is not installed")
    done = run(checker, str(path))
    assert done.returncode == 0, done.stdout
