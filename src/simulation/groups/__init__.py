"""Consumer groups on simulated clusters: members of every kind come, go, die, stall and lie.

`plan` draws the groups of a run and who is in them, `machines` is where members live and what is
done to them, `own_member`, `classic_member` and `beating_member` are the members: our client, the
classic protocol and KIP-848 by hand. All write down what they ask and are told in one `Chronicle`,
which `judging` holds against what groups promise. `level` plays a seed of the level `groups`.
"""
