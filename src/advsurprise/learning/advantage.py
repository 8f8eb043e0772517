"""The only advantage estimator: generalised advantages for roles that take turns."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def turn_gae(
    reward: Float[Array, "T B"],
    value: Float[Array, "T B"],
    final_value: Float[Array, "T B"],
    discount: Float[Array, "T B"],
    cut: Bool[Array, "T B"],
    active: Bool[Array, "T B"],
    last_value: Float[Array, " B"],
    *,
    lam: float,
) -> Float[Array, "T B"]:
    """Advantages of one role on the steps it took (`active`); 0 on all others.

    Steps of other roles are skipped. With t⁺ the role's next step after t in the same episode,

        δ_t = r_t + γ_t V(t⁺) − V_t,        A_t = δ_t + γ_t λ A_{t⁺}.

    If the episode ends first, on any role's step e ≥ t (`cut`), A_{t⁺} = 0 and V(t⁺) is `final_value` of e, or 0 if
    that end is final (discount 0 at e). After the rollout's last step V(t⁺) is `last_value`. `discount` is γ on
    steps with a future and 0 on others; it counts once from t to t⁺, however many steps others took in between.
    With one role that always acts this is Schulman et al. 2016, equation 16.
    """

    def back(carry, step):
        next_value, next_advantage = carry
        r, v, final_v, gamma, is_cut, acts = step
        next_value = jnp.where(is_cut, jnp.where(gamma > 0, final_v, 0.0), next_value)
        next_advantage = jnp.where(is_cut, 0.0, next_advantage)
        advantage = r + gamma * next_value - v + gamma * lam * next_advantage
        carry = (jnp.where(acts, v, next_value), jnp.where(acts, advantage, next_advantage))
        return carry, jnp.where(acts, advantage, 0.0)

    begin = (last_value, jnp.zeros_like(last_value))
    steps = (reward, value, final_value, discount, cut, active)
    # Unrolled: a step costs less than the loop around it.
    return jax.lax.scan(back, begin, steps, reverse=True, unroll=8)[1]
