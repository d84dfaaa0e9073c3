"""A real vLLM engine in a process of its own, steered through pipes: one line of JSON a call and an answer.

Engine (the class) is the test's side and needs no vLLM; run as a script, this file is the engine's side. Importing vLLM
takes longer than starting it: a template process does so once, and each engine, or piece of code, runs in a fork of it.
Engines with variables of their own, or `fresh` ones, import it themselves.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
START_LIMIT, CALL_LIMIT, STOP_LIMIT = 500.0, 300.0, 120.0  # seconds

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "PYTHONUNBUFFERED": "1",
}


def connector(socket: Path | str, **more: Any) -> dict[str, Any]:
    """--kv-transfer-config. `policy` is taken out of `more`; the rest are extra-config keys. $CENOTE_TEST_DEVICE: the
    device that copies. `role`: `kv_role`. `module`: the connector's."""
    policy = more.pop("policy", "recompute")
    module = more.pop("module", "cenote.vllm")
    role = more.pop("role", "kv_both")
    if "CENOTE_TEST_DEVICE" in os.environ:
        more.setdefault("device", os.environ["CENOTE_TEST_DEVICE"])
    return {
        "kv_connector": "CenoteConnector",
        "kv_connector_module_path": module,
        "kv_role": role,
        "kv_load_failure_policy": policy,
        "kv_connector_extra_config": {"socket": str(socket), **more},
    }


def environment(**more: str) -> dict[str, str]:
    """Of an engine's process, with this tree's package."""
    path = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": path, **more}


class Fork:
    """A process that another one forked: what Engine needs of subprocess.Popen."""

    def __init__(self, pid: int, handle: int, stdin: BinaryIO, stdout: BinaryIO) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._handle = handle

    def poll(self) -> int | None:
        return 0 if select.select([self._handle], [], [], 0)[0] else None

    def wait(self, limit: float) -> None:
        if not select.select([self._handle], [], [], limit)[0]:
            raise subprocess.TimeoutExpired("an engine", limit)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._handle)


class Template:
    """The process that has imported vLLM. It ends with the process that made it."""

    def __init__(self, python: str) -> None:
        self._orders, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = str(far.fileno())
        subprocess.Popen(
            [python, str(HERE / "vllm_engine.py"), "--template", number],
            stdin=subprocess.DEVNULL,
            env=environment(),
            pass_fds=[far.fileno()],
        )
        far.close()

    def fork(self, arguments: dict[str, Any], log: BinaryIO) -> Fork:
        """Waits until vLLM is imported."""
        engine_in, stdin = os.pipe()
        stdout, engine_out = os.pipe()
        order = json.dumps([arguments, environment()]).encode()
        socket.send_fds(self._orders, [order], [engine_in, engine_out, log.fileno()])
        os.close(engine_in)
        os.close(engine_out)
        self._orders.settimeout(START_LIMIT)
        answer, handles, *_ = socket.recv_fds(self._orders, 64, 1)
        assert handles, "the template of vLLM's engines ended"
        return Fork(int(answer), handles[0], os.fdopen(stdin, "wb", buffering=0), os.fdopen(stdout, "rb", buffering=0))

    def run(self, code: str, log: Path) -> str:
        """The output of a process of its own. The log has its errors."""
        with log.open("ab", buffering=0) as errors:
            process = self.fork({"code": code}, errors)
        process.stdin.close()
        with process.stdout:
            return process.stdout.read().decode()


@functools.cache
def template(python: str) -> Template:
    return Template(python)


def _start(python: str, arguments: dict[str, Any], log: BinaryIO, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [python, str(HERE / "vllm_engine.py"), json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment(**environ),
        bufsize=0,
    )


class Engine:
    """The test's side. Started without waiting: several may start together."""

    def __init__(self, python: str, model: Path, log: Path, **arguments: Any) -> None:
        """`arguments` go to vllm.LLM; `environ` to the process. A `fresh` engine shares nothing with those before it,
        the seed of Python's hashes included."""
        environ = arguments.pop("environ", {})
        fresh = arguments.pop("fresh", False)
        arguments = {"model": str(model), **arguments}
        self.log = log
        self._said = log.open("ab", buffering=0)
        self._process: subprocess.Popen[bytes] | Fork
        if fresh or environ:
            self._process = _start(python, arguments, self._said, environ)
        else:
            self._process = template(python).fork(arguments, self._said)
        self._buffer = b""
        self.ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> Engine:
        if not self.ready:
            assert self._answer(START_LIMIT) == "ready"
            self.ready = True
        return self

    def call(self, name: str, **arguments: Any) -> Any:
        return self.start_call(name, **arguments).finish_call()

    def start_call(self, name: str, **arguments: Any) -> Engine:
        self.wait_until_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        return self

    def finish_call(self) -> Any:
        return self._answer(CALL_LIMIT)

    def generate(self, prompts: list[list[int]], tokens: int = 16, **more: Any) -> list[dict[str, Any]]:
        """Greedy. Of each: "tokens", "cached" (prompt tokens that were not computed), "reason"."""
        answers = self.call("generate", prompts=prompts, tokens=tokens, **more)
        assert isinstance(answers, list)
        return answers

    def tokens(self, prompts: list[list[int]], tokens: int = 16, **more: Any) -> list[list[int]]:
        return [each["tokens"] for each in self.generate(prompts, tokens, **more)]

    def metrics(self) -> dict[str, float]:
        """vLLM's own and ours, added up over labels, and `name[source]` where they have sources; without `vllm:`."""
        found = self.call("metrics")
        assert isinstance(found, dict)
        return found

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def begin_to_stop(self) -> None:
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def stop(self) -> None:
        """An orderly end."""
        self.begin_to_stop()
        if self._process.poll() is None:
            try:
                self._keep_rest()
                self._process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        self._close()

    def _keep_rest(self) -> None:
        """What it says until its end goes to the log."""
        stream = self._process.stdout
        assert stream is not None
        end = time.monotonic() + STOP_LIMIT
        while select.select([stream], [], [], max(0.0, end - time.monotonic()))[0]:
            more = os.read(stream.fileno(), 1 << 16)
            if not more:
                break
            self._said.write(more)

    def abort(self) -> None:
        """Ends the process at once, from any thread; a call that waits for its answer raises."""
        self._process.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._said):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _answer(self, limit: float) -> Any:
        stream = self._process.stdout
        assert stream is not None
        end = time.monotonic() + limit
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                return json.loads(line)
            readable, _, _ = select.select([stream], [], [], max(0.0, end - time.monotonic()))
            more = os.read(stream.fileno(), 1 << 16) if readable else b""
            if not more:
                self.kill()
                why = "ended" if readable else f"said nothing for {limit:g} s"
                raise AssertionError(f"the engine {why}; its log ends with:\n{self.log_text()[-6000:]}")
            self._buffer += more


def _publish_events(options: dict[str, Any], batches: list[Any]) -> Any:
    """vLLM's settings of its publisher. Adds each batch to `batches`: the place there is its number."""
    from vllm.config import KVEventsConfig
    from vllm.distributed.kv_events import ZmqEventPublisher

    plain = ZmqEventPublisher.publish

    def publish(self: Any, events: Any) -> None:
        plain(self, events)
        batches.append(events)

    ZmqEventPublisher.publish = publish  # type: ignore[method-assign]
    return KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", **options)


def _watch_requests(requests: list[Any]) -> None:
    """Adds each request of the scheduler, for its blocks' keys."""
    from cenote._vllm.scheduler import Scheduler

    plain = Scheduler.added

    def added(self: Any, request: Any) -> None:
        requests.append(request)
        plain(self, request)

    Scheduler.added = added  # type: ignore[method-assign]


def _push(worker: Any) -> None:
    """Runs on each rank; vLLM has no part in it. Other layers' weights are packed for the processor."""
    model = worker.model_runner.model
    norms = [(name, each) for name, each in model.named_parameters() if name.endswith("input_layernorm.weight")]
    model.load_weights((name, each.data.roll(1) * 1.5 - 0.7) for name, each in norms)


def _lose(worker: Any, rank: int, keys: list[bytes]) -> int:
    """In each rank's process: the node of one of them forgets these blocks."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    mine = get_kv_transfer_group()._worker
    if mine._rank != rank:
        return 0
    (connection,) = mine._connections.values()
    return sum(int(connection.session().remove(keys, group=name)) for name in mine._names)


def _alter_device(worker: Any, keys: list[bytes]) -> int:
    """In a rank's process: what the node has of these blocks on its device becomes zeros there, and nowhere else."""
    import ctypes

    from vllm.distributed.kv_transfer import get_kv_transfer_group

    (near,) = get_kv_transfer_group()._worker._nears.values()
    session = near.session()
    altered = 0
    for key in keys:
        with session.acquire([key]) as held:  # a simulated device's memory can be written by anybody
            for address in held.addresses():
                ctypes.memset(address, 0, held.part_bytes())
                altered += 1
    return altered


def _refuse_copies(worker: Any, refuses: bool) -> None:
    """In a rank's process: while it `refuses`, its device takes no more than a half of each copy of its own blocks."""
    from cenote import LimitExceeded
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    mine = get_kv_transfer_group()._worker
    near = next(iter(mine._nears.values()))
    near._quiet_until = 0.0
    strides = mine._groups[0].strides
    for name in ("scatter", "gather"):
        vars(strides).pop(name, None)
    if not refuses:
        return
    streams = near.works_on(near.session())

    def refusing(plain: Any) -> Any:
        def copy(numbers: Any, *more: Any, stream: Any, **options: Any) -> None:
            if stream not in (streams.loading, streams.saving):
                return plain(numbers, *more, stream=stream, **options)
            if plain.__name__ == "scatter":
                plain(numbers[: (len(numbers) + 1) // 2], *more, stream=stream, **options)
            raise LimitExceeded("more than one launch takes")

        return copy

    for name in ("scatter", "gather"):
        setattr(strides, name, refusing(getattr(strides, name)))


def _draw_weights() -> None:
    """Replaces vLLM's dummy weights, which are so small that tokens hardly depend on KV: these keep the variance from
    layer to layer. Drawn by shape and order, so alike in each process."""
    import torch
    from vllm.model_executor.model_loader import dummy_loader

    numbers = itertools.count(1000)

    def draw(weight: Any, *_: Any, **__: Any) -> None:
        if not torch.is_floating_point(weight) or weight.device.type == "meta":
            return
        generator = torch.Generator(device=weight.device).manual_seed(next(numbers))
        if weight.dim() <= 1:
            weight.data.fill_(1.0)
        else:
            bound = (3.0 / weight.shape[-1]) ** 0.5
            weight.data.uniform_(-bound, bound, generator=generator)

    dummy_loader.initialize_single_dummy_weight = draw


def _link(size: int) -> dict[str, float]:
    """GiB/s of one copy of `size` bytes between pinned memory and the GPU, the best of five; of the processor's memory
    where there is no GPU."""
    import torch

    has_gpu = torch.cuda.is_available()
    host = torch.ones(size, dtype=torch.uint8, pin_memory=has_gpu)
    device = torch.ones(size, dtype=torch.uint8, device="cuda" if has_gpu else "cpu")

    def rate(target: Any, source: Any) -> float:
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            target.copy_(source, non_blocking=True)
            if has_gpu:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        return size / min(seconds) / (1 << 30)

    return {"to the device": rate(device, host), "from the device": rate(host, device)}


_ROOM = threading.Event()  # the node gives some
_ENGINE_WAITS: list[str] = []  # for the saves of a device


def _withhold_room(worker: Any, withhold: bool) -> None:
    """In a rank's process: stores get no answer from the node, as long as it is `withhold`."""
    from cenote._vllm.streams import Streams
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    mine = get_kv_transfer_group()._worker
    _ROOM.clear() if withhold else _ROOM.set()
    if "_reserve" in vars(mine):
        return
    plain, plain_wait = mine._reserve, Streams.engine_waits

    def reserve(reservation: Any) -> None:
        _ROOM.wait(CALL_LIMIT)
        plain(reservation)

    def engine_waits(self: Any, event: Any) -> None:
        if mine._by_layer is None:  # else for a load
            _ENGINE_WAITS.append("for saves")
        plain_wait(self, event)

    mine._reserve = reserve
    Streams.engine_waits = engine_waits  # type: ignore[method-assign]


def _replay(engine: Any, prompts: list[list[int]], arrivals: list[float], clock: str = "wall") -> list[dict[str, Any]]:
    """One token of each prompt, which comes at its arrival (seconds, rising), whatever the engine does then. In their
    order: "seconds" from the arrival to the token, and "cached" as generate() has it. The clock "processor" counts this
    process's own time; where the engine has nothing to do, it goes on to the next arrival at once."""
    from vllm import SamplingParams

    parameters = SamplingParams(max_tokens=1, temperature=0, ignore_eos=True, detokenize=False)
    count = time.process_time if clock == "processor" else time.perf_counter
    answers: dict[str, dict[str, Any]] = {}
    start, arrived = count(), 0
    while len(answers) < len(prompts):
        while arrived < len(prompts) and arrivals[arrived] <= count() - start:
            engine.add_request(str(arrived), {"prompt_token_ids": prompts[arrived]}, parameters)
            arrived += 1
        if not engine.has_unfinished_requests():
            rest = max(0.0, arrivals[arrived] - (count() - start))
            if clock == "processor":
                start -= rest
            else:
                time.sleep(rest)
            continue
        for output in engine.step():
            seconds = count() - start - arrivals[int(output.request_id)]
            answers[output.request_id] = {"seconds": seconds, "cached": output.num_cached_tokens}
    return [answers[str(i)] for i in range(len(prompts))]


def _serve(arguments: dict[str, Any]) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)  # of this file alone: vLLM's threads print, too
    os.dup2(2, 1)
    from vllm import LLM, SamplingParams

    batches: list[Any] = []
    if "kv_events" in arguments:
        arguments["kv_events_config"] = _publish_events(arguments.pop("kv_events"), batches)

    if arguments.pop("draw_weights", False):
        _draw_weights()
    requests: list[Any] = []
    if "kv_transfer_config" in arguments:
        _watch_requests(requests)
    llm = LLM(
        **{
            "dtype": "float32",  # in bfloat16, who shares a batch with whom decides between tokens that are close
            "enforce_eager": True,
            "block_size": 32,
            "kv_cache_memory_bytes": 64 << 20,
            "max_model_len": 2048,
            "disable_log_stats": False,
            **arguments,
        }
    )

    def generate(
        prompts: list[list[int]],
        tokens: int,
        salts: list[str | None] | None = None,
        transfer: list[dict[str, Any]] | None = None,
        logprobs: bool = False,
    ) -> list[Any]:
        asked: list[Any] = [{"prompt_token_ids": each} for each in prompts]
        for each, salt in zip(asked, salts or [], strict=bool(salts)):
            if salt:
                each["cache_salt"] = salt
        parameters = [
            SamplingParams(
                max_tokens=tokens,
                temperature=0,
                ignore_eos=True,
                detokenize=False,
                logprobs=0 if logprobs else None,
                extra_args={"kv_transfer_params": transfer[i]} if transfer else None,
            )
            for i in range(len(asked))
        ]
        began = time.perf_counter()
        answers = llm.generate(asked, parameters, use_tqdm=False)
        took = time.perf_counter() - began
        return [
            {
                "tokens": list(each.outputs[0].token_ids),
                "cached": each.num_cached_tokens,
                "reason": each.outputs[0].finish_reason,
                "seconds": took,
                "transfer": each.kv_transfer_params,
                "logprobs": [next(iter(step.values())).logprob for step in each.outputs[0].logprobs or []],
            }
            for each in answers
        ]

    def metrics() -> dict[str, float]:
        found: dict[str, float] = {}
        for each in llm.get_metrics():
            if hasattr(each, "value"):
                name = each.name.removeprefix("vllm:")
                found[name] = found.get(name, 0) + each.value
                if each.labels.get("source"):
                    found[f"{name}[{each.labels['source']}]"] = each.value
        return found

    def forget() -> bool:
        """The engine's own prefix cache; not the node. Stores keep the blocks of a request that is over until a step
        tells of their end."""
        end = time.monotonic() + 20
        while not llm.reset_prefix_cache():
            if time.monotonic() > end:
                return False
            llm.llm_engine.step()
        return True

    def drain() -> list[int]:
        """The engine steps until it has nothing to do. Blocks of its pool that are free, and that may be."""
        end = time.monotonic() + CALL_LIMIT / 2
        while core().scheduler.has_requests() and time.monotonic() < end:
            llm.llm_engine.step()
        pool = core().scheduler.kv_cache_manager.block_pool
        return [pool.get_num_free_blocks(), pool.num_gpu_blocks - 1]

    def core() -> Any:
        return llm.llm_engine.engine_core.engine_core  # of an engine in this process

    def interrupt(prompt: list[int], tokens: int, running: bool) -> dict[str, Any]:
        """Resets the engine's prefix cache, at once: with `running`, behind a third of the request's tokens, else when
        it is over. "stores": those that kept blocks then."""
        parameters = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)
        llm.llm_engine.add_request("interrupted", {"prompt_token_ids": prompt}, parameters)
        stores, done, reset = 0, [], False
        while llm.llm_engine.has_unfinished_requests() or not reset:
            if llm.llm_engine.has_unfinished_requests():
                outputs = llm.llm_engine.step()
                done = [list(each.outputs[0].token_ids) for each in outputs] or done
            if not reset and len(done[0] if done else []) >= (tokens // 3 if running else tokens):
                stores = len(core().scheduler.connector._scheduler._holds)
                reset = core().reset_prefix_cache(reset_running_requests=running)
                assert reset, "blocks are kept"
        return {"tokens": done[0], "stores": stores}

    def reset() -> bool:
        """Both."""
        return bool(llm.reset_prefix_cache(reset_connector=True))

    def reload(folder: str) -> None:
        """Other weights, in place."""
        llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})

    def push() -> None:
        """Other weights, as trainers push them."""
        llm.collective_rpc(_push)

    def lose(rank: int, seed: int, share: float) -> int:
        """The node of one rank loses some blocks of all prompts so far, at random; how many it had of those."""
        keys = sorted({bytes(key) for each in requests for key in each.block_hashes})
        chance = random.Random(seed)
        lost = [key for key in keys if chance.random() < share]
        return sum(llm.collective_rpc(_lose, args=(rank, lost)))

    def alter_device() -> int:
        """What lies on the ranks' devices of all prompts so far."""
        keys = sorted({bytes(key) for each in requests for key in each.block_hashes})
        return sum(llm.collective_rpc(_alter_device, args=(keys,)))

    calls = {
        "alter_device": alter_device,
        "drain": drain,
        "engine_waits": lambda: len(_ENGINE_WAITS),
        "generate": generate,
        "interrupt": interrupt,
        "link": _link,
        "batches": lambda: len(batches),
        "metrics": metrics,
        "replay": lambda **given: _replay(llm.llm_engine, **given),
        "forget": forget,
        "reset": reset,
        "reload": reload,
        "push": push,
        "lose": lose,
        "refuse_copies": lambda refuses: llm.collective_rpc(_refuse_copies, args=(refuses,)),
        "withhold_room": lambda withhold: llm.collective_rpc(_withhold_room, args=(withhold,)),
    }
    print(json.dumps("ready"), file=answers)
    for line in sys.stdin:
        name, given = json.loads(line)
        print(json.dumps(calls[name](**given)), file=answers)
    llm.llm_engine.engine_core.shutdown()


def _next_engine(orders: socket.socket) -> dict[str, Any]:
    """Imports vLLM and forks for each order; returns in the forks alone, with the order's arguments."""
    inherited = dict(os.environ)  # the import sets variables of its own
    for name in ("vllm.entrypoints.llm", "vllm.v1.engine.llm_engine", "vllm.v1.worker.cpu_worker"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the forks collect what is theirs alone
    running: dict[int, int] = {}  # process numbers by handle
    while True:
        readable = set(select.select([orders.fileno(), *running], [], [])[0])
        for handle in readable & running.keys():
            os.waitpid(running.pop(handle), 0)
            os.close(handle)
        if orders.fileno() in readable:
            order, files, *_ = socket.recv_fds(orders, 1 << 20, 3)
            if not order:
                sys.exit()
            arguments, variables = json.loads(order)
            child = os.fork()
            if child == 0:
                _become_engine(files, [orders.detach(), *running])
                for name in inherited.keys() - variables.keys():
                    os.environ.pop(name, None)
                os.environ.update(variables.items() - inherited.items())
                return dict(arguments)
            for each in files:
                os.close(each)
            running[pidfd := os.pidfd_open(child)] = child
            socket.send_fds(orders, [str(child).encode()], [pidfd])


def _become_engine(files: Iterable[int], unused: Iterable[int]) -> None:
    """`files` become input, output and errors."""
    for number, each in enumerate(files):
        os.dup2(each, number)
        os.close(each)
    for each in unused:
        os.close(each)


if __name__ == "__main__":
    if sys.argv[1] == "--template":
        order = _next_engine(socket.socket(fileno=int(sys.argv[2])))
        exec(order["code"], {"__name__": "__main__"}) if "code" in order else _serve(order)
    else:
        _serve(json.loads(sys.argv[1]))
