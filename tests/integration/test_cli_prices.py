"""`specsim profiles import-prices` from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from specsim.catalog.prices import load_prices

CATALOG = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region
p5.48xlarge,H100,8,192,2048,80,24,us-east-1
p5.48xlarge,H100,8,192,2048,96,,eu-west-1
p3.2xlarge,V100,1,8,61,3.06,,us-east-1
"""


def specsim(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specsim", "profiles", "import-prices", *args],
        cwd=cwd, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_catalog_becomes_a_price_list(tmp_path: Path) -> None:
    (tmp_path / "aws.csv").write_text(CATALOG)
    flags = ("aws.csv", "--as-of", "2026-11-01", "--provider", "aws")

    done = specsim(*flags, "-o", "prices.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for told in ("h100_sxm", "11.00", "10.00", "12.00", "3.00", "skipped", "V100", "--prices"):
        assert told in done.stdout
    prices = load_prices(tmp_path / "prices.yaml")
    assert prices.prices["h100_sxm"].usd_per_gpu_hour == 11.0
    assert (str(prices.as_of), prices.provider) == ("2026-11-01", "aws")

    printed = specsim(*flags, cwd=tmp_path)
    assert printed.stdout == (tmp_path / "prices.yaml").read_text()

    answer = json.loads(specsim(*flags, "--json", cwd=tmp_path).stdout)
    assert answer["path"] is None
    assert answer["prices"]["h100_sxm"]["low"] == 10.0

    over = specsim(*flags, "-o", "aws.csv", cwd=tmp_path)
    assert over.returncode == 2
    assert "is also read or written by this command" in over.stderr
    assert (tmp_path / "aws.csv").read_text() == CATALOG

    for words, said in (
        (("--as-of", "2999-01-01"), "--as-of 2999-01-01: lies ahead"),
        (("--provider", ""), "--provider '': names nobody"),
    ):
        wrong = specsim("aws.csv", *words, cwd=tmp_path)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert said in wrong.stderr

    # An earlier list is replaced, another file not.
    assert specsim(*flags, "-o", "prices.yaml", cwd=tmp_path).returncode == 0
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    unrelated = specsim(*flags, "-o", "compose.yaml", cwd=tmp_path)
    assert "compose.yaml: is there and holds something else" in unrelated.stderr
    assert (tmp_path / "compose.yaml").read_text() == "services: {}\n"

    (tmp_path / "aws.csv").write_text(CATALOG.replace("H100", "K80"))
    failed = specsim(*flags, cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr.count("\n") == 1
    assert "no price of an accelerator that is known; it has K80, V100" in failed.stderr
