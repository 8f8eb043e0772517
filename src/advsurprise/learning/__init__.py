"""From a rollout to better policies."""
