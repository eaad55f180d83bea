"""The credit benchmark on a small batch: all ways give the numbers of its direct loop (it checks them itself)."""

import runpy
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "rl_credit.py"


def test_a_small_batch(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(PATH), run_name="rl_credit")["main"]
    main(["--rollouts", "20", "--repeats", "1"])  # 0 or 1: so small a batch says nothing about speed
    assert "20 rollouts x 8 searches x 5 targets" in capsys.readouterr().out


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    import rl.credit

    real = rl.credit.event_credit

    def wrong(*args: object) -> rl.credit.Credit:
        credit = real(*args)
        credit.advantages = np.where(credit.keep, credit.advantages + 1e-3, 0.0)
        return credit

    monkeypatch.setattr(rl.credit, "event_credit", wrong)
    main = runpy.run_path(str(PATH), run_name="rl_credit")["main"]
    with pytest.raises(AssertionError):
        main(["--rollouts", "20", "--repeats", "1"])
