"""What can be chosen about a run. Derived sizes are properties, never stored."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from advsurprise.errors import UserError


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation, the same for every role and method."""

    lr: float = 3e-4
    """Learning rate of Adam."""
    lr_end_steps: int = 0
    """Environment steps over which the learning rate falls linearly to 0; 0 keeps it constant, however long the run."""
    adam_eps: float = 1e-5
    """Adam's epsilon."""
    epochs: int = 4
    """Passes over each batch."""
    minibatch: int = 256
    """Samples per gradient step."""
    clip: float = 0.2
    """How far the probability ratio may leave 1."""
    value_clip: float = 0.2
    """How far a value may leave the one predicted when collecting; 0 for no limit."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    entropy_coef: float = 0.01
    """Weight of the policy's entropy."""
    max_grad_norm: float = 0.5
    """Largest norm of a gradient step; larger ones are scaled down."""
    gae_lambda: float = 0.95
    """Decay of the advantage estimator."""
    normalise_advantage: bool = False
    """Whether advantages are standardised over each minibatch."""

    def __post_init__(self):
        rules = [
            (self.lr > 0, f"ppo.lr must be positive, not {self.lr}"),
            (self.lr_end_steps >= 0, f"ppo.lr_end_steps must not be negative, not {self.lr_end_steps}"),
            (self.epochs >= 1, f"ppo.epochs must be at least 1, not {self.epochs}"),
            (self.minibatch >= 1, f"ppo.minibatch must be at least 1, not {self.minibatch}"),
            (self.clip > 0, f"ppo.clip must be positive, not {self.clip}"),
            (self.value_clip >= 0, f"ppo.value_clip must not be negative, not {self.value_clip}"),
            (self.max_grad_norm > 0, f"ppo.max_grad_norm must be positive, not {self.max_grad_norm}"),
            (0 <= self.gae_lambda <= 1, f"ppo.gae_lambda must be 0 to 1, not {self.gae_lambda}"),
        ]
        _check(rules)


@dataclass(frozen=True)
class RunConfig:
    """One training run of one method in one world, for one or several seeds."""

    env: str = "rooms/four"
    """The world."""
    env_fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the world that differ from its defaults."""
    method: str = "adversarial-surprise"
    """The method."""
    method_fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the method that differ from its defaults."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """How every role learns."""
    steps: int = 2_000_000
    """Environment steps per seed; rounded down to whole updates."""
    seeds: tuple[int, ...] = (0,)
    """Seeds, trained together."""
    bodies: int = 16
    """Bodies per seed that act at the same time."""
    rollout: int = 512
    """Steps of each body between two updates."""
    save_every: int = 20
    """Updates between two checkpoints."""

    def __post_init__(self):
        rules = [
            (self.bodies >= 1, f"bodies must be at least 1, not {self.bodies}"),
            (self.rollout >= 1, f"rollout must be at least 1, not {self.rollout}"),
            (self.save_every >= 1, f"save_every must be at least 1, not {self.save_every}"),
            (len(self.seeds) >= 1, "at least one seed is needed"),
            (len(set(self.seeds)) == len(self.seeds), f"seeds must differ from each other, not {list(self.seeds)}"),
            (
                self.updates >= 1,
                f"steps must be at least one update's {self.steps_per_update} (bodies x rollout), not {self.steps}",
            ),
        ]
        _check(rules)

    @property
    def steps_per_update(self) -> int:
        """Environment steps between two updates, per seed."""
        return self.bodies * self.rollout

    @property
    def updates(self) -> int:
        """Updates in the whole run."""
        return self.steps // self.steps_per_update

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)


def _check(rules: list[tuple[bool, str]]) -> None:
    for holds, sentence in rules:
        if not holds:
            raise UserError(sentence)
