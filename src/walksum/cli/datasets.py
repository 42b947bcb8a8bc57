"""walksum datasets."""

from __future__ import annotations

from walksum.cli.console import Debug, Json, Voice, speak


def datasets(as_json: Json = False, debug: Debug = False) -> None:
    """List the datasets that --dataset knows.

    Example: walksum datasets
    """
    voice = Voice(as_json, debug=debug)
    speak(voice, lambda: _datasets(voice))


def _datasets(voice: Voice) -> None:
    from walksum.data.datasets import names

    voice.say("\n".join(names()))
    voice.result({"datasets": names()})
