"""What the vLLM adapter is made of, in vLLM's environment but without an engine."""

from __future__ import annotations

import json
import subprocess
import textwrap
from typing import Any

from conftest import HERE
from vllm_engine import environment


def run(vllm_python: str, code: str, **values: Any) -> Any:
    """Runs `code` with `values` as globals; what it leaves in `result`."""
    script = f"import json\nglobals().update(json.loads({json.dumps(json.dumps(values))}))\n{textwrap.dedent(code)}\n"
    script += "print('result', json.dumps(result))"
    done = subprocess.run(
        [vllm_python, "-c", script], capture_output=True, text=True, cwd=HERE, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("result "))[7:])


def test_pieces_name_every_byte_of_a_block_once_whatever_the_strides(vllm_python: str) -> None:
    wrong = run(
        vllm_python,
        """
        import itertools, torch
        from cenote.tensors import pieces_of

        def wrong_bytes(tensor, blocks):
            "How many blocks are not what their pieces show."
            count = 0
            split = tensor.shape[0] // blocks
            raw = bytes(tensor.untyped_storage())
            begin = tensor.untyped_storage().data_ptr()
            pieces = pieces_of(tensor, blocks)
            for i in range(blocks):
                shown = b"".join(
                    raw[p.base - begin + i * p.block_stride + run * p.run_stride :][: p.run_bytes]
                    for p in pieces for run in range(p.runs)
                )
                mine = tensor[i * split : (i + 1) * split]
                expected = sorted(mine.contiguous().view(torch.uint8).flatten().tolist())
                count += sorted(shown) != expected
            return count

        result = {}
        for order in itertools.permutations(range(4)):
            base = torch.randint(0, 1 << 15, (6, 2, 4, 8), dtype=torch.int16)
            tensor = torch.empty([base.shape[i] for i in order], dtype=torch.int16)
            back = [order.index(i) for i in range(4)]
            tensor = tensor.permute(back)  # logical [6, 2, 4, 8], any order in memory
            tensor.copy_(base)
            result[f"order {order}"] = wrong_bytes(tensor, 6)
            result[f"order {order}, kernel blocks of half the size"] = wrong_bytes(tensor, 3) if order[0] == 0 else 0
        padded = torch.randint(0, 255, (6, 100), dtype=torch.uint8)[:, :64].view(6, 2, 4, 8)
        result["padded"] = wrong_bytes(padded, 6)
        """,
    )
    assert {name: count for name, count in wrong.items() if count} == {}


def test_settings_that_nobody_knows_are_refused_by_name(vllm_python: str) -> None:
    code = """
        from cenote._vllm.settings import Settings
        from cenote.errors import InvalidArgument
        try:
            Settings.read(given)
            result = ""
        except InvalidArgument as why:
            result = str(why)
    """
    assert "no key `sokcet`" in run(vllm_python, code, given={"sokcet": "/x"})
    assert "`debug_fail_loads_from_block` is True" in run(
        vllm_python, code, given={"debug_fail_loads_from_block": True}
    )
    assert "negative" in run(vllm_python, code, given={"prefill_tokens_per_s": -1})
    assert run(vllm_python, code, given={"socket": "/x", "prefill_tokens_per_s": 1000}) == ""


def test_another_version_of_vllm_is_refused_with_a_sentence(vllm_python: str) -> None:
    message = run(
        vllm_python,
        """
        import vllm
        vllm.__version_tuple__, vllm.__version__ = (0, 99, 0), "0.99.0"
        try:
            import cenote.vllm
            result = ""
        except ImportError as why:
            result = str(why)
        """,
    )
    assert message.startswith("cenote.vllm is made for vLLM 0.32.x, but this is 0.99.0")


def test_a_request_that_waits_for_another_ones_load_is_counted_once(vllm_python: str) -> None:
    code = """
        import types
        from cenote._vllm.scheduler import Scheduler, Tracked
        from cenote._vllm.stats import CenoteStats

        scheduler = Scheduler.__new__(Scheduler)
        scheduler.stats, scheduler._may_load, scheduler._block_size = CenoteStats(), True, 32
        scheduler._session = lambda: "a session"
        scheduler._keys_loading, scheduler._requests = {b"key": "another"}, {"mine": Tracked(None)}
        request = types.SimpleNamespace(
            request_id="mine", skip_reading_prefix_cache=False, lora_request=None, num_tokens=64, block_hashes=[b"key"]
        )
        answers = [scheduler.match(request, 0) for _ in range(5)]  # once a step
        result = answers, scheduler.stats.data["loads_joined"]
    """
    assert run(vllm_python, code) == [[[None, False]] * 5, 1]


def test_a_reset_while_the_weights_are_read_does_not_end_in_the_shared_instance(vllm_python: str) -> None:
    code = """
        import threading, types
        from cenote._vllm import identity, scheduler as module
        from cenote._vllm.settings import Settings

        def begun():
            made = module.Scheduler.__new__(module.Scheduler)
            made._settings, made._connection, made._generation, made._closed = Settings(), None, "", False
            made._config, made._connecting, made._weights = None, threading.Lock(), None
            made._offers, made._requests, made._late_stores = {}, {}, []
            made._loading, made._events = {}, types.SimpleNamespace(clear=lambda: None)
            made._pending, made._generations = {}, 0
            made.connected = []
            made._connect = made.connected.append
            return made

        def read_meanwhile(do, certain=True):
            made, known = begun(), threading.Event()
            def read(config):
                known.wait(60)
                return identity.Weights("files:x", certain)
            identity.weights_of = read
            thread = threading.Thread(target=made._find_out)
            thread.start()
            do(made)
            nothing_yet = list(made.connected)
            known.set()
            thread.join()
            return nothing_yet, [bool(each) for each in made.connected]

        result = [
            read_meanwhile(lambda made: None),
            read_meanwhile(lambda made: made.reset()),
            read_meanwhile(lambda made: made.close()),
            read_meanwhile(lambda made: None, certain=False),
        ]
    """
    assert run(vllm_python, code) == [[[], [False]], [[], [True]], [[], []], [[], [True]]]
