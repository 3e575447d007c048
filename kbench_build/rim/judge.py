"""A judge asked one prompt: a command that reads it, or an endpoint that speaks OpenAI's API.

Promises: an answer of bounded size within the time limit, or a `JudgeError` that says why there is
none; the command runs without a shell, and all that it started ends with it. The endpoint's key
comes from the environment, and stands in no message. Leaves what is asked, and what an answer
means, to others.
"""

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from threading import Thread
from typing import Any

from kbench_build.errors import KbenchError
from kbench_build.rim.mine_judge import JudgeConfig
from kbench_build.rim.process import ProcessError, run_group

_MOST_BYTES = 1 << 20
_OFTEN_SEC = 0.1


class JudgeError(KbenchError):
    """A prompt that wasn't answered."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a judge wrote, and the model that an endpoint says it was."""

    text: str
    model: str = ""


Judge = Callable[[str], Said]


def judge_of(
    config: JudgeConfig,
    env: Mapping[str, str] = os.environ,
    stop: Callable[[], bool] = lambda: False,
) -> Judge:
    """What asks the configured judge. Raises `KbenchError` where it can't be asked at all.

    Once `stop` says so, answers aren't waited for any more.
    """
    if config.command:
        return lambda prompt: _by_command(config, prompt, stop)
    key = env.get(config.key_env, "").strip() if config.key_env else ""
    if config.key_env and not key:
        raise KbenchError(f"mine.judge.key_env: {config.key_env} isn't set in the environment")
    return _by_endpoint(config, key, stop)


def _by_command(config: JudgeConfig, prompt: str, stop: Callable[[], bool]) -> Said:
    try:
        done = run_group(
            config.command,
            stdin=prompt.encode("utf-8", "replace"),
            timeout=config.timeout_sec,
            most_bytes=_MOST_BYTES,
            stop=stop,
        )
    except ProcessError as error:
        raise JudgeError(" ".join(str(error).split())[:400]) from None
    return Said(text=done.stdout.decode("utf-8", "replace"))


def _by_endpoint(config: JudgeConfig, key: str, stop: Callable[[], bool]) -> Judge:
    try:
        import openai  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        message = "openai isn't installed: pip install 'kbench-build[mine]', or name a command"
        raise KbenchError(f"mine.judge.endpoint: {message}") from error
    client = openai.OpenAI(
        base_url=config.endpoint,
        api_key=key or "none",
        timeout=config.timeout_sec,
        max_retries=2,
    )

    def ask(prompt: str) -> Said:
        try:
            done = _in_time(
                lambda: _completion(client, config.model, prompt), config.timeout_sec, stop
            )
        except openai.APIStatusError as error:
            said = f"{error.status_code}: {_reason(error, key)}"
            raise JudgeError(f"{config.endpoint}: {said}") from None
        except (openai.OpenAIError, ValueError) as error:
            raise JudgeError(f"{config.endpoint}: {_reason(error, key)}") from None
        except Late:
            message = f"didn't answer within {config.timeout_sec:g} s"
            raise JudgeError(f"{config.endpoint}: {message}") from None
        return _said(done, config.endpoint)

    return ask


def _completion(client: Any, model: str, prompt: str) -> Any:
    messages = [{"role": "user", "content": prompt}]
    return client.chat.completions.create(model=model, messages=messages)


def _in_time(ask: Callable[[], Any], seconds: float, stop: Callable[[], bool]) -> Any:
    """What a call returns, or `Late`: a server may send a byte now and then for ever."""
    result: Future[Any] = Future()

    def work() -> None:
        try:
            result.set_result(ask())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            result.set_exception(error)

    Thread(target=work, daemon=True).start()
    until = time.monotonic() + seconds
    while not (result.done() or stop() or time.monotonic() > until):
        wait([result], timeout=_OFTEN_SEC)
    return result.result(timeout=0)


def _said(done: Any, endpoint: str) -> Said:
    try:
        text = done.choices[0].message.content
    except (AttributeError, IndexError, TypeError):
        text = None
    if not isinstance(text, str) or len(text) > _MOST_BYTES:
        raise JudgeError(f"{endpoint}: the answer is no chat completion")
    model = getattr(done, "model", "")
    return Said(text=text, model=model[:200] if isinstance(model, str) else "")


def _reason(error: Exception, key: str) -> str:
    said = str(error).replace(key, "…") if key else str(error)
    return " ".join(said.split())[:200] or type(error).__name__
