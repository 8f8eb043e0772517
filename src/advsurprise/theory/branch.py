def branch_and_bound(world, horizon, mass):
    raise NotImplementedError
