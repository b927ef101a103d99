"""Speed, measured: whole training steps against TRL's, and against what the machine can do.

`works` names what is timed, `step` plays two trainers turn about in processes of their own, `ours`
and `theirs` are the two, `counting` is the work that the shapes demand, `roofline` what the machine
gives, and `growth` how a token's cost grows. Nothing else in turnwise knows of this package.
"""
