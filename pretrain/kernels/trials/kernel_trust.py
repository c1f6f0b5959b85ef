"""Which attention kernels are trusted with which calls, from comparisons and from their memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from pretrain.kernels.attention.choice import (
    AttentionCall,
    AttentionKernel,
    AttentionRules,
)
from pretrain.kernels.trials.attention_calls import cut_call, describe_call
from pretrain.kernels.trials.comparison import Verdict
from pretrain.kernels.trials.trial_memory import TrialMemory, describe_machine

UNTESTED = "was not tested on these shapes"


class KernelCandidate(NamedTuple):
    """A kernel that would compute a call if it were trusted.

    Attributes:
      call: its shapes, cut to a few rows of one device (`cut_call`).
    """

    kernel: AttentionKernel
    call: AttentionCall
    key: dict[str, Any]


class RememberedTrust:
    """Trusts the kernels that the memory trusts, and notes what it does not know.

    Attributes:
      verdicts: {file name of a key: verdict}.
      candidates: {file name of a key: candidate} of all kernels that could compute a call.
      unknown: {description of a call: its candidates without a verdict, the preferred one first}.
      refusals: lines on the kernels that are not trusted with a call, an ordered set.
      is_decided: whether all comparisons are made; then the memory is not read again.
    """

    def __init__(self, memory: TrialMemory, device: Any) -> None:
        """Trust for a device of this process."""
        self.memory, self.machine = memory, describe_machine(device)
        self.verdicts: dict[str, Verdict] = {}
        self.candidates: dict[str, KernelCandidate] = {}
        self.unknown: dict[str, list[KernelCandidate]] = {}
        self.refusals: dict[str, None] = {}
        self.is_decided = False

    def make_key(self, operation: str, shapes: Any) -> dict[str, Any]:
        """Return the key of an operation with shapes on this machine."""
        return {"operation": operation, "shapes": shapes} | self.machine

    def find_verdict(self, key: dict[str, Any]) -> Verdict | None:
        """Return the verdict of a key; None if it is unknown."""
        name = self.memory.find_file(key).stem
        if name not in self.verdicts and not self.is_decided:
            if (verdict := self.memory.read_verdict(key)) is None:
                return None
            self.verdicts[name] = verdict
        return self.verdicts.get(name)

    def note_verdict(self, key: dict[str, Any], verdict: Verdict) -> None:
        """Remember what a comparison has found."""
        self.verdicts[self.memory.find_file(key).stem] = verdict
        self.memory.write_verdict(key, verdict)

    def find_doubt(self, kernel: AttentionKernel, call: AttentionCall, mesh: Mesh) -> str | None:
        """Return why a kernel is not trusted with a call, or None: `AttentionRules.find_doubt`."""
        cut = cut_call(call, mesh)
        shapes = describe_call(cut)
        key = self.make_key(f"attention: {kernel.choice}", shapes)
        candidate = KernelCandidate(kernel, cut, key)
        self.candidates.setdefault(self.memory.find_file(key).stem, candidate)
        verdict = self.find_verdict(key)
        if verdict is None:
            candidates = self.unknown.setdefault(str(shapes), [])
            if all(kernel.choice != known.kernel.choice for known in candidates):
                candidates.append(candidate)
            return UNTESTED
        if verdict.reason:
            self.refusals[f"{kernel.name} {verdict.reason}"] = None
        return verdict.reason or None


def recall_rules(mesh: Mesh) -> AttentionRules:
    """Return the rules for a program that compares nothing itself, such as an evaluation."""
    trust = RememberedTrust(TrialMemory(), find_own_device(mesh))
    return AttentionRules(find_doubt=trust.find_doubt)


def find_own_device(mesh: Mesh) -> Any:
    """Return the first device of this process in a mesh."""
    own = [one for one in mesh.devices.flat if one.process_index == jax.process_index()]
    return own[0] if own else jax.local_devices()[0]
