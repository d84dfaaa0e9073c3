"""What the vLLM adapter is made of, in vLLM's environment but without an engine."""

from __future__ import annotations

import json
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from vllm_engine import template


def run(vllm_python: str, code: str, **values: Any) -> Any:
    """Runs `code` with `values` as globals; what it leaves in `result`."""
    script = f"import json\nglobals().update(json.loads({json.dumps(json.dumps(values))}))\n{textwrap.dedent(code)}\n"
    script += "print('result', json.dumps(result))"
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        printed = template(vllm_python).run(script, log)
        results = [line[7:] for line in printed.splitlines() if line.startswith("result ")]
        assert results, log.read_text(errors="replace")[-3000:]
    return json.loads(results[0])


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


def test_a_request_is_published_or_followed_as_its_parameters_and_the_role_say(vllm_python: str) -> None:
    code = """
        import types
        from cenote._vllm.handover import terms_of

        def of(given, may_store=True, may_load=True, node=None):
            request = types.SimpleNamespace(kv_transfer_params=given, request_id="own")
            made = terms_of(request, may_store, may_load, node)
            return made and list(made)

        here, there = {"cenote_request": "r"}, {"cenote_request": "r", "cenote_node": "a"}
        result = [
            of(None), of({}), of(here), of(there),
            of(there, may_load=False), of(here, may_store=False), of(there, may_store=False),
            of(None, may_load=False, node="a"), of(None, node="a"), of(None, may_load=False),
            *(of(bad) for bad in ({"cenote_request": ""}, {"cenote_request": "x" * 65}, {"cenote_request": 7},
                                  {"cenote_request": "r", "cenote_node": 7})),
        ]
    """
    assert run(vllm_python, code) == [
        *(None, None, ["r", ""], ["r", "a"]),
        *(["r", ""], None, ["r", "a"]),
        *(["own", ""], None, None),
        *(None, None, None, None),
    ]


def test_a_request_whose_publication_failed_is_named_to_nobody(vllm_python: str) -> None:
    code = """
        import threading, types
        from cenote._vllm import scheduler as module
        from cenote._vllm.model import Group
        from cenote._vllm.settings import Settings
        from cenote._vllm.stats import CenoteStats
        from cenote.errors import CenoteError, LimitExceeded

        def answers(publish):
            "What is said of a request before and after the node has answered its publication."
            made, may_answer = module.Scheduler.__new__(module.Scheduler), threading.Event()
            made.stats, made._may_store, made._may_load, made._agreement = CenoteStats(), True, False, None
            made._settings, made._is_own, made._requests = Settings(node="a"), False, {}
            made._publisher, made._groups, made._block_size = module.Publisher(), [Group("full", 0)], 32
            def answer(*args, **kwargs):
                may_answer.wait(60)
                return publish()
            made._session = lambda: types.SimpleNamespace(publish=answer)
            request = types.SimpleNamespace(
                request_id="r", kv_transfer_params=None, skip_reading_prefix_cache=False, lora_request=None,
                mm_features=[], num_prompt_tokens=64, block_hashes=[b"0", b"1"])
            made.added(request)
            before = made.answer_of(request)
            may_answer.set()
            tracked = made._requests["r"]
            try:
                tracked.publication.exception(60)
            finally:
                made._publisher.close()
            return before, made.answer_of(request)

        def refuse():
            raise LimitExceeded("too many requests are published")

        def breaks():
            raise ValueError("a bug")

        result = [answers(lambda: 2), answers(refuse), answers(breaks)]
    """
    named = {"cenote_request": "r", "cenote_node": "a"}
    assert run(vllm_python, code) == [[named, named], [named, None], [named, None]]


def test_a_request_is_cached_if_its_media_are_identified_by_their_content(vllm_python: str) -> None:
    code = """
        import types, uuid
        import numpy as np
        from PIL import Image
        import cenote.vllm
        from cenote._vllm.scheduler import _is_cacheable
        from vllm.multimodal.hasher import MultiModalHasher
        from vllm.multimodal.parse import MultiModalDataParser
        from vllm.multimodal.processing.inputs import ProcessorInputs

        def identifier_of(colour, name=None, settings=None, image_id=None):
            image = Image.fromarray(np.full((32, 32, 3), colour, np.uint8))
            if image_id is not None:
                image.getexif()[Image.ExifTags.Base.ImageID] = image_id
            items = MultiModalDataParser().parse_mm_data({"image": [image]})
            inputs = ProcessorInputs([], items, {"image": [name]}, settings or {})
            (found,) = inputs.get_mm_hashes("model", "sha256")["image"]
            return found

        def is_cached(*identifiers):
            features = [types.SimpleNamespace(identifier=each) for each in identifiers]
            return _is_cacheable(types.SimpleNamespace(lora_request=None, mm_features=features))

        plain, other = identifier_of(10), identifier_of(200)
        digest, settings = "0" * 64, {"max_pixels": 9}
        named = [identifier_of(10, "img-1"), identifier_of(10, digest), identifier_of(10, "img-1", settings)]
        again = MultiModalHasher.hash_kwargs("sha256", mm_hash=named[-1], fps=2)  # as a model's own processor does
        alike = len({identifier_of(colour, image_id=uuid.UUID(int=7)) for colour in (10, 200)})
        result = {
            "cached": [is_cached(*each) for each in ([], [plain], [plain, other], [identifier_of(10, None, settings)])],
            "named": [is_cached(each) for each in (*named, again)],
            "one of them": is_cached(plain, named[0]),
            "contents": [plain != other, alike],
        }
    """
    assert run(vllm_python, code) == {
        "cached": [True] * 4,
        "named": [False] * 4,
        "one of them": False,
        "contents": [True, 2],
    }


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
            request_id="mine", skip_reading_prefix_cache=False, lora_request=None, mm_features=[], num_tokens=64,
            block_hashes=[b"key"],
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
            made._config, made._connecting, made._weights, made._near = None, threading.Lock(), None, None
            made._offers, made._requests, made._late_stores = {}, {}, []
            made._loading, made._events = {}, types.SimpleNamespace(clear=lambda: None)
            made._pending, made._generations, made._agreement = {}, 0, None
            made._publisher = module.Publisher()
            made.describe([], 1)
            made.connected = []
            made._connect = made.connected.append
            return made

        def read_meanwhile(do, certain=True):
            made, known = begun(), threading.Event()
            def read(config):
                known.wait(60)
                return identity.Weights("files:x", "" if certain else "a doubt")
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


# A scheduler with a group of full attention and one of a window of 96 tokens (four blocks of 32 at most), before a node
# that is made up here. `dram`, `nvme`, `far`: group -> the numbers of the blocks that lie there.
SCHEDULER_BEFORE_A_NODE = """
    import threading, time, types
    from cenote._vllm import reach, scheduler as module
    from cenote._vllm.model import Group
    from cenote._vllm.prefill_rate import PrefillRate
    from cenote._vllm.stats import CenoteStats
    from cenote.errors import NotRunning
    from cenote.session import Match

    BLOCK = 32
    reach._LONGEST = 60.0  # seconds: a slow machine is no answer that comes too late
    KEYS = [b"block%03d" % i for i in range(40)]

    class FakeNode:
        def __init__(self, dram={}, nvme={}, far={}):
            self.tiers = [{name: set(tier.get(name, ())) for name in ("full", "window")} for tier in (dram, nvme, far)]
            self.answers, self.asked, self.wanted, self.asks_tiers = threading.Event(), [], [], True
            self.traces = []
            self.stuck, self.refused, self.ended = set(), set(), []  # groups; of those that ended, in order

        def reach(self, group, keys, depth):
            there = set().union(*(tier[group] for tier in self.tiers[:depth]))
            return next((i for i, key in enumerate(keys) if KEYS.index(key) not in there), len(keys))

        def match(self, keys, group):
            return Match(self.reach(group, keys, 1), self.reach(group, keys, 2))

        def locate(self, keys, group, timeout):
            self.asked.append((group, KEYS.index(keys[0]), len(keys)))
            answered = self.answers.wait(timeout)
            return Match(self.reach(group, keys, 1), self.reach(group, keys, 3 if answered else 2))

        def prefetch(self, keys, prefill_tokens_per_s, threshold_tokens, group, traceparent):
            self.traces.append(traceparent)
            self.wanted.append((group, KEYS.index(keys[0]), len(keys)))
            if group not in self.stuck | self.refused:
                self.tiers[0][group] |= {KEYS.index(each) for each in keys[:self.reach(group, keys, 3)]}
            length = self.reach(group, keys, 1)
            return types.SimpleNamespace(
                done=group not in self.stuck, length=length, release=lambda: self.ended.append(group))

        def acquire(self, keys, group=None):
            class Held(list):
                def release(self): pass
            return Held(keys[:self.reach(group or "full", keys, 1)])

    def scheduler_of(node, rate=1):
        made = module.Scheduler.__new__(module.Scheduler)
        made.stats, made._may_load, made._layout, made._agreement = CenoteStats(), True, None, None
        made._session = lambda: node
        made.describe([Group("full", 0), Group("window", 96)], BLOCK)
        made._keys_loading, made._offers, made._loading, made._new_loads = {}, {}, {}, []
        made._rate, made._null_block, made._connection = PrefillRate(rate), -1, None
        return made

    def asked_by(made, blocks):
        request = types.SimpleNamespace(
            request_id="r", skip_reading_prefix_cache=False, lora_request=None, mm_features=[],
            num_tokens=blocks * BLOCK + 1,
            block_hashes=KEYS[:blocks])
        made._requests = {"r": module.Tracked(request)}
        return request

    def until_answered(made, request):
        "What match() says when it does not say None any more; how often it did."
        waits, end = 0, time.monotonic() + 60
        while (answer := made.match(request, 0)[0]) is None and time.monotonic() < end:
            waits += 1
            time.sleep(0.001)
        return None if answer is None else answer // BLOCK, waits

    def sources(made, request, blocks):
        tables = [[-1] * first + list(range(first, blocks)) for first in made._offers["r"].starts]
        made.allocated(request, types.SimpleNamespace(get_block_ids=lambda: tables), blocks * BLOCK)
        return {each.value: count // BLOCK for each, count in made.sources(request, blocks * BLOCK).items()}
"""


def run_before_a_node(vllm_python: str, code: str) -> Any:
    return run(vllm_python, textwrap.dedent(SCHEDULER_BEFORE_A_NODE) + textwrap.dedent(code))


def test_a_lookup_that_asks_other_tiers_waits_nowhere_and_brings_the_window_s_tail_alone(vllm_python: str) -> None:
    code = """
        everywhere = range(40)
        dram, nvme = {"full": range(3), "window": range(3)}, {"full": range(8), "window": range(8)}
        node = FakeNode(dram, nvme, far={"full": range(20), "window": everywhere})
        made = scheduler_of(node)
        request = asked_by(made, 30)
        silent = [made.match(request, 0)[0] for _ in range(5)]  # though nobody has answered: this thread goes on
        before = list(node.wanted)
        node.answers.set()
        count, waits = until_answered(made, request)
        result = silent, before, count, node.asked, node.wanted, sources(made, request, count)
        result += (made.stats.data["blocks_prefetched"], made.stats.data["blocks_from_remote"])
    """
    silent, before, count, asked, wanted, sources, prefetched, remote = run_before_a_node(vllm_python, code)
    assert (silent, before) == ([None] * 5, [])
    # behind 20 blocks the next token looks back at 95: into the last three
    assert asked == [["full", 0, 30], ["window", 17, 3]]
    assert wanted == [["full", 0, 20], ["window", 17, 3]]
    assert (count, sources) == (20, {"host": 3, "disk": 5, "external_unspecified": 12})
    assert (prefetched, remote) == (17, 12)


def test_a_prefix_whose_window_no_tier_has_is_shorter(vllm_python: str) -> None:
    code = """
        node = FakeNode(far={"full": range(30), "window": [*range(10), *range(12, 18), 29]})
        node.answers.set()
        made = scheduler_of(node)
        request = asked_by(made, 30)
        result = until_answered(made, request)[0], node.wanted
    """
    assert run_before_a_node(vllm_python, code) == [18, [["full", 0, 18], ["window", 15, 3]]]


def test_a_tier_that_does_not_answer_costs_its_time_and_nothing_that_is_here(vllm_python: str) -> None:
    code = """
        node = FakeNode({"full": range(3), "window": range(3)}, {"full": range(8), "window": range(8)})
        made = scheduler_of(node, rate=960 / 20 / 0.05)  # a twentieth of computing all takes 50 ms
        request = asked_by(made, 30)
        count, waits = until_answered(made, request)
        asked = len(node.asked)
        del made._offers["r"]
        again = until_answered(made, request)  # once a request
        result = [(count, waits > 0), node.wanted, sources(made, request, 8), again, len(node.asked) - asked]

        def locate(*_, **__):
            raise NotRunning("gone")  # a failure is no answer either

        node = FakeNode({"full": range(3), "window": range(3)})
        node.locate = locate
        made = scheduler_of(node)
        result += [until_answered(made, asked_by(made, 30))[0], node.wanted]
    """
    found, wanted, sources, again, asked_again, after_failure, wanted_then = run_before_a_node(vllm_python, code)
    assert (after_failure, wanted_then) == (3, [])
    assert found == [8, True]
    assert wanted == [["full", 0, 8], ["window", 5, 3]]
    assert sources == {"host": 8}  # of the second lookup: the first one brought them up
    assert (again, asked_again) == ([8, 0], 0)


def test_nobody_is_asked_what_is_computed_sooner_or_is_here(vllm_python: str) -> None:
    code = """
        node = FakeNode(far={"full": range(30), "window": range(30)})
        fast = scheduler_of(node, rate=10_000_000)
        request = asked_by(fast, 30)
        result = [until_answered(fast, request), node.asked]
        here = FakeNode(nvme={"full": range(30), "window": range(30)})
        made = scheduler_of(here)
        request = asked_by(made, 30)
        result += [until_answered(made, request), here.asked, sources(made, request, 30)]
        dropped = FakeNode()
        made = scheduler_of(dropped)
        request = asked_by(made, 30)
        open_one = made.match(request, 0)[0]
        made._end_waits(made._requests["r"])
        made._finder.close()
        dropped.answers.set()  # its thread is waited for at the end
        result += [open_one, made._requests["r"].search.question is None]
        # without windows the node asks, and the prefetch ends where no tier has more
        node = FakeNode({"full": range(3)}, {"full": range(8)}, {"full": range(20)})
        made = scheduler_of(node)
        made.describe([Group("full", 0)], BLOCK)
        request = asked_by(made, 30)
        count = until_answered(made, request)[0]
        result += [count, node.asked, node.wanted, sources(made, request, count)]
    """
    first, second, third, without_windows = [[0, 0], []], [[30, 1], [], {"disk": 30}], [None, True], [20, []]
    without_windows += [[["full", 0, 30]], {"host": 3, "disk": 5, "external_unspecified": 12}]
    assert run_before_a_node(vllm_python, code) == first + second + third + without_windows


def test_a_window_is_not_waited_for_without_its_prefix_nor_longer_than_it_is_worth(vllm_python: str) -> None:
    code = """
        def begun(rate, stuck, refused):
            node = FakeNode({"full": range(3), "window": range(3)}, far={"full": range(30), "window": range(30)})
            node.stuck, node.refused = stuck, refused
            made = scheduler_of(node, rate)
            request = asked_by(made, 30)
            answer = types.SimpleNamespace(is_open=lambda: False, end=lambda: 30, drop=lambda: None)
            made._requests["r"].search.asked, made._requests["r"].search.question = True, answer
            return made, request, node

        def outcome(rate, stuck, refused):
            made, request, node = begun(rate, stuck, refused)
            count, _ = until_answered(made, request)
            return count, node.wanted, node.ended

        # computing 30 blocks takes 1 ms: its window is waited for a tenth of that, and then given up
        result = [outcome(960_000, {"window"}, set())]
        # what computing would win against is not brought up: nor is the window waited for, however long it might be
        result += [outcome(0.01, {"window"}, {"full"})]
        # else it is
        made, request, node = begun(0.01, {"window"}, set())
        result += [[made.match(request, 0)[0] for _ in range(5)], node.ended]
    """
    brought = [["full", 0, 30], ["window", 27, 3]]
    given_up = [3, brought, ["full", "window"]]
    assert run_before_a_node(vllm_python, code) == [given_up, given_up, [None] * 5, []]


def test_the_trace_of_a_request_of_vllm_goes_with_its_prefetch_and_its_load(vllm_python: str) -> None:
    code = """
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        def traced(headers):
            node = FakeNode({"full": range(3)}, {"full": range(8)}, {"full": range(20)})
            made = scheduler_of(node)
            made.describe([Group("full", 0)], BLOCK)
            asked = asked_by(made, 30)
            made._requests.clear()
            made._may_store = made._may_load = True
            made._settings = types.SimpleNamespace(node="")
            real = Request("r", [1] * (30 * BLOCK + 1), SamplingParams(max_tokens=1), None, trace_headers=headers)
            real.block_hashes[:] = asked.block_hashes
            made.added(real)
            count, _ = until_answered(made, real)
            tables = [list(range(1, 41))]
            made.allocated(real, types.SimpleNamespace(get_block_ids=lambda: tables), count * BLOCK)
            return [count, node.traces, [each.traceparent for each in made._new_loads]]

        context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        result = [traced({"traceparent": context, "tracestate": "a=b"}), traced(None)]
    """
    context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert run_before_a_node(vllm_python, code) == [[20, [context], [context]], [20, [None], [None]]]
